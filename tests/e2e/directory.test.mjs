// What workers and stores hold, as a gateway hears it by their KV events: shown by its status, used
// by its routes, and true again whatever ends, hangs or is missed on the way.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { PartCluster, UpCluster } from './cluster.mjs';
import { divisi, freePort, Process, sleep } from './process.mjs';
import { Server } from './server.mjs';

const kLimit = ['--max-model-len', '2048'];
const kPages = 56;  // Of a prompt
const prompt = (first, length = 900) =>
  Array.from({ length }, (_, i) => 5 + ((first * 131 + i * 7) % 1900));

const ask = (surface, tokens) => surface.client().completions.create({ model: 'tiny-qwen3',
  prompt: tokens, max_tokens: 8, temperature: 0, ignore_eos: true });

// Until what the status says is so; that status.
async function until(cluster, what, is, limitMs = 20_000) {
  let status;
  for (const begun = Date.now(); Date.now() - begun < limitMs; await sleep(50)) {
    status = await cluster.status();
    if (is(status)) return status;
  }
  throw new Error(`${what}: not in ${limitMs} ms: ${JSON.stringify(status)}\n${cluster.log}`);
}

const devicePages = (status) =>
  status.workers.reduce((sum, worker) => sum + (worker.kv?.pages.device ?? 0), 0);
const holders = (status) => status.workers.filter((worker) => worker.kv?.pages.device > 0);

test('the next turn goes where the last one left its pages', async () => {
  const cluster = await PartCluster.start(['replica', 'replica'],
    { args: kLimit, gatewayArgs: kLimit });
  await ask(cluster, prompt(0));
  const one = await until(cluster, 'pages of one prompt', (s) => devicePages(s) >= kPages);
  assert.equal(holders(one).length, 1);
  for (let i = 1; i < 6; i++) await ask(cluster, prompt(i));
  await until(cluster, 'pages of six', (s) => devicePages(s) >= 6 * kPages);
  const before = await cluster.prompts();
  for (let i = 0; i < 6; i++) await ask(cluster, [...prompt(i), ...prompt(90 + i, 100)]);
  assert.equal((await cluster.prompts()).found - before.found, 6 * kPages * 16);
  const metrics = await cluster.metrics();
  assert.ok(metrics['divisi:directory_pages'] >= 6 * kPages);
  assert.ok(metrics['divisi:directory_worker_pages'] >= 6 * kPages);
  assert.equal(metrics['divisi:kv_event_losses'], 0);
  await cluster.settled();
  await cluster.stop();
});

test('pages of a worker that is killed are gone, and its next life tells its own', async () => {
  const cluster = await PartCluster.start(['replica', 'replica'],
    { args: kLimit, gatewayArgs: kLimit });
  await ask(cluster, prompt(0));
  const [holder] = holders(await until(cluster, 'pages', (s) => devicePages(s) >= kPages));
  cluster.get(holder.name).signal('SIGKILL');
  await cluster.get(holder.name).ended;
  await until(cluster, 'no pages', (s) => s.directory.pairs === 0);
  cluster.startWorker(holder.name);
  const status = await cluster.ready(2);
  assert.equal(devicePages(status), 0);
  const { usage } = await ask(cluster, prompt(0));
  assert.equal(usage.prompt_tokens_details.cached_tokens, 0);
  await until(cluster, 'pages again', (s) => devicePages(s) >= kPages && holders(s).length === 1);
  for (let i = 1; i < 5; i++) await ask(cluster, prompt(i));
  await until(cluster, 'pages of both', (s) => devicePages(s) >= 5 * kPages);
  await cluster.stop();
});

// A second gateway stands still while the first one works.
test('a gateway that missed events asks for them', async () => {
  const control = await freePort();
  const more = new Process(['gateway', '--model', 'models/tiny-qwen3', '--port', '0',
    '--control-port', `${control}`, ...kLimit]);
  await more.said(/listening on/);
  const cluster = await PartCluster.start(['replica'],
    { args: [...kLimit, '--gateway', `127.0.0.1:${control}`], gatewayArgs: kLimit });
  const other = { log: '', status: async () => JSON.parse(await divisi('cluster', 'status',
    '--format', 'json', '--gateway', `127.0.0.1:${control}`)) };
  await ask(cluster, prompt(0));
  const before = await until(other, 'pages', (s) => devicePages(s) >= kPages);
  more.signal('SIGSTOP');
  await ask(cluster, prompt(1));
  await sleep(22_000);  // Its connections end after 15 s without a word.
  for (let i = 2; i < 4; i++) await ask(cluster, prompt(i));
  more.signal('SIGCONT');
  const here = await cluster.status();
  assert.ok(devicePages(here) >= 4 * kPages);
  const after = await until(other, 'what was missed',
    (s) => devicePages(s) === devicePages(here), 60_000);
  const replays = (status) => status.workers[0].kv.events.replays;
  assert.ok(replays(after) > replays(before), JSON.stringify(after));
  await more.stop();
  await cluster.stop();
});

test('who is not to follow or to publish does not', async () => {
  const cluster = await PartCluster.start(['replica'],
    { args: kLimit, gatewayArgs: [...kLimit, '--kv-directory-pages', '0'] });
  await ask(cluster, prompt(0));
  const status = await cluster.status();
  assert.equal(status.directory, undefined);
  assert.equal(status.workers[0].kv, undefined);
  await cluster.stop();
  const silent = await PartCluster.start(['replica'],
    { args: [...kLimit, '--kv-events', 'off'], gatewayArgs: kLimit });
  await ask(silent, prompt(0));
  assert.equal((await silent.status()).workers[0].kv, null);
  assert.doesNotMatch(silent.log, /kv events/);
  await silent.stop();
});

test('what a store holds is known, and forgotten when it is lost', async () => {
  const [listen, live, replay] = [await freePort(), await freePort(), await freePort()];
  const start = async () => {
    const store = new Process(['store', '--listen', `127.0.0.1:${listen}`, '--memory', '64MiB',
      '--kv-events', `tcp://127.0.0.1:${live}`, '--kv-events-replay', `tcp://127.0.0.1:${replay}`]);
    await store.said(/store is ready/);
    return store;
  };
  let store = await start();
  const cluster = await PartCluster.start(['replica'], {
    args: [...kLimit, '--kv-pool', `127.0.0.1:${listen}`],
    gatewayArgs: [...kLimit, '--kv-pool-events',
      `tcp://127.0.0.1:${live}+tcp://127.0.0.1:${replay}`] });
  await ask(cluster, prompt(0));
  await until(cluster, 'pages of the pool', (s) => s.directory.pool_pages >= kPages);
  store.signal('SIGKILL');
  await store.ended;
  await until(cluster, 'none', (s) => s.directory.pool_pages === 0);
  store = await start();
  for (const begun = Date.now(); Date.now() - begun < 20_000; await sleep(300)) {
    await ask(cluster, prompt(Date.now() % 1000));  // Its worker finds it again in its time.
    if ((await cluster.status()).directory.pool_pages > 0) break;
  }
  await until(cluster, 'pages of the pool again', (s) => s.directory.pool_pages > 0);
  await cluster.stop();
  await store.stop();
});

test('the gateway of divisi up counts on what the pool has', async () => {
  const port = await freePort(2), events = await freePort(4);
  const cluster = await UpCluster.start(['replica', 'replica'], { args: kLimit,
    gatewayArgs: [...kLimit, '--policy', 'round-robin'],
    pool: `{nodes: 2, port: ${port}, events_port: ${events}, memory: 32 MiB}` });
  // Two workers' connections to two nodes, all and those that are ready.
  for (let i = 0; (await cluster.metrics())['divisi:kv_pool_connections'] !== 8; i++) {
    assert.ok(i < 200, cluster.log);
    await sleep(100);
  }
  await ask(cluster, prompt(0));
  await until(cluster, 'pages of the pool', (s) => s.directory.pool_pages >= kPages);
  await ask(cluster, [...prompt(0), ...prompt(90, 100)]);
  const { routes } = JSON.parse(await divisi('explain-route', '--gateway',
    `127.0.0.1:${cluster.control}`, '--last', '2', '--json'));
  const [second, first] = routes.map((route) => route.candidates[0]);
  assert.notEqual(second.worker, first.worker);
  assert.equal(first.pool_tokens, 0);
  assert.equal(second.pool_tokens, kPages * 16, JSON.stringify(routes));
  await cluster.stop();
});

test('a server publishes where it is told to', async () => {
  const [live, replay] = [await freePort(), await freePort()];
  const at = (port) => `tcp://127.0.0.1:${port}`;
  const server = await Server.start([...kLimit, '--kv-events', at(live), '--kv-events-replay',
    at(replay)]);
  await ask(server, prompt(0));
  const told = await divisi('kv-events', '--connect', at(live), '--replay', at(replay),
    '--format', 'json', '--batches', '1', '--seconds', '20');
  const stored = told.trim().split('\n').map((line) => JSON.parse(line))
    .flatMap((batch) => batch.events ?? []).filter((event) => event.type === 'BlockStored');
  assert.ok(stored.length > 0, told);
  assert.deepEqual(stored[0].token_ids.slice(0, 16), prompt(0).slice(0, 16));
  await server.stop();
});
