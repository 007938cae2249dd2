// kill -9, SIGSTOP and SIGTERM of each role while requests are at each step of the protocol. After
// each: every request ended in one way, within its time and with the tokens of one server, nothing
// is held anywhere, and a probe gives exact tokens. DIVISI_SOAK=1 runs the whole matrix.
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { PartCluster } from './cluster.mjs';
import { sleep, soak } from './process.mjs';
import { Server } from './server.mjs';
import { counted, longRequests, outcomes, Stream } from './traffic.mjs';

const kRequests = 20;
// Small chunks and few sequences: requests are at every step at once, and many wait.
const kWorkerArgs = ['--max-num-batched-tokens', '32', '--max-num-seqs', '8', '--no-prefix-caching'];
// What an event may be late by on a machine that runs other things.
const kSlackMs = 2500;
// From the fault until the client hears: the connection ends and 0.5 s of grace; or 3 s of silence
// and the same grace.
const kTold = { SIGKILL: 500 + kSlackMs, SIGSTOP: 3500 + kSlackMs, SIGTERM: 30_000 };

// A gateway that is held for less than the silence that ends connections (3 s) loses nothing; after
// more, what had begun to stream may end with an error. Half of it: it may wake late.
const kPauseMs = 1500;
const kLongPauseMs = 5000;

const load = longRequests(kRequests, { maxTokens: 200 });
const probe = { prompt: Array.from({ length: 50 }, (_, i) => 900 + i), max_tokens: 20,
  temperature: 0, ignore_eos: true };

const expected = new Map();
before(async () => {
  const server = await Server.start();
  for (const body of [...load, probe]) {
    const { choices } = await server.client().completions.create({ model: 'tiny-qwen3', ...body });
    expected.set(body, choices[0].text);
  }
  await server.stop();
});

// Until `seen` holds of what is asked for again and again; whether it came to hold.
async function until(ask, seen, limitMs = 10_000) {
  for (const begun = Date.now(); Date.now() - begun < limitMs; await sleep(5)) {
    if (seen(await ask())) return true;
  }
  return false;
}
// A case that misses its step proves nothing, so it fails.
async function phase(cluster, seen, limitMs) {
  assert.ok(await until(() => cluster.phases(), seen, limitMs),
    `step not reached: ${JSON.stringify(await cluster.phases())}`);
}

const begin = (cluster, bodies) => bodies.map((body) => new Stream(cluster, body));

// Each brings requests to a step and returns {streams, thaw}; thaw: workers held still until then.
// A held decode worker neither answers Reserve nor takes pages, so what needs it stays where it is.
const hold = (cluster) => {
  const names = cluster.names.filter((name) => name.startsWith('decode'));
  for (const name of names) cluster.get(name).signal('SIGSTOP');
  return names;
};
const steps = {
  // More requests than there is room for: some have no worker yet.
  async queued(cluster) {
    const streams = begin(cluster, [...load, ...load]);
    await phase(cluster, (now) => now.queued > 0);
    return { streams, thaw: [] };
  },
  async reserving(cluster) {
    const thaw = hold(cluster);
    const streams = begin(cluster, load);
    await phase(cluster, (now) => now.reserving > 0);
    return { streams, thaw };
  },
  async prefilling(cluster) {
    const streams = begin(cluster, load);
    await phase(cluster, (now) => now.prefilling > 0);
    return { streams, thaw: [] };
  },
  // Prompts are computed, and their pages wait for a decode worker that does not take them.
  async writing(cluster) {
    const streams = begin(cluster, load);
    await phase(cluster, (now) => now.prefilling > 0);
    await sleep(50);
    const thaw = hold(cluster);
    await phase(cluster, (now) => now.writing > 0, 5000);
    return { streams, thaw };
  },
  // Between Handover and Taken are a few milliseconds, so an instant is drawn while one prompt
  // after the other is handed over: all attempts together hit it.
  async 'handing over'(cluster) {
    const streams = begin(cluster, load);
    assert.ok(await until(() => streams.filter((s) => s.pieces > 0).length, (count) => count > 0),
      'no stream came');
    await sleep(Math.random() * 80);
    return { streams, thaw: [] };
  },
  async decoding(cluster) {
    const streams = begin(cluster, load);
    assert.ok(await until(() => streams.filter((s) => s.pieces > 2).length, (count) => count >= 3),
      'no streams came');
    return { streams, thaw: [] };
  },
};

// What was under way when the fault came.
async function hit(cluster, victim) {
  const phases = Object.entries(await cluster.phases()).filter(([, count]) => count > 0);
  const worker = (await cluster.status()).workers.find((w) => w.name === victim);
  return `${phases.map(([name, count]) => `${name} ${count}`).join(', ')}` +
    `${worker ? `; ${worker.requests} of its own` : ''}`;
}

// Right texts, errors only where one has to come, and in time.
function check(streams, all, { victim, signal, at, long }) {
  all.forEach((outcome, i) => {
    const { body } = streams[i];
    const what = `request ${i}: ${JSON.stringify({ ...outcome, text: outcome.text.length })}`;
    assert.ok(expected.get(body).startsWith(outcome.text), `other tokens in ${what}`);
    if (outcome.kind === 'finished') {
      return assert.equal(outcome.text, expected.get(body), what);
    }
    const gateway = victim === 'gateway';
    if (gateway && signal === 'SIGKILL') return assert.equal(outcome.kind, 'cut', what);
    if (gateway && long) return assert.ok(outcome.kind === 'error' && outcome.pieces > 0, what);
    // Before the first token another worker takes over, and a stopped worker ends what it has.
    assert.equal(outcome.kind, 'error', what);
    assert.ok(!gateway && !victim.startsWith('prefill') && signal !== 'SIGTERM', what);
    assert.ok(outcome.pieces > 0, what);
    assert.ok(outcome.endedAt - at < kTold[signal], `${outcome.endedAt - at} ms: ${what}`);
  });
}

async function probed(cluster) {
  const [outcome] = await outcomes([new Stream(cluster, probe)], 30_000);
  assert.equal(outcome.kind, 'finished', JSON.stringify(outcome));
  assert.equal(outcome.text, expected.get(probe));
}

async function fault(cluster, { victim, signal, step, pause = kPauseMs }) {
  const { streams, thaw } = await steps[step](cluster);
  const seen = await hit(cluster, victim);
  const at = Date.now();
  const process = cluster.get(victim);
  process.signal(signal);
  for (const name of thaw) {
    if (name !== victim || signal === 'SIGTERM') cluster.get(name).signal('SIGCONT');
  }
  if (victim === 'gateway' && signal === 'SIGSTOP') {
    await sleep(pause);
    process.signal('SIGCONT');
  }
  const all = await outcomes(streams, 90_000);
  // What waited for its first token then got it from another worker.
  const first = Math.max(0, ...streams.map((s) => (s.firstAt ?? 0) - at));
  const ended = Math.max(...all.map((o) => (o.kind === 'finished' ? 0 : o.endedAt - at)));
  console.log(`## ${signal} ${victim} ${step}: ${seen} -> ${JSON.stringify(counted(all))}` +
    `, last first token after ${first} ms${ended > 0 ? `, told after ${ended} ms` : ''}`);
  check(streams, all, { victim, signal, at, long: pause === kLongPauseMs });
  if (signal === 'SIGSTOP') {
    process.signal('SIGCONT');
  } else {
    const { code } = await process.ended;
    if (signal === 'SIGTERM') assert.equal(code, 0, process.log);
    if (victim === 'gateway') {
      await cluster.startGateway();
    } else {
      cluster.startWorker(victim);
    }
  }
  await cluster.ready(cluster.names.length);
  await cluster.settled();
  if (victim === 'gateway') console.log(`## all is free after ${Date.now() - at} ms`);
  await probed(cluster);
}

const signals = ['SIGKILL', 'SIGSTOP', 'SIGTERM'];
const everywhere = (victims, which) => victims.flatMap((victim) =>
  signals.flatMap((signal) => which.map((step) => ({ victim, signal, step }))));

// In the ordinary run, of each step and signal some.
const slice = [
  ['prefill-1', 'SIGKILL', 'reserving'], ['prefill-1', 'SIGKILL', 'prefilling'],
  ['prefill-1', 'SIGKILL', 'writing'], ['prefill-1', 'SIGKILL', 'handing over'],
  ['decode-3', 'SIGKILL', 'queued'], ['decode-3', 'SIGKILL', 'reserving'],
  ['decode-3', 'SIGKILL', 'writing'], ['decode-3', 'SIGKILL', 'decoding'],
  ['prefill-1', 'SIGSTOP', 'writing'], ['decode-3', 'SIGSTOP', 'decoding'],
  ['prefill-1', 'SIGTERM', 'prefilling'], ['decode-3', 'SIGTERM', 'decoding'],
  ['gateway', 'SIGKILL', 'decoding'], ['gateway', 'SIGSTOP', 'prefilling'],
  ['gateway', 'SIGTERM', 'handing over'], ['gateway', 'SIGSTOP', 'handing over', kLongPauseMs],
].map(([victim, signal, step, pause]) => ({ victim, signal, step, pause }));

function matrix(name, roles, cases) {
  describe(name, () => {
    let cluster;
    before(async () => {
      cluster = await PartCluster.start(roles, { args: kWorkerArgs, kvMemory: '32MiB' });
    });
    after(() => cluster?.stop());
    for (const one of cases) {
      test(`${one.signal} of ${one.victim}, ${one.step}`, () => fault(cluster, one));
    }
  });
}

matrix('2P+2D', ['prefill', 'prefill', 'decode', 'decode'],
  soak ? [...everywhere(['prefill-1', 'decode-3', 'gateway'], Object.keys(steps)), slice.at(-1)]
    : slice);
// A replica takes what comes into its own queue: no request is without a worker.
matrix('2 replicas', ['replica', 'replica'],
  soak ? everywhere(['replica-1'], ['prefilling', 'decoding'])
    : [{ victim: 'replica-1', signal: 'SIGKILL', step: 'decoding' },
      { victim: 'replica-1', signal: 'SIGTERM', step: 'prefilling' }]);
