// What operators do with clusters: files that can't run, workers that can't start, gateways of which
// one is away, workers of one name.
import assert from 'node:assert/strict';
import { execFile, execFileSync } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { after, before, describe, test } from 'node:test';
import { UpCluster } from './cluster.mjs';
import { Gateway, startWorker } from './members.mjs';
import { binary, cpuSeconds, freePort, root, sleep } from './process.mjs';

const folder = mkdtempSync(path.join(tmpdir(), 'divisi-operators-'));
after(() => rmSync(folder, { recursive: true }));

// A command to its end: its status, and what it said.
function ran(...args) {
  return new Promise((resolve) => {
    execFile(binary, args, { cwd: root, timeout: 60_000 }, (error, stdout, stderr) =>
      resolve({ code: error ? error.code : 0, stdout, stderr }));
  });
}

describe('divisi up', () => {
  // A cluster file of those keys, with ports of its own.
  async function file(keys) {
    const at = path.join(folder, `cluster-${await freePort()}.yaml`);
    writeFileSync(at, keys.replace('PORTS',
      `port: ${await freePort()}, control_port: ${await freePort()}`));
    return at;
  }
  const model = path.join(root, 'models/tiny-qwen3');

  test('what a file asks for in vain is said with line and key, before anything starts', async () => {
    for (const [keys, fault] of [
      [`model: ${model}\ngateway: {PORTS, disaggregate_from: x}\nworkers: [{}]`,
        /yaml:2: gateway\.disaggregate_from: 'x' is neither/],
      ['gateway: {PORTS}\nworkers: [{role: replica}]\nmodel: nowhere',
        /yaml:3: model: 'nowhere' is no checkpoint/],
    ]) {
      const { code, stdout, stderr } = await ran('up', await file(keys));
      assert.equal(code, 2);
      assert.match(stderr, fault);
      assert.equal(stdout, '');
    }
  });

  test('a worker that can never start ends it, with what the worker says', async () => {
    const at = await file(`model: ${model}\ngateway: {PORTS}\n` +
      'workers: [{threads: 1, kv_memory: 16 MiB}, {args: [--no-such-flag]}]');
    const { code, stdout, stderr } = await ran('up', at);
    assert.equal(code, 2);
    assert.match(stdout, /\[replica-2\] .*--no-such-flag/);
    assert.match(stderr, /replica-2: it would end like this each time/);
    assert.doesNotMatch(stdout, /starting replica-2 again/);
  });

  test('a worker that was not started again is told of, and tried later', async () => {
    const cluster = await UpCluster.start(['replica', 'replica']);
    try {
      const limit = (count) => execFileSync('prlimit',
        ['--pid', `${cluster.process.pid}`, `--nofile=${count}:`]);
      limit(3);
      process.kill(cluster.pid('replica-1'), 'SIGKILL');
      await cluster.process.said(/replica-1 was not started: Too many open files/);
      limit(1024);
      await cluster.process.said(/starting replica-1 again[^]*starting replica-1 again/);
      await cluster.ready(2);
    } finally {
      await cluster.stop();
    }
  });

  test('what has ended is reaped while it waits for another, and costs no time', async () => {
    const cluster = await UpCluster.start(['replica', 'replica']);
    const gateway = cluster.pid('gateway');
    const worker = cluster.pid('replica-1');
    process.kill(gateway, 'SIGSTOP');
    let stopped;
    try {
      stopped = cluster.stop();
      await sleep(1000);  // It has asked the gateway, and waits for it.
      process.kill(worker, 'SIGKILL');
      await sleep(500);
      const before = cpuSeconds(cluster.process.pid);
      await sleep(2000);
      assert.ok(cpuSeconds(cluster.process.pid) - before < 0.2);
      assert.throws(() => process.kill(worker, 0), /ESRCH/);
    } finally {
      process.kill(gateway, 'SIGCONT');
      await stopped;
    }
  });

  // The gateway ends at once; its worker has what is left until the leases end.
  test('workers may take for what they have what they are told', async () => {
    const cluster = await UpCluster.start(['replica'],
      { gatewayArgs: ['--drain-seconds', '0'], args: ['--drain-seconds', '60'] });
    const stream = await cluster.client().completions.create({ model: 'tiny-qwen3', prompt: [300],
      max_tokens: 2000, ignore_eos: true, stream: true });
    const parts = stream[Symbol.asyncIterator]();
    await parts.next();
    await cluster.stop();
    assert.doesNotMatch(cluster.log, /did not end/);
    await assert.rejects(async () => { while (!(await parts.next()).done); });
  });
});

describe('two gateways', () => {
  let gateway, workers, here, dead;

  before(async () => {
    gateway = await Gateway.start([]);
    here = `127.0.0.1:${gateway.control}`;
    dead = `127.0.0.1:${await freePort()}`;
    workers = ['one', 'twin', 'twin'].map((name) =>
      startWorker('replica', name, ['--gateway', `${here},${dead}`]));
    await gateway.ready(3);
  });
  after(async () => {
    await gateway.stop();
    for (const worker of workers) await worker.stop();
  });
  const named = (status, name) => status.workers.filter((worker) => worker.name === name);
  const states = async (name) =>
    named(await gateway.status(), name).map((worker) => worker.state).sort();

  test('one that is away keeps the other from nothing, and the command fails', async () => {
    for (const gateways of [`${here},${dead}`, `${dead},${here}`]) {
      for (const [word, state] of [['drain', 'drained'], ['undrain', 'ready']]) {
        const { code, stdout, stderr } = await ran('cluster', word, 'one', '--gateway', gateways);
        assert.equal(code, 1);
        assert.match(stdout, new RegExp(`gateway ${here}\\n[^]*one .*${state}\\n`));
        assert.match(stderr, new RegExp(`gateway ${dead}: cannot reach ${dead}`));
        assert.match(stderr, /1 of 2 gateways did not do it/);
        assert.deepEqual(await states('one'), [state]);
      }
    }
    const { code, stdout } = await ran('cluster', 'status', '--format', 'json', '--gateway',
      `${dead},${here}`);
    assert.equal(code, 1);
    const [first, second] = JSON.parse(stdout);
    assert.match(first.error, /cannot reach/);
    assert.equal(second.workers.length, 3);
  });

  test('of two workers with one name one is chosen by its id', async () => {
    const { code, stderr } = await ran('cluster', 'drain', 'twin', '--gateway', here);
    assert.equal(code, 2);
    const ids = stderr.match(/2 workers are named 'twin': give the id of one, (\w+), (\w+)/).slice(1);
    assert.deepEqual(await states('twin'), ['ready', 'ready']);
    assert.equal((await ran('cluster', 'drain', ids[0], '--wait', '--gateway', here)).code, 0);
    assert.deepEqual(await states('twin'), ['drained', 'ready']);
    const drained = named(await gateway.status(), 'twin').find((w) => w.state === 'drained');
    assert.equal(drained.id, ids[0]);
  });

  test('a worker that was lost is not taken for its namesake', async () => {
    workers[0].signal('SIGKILL');
    await gateway.until((s) => named(s, 'one').some((worker) => !worker.connected));
    workers.push(startWorker('replica', 'one', ['--gateway', `${here},${dead}`]));
    await gateway.until((s) => named(s, 'one').length === 2);
    assert.equal((await ran('cluster', 'drain', 'one', '--gateway', here)).code, 0);
    assert.deepEqual(await states('one'), ['drained', 'lost']);
    const { stdout } = await ran('cluster', 'status', '--gateway', here);
    assert.match(stdout, /one +replica +0 +- +- +- +- +- +- +- +lost\n/);
  });
});

test('a role that is none is said before a worker loads anything', async () => {
  const { code, stderr } = await ran('worker', '--model', 'nowhere', '--role', 'both');
  assert.equal(code, 2);
  assert.match(stderr, /--role: 'both' is no role; there are replica, prefill and decode/);
});

test('what is given empty is not taken', async () => {
  for (const flag of ['--name', '--control-cert', '--cluster', '--data-advertise']) {
    const { code, stderr } = await ran('worker', '--model', 'models/tiny-qwen3', flag, '');
    assert.equal(code, 2);
    assert.match(stderr, new RegExp(`${flag}: the value is empty`));
  }
});
