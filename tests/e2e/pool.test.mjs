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

// Prompt tokens that workers found, here or elsewhere, since they began.
const found = async (cluster) => (await cluster.prompts()).found;

// A load that takes longer than computing is given up, and who is late is not asked: a machine that
// does other things may see to that. Of `count` conversations so many, then, find all of their
// prefix.
const most = (count) => count - 1;

// Turn 1 on one worker, turn 2 on the other.
async function twoTurns(pool) {
  const cluster = await PartCluster.start(['replica', 'replica'],
    { args: [...kLimit, ...pool.args], gatewayArgs: [...kLimit, '--policy', 'round-robin'] });
  const cached = [];
  for (const [i, turn] of expected.entries()) {
    const answer = await ask(cluster, turn.first, turn.sampling);
    same(answer, turn.answer, `turn 1 of ${i}`);
    await pool.holds((i + 1) * 58);
    const before = await found(cluster);
    const again = await ask(cluster, turn.second, turn.sampling);
    same(again, turn.again, `turn 2 of ${i}`);
    cached.push(await found(cluster) - before);
  }
  assert.ok(cached.filter((c) => c >= 896).length >= most(4), `${cached} tokens were found`);
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

// What D makes is put too: the next turn's prompt is found on P.
test('the next turn starts on P with what D generated', async () => {
  const forced = { ...kGreedy, logit_bias: { 77: 100 }, max_tokens: 200 };
  const turns = [1, 2, 3].map((i) => {
    const first = prompt(5 * i, 100);
    return { first, second: [...first, ...Array(200).fill(77), ...prompt(6, 20)] };
  });
  const alone = await Server.start(['--no-prefix-caching', ...kLimit]);
  for (const turn of turns) {
    turn.answers = [await ask(alone, turn.first, forced), await ask(alone, turn.second)];
  }
  await alone.stop();
  const pool = await Pool.start();
  const cluster = await PartCluster.start(['prefill', 'decode'],
    { args: [...kLimit, ...pool.args], gatewayArgs: kLimit });
  const cached = async () => {
    await cluster.prompts();
    return (await cluster.status()).workers.find((w) => w.role === 'prefill').cached_tokens;
  };
  const gained = [];
  for (const { first, second, answers } of turns) {
    const before = await cached();
    const held = await pool.holds(0);
    same(await ask(cluster, first, forced), answers[0], 'turn 1');
    await pool.holds(held + 18);  // Of 299 tokens whose K and V were computed.
    assert.equal(await cached(), before);
    same(await ask(cluster, second), answers[1], 'turn 2');
    await pool.holds(held + 22);  // Nothing of it is left for the next one to count.
    gained.push(await cached() - before);
  }
  assert.ok(gained.filter((tokens) => tokens === 288).length >= most(3), `${gained} tokens`);
  await cluster.settled();
  await cluster.stop();
  await pool.stop();
});

// Until so many workers have a connection to the pool's node: one that is not within reach yet is
// not asked.
async function reachPool(cluster, workers) {
  for (let i = 0; i < 1000; i++) {
    const text = await (await fetch(`${cluster.url}/metrics`)).text();
    const ready = text.matchAll(/^divisi:kv_pool_connections\{.*state="ready".*\} (\d+)$/gm);
    if ([...ready].reduce((sum, [, count]) => sum + Number(count), 0) >= workers) return;
    await sleep(20);
  }
  assert.fail('the pool does not come within reach');
}

// P's pages go to the pool as well as to D: another life of D begins with them where it runs a
// request itself, one too short to be handed over. A hand-over takes none of them.
test('a decode worker that starts goes on with what P put', async () => {
  const first = prompt(8);
  const second = [...first.slice(0, 400), ...prompt(9, 40)];
  const alone = await Server.start(['--no-prefix-caching', ...kLimit]);
  const answers = [await ask(alone, first), await ask(alone, second)];
  await alone.stop();
  const pool = await Pool.start();
  const cluster = await PartCluster.start(['prefill', 'decode'],
    { args: [...kLimit, ...pool.args], gatewayArgs: [...kLimit, '--disaggregate-from', '600'] });
  await reachPool(cluster, 2);
  same(await ask(cluster, first), answers[0], 'turn 1');
  await pool.holds(58);
  cluster.get('decode-2').signal('SIGKILL');
  await cluster.get('decode-2').ended;
  while ((await cluster.status()).workers.some((w) => w.role === 'decode' && w.connected)) {
    await sleep(50);
  }
  cluster.startWorker('decode-2');
  await cluster.ready(2);
  await reachPool(cluster, 2);
  // D, once it has reported what `is` says; as it is then, or after a while.
  const decode = async (is) => {
    for (let i = 0; ; i++) {
      const { workers } = await cluster.status();
      const worker = workers.find((w) => w.role === 'decode' && w.connected);
      if (i === 200 || is(worker)) return worker;
      await sleep(100);
    }
  };
  same(await ask(cluster, second), answers[1], 'a short one');
  const own = await decode((worker) => worker.kv_pages_used > 0);
  assert.deepEqual([own.kv_pages_read, own.kv_pages_used, own.cached_tokens], [25, 25, 400]);
  assert.equal(own.pages_received, 0);
  // All that D's own pages lack is written by P, though the pool has it.
  same(await ask(cluster, first), answers[0], 'turn 1 again');
  const both = await decode((worker) => worker.pages_received > 0);
  assert.deepEqual([both.kv_pages_read, both.pages_received], [25, 57 - 25]);
  await cluster.settled();
  await cluster.stop();
  await pool.stop();
});

// A server of the pool alone, with what the expected one said.
async function serverOf(pool, more = []) {
  const server = await Server.start([...kLimit, '--kv-memory', '4MiB', ...pool.args, ...more]);
  // A pool that is not within reach yet is not asked.
  for (let i = 0; i < 1000; i++) {
    if ((await server.metrics())['divisi:kv_pool_node_ready'] >= 1) return server;
    await sleep(20);
  }
  assert.fail('the pool does not come within reach');
}
async function asExpected(server, i) {
  const { first, sampling, answer } = expected[i];
  const got = await ask(server, first, sampling);
  same(got, answer, `conversation ${i}`);
  return got.cached;
}
// Each once, by what the pool has: the tokens found.
async function allAsExpected(server, count) {
  const cached = [];
  for (let i = 0; i < count; i++) cached.push(await asExpected(server, i));
  assert.ok(cached.filter((c) => c === 896).length >= most(count), `${cached} tokens were found`);
  return cached.reduce((sum, c) => sum + c, 0);
}

test('a restarted server goes on with what the pool has', async () => {
  const pool = await Pool.start();
  const args = ['--kv-host', '64MiB'];
  const before = await serverOf(pool, args);
  for (let i = 0; i < 4; i++) await asExpected(before, i);
  await pool.holds(4 * 56);
  before.process.signal('SIGKILL');
  await before.process.ended;
  const server = await serverOf(pool, args);
  const cached = await allAsExpected(server, 4);
  const metrics = await server.metrics();
  assert.equal(16 * metrics['divisi:kv_pages_used_total'], cached);
  assert.ok(16 * metrics['divisi:kv_pages_read_total'] >= cached);
  assert.equal(metrics['divisi:kv_pool_node_ready'], 1);
  assert.equal(metrics['divisi:kv_pool_bad_pages_total'], 0);
  assert.ok(16 * metrics['divisi:kv_pool_gets_total'] >= cached);
  await pool.kill(0);  // Said while nothing runs, too.
  for (let i = 0; (await server.metrics())['divisi:kv_pool_node_ready'] !== 0; i++) {
    assert.ok(i < 100);
    await sleep(100);
  }
  for (let i = 0; await asExpected(server, 3) !== 896; i++) assert.ok(i < 20);  // From host memory
  await server.stop();
});

test('with two copies either node can go', async () => {
  for (const gone of [0, 1]) {
    const pool = await Pool.start(2);
    const copies = ['--kv-pool-copies', '2'];
    const before = await serverOf(pool, copies);
    for (let i = 0; i < 3; i++) await asExpected(before, i);
    await pool.holds(2 * 3 * 56);
    await before.stop();
    await pool.kill(gone);
    const server = await serverOf(pool, copies);
    await allAsExpected(server, 3);
    assert.equal((await server.metrics())['divisi:kv_pool_node_ready'], 1);
    await server.stop();
    await pool.stop();
  }
});

// More than the pool holds, and nothing but it.
test('a full pool gives up what was used longest ago, or refuses', async (t) => {
  const store = await Pool.start(1, { memory: '2MiB' });  // Some 70 pages of 28 KiB
  const server = await serverOf(store);
  for (let round = 0; round < 2; round++) {
    for (let i = 0; i < 4; i++) await asExpected(server, i);
  }
  await store.holds(60);
  assert.ok((await store.status()).divisi_store_evictions_total > 0);
  await server.stop();
  await store.stop();
  const redis = await RedisServer.start(['--maxmemory', '3mb', '--maxmemory-policy', 'noeviction']);
  if (!redis) return t.skip('no redis-server');
  const other = await serverOf(redis);
  for (let round = 0; round < 2; round++) {
    for (let i = 0; i < 4; i++) await asExpected(other, i);
  }
  await other.stop();
  await redis.stop();
});

// A node that stands still: requests go on without it, and with it once it moves again.
test('a pool that hangs costs time and nothing else', async () => {
  const pool = await Pool.start();
  const server = await serverOf(pool);
  for (let i = 0; i < 4; i++) await asExpected(server, i);
  await pool.holds(4 * 56);
  pool.nodes[0].signal('SIGSTOP');
  const begun = Date.now();
  for (let i = 0; i < 4; i++) await asExpected(server, i);
  assert.ok(Date.now() - begun < 20_000, `${Date.now() - begun} ms`);
  pool.nodes[0].signal('SIGCONT');
  for (const begunAgain = Date.now(); ; await sleep(200)) {
    let cached = 0;
    for (let i = 0; i < 4; i++) cached += await asExpected(server, i);
    if (cached >= 3 * 896) break;
    assert.ok(Date.now() - begunAgain < 30_000, `${cached} tokens found`);
  }
  await server.idle();
  await server.stop();
  await pool.stop();
});

test('nodes killed during puts and gets cost nothing but time', async () => {
  const pool = await Pool.start(2);
  const cluster = await PartCluster.start(['replica', 'replica'],
    { args: [...kLimit, ...pool.args], kvMemory: '4MiB',
      gatewayArgs: [...kLimit, '--policy', 'round-robin'] });
  let ended = 0;
  let stop = false;
  const clients = expected.map(async (turn, i) => {
    for (let round = 0; !stop; round++) {
      const [tokens, answer] = round % 2 === 0 ? [turn.first, turn.answer] : [turn.second, turn.again];
      same(await ask(cluster, tokens, turn.sampling), answer, `conversation ${i}, round ${round}`);
      ended++;
    }
  });
  const faults = (async () => {
    for (let round = 0; round < 6; round++) {
      await sleep(500 + 300 * (round % 3));
      await pool.kill(round % 2);
      await sleep(300);
      await pool.startNode(round % 2);
    }
    stop = true;
  })();
  await Promise.all([...clients, faults]);
  assert.ok(ended > 8, `${ended} requests ended`);
  await cluster.settled();
  const metrics = await cluster.idle();
  const of = (name) => metrics[`divisi:${name}`];
  assert.ok(of('kv_pages_read_total') > 0 && of('kv_pool_puts_total') > 0);
  assert.ok(of('kv_pages_used_total') <= of('kv_pages_read_total'));
  // Pages of 24 KiB, whole ones: nothing else is read.
  assert.equal(of('kv_tier_read_bytes_total') % 24576, 0);
  assert.ok(of('kv_tier_read_bytes_total') >= 24576 * of('kv_pages_read_total'));
  assert.ok(of('kv_tier_written_bytes_total') >= 24576 * of('kv_pool_puts_total'));
  assert.ok(of('kv_pool_failures_total') >= 6);
  await cluster.stop();
  await pool.stop();
});
