// Many requests on 2P+2D against one server: lengths around the edges of pages and chunks, shared
// prefixes, greedy and seeded sampling, clients that leave midway. No token differs.
// DIVISI_SOAK=1 makes it 5,000 requests; DIVISI_SEED draws others.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { UpCluster } from './cluster.mjs';
import { sleep, soak } from './process.mjs';
import { Server } from './server.mjs';

const kRequests = soak ? 5000 : 400;
const kAtOnce = 24;
const kSeed = Number(process.env.DIVISI_SEED ?? 1);
const kPage = 16;
const kChunk = 72;  // No multiple of a page: pages are finished by later chunks.
const kWorkerArgs = ['--max-num-batched-tokens', kChunk, '--max-num-seqs', 12];

// Numbers below 2^32 from a seed. Source: Steele et al., "Fast splittable pseudorandom number
// generators", 2014, with 32-bit constants of Mueller's hash.
function randomFrom(seed) {
  let state = seed >>> 0;
  return (below) => {
    state = (state + 0x9e3779b9) >>> 0;
    let x = state;
    x = Math.imul(x ^ (x >>> 16), 0x45d9f3b);
    x = Math.imul(x ^ (x >>> 16), 0x45d9f3b);
    return ((x ^ (x >>> 16)) >>> 0) % below;
  };
}

function length(random) {
  const near = (unit, most) => Math.max(1, unit * (1 + random(most)) + random(3) - 1);
  return [() => near(kPage, 12), () => near(kChunk, 4), () => 1 + random(40), () => 1 + random(400)][
    random(4)]();
}

// One of a few openings, cut anywhere, then tokens of its own.
function prompt(random) {
  const tokens = length(random);
  const opening = random(6);
  const shared = random(3) === 0 ? 0 : random(tokens + 1);
  return Array.from({ length: tokens },
    (_, i) => 256 + (i < shared ? (i * 31 + opening * 101) % 1700 : random(1700)));
}

function sampling(random) {
  return [
    () => ({ temperature: 0 }),
    () => ({ temperature: 1, seed: random(1 << 20) }),
    () => ({ temperature: 0.8, seed: random(1 << 20), top_p: 0.9, top_k: 40 }),
    () => ({ temperature: 1, seed: random(1 << 20), repetition_penalty: 1.2, presence_penalty: 0.5 }),
  ][random(4)]();
}

function requests(random) {
  return Array.from({ length: kRequests }, () => {
    const body = { model: 'tiny-qwen3', prompt: prompt(random), ...sampling(random),
      max_tokens: random(5) === 0 ? 1 : 2 + random(20), ignore_eos: random(3) > 0 };
    if (random(4) === 0) body.logprobs = 1 + random(3);
    if (random(12) === 0) body.n = 2;
    if (random(12) === 0) body.echo = true;
    // Of the client's own doing: it leaves after so many pieces, or milliseconds.
    const leaves = random(6) === 0 ? { pieces: random(6), milliseconds: random(60) } : undefined;
    return { body, leaves };
  });
}

const said = (answer) => ({
  choices: answer.choices.map(({ index, text, finish_reason, logprobs }) =>
    ({ index, text, finish_reason, logprobs })),
  usage: [answer.usage.prompt_tokens, answer.usage.completion_tokens],
});

// The texts that came before the client left; null when the request had ended by then.
async function leave(client, body, { pieces, milliseconds }) {
  const leaving = new AbortController();
  const timer = setTimeout(() => leaving.abort(), milliseconds);
  const texts = [];
  let count = 0;
  try {
    const stream = await client.completions.create({ ...body, stream: true },
      { signal: leaving.signal });
    for await (const chunk of stream) {
      for (const { index, text } of chunk.choices) texts[index] = (texts[index] ?? '') + text;
      if (++count >= pieces) leaving.abort();
    }
  } catch (error) {
    if (!leaving.signal.aborted) throw error;
  }
  clearTimeout(timer);
  return texts;
}

// run(request, index) of all, so many at once.
async function all(list, run) {
  let next = 0;
  await Promise.all(Array.from({ length: kAtOnce }, async () => {
    while (next < list.length) {
      const index = next++;
      await run(list[index], index);
    }
  }));
}

let cluster, server;
before(async () => {
  [cluster, server] = await Promise.all([
    UpCluster.start(['prefill', 'prefill', 'decode', 'decode'], { args: kWorkerArgs }),
    Server.start(),
  ]);
});
after(() => Promise.all([cluster?.stop(), server?.stop()]));

test(`${kRequests} requests on 2P+2D, seed ${kSeed}`, { timeout: soak ? 800_000 : 100_000 },
  async () => {
    const list = requests(randomFrom(kSeed));
    const begun = Date.now();
    const expected = [];
    await all(list, async ({ body }, i) => {
      expected[i] = said(await server.client().completions.create(body));
    });
    const alone = Date.now() - begun;
    let left = 0;
    await all(list, async ({ body, leaves }, i) => {
      const client = cluster.client();
      const where = `request ${i} of seed ${kSeed}: ${JSON.stringify(body)}`;
      if (leaves) {
        const texts = await leave(client, body, leaves);
        texts.forEach((text, index) => {
          assert.ok(expected[i].choices[index].text.startsWith(text), `${where}: ${text}`);
        });
        ++left;
      } else {
        assert.deepEqual(said(await client.completions.create(body)), expected[i], where);
      }
    });
    const status = await cluster.settled();
    assert.ok(left > kRequests / 10);
    const sum = (role, key) => status.workers.filter((w) => w.role === role)
      .reduce((total, w) => total + w[key], 0);
    // Each role did its part and no other, and nothing had to wait for a lease to end.
    assert.equal(sum('prefill', 'decode_tokens'), 0);
    assert.ok(sum('prefill', 'handovers') > kRequests / 3);
    assert.ok(sum('decode', 'decode_tokens') > kRequests);
    assert.equal(sum('prefill', 'expired_leases') + sum('decode', 'expired_leases'), 0);
    console.log(`## compare: ${kRequests} requests, ${left} left midway; one server ${alone} ms, ` +
      `2P+2D ${Date.now() - begun - alone} ms; ${sum('prefill', 'pages_written')} pages moved`);
  });

test('idle longer than every lease, then the same tokens', { timeout: 60_000 }, async () => {
  const body = { model: 'tiny-qwen3', prompt: Array.from({ length: 100 }, (_, i) => 300 + i),
    max_tokens: 16, temperature: 0 };
  const expected = said(await server.client().completions.create(body));
  const before = await cluster.settled();
  await sleep(soak ? 25_000 : 11_000);  // A lease is ten seconds.
  assert.deepEqual(said(await cluster.client().completions.create(body)), expected);
  const now = await cluster.settled();
  assert.deepEqual(now.workers.map((w) => w.expired_leases),
    before.workers.map((w) => w.expired_leases));
});
