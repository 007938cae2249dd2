// Renders tests/templates/*.jinja over random conversations with @huggingface/jinja and with ours
// (chat_template_lines) and compares: node chat_template_oracle.mjs PROGRAM [SEED].
import { spawnSync } from 'node:child_process';
import { readdirSync, readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

import { Template } from '@huggingface/jinja';

// strftime_now of both shows the time that chat_template_lines has.
process.env.TZ = 'UTC';
const RealDate = Date;
globalThis.Date = class extends RealDate {
  constructor(...given) { super(...(given.length > 0 ? given : [1721999109000])); }
};

const program = process.argv[2];
const seed = Number(process.argv[3] ?? 1);
const conversations = 200;

// Where the two may differ, and which is right:
// - Refusals: each has its own words, so only that both refuse is compared.
// - An undefined operand: Jinja2 refuses `undefined + text`; @huggingface/jinja writes "undefined".
//   The drawn conversations may hit it (a message without content); ours must then refuse.
// - Filters of a value that is no text: Jinja2's trim takes any value, as it prints;
//   @huggingface/jinja refuses. It also lacks the filter reject. Such a draw shows nothing.
// - Lists and dictionaries as text: Jinja2 shows Python's repr, @huggingface/jinja JSON; the
//   templates print them through tojson only.
// - lstrip('\n') and rstrip('\n'): Python strips the given characters, @huggingface/jinja all white
//   space. Only thinking.jinja calls them; there, a difference in white space alone is let pass.
// - Numbers: JavaScript has no 1.0, so the draw has no whole floats.

// mulberry32: 32 bits of state are plenty to draw test cases.
let state = seed >>> 0;
function random() {
  state = (state + 0x6d2b79f5) >>> 0;
  let t = state;
  t = Math.imul(t ^ (t >>> 15), t | 1);
  t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
  return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
}
const below = (n) => Math.floor(random() * n);
const pick = (list) => list[below(list.length)];
const chance = (p) => random() < p;

const pieces = ['Hello', ' ', '\n', '\n\n', '"quoted"', "it's", '\\', '\t', 'Grüße', '你好', '🎼',
  '<think>', '</think>', '<tool_response>', '</tool_response>', '{{ x }}', '{% if %}', '<|im_end|>',
  '</s>', '&<>', 'e\u0301', '0', '\u2028'];
const text = () => Array.from({ length: below(7) }, () => pick(pieces)).join('');

function json(depth = 0) {
  const kind = below(depth > 2 ? 5 : 7);
  if (kind === 0) return null;
  if (kind === 1) return chance(0.5);
  if (kind === 2) return below(2000) - 1000;
  if (kind === 3) return below(1000) + 0.5;
  if (kind === 4) return text();
  if (kind === 5) return Array.from({ length: below(4) }, () => json(depth + 1));
  return Object.fromEntries(Array.from({ length: below(4) }, (_, i) => [`k${i}`, json(depth + 1)]));
}

const object = () => ({ [pick(['city', 'count', 'größe'])]: json(1), unit: pick(['m', 'km']) });
const call = () => {
  const f = { name: pick(['find', 'add', 'code_interpreter']), arguments: object() };
  return chance(0.8) ? { type: 'function', function: f } : f;
};

function message(role) {
  const m = { role, content: text() };
  if (role === 'assistant' && chance(0.3)) {
    m.tool_calls = Array.from({ length: 1 + below(2) }, call);
  }
  if (role === 'assistant' && chance(0.2)) m.reasoning_content = text();
  if (chance(0.1)) m.content = Array.from({ length: below(3) }, () =>
    (chance(0.8) ? { type: 'text', text: text() } : { type: 'image' }));
  return m;
}

function variables() {
  const messages = [];
  if (chance(0.5)) messages.push(message('system'));
  for (let i = 1 + below(5); i > 0; --i) {
    messages.push(message(pick(['user', 'user', 'assistant', 'tool'])));
  }
  const v = { messages, add_generation_prompt: chance(0.5), bos_token: '<s>', eos_token: '</s>' };
  if (chance(0.4)) {
    v.tools = Array.from({ length: 1 + below(2) }, () => ({
      type: 'function',
      function: { name: pick(['find', 'add']), description: text(), parameters: json(0) },
    }));
  } else if (chance(0.5)) {
    v.tools = null;
  }
  if (chance(0.3)) v.enable_thinking = chance(0.5);
  if (chance(0.2)) v.builtin_tools = ['find', 'code_interpreter'];
  if (chance(0.3)) v.tools_in_user_message = chance(0.5);
  return v;
}

const folder = join(dirname(fileURLToPath(import.meta.url)), '..', 'templates');
const jobs = [];
for (const name of readdirSync(folder).sort()) {
  const template = readFileSync(join(folder, name), 'utf8');
  const parsed = new Template(template);
  for (let i = 0; i < conversations; ++i) {
    const v = variables();
    let theirs;
    try {
      theirs = { text: parsed.render(structuredClone(v)) };
    } catch (error) {
      theirs = { error: error.message };
    }
    jobs.push({ name, template, variables: v, theirs });
  }
}

const run = spawnSync(program, {
  input: jobs.map((j) => `${JSON.stringify({ template: j.template, variables: j.variables })}\n`)
    .join(''),
  encoding: 'utf8',
  maxBuffer: 1 << 28,
});
if (run.status !== 0) throw new Error(`${program}: ${run.error ?? run.stderr}`);
const lines = run.stdout.trimEnd().split('\n');
if (lines.length !== jobs.length) throw new Error(`${lines.length} answers to ${jobs.length} lines`);

const packed = (text) => text?.replace(/\s+/gu, '');
let same = 0, spaced = 0, refused = 0, wrong = 0;
for (const [i, job] of jobs.entries()) {
  const ours = JSON.parse(lines[i]);
  if (ours.text !== undefined && ours.text === job.theirs.text) {
    ++same;
  } else if (job.name === 'thinking.jinja' && ours.text !== undefined &&
             packed(ours.text) === packed(job.theirs.text)) {
    ++spaced;
  } else if (/^Unknown \w+ filter: (trim|reject)$/.test(job.theirs.error ?? '')) {
    ++refused;
  } else if (ours.error !== undefined && ours.code === 'invalid_argument') {
    ++refused;  // Jinja2's rule for undefined; or both refuse.
  } else if (++wrong <= 5) {
    console.error(JSON.stringify({ seed, template: job.name, variables: job.variables,
      theirs: job.theirs, ours }, null, 1));
  }
}
console.log(`seed ${seed}: ${same} equal, ${spaced} but for white space, ${refused} refused, ` +
  `${wrong} different`);
// A test in which nearly all are let pass would show nothing.
process.exit(wrong > 0 || same < jobs.length / 2 || spaced > jobs.length / 20 ? 1 : 0);
