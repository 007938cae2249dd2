// The remote pool between workers: what one left there another reuses, with the tokens of a server
// without any cache, whatever becomes of the pool's nodes.
import assert from 'node:assert/strict';
import { before, test } from 'node:test';
import { PartCluster } from './cluster.mjs';
import { Pool, RedisServer } from './pool.mjs';
import { sleep } from './process.mjs';
import { Server } from './server.mjs';

const kLimit = ['--max-model-len', '2048'];
const prompt = (first, length = 900) =>
  Array.from({ length }, (_, i) => 5 + ((first * 131 + i * 7) % 1900));
const kGreedy = { temperature: 0 };
const kSeeded = { temperature: 0.8, seed: 7, top_p: 0.9 };

// Token ids as "token_id:N" in logprobs, so that the next turn can go on with them.
async function ask(surface, tokens, more = kGreedy) {
  const answer = await surface.client().completions.create({ model: 'tiny-qwen3', prompt: tokens,
    max_tokens: 40, ignore_eos: true, logprobs: 1, ...more });
  const { text, logprobs } = answer.choices[0];
  return { text, tokens: logprobs.tokens, logprobs: logprobs.token_logprobs,
    cached: answer.usage.prompt_tokens_details.cached_tokens };
}

const same = (got, expected, what) => {
  assert.equal(got.text, expected.text, what);
  assert.deepEqual(got.tokens, expected.tokens, what);
  assert.deepEqual(got.logprobs, expected.logprobs, what);
};

// A conversation's second turn: the first one's prompt, its answer, and something new.
async function nextTurn(surface, tokens, answer) {
  const response = await surface.post('/tokenize',
    { model: 'tiny-qwen3', prompt: answer.text, add_special_tokens: false });
  return [...tokens, ...(await response.json()).tokens, ...prompt(77, 60)];
}

// What a server without any cache says to both turns of conversation `i`, drawn by `sampling`.
const expected = [];
before(async () => {
  const server = await Server.start(['--no-prefix-caching', ...kLimit]);
  for (let i = 0; i < 4; i++) {
    const sampling = i % 2 === 0 ? kGreedy : kSeeded;
    const first = prompt(i);
    const answer = await ask(server, first, sampling);
    const second = await nextTurn(server, first, answer);
    expected.push({ sampling, first, answer, second, again: await ask(server, second, sampling) });
  }
  await server.stop();
});

// Prompt tokens that workers found, here or elsewhere, since they began. They report now and then.
async function found(cluster) {
  await sleep(700);
  return (await cluster.status()).workers.reduce((sum, w) => sum + w.cached_tokens, 0);
}

// Turn 1 on one worker, turn 2 on the other.
async function twoTurns(pool) {
  const cluster = await PartCluster.start(['replica', 'replica'],
    { args: [...kLimit, ...pool.args], gatewayArgs: [...kLimit, '--policy', 'round-robin'] });
  for (const [i, turn] of expected.entries()) {
    const answer = await ask(cluster, turn.first, turn.sampling);
    same(answer, turn.answer, `turn 1 of ${i}`);
    await pool.holds((i + 1) * 58);
    const before = await found(cluster);
    const again = await ask(cluster, turn.second, turn.sampling);
    same(again, turn.again, `turn 2 of ${i}`);
    const cached = await found(cluster) - before;
    assert.ok(cached >= 896, `${cached} of ${turn.second.length} tokens were found`);
  }
  const before = await found(cluster);
  const salted = await ask(cluster, expected[0].first, { ...kGreedy, cache_salt: 'other' });
  same(salted, expected[0].answer, 'salted');
  assert.equal(await found(cluster), before);
  await cluster.settled();
  await cluster.stop();
}

test('turn 2 on another worker reuses turn 1 through a store', async () => {
  const pool = await Pool.start();
  await twoTurns(pool);
  await pool.stop();
});

test('turn 2 on another worker reuses turn 1 through Redis', async (t) => {
  const redis = await RedisServer.start();
  if (!redis) return t.skip('no redis-server');
  await twoTurns(redis);
  await redis.stop();
});
