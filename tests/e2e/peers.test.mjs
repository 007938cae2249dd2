// Workers that read each other's host memory, without a pool: what a conversation left on one is
// used by another, with the tokens of a server without any cache, whatever becomes of the first.
import assert from 'node:assert/strict';
import { before, test } from 'node:test';
import { PartCluster } from './cluster.mjs';
import { divisi, sleep } from './process.mjs';
import { Server } from './server.mjs';

const kLimit = ['--max-model-len', '2048'];
const kHost = ['--kv-host', '64MiB'];
const kPages = 56;  // Of a first turn's prompt
const prompt = (first, length = 900) =>
  Array.from({ length }, (_, i) => 5 + ((first * 131 + i * 7) % 1900));

async function ask(surface, tokens, more = {}) {
  const answer = await surface.client().completions.create({ model: 'tiny-qwen3', prompt: tokens,
    max_tokens: 16, temperature: 0, ignore_eos: true, logprobs: 1, ...more });
  const { text, logprobs } = answer.choices[0];
  return { text, logprobs: logprobs.token_logprobs };
}

// Two turns of conversation `i`: the second goes on with the first one's prompt.
const turns = (i) => [prompt(i), [...prompt(i), ...prompt(70 + i, 100)]];
const kConversations = 10;
const expected = [];
before(async () => {
  const server = await Server.start(['--no-prefix-caching', ...kLimit]);
  for (let i = 0; i < kConversations; i++) {
    expected.push([await ask(server, turns(i)[0]), await ask(server, turns(i)[1])]);
  }
  await server.stop();
});

const start = (args = [], policy = 'round-robin') =>
  PartCluster.start(['replica', 'replica'],
    { args: [...kLimit, ...kHost, ...args], gatewayArgs: [...kLimit, '--policy', policy] });

// Turn 1, until its worker's host memory has it; that worker.
async function firstTurn(cluster, i) {
  const pages = async () => Object.fromEntries((await cluster.status()).workers
    .filter((w) => w.connected).map((w) => [w.name, w.kv?.pages.host ?? 0]));
  const before = await pages();
  assert.deepEqual(await ask(cluster, turns(i)[0]), expected[i][0], `turn 1 of ${i}`);
  const { worker } = await lastChoice(cluster);
  for (const begun = Date.now(); Date.now() - begun < 20_000; await sleep(50)) {
    if ((await pages())[worker] >= (before[worker] ?? 0) + kPages) return worker;
  }
  throw new Error(`host memory does not have turn 1 of ${i}\n${cluster.log}`);
}

// Bytes that workers read of each other's: once they are `least`, or will not be.
async function peerBytes(cluster, least = 0, limitMs = 20_000) {
  for (const begun = Date.now(); ; await sleep(100)) {
    const text = await (await fetch(`${cluster.url}/metrics`)).text();
    const wanted = /^divisi:kv_tier_read_bytes_total\{.*tier="peer".*\} (\d+)$/gm;
    const bytes = [...text.matchAll(wanted)].reduce((sum, [, value]) => sum + Number(value), 0);
    if (bytes >= least || Date.now() - begun > limitMs) return bytes;
  }
}
// Where no more is to come: workers report twice a second, what their tiers moved as often.
async function peerBytesInAll(cluster) {
  await sleep(1000);
  return peerBytes(cluster);
}

async function lastChoice(cluster) {
  const said = await divisi('explain-route', '--gateway', `127.0.0.1:${cluster.control}`, '--json');
  return JSON.parse(said).routes[0].candidates.find((c) => c.chosen);
}

// Turn 1 on one worker, turn 2 on the next; the choice of the latter.
async function converse(cluster, i) {
  await firstTurn(cluster, i);
  assert.deepEqual(await ask(cluster, turns(i)[1]), expected[i][1], `turn 2 of ${i}`);
  return lastChoice(cluster);
}

test('turn 2 reads from the worker of turn 1', async () => {
  const cluster = await start();
  for (let i = 0; i < 4; i++) {
    const choice = await converse(cluster, i);
    assert.equal(choice.peer_tokens, kPages * 16, JSON.stringify(choice));
    assert.notEqual(choice.peer, choice.worker);
  }
  // A load that takes longer than computing is given up: one of them, on a machine that does more.
  const bytes = 4 * kPages * 24576;
  assert.ok(await peerBytes(cluster, bytes * 3 / 4) >= bytes * 3 / 4);
  assert.ok(await peerBytesInAll(cluster) <= bytes);
  const text = await divisi('explain-route', '--gateway', `127.0.0.1:${cluster.control}`);
  assert.match(text, /896 peer replica-\d/);
  await cluster.settled();
  await cluster.stop();
});

// Nobody says where a request goes: while one worker computes a long prompt the other reads. Of
// conversation `i`; whether one did.
async function isLeftToAnother(cluster, i) {
  const worker = await firstTurn(cluster, i);
  const before = await peerBytesInAll(cluster);
  const long = ask(cluster, [...turns(i)[0], ...prompt(40, 1100)], { max_tokens: 1 });
  await sleep(20);
  const more = ask(cluster, [...turns(i)[0], ...prompt(41, 1100)], { max_tokens: 1 });
  await sleep(20);
  assert.deepEqual(await ask(cluster, turns(i)[1]), expected[i][1]);
  await Promise.all([long, more]);
  const said = await divisi('explain-route', '--gateway', `127.0.0.1:${cluster.control}`,
    '--last', '3', '--json');
  const chosen = JSON.parse(said).routes.map((r) => r.candidates.find((c) => c.chosen));
  const left = chosen.some((c) => c.worker !== worker && c.peer === worker && c.peer_tokens >= 896);
  return left && await peerBytes(cluster, before + 1, 2000) > before;
}

// It is busy for some 100 ms, which a client may miss on a machine that does other things.
test('a busy worker leaves its prefix to another', async () => {
  const cluster = await start([], 'expected-ttft');
  for (let i = 0; !await isLeftToAnother(cluster, i); i++) assert.ok(i < 4, cluster.log);
  await cluster.stop();
});

test('who is not to does not', async () => {
  const cluster = await start(['--kv-peers', 'off']);
  const choice = await converse(cluster, 0);
  assert.equal(choice.peer_tokens, 0);
  assert.equal(choice.peer, null);
  assert.equal(await peerBytesInAll(cluster), 0);
  assert.doesNotMatch(cluster.log, /kv host memory is read/);
  await cluster.stop();
});

// Its pages are named until it is known to be gone; it dies at any moment of the reading.
test('a worker that is killed while it is read from costs time and nothing else', async () => {
  const cluster = await start();
  for (let i = 0; i < kConversations - 2; i++) {
    const worker = await firstTurn(cluster, i);
    const answer = ask(cluster, turns(i)[1]);
    await sleep(3 * i);
    cluster.get(worker).signal('SIGKILL');
    await cluster.get(worker).ended;
    assert.deepEqual(await answer, expected[i][1], `turn 2 of ${i}`);
    cluster.startWorker(worker);
    await cluster.ready(2);
  }
  // Its new life is read from, where it is now.
  let read = 0;
  for (let i = kConversations - 2; i < kConversations; i++) {
    read += (await converse(cluster, i)).peer_tokens;
  }
  assert.ok(read >= kPages * 16, `${read} tokens`);
  await cluster.settled();
  await cluster.stop();
});

test('a worker that hangs while it is read from costs time and nothing else', async () => {
  const cluster = await start();
  await converse(cluster, 0);
  const worker = await firstTurn(cluster, 1);
  cluster.get(worker).signal('SIGSTOP');
  const begun = Date.now();
  assert.deepEqual(await ask(cluster, turns(1)[1]), expected[1][1]);
  assert.ok(Date.now() - begun < 10_000, `${Date.now() - begun} ms`);
  cluster.get(worker).signal('SIGCONT');
  await cluster.ready(2);
  await converse(cluster, 2);
  await cluster.settled();
  await cluster.stop();
});
