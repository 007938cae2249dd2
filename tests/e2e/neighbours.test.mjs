// Clusters beside each other, workers that return or do not fit, and clients that leave in crowds.
import assert from 'node:assert/strict';
import { cpSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { describe, test } from 'node:test';
import { PartCluster, UpCluster } from './cluster.mjs';
import { divisi, freePort, Process, root, sleep, soak } from './process.mjs';
import { Server } from './server.mjs';
import { counted, longRequests, outcomes, Stream } from './traffic.mjs';

const probe = { model: 'tiny-qwen3', prompt: Array.from({ length: 70 }, (_, i) => 400 + i),
  max_tokens: 12, temperature: 0, ignore_eos: true };
const answer = async (surface) =>
  (await surface.client().completions.create(probe)).choices[0].text;

async function using(cluster, run) {
  try {
    await run(cluster);
  } finally {
    await cluster.stop();
  }
}

test('two clusters on one host keep to themselves', async () => {
  const one = await UpCluster.start(['prefill', 'decode']);
  const two = await UpCluster.start(['prefill', 'decode']);
  await using(one, () => using(two, async () => {
    assert.equal(await answer(one), await answer(two));
    const handovers = async (cluster) => (await cluster.settled()).workers
      .reduce((sum, w) => sum + w.handovers, 0);
    assert.equal(await handovers(one), 1);
    assert.equal(await handovers(two), 1);
    await Promise.all(Array.from({ length: 5 }, () => answer(one)));
    assert.equal(await handovers(one), 6);
    assert.equal(await handovers(two), 1);
  }));
});

test('a taken port is told by its number, and nothing is left running', async () => {
  await using(await PartCluster.start(['replica']), async (cluster) => {
    for (const [port, control, taken] of [
      [cluster.port, await freePort(), cluster.port],
      [await freePort(), cluster.control, cluster.control]]) {
      const gateway = new Process(['gateway', '--model', 'models/tiny-qwen3', '--port', `${port}`,
        '--control-port', `${control}`]);
      gateway.stopping = true;  // It is to end.
      const { code } = await gateway.ended;
      assert.notEqual(code, 0);
      assert.match(gateway.log, new RegExp(`cannot listen on 127.0.0.1:${taken}.*in use`));
    }
    const first = cluster.get('replica-1');
    const listens = new Process(['worker', '--model', 'models/tiny-qwen3', '--gateway',
      `127.0.0.1:${cluster.control}`, '--data-listen', `127.0.0.1:${cluster.port}`]);
    listens.stopping = true;
    assert.notEqual((await listens.ended).code, 0);
    assert.match(listens.log, new RegExp(`${cluster.port}.*in use`, 's'));
    assert.ok(first.running);
    await answer(cluster);
  });
});

// Not one that has ended and that nobody has asked about.
function runs(pid) {
  try {
    return !/^\d+ \(.*\) Z/.test(readFileSync(`/proc/${pid}/stat`, 'utf8'));
  } catch {
    return false;
  }
}

for (const [how, end] of [
  ['killed', (child) => child.kill('SIGKILL')],
  ['told twice to stop', async (child) => {
    child.kill('SIGINT');
    await sleep(50);
    child.kill('SIGINT');
  }],
]) {
  test(`an up that is ${how} leaves nobody behind`, async () => {
    const cluster = await UpCluster.start(['prefill', 'decode']);
    const pids = ['gateway', 'prefill-1', 'decode-2'].map((name) => cluster.pid(name));
    // Something that the gateway would wait for.
    const stream = await cluster.client().completions.create({ model: 'tiny-qwen3', prompt: 'Once',
      max_tokens: 1800, ignore_eos: true, stream: true });
    const drained = (async () => { for await (const _ of stream); })().catch(() => {});
    await end(cluster.process.child);
    const alive = () => pids.filter(runs);
    for (const begun = Date.now(); alive().length > 0 && Date.now() - begun < 3000;) await sleep(50);
    assert.deepEqual(alive(), []);
    await drained;
    rmSync(cluster.folder, { recursive: true });
  });
}

test('a worker does not advertise an address that nobody reaches', async () => {
  for (const args of [['--data-listen', '0.0.0.0:0'], ['--data-advertise', '0.0.0.0']]) {
    const worker = new Process(['worker', '--model', 'models/tiny-qwen3', ...args]);
    worker.stopping = true;
    assert.notEqual((await worker.ended).code, 0);
    assert.match(worker.log, /--data-advertise: .*peers can't connect/);
  }
});

test('a worker started again under its name and port is a new one', async () => {
  const port = await freePort();
  await using(await PartCluster.start(['prefill', 'decode']), async (cluster) => {
    const expected = await answer(cluster);
    const restart = async (signal) => {
      const old = cluster.get('decode-2');
      old.signal(signal);
      await old.ended;
      cluster.startWorker('decode-2', { args: ['--data-listen', `127.0.0.1:${port}`] });
      // The old one goes, and the new one has nothing of it.
      for (const begun = Date.now(); ; await sleep(50)) {
        const { workers } = await cluster.status();
        const named = workers.filter((w) => w.name === 'decode-2' && w.connected);
        if (workers.length === 2 && named.length === 1) return assert.equal(named[0].decode_tokens, 0);
        assert.ok(Date.now() - begun < 10_000, JSON.stringify(workers));
      }
    };
    for (const signal of ['SIGTERM', 'SIGKILL', 'SIGKILL']) {
      await restart(signal);
      assert.equal(await answer(cluster), expected, signal);
      await cluster.settled();
    }
  });
});

// Nobody computed anything for one that does not fit.
async function refused(cluster, field, options) {
  const other = cluster.startWorker('decode-2', options);
  other.stopping = true;
  const { code } = await other.ended;
  cluster.processes.delete('decode-2');
  assert.notEqual(code, 0);
  assert.match(other.log, new RegExp(`refuses this worker: .*${field}`));
  assert.match(cluster.get('gateway').log, new RegExp(`worker refused.*${field}`));
  const { workers } = await cluster.status();
  assert.deepEqual(workers.map((w) => w.name), ['prefill-1']);
  assert.equal(workers[0].prefill_tokens, 0);
}

test('a gateway is healthy while some worker can end a request', async () => {
  await using(await PartCluster.start(['prefill']), async (cluster) => {
    const health = async () => (await fetch(`${cluster.url}/health`)).status;
    assert.equal(await health(), 503);
    cluster.startWorker('decode-2');
    await cluster.ready(2);
    assert.equal(await health(), 200);
    await cluster.get('decode-2').stop();
    assert.equal(await health(), 503);
  });
});

test('a worker of another model or KV type is refused by name, on both sides', async () => {
  const folder = mkdtempSync(path.join(tmpdir(), 'divisi-model-'));
  try {
    // The same shape, other weights.
    const tiny = path.join(root, 'models/tiny-qwen3');
    const model = path.join(folder, 'other');
    await divisi('model', 'synth', '--config', `${tiny}/config.json`, '--out', model, '--seed', '2');
    for (const file of ['tokenizer.json', 'tokenizer_config.json']) {
      cpSync(path.join(tiny, file), path.join(model, file));
    }
    await using(await PartCluster.start(['prefill']), async (cluster) => {
      await refused(cluster, 'the model', { model });
      await refused(cluster, 'the KV type', { args: ['--dtype', 'float32'] });
    });
  } finally {
    rmSync(folder, { recursive: true });
  }
});

// 42 pages of 16 tokens.
const small = { kvMemory: '1MiB', context: 672 };

test('a worker of less context than the gateway promises is refused by name, on both sides', async () => {
  await using(await PartCluster.start(['prefill']), async (cluster) => {
    const lacks = (context) =>
      `context: this worker has ${context} tokens and the gateway promises 2048; give .*` +
      `or start the gateway with --max-model-len ${context}`;
    await refused(cluster, lacks(small.context), { kvMemory: small.kvMemory });
    await refused(cluster, lacks(1024), { args: ['--max-model-len', '1024'] });
  });
});

test('workers of more context than is promised give the same tokens', async () => {
  const gatewayArgs = ['--max-model-len', `${small.context}`, '--policy', 'round-robin'];
  await using(await PartCluster.start(['replica'], { gatewayArgs }), async (cluster) => {
    cluster.startWorker('replica-2', { kvMemory: small.kvMemory });
    await cluster.ready(2);
    const client = cluster.client();
    const ends = (choice) => [choice.message?.content ?? choice.text, choice.finish_reason];
    const prompt = Array.from({ length: 600 }, (_, i) => 300 + ((i * 7) % 1500));
    const common = { model: 'tiny-qwen3', temperature: 0, ignore_eos: true };
    for (const ask of [
      () => client.completions.create({ ...common, prompt, max_tokens: 72 }),
      () => client.chat.completions.create({ ...common,  // As many as there is room for
        messages: [{ role: 'user', content: 'Hello' }] })]) {
      const [one, two] = [await ask(), await ask()];
      assert.deepEqual(ends(one.choices[0]), ends(two.choices[0]));
      for (const { usage } of [one, two]) assert.equal(usage.total_tokens, small.context);
    }
    await assert.rejects(client.completions.create({ ...common, prompt, max_tokens: 73 }),
      /maximum context length is 672 tokens/);
    for (const worker of (await cluster.settled()).workers) {
      assert.ok(worker.decode_tokens > 0, `${worker.name} had no request`);
    }
  });
});

test('a gateway promises no more than the model allows', async () => {
  const gateway = new Process(['gateway', '--model', 'models/tiny-qwen3', '--port', '0',
    '--control-port', '0', '--max-model-len', '100000']);
  gateway.stopping = true;  // It is to end.
  assert.notEqual((await gateway.ended).code, 0);
  assert.match(gateway.log, /--max-model-len 100000 is beyond the 2048 positions of the model/);
});

// In a cluster that is too small for them, so that they leave at every step.
const crowd = { args: ['--max-num-batched-tokens', '32', '--max-num-seqs', '8'],
  kvMemory: '16MiB' };

describe('clients that leave in crowds', () => {
  test('a hundred, at every step', async () => {
    const server = await Server.start();
    const expected = await answer(server);
    await server.stop();
    await using(await PartCluster.start(['prefill', 'decode'], crowd), async (cluster) => {
      const streams = longRequests(100, { tokens: 700, maxTokens: 200 })
        .map((body) => new Stream(cluster, body));
      const seen = new Set();
      for (let i = 0; i < 100; ++i) {
        await sleep(15);
        if (i % 5 === 0) {
          for (const [phase, count] of Object.entries(await cluster.phases())) {
            if (count > 0) seen.add(phase);
          }
        }
        streams[(i * 37) % 100].leave();
      }
      const all = await outcomes(streams, 10_000);
      const left = Date.now();
      assert.ok(all.every((o) => o.kind === 'left' || o.kind === 'finished'),
        JSON.stringify(counted(all)));
      await cluster.settled(10_000);
      console.log(`## a hundred leave: ${JSON.stringify(counted(all))}, at ` +
        `${[...seen].join(', ')}; settled after ${Date.now() - left} ms`);
      assert.ok(seen.size >= 4, [...seen].join());
      assert.equal(await answer(cluster), expected);
    });
  });

  test('four bursts of 64 long prompts', async () => {
    await using(await PartCluster.start(['prefill', 'prefill', 'decode', 'decode'], crowd),
      async (cluster) => {
        const expected = await answer(cluster);
        for (let burst = 0; burst < (soak ? 40 : 4); ++burst) {
          const streams = longRequests(64, { tokens: 1200, salt: burst })
            .map((body) => new Stream(cluster, body));
          await Promise.all(streams.map(async (stream) => {
            await sleep(Math.random() * 1500);
            stream.leave();
          }));
          const all = await outcomes(streams, 5000);
          assert.ok(all.every((o) => o.kind === 'left' || o.kind === 'finished'),
            JSON.stringify(counted(all)));
          assert.equal(await answer(cluster), expected);
        }
        await cluster.settled();
      });
  });
});
