// Compares Divisi's tokenizer with the npm package @huggingface/tokenizers on random texts:
//   node tokenizer_oracle.mjs TOKENIZE_LINES [SEED [TEXTS]]
// for the repository's own tokenizer and for files of the Llama 3 and GPT-2 kinds made from it.
import { spawnSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync, mkdirSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Tokenizer } from '@huggingface/tokenizers';

const [binary, seedText, countText] = process.argv.slice(2);
const seed = Number(seedText ?? Date.now() % 1_000_000);
const count = Number(countText ?? 3000);
console.log(`seed ${seed}: rerun with  tokenizer_oracle.mjs TOKENIZE_LINES ${seed} ${count}`);

// mulberry32, public domain, by Tommy Ettinger.
let state = seed >>> 0;
function random() {
  state = (state + 0x6d2b79f5) | 0;
  let t = Math.imul(state ^ (state >>> 15), 1 | state);
  t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
  return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
}
const between = (low, high) => low + Math.floor(random() * (high - low + 1));
const pick = (list) => list[between(0, list.length - 1)];

// Blocks of all planes in which Unicode 15 to 17 add no letter, number or mark: which versions
// Node.js and Debian's libraries know depends on their age.
const BLOCKS = [[0, 0x860], [0x900, 0xbff], [0xd00, 0x1aaf], [0x1b00, 0x1c7f], [0x1e00, 0xa6ff],
  [0xa800, 0xd7ff], [0xe000, 0xffff], [0x10000, 0x100ff], [0x12000, 0x123ff], [0x1d400, 0x1d7ff],
  [0x1f300, 0x1f5ff], [0x20000, 0x2a6df], [0xe0000, 0xe01ef], [0xf0000, 0x10ffff]];
// Where the package departs from the Rust library and from us: its ByteLevel and its stripping take
// JavaScript's \s and trim, which have U+FEFF for U+0085; its (?i:'s) knows ASCII's cases alone, and
// not that of U+017F, the long s.
const DEPARTURES = new Set([0x85, 0x17f, 0xfeff]);
function codePoint([low, high]) {
  for (;;) {
    const c = between(low, high);
    if (!DEPARTURES.has(c)) return String.fromCodePoint(c);
  }
}

const many = (make, most) => Array.from({ length: between(1, most) }, make).join('');
const word = () => pick(['the', 'king', 'Once', 'upon', 'HELLO', 'straße', 'naïve', 'xyzzy', 'cat']);
const kinds = [
  () => word(),
  () => ' ' + word(),
  () => many(() => codePoint([0, 0x7f]), 8),
  () => many(() => codePoint([0x80, 0x24f]), 6),
  () => many(() => codePoint(pick(BLOCKS)), 6),
  () => 'e' + many(() => String.fromCodePoint(between(0x300, 0x36f)), 4),
  () => many(() => String.fromCodePoint(between(0x1100, 0x11ff)), 3),  // Hangul parts compose.
  () => many(() => pick([' ', ' ', '\t', '\n', '\r\n', '\u00a0', '\u3000', '\u2028', '\u180e']), 6),
  () => pick(["'s", "'T", "'re", "'VE", "'m", "'ll", "'D", "'x", "’s"]),
  () => many(() => pick('0123456789٣½Ⅷ𝟗'.match(/./gu)), 7),
  () => many(() => pick('!?.,;:-_/\\|@#$%^&*()[]{}<>~`"\''.split('')), 5),
  () => pick(['😀', '👨‍👩‍👧', '🇩🇪', '👍🏽', '❤️']),
  () => many(() => String.fromCodePoint(between(0x4e00, 0x9fff)), 6),
  () => pick(['<|endoftext|>', '<|im_start|>', '<|im_end|>', '<|im_', '|>', '<|', '<tool>',
    '<left>', '<right>', '<|im_end|><|im_start|>']),
];
function text() {
  return Array.from({ length: between(0, 12) }, () => pick(kinds)()).join('');
}

const base = JSON.parse(readFileSync(new URL('../../models/tiny-qwen3/tokenizer.json', import.meta.url)));
const added = (id, content, more) => ({
  id, content, single_word: false, lstrip: false, rstrip: false, normalized: false, special: false,
  ...more,
});
const moreTokens = [
  added(2048, '<tool>', { normalized: true }),
  added(2049, '<left>', { lstrip: true }),
  added(2050, '<right>', { rstrip: true, special: true }),
];
const byteLevel = (more) => ({
  type: 'ByteLevel', add_prefix_space: false, trim_offsets: true, use_regex: true, ...more,
});
const llamaPattern = "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}|" +
  ' ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+';
const bos = '<|endoftext|>';

const fixtures = {
  'tiny-qwen3': base,
  'llama3-like': {
    ...base,
    normalizer: null,
    pre_tokenizer: {
      type: 'Sequence',
      pretokenizers: [
        { type: 'Split', pattern: { Regex: llamaPattern }, behavior: 'Isolated', invert: false },
        byteLevel({ use_regex: false }),
      ],
    },
    post_processor: {
      type: 'Sequence',
      processors: [byteLevel(), {
        type: 'TemplateProcessing',
        single: [{ SpecialToken: { id: bos, type_id: 0 } }, { Sequence: { id: 'A', type_id: 0 } }],
        pair: [],
        special_tokens: { [bos]: { id: bos, ids: [2045], tokens: [bos] } },
      }],
    },
    model: {
      ...base.model,
      ignore_merges: true,
      // Without every third of the later merges, so that whole pieces are not reached by merging.
      merges: base.model.merges.filter((_, i) => i < 600 || i % 3).map((m) => m.split(' ')),
    },
  },
  'gpt2-like': {
    ...base,
    normalizer: null,
    added_tokens: [...base.added_tokens, ...moreTokens],
    pre_tokenizer: byteLevel(),
    post_processor: byteLevel({ trim_offsets: false }),
  },
  'gpt2-like with a prefix space and NFC': {
    ...base,
    added_tokens: [...base.added_tokens, ...moreTokens],
    pre_tokenizer: byteLevel({ add_prefix_space: true }),
  },
  'splits in sequence': {  // The kind of DeepSeek's files.
    ...base,
    normalizer: { type: 'Sequence', normalizers: [] },
    pre_tokenizer: {
      type: 'Sequence',
      pretokenizers: [
        { type: 'Split', pattern: { Regex: '\\p{N}{1,3}' }, behavior: 'Isolated', invert: false },
        { type: 'Split', pattern: { Regex: '[一-龥]+' }, behavior: 'Isolated', invert: false },
        {
          type: 'Split', behavior: 'Isolated', invert: false,
          pattern: { Regex: '[!"#$%&\'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|' +
            "[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\\r\\n]*|" +
            '\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+' },
        },
        byteLevel({ use_regex: false }),
      ],
    },
  },
};

// What the package makes of `request`, in the form that tokenize_lines answers.
function expected(tokenizer, request) {
  const { ids } = tokenizer.encode(request.text, { add_special_tokens: request.add_special_tokens });
  const decode = (skip_special_tokens) => ids.length === 0 ? '' :
    tokenizer.decode(ids, { skip_special_tokens, clean_up_tokenization_spaces: false });
  return { ids, decoded: decode(false), decoded_without_special: decode(true) };
}

function compare(name, file, directory) {
  mkdirSync(directory);
  writeFileSync(join(directory, 'tokenizer.json'), JSON.stringify(file));
  const requests = Array.from({ length: count }, () => (
    { text: text(), add_special_tokens: random() < 0.5 }));
  const run = spawnSync(binary, [directory], {
    input: requests.map((request) => JSON.stringify(request) + '\n').join(''),
    maxBuffer: 1 << 28,
    encoding: 'utf8',
  });
  if (run.status !== 0) throw new Error(`${name}: ${binary} ended with ${run.status}: ${run.stderr}`);
  const replies = run.stdout.split('\n').slice(0, -1);
  if (replies.length !== count) throw new Error(`${name}: ${replies.length} replies for ${count}`);
  const tokenizer = new Tokenizer(file, {});
  let wrong = 0;
  let ids = 0;
  for (const [i, request] of requests.entries()) {
    const want = expected(tokenizer, request);
    ids += want.ids.length;
    if (JSON.stringify(want) === JSON.stringify(JSON.parse(replies[i]))) continue;
    if (++wrong <= 5) {
      console.log(`${name}: ${JSON.stringify(request)}\n  package ${JSON.stringify(want)}` +
        `\n  Divisi  ${replies[i]}`);
    }
  }
  console.log(`${name}: ${count} texts, ${ids} ids, ${wrong} different`);
  return wrong;
}

const scratch = mkdtempSync(join(tmpdir(), 'divisi-tokenizer-'));
let wrong = 0;
try {
  Object.entries(fixtures).forEach(([name, file], i) => {
    wrong += compare(name, file, join(scratch, String(i)));
  });
} finally {
  rmSync(scratch, { recursive: true });
}
process.exit(wrong === 0 ? 0 : 1);
