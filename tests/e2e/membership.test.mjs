// Who is in a cluster: several gateways, etcd with its absences, deaths that are declared once,
// workers that leave, and certificates on control connections.
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { certificates, count, Detour, Etcd, Gateway, noEtcd, startWorker } from './members.mjs';
import { divisi, Process, sleep } from './process.mjs';
import { Server } from './server.mjs';

const kPrompts = [[300], Array.from({ length: 33 }, (_, i) => 300 + i),
  Array.from({ length: 150 }, (_, i) => 400 + ((i * 7) % 900))];

let expected;
before(async () => {
  const server = await Server.start();
  expected = await Promise.all(kPrompts.map((prompt) => ask(server, prompt)));
  await server.stop();
});

async function ask(surface, prompt, maxTokens = 16) {
  const answer = await surface.client().completions.create(
    { model: surface.model, prompt, max_tokens: maxTokens, temperature: 0, ignore_eos: true });
  return answer.choices[0].text;
}

async function sameTokens(gateway) {
  for (const [i, prompt] of kPrompts.entries()) assert.equal(await ask(gateway, prompt), expected[i]);
}

// Streams of some tenths of a second; each one's tokens.
async function longStreams(gateway, number) {
  return Promise.all(Array.from({ length: number }, async (_, i) => {
    const stream = await gateway.client().completions.create(
      { model: gateway.model, prompt: [500 + i, 501, 502], max_tokens: 1900, temperature: 0,
        ignore_eos: true, stream: true });
    let tokens = 0;
    let finish;
    for await (const part of stream) {
      tokens += 1;
      finish = part.choices[0]?.finish_reason ?? finish;
    }
    assert.equal(finish, 'length');
    return tokens;
  }));
}

// A test wants so many, for which a loaded machine may take so long.
const kRounds = 4;
const kRoundsMs = 60_000;

// Streams through all gateways, one after another, until it is told to stop. Every one has to end well.
class Load {
  constructor(gateways) {
    this.stopped = false;
    this.rounds = 0;
    this.done = Promise.all(gateways.map(async (gateway) => {
      for (; !this.stopped; ++this.rounds) await longStreams(gateway, 2);
    }));
    this.done.catch(() => {});  // `stop` tells.
  }

  // Once some rounds have ended. What was under way ends first.
  async stop() {
    for (const begun = Date.now(); this.rounds < kRounds && Date.now() - begun < kRoundsMs;) {
      await Promise.race([this.done, sleep(50)]);  // A stream that failed ends it at once.
    }
    this.stopped = true;
    await this.done;
    assert.ok(this.rounds >= kRounds, `${this.rounds} rounds`);
  }
}

describe('two gateways, a prefill and a decode worker, with etcd', { skip: noEtcd }, () => {
  let etcd;
  let gateways;
  let workers;
  const args = () => ['--etcd', etcd.url, '--lease-seconds', '3'];

  before(async () => {
    etcd = await Etcd.start();
    workers = new Map(['prefill', 'decode'].map((role) => [role, startWorker(role, role, args())]));
    gateways = await Promise.all([Gateway.start(args()), Gateway.start(args())]);
    await Promise.all(gateways.map((gateway) => gateway.ready(2)));
  });

  after(async () => {
    try {
      for (const gateway of gateways) await gateway.stop();
      for (const worker of workers.values()) await worker.stop();
      // Workers left of their own accord, not only once their leases had ended.
      assert.deepEqual(await members(), []);
    } finally {
      await etcd.end();
    }
  });

  const dead = async () => (await etcd.keys()).filter((key) => key.startsWith('dead/')).length;
  const members = async () => (await etcd.keys()).filter((key) => key.startsWith('worker/')).sort();

  test('the same tokens through either', async () => {
    for (const gateway of gateways) await sameTokens(gateway);
  });

  test('etcd hangs for longer than the leases: nobody dies, nothing is lost', async () => {
    const before = await members();
    const load = new Load(gateways);
    etcd.signal('SIGSTOP');
    await sleep(7_000);
    await Promise.all(gateways.map(sameTokens));
    etcd.signal('SIGCONT');
    await sleep(5_000);
    await load.stop();
    assert.deepEqual(await members(), before);  // The same lives
    assert.equal(await dead(), 0);
    for (const gateway of gateways) {
      await gateway.ready(2);
      assert.equal(count(gateway.log, 'worker away'), 0);
      await sameTokens(gateway);
    }
  });

  test('etcd is killed, and comes back after the leases', async () => {
    const before = await members();
    await etcd.end();
    await sleep(5_000);
    await Promise.all(gateways.map(sameTokens));
    await etcd.run();
    await sleep(5_000);
    assert.deepEqual(await members(), before);
    assert.equal(await dead(), 0);
    await Promise.all(gateways.map(sameTokens));
  });

  test('a worker that is killed is declared dead once, and comes back as another', async () => {
    const before = await members();
    workers.get('prefill').signal('SIGKILL');
    for (const gateway of gateways) {
      await gateway.until((s) => s.workers.length === 1, { limitMs: 15_000 });
      assert.equal(count(gateway.log, 'worker gone'), 1);
    }
    assert.equal(await dead(), 1);
    workers.set('prefill', startWorker('prefill', 'prefill', args()));
    for (const gateway of gateways) {
      await gateway.ready(2);
      await sameTokens(gateway);
      assert.equal(count(gateway.log, 'worker gone'), 1);
    }
    const now = await members();
    assert.equal(now.length, 2);
    assert.equal(now.filter((key) => before.includes(key)).length, 1);
  });

  test('a worker that dies while etcd is away is dealt with all the same', async () => {
    await etcd.end();
    await sleep(3_000);  // Everybody has noticed.
    workers.get('prefill').signal('SIGKILL');
    await gateways[0].process.said(/worker doubted/, 15_000);
    workers.set('prefill', startWorker('prefill', 'prefill', [...args(), '--gateway',
      gateways.map((gateway) => `127.0.0.1:${gateway.control}`).join(',')]));
    for (const gateway of gateways) {
      await gateway.ready(2);
      await sameTokens(gateway);
    }
    await etcd.run();
    for (const gateway of gateways) {
      await gateway.until((s) => s.workers.length === 2, { limitMs: 20_000 });
    }
  });

  test('a gateway that is killed takes only its own requests with it', async () => {
    const streams = longStreams(gateways[1], 2);
    await sleep(100);
    gateways[0].process.signal('SIGKILL');
    await streams;
    await sameTokens(gateways[1]);
    gateways[0] = await Gateway.start(args());
    await gateways[0].ready(2);
    await Promise.all(gateways.map(sameTokens));
  });

  test('a worker that is asked to stop ends what it has, and is gone at once', async () => {
    workers.set('another', startWorker('decode', 'another', args()));
    await gateways[0].ready(3);
    const load = new Load(gateways);
    await sleep(300);
    const stopped = workers.get('decode').stop(20_000);
    assert.equal(await stopped, 0);
    assert.equal((await members()).length, 2);  // Not only once its lease has ended
    for (const gateway of gateways) {
      await gateway.until((s) => s.workers.length === 2, { limitMs: 10_000 });
      await sameTokens(gateway);
    }
    await load.stop();
  });
});

describe('two gateways without etcd', () => {
  test('a list of them, one of which dies and comes back', async () => {
    const gateways = await Promise.all([Gateway.start([]), Gateway.start([])]);
    const list = ['--gateway', gateways.map((g) => `127.0.0.1:${g.control}`).join(',')];
    const workers = ['prefill', 'decode'].map((role) => startWorker(role, role, list));
    try {
      for (const gateway of gateways) {
        await gateway.ready(2);
        await sameTokens(gateway);
      }
      const streams = longStreams(gateways[1], 2);
      await sleep(100);
      gateways[0].process.signal('SIGKILL');
      await streams;
      await sameTokens(gateways[1]);
      gateways[0] = await Gateway.start([], gateways[0].control);
      await gateways[0].ready(2);
      await sameTokens(gateways[0]);
      // A death: each gateway finds out for itself, and the prefill worker's pages are nobody's.
      workers[0].signal('SIGKILL');
      for (const gateway of gateways) {
        await gateway.until((s) => s.workers.some((w) => !w.connected), { limitMs: 10_000 });
      }
      workers[0] = startWorker('prefill', 'prefill-again', list);
      for (const gateway of gateways) {
        await gateway.ready(2);
        await sameTokens(gateway);
      }
    } finally {
      for (const gateway of gateways) await gateway.stop();
      for (const worker of workers) await worker.stop();
    }
  });
});

describe('a gateway that only loses its own connection to a worker', () => {
  test('tries its requests elsewhere, and declares nobody dead', async () => {
    const gateways = await Promise.all([Gateway.start([]), Gateway.start([])]);
    const detour = await Detour.start(gateways[0].control);
    const by = (port) => ['--gateway', `127.0.0.1:${port},127.0.0.1:${gateways[1].control}`];
    const workers = [startWorker('prefill', 'prefill', by(detour.port)),
      startWorker('decode', 'decode', by(gateways[0].control))];
    try {
      for (const gateway of gateways) await gateway.ready(2);
      await sameTokens(gateways[0]);
      const load = new Load([gateways[1]]);
      for (let i = 0; i < 3; ++i) {
        detour.set(true);
        await gateways[0].until((s) => s.workers.some((w) => !w.connected), { limitMs: 5_000 });
        for (const begun = Date.now(); count(gateways[0].log, 'worker doubted') <= i;) {
          assert.ok(Date.now() - begun < 20_000, gateways[0].log);
          await sleep(50);
        }
        await sameTokens(gateways[1]);
        detour.set(false);
        await gateways[0].ready(2);
        await sameTokens(gateways[0]);
      }
      await load.stop();
      assert.equal(count(gateways[0].log, 'worker doubted'), 3);
      assert.equal(count(gateways[0].log + gateways[1].log, 'worker gone'), 0);
      assert.equal(count(workers[0].log, 'a new life'), 0);
    } finally {
      detour.stop();
      for (const gateway of gateways) await gateway.stop();
      for (const worker of workers) await worker.stop();
    }
  });
});

describe('certificates on control connections', () => {
  let ours;
  let other;
  let gateway;
  let worker;

  before(async () => {
    ours = certificates('ours');
    other = certificates('other');
    gateway = await Gateway.start(ours);
    worker = startWorker('replica', 'replica', [...ours, '--gateway', `127.0.0.1:${gateway.control}`]);
    await gateway.ready(1, { args: ours });
  });

  after(async () => {
    await gateway.stop();
    await worker.stop();
  });

  // What a worker with these certificates says at its end.
  async function refused(args) {
    const stranger = new Process(['worker', '--model', 'models/tiny-qwen3', '--threads', '1',
      '--kv-memory', '16MiB', '--patience-seconds', '2', '--gateway',
      `127.0.0.1:${gateway.control}`, ...args]);
    stranger.stopping = true;
    const { code } = await stranger.ended;
    assert.notEqual(code, 0);
    return stranger.log;
  }

  test('a cluster with them serves', async () => {
    await sameTokens(gateway);
  });

  test('another authority is refused, and both sides say so', async () => {
    assert.match(await refused(other), /certificate verify failed/);
    assert.match(gateway.log, /control connection refused why="?127\.0\.0\.1:\d+: the TLS handshake/);
    // One that trusts the gateway, and that the gateway does not know.
    const log = await refused([...other.slice(0, 4), ...ours.slice(4)]);
    assert.match(log, /no gateway was reached|unknown ca|certificate/);
    assert.match(gateway.log, /certificate verify failed/);
  });

  test('without them a worker, and an operator, are told what is missing', async () => {
    assert.match(await refused([]), /wants TLS; give --control-cert/);
    await assert.rejects(divisi('cluster', 'status', '--gateway', `127.0.0.1:${gateway.control}`),
      /wants TLS; give --control-cert/);
    assert.match(gateway.log, /it does not speak TLS/);
  });

  test('one with certificates is refused by a gateway without', async () => {
    const plain = await Gateway.start([]);
    await assert.rejects(divisi('cluster', 'status', '--gateway', `127.0.0.1:${plain.control}`,
      ...ours), /the other side does not speak TLS/);
    assert.match(plain.log, /it speaks TLS, and this process was given no --control-cert/);
    await plain.stop();
  });

  test('the worker is still there', async () => {
    await gateway.ready(1, { args: ours });
    await sameTokens(gateway);
  });
});

describe('addresses', () => {
  test('ports that are taken are named by their flags', async () => {
    const gateway = await Gateway.start([]);
    const fails = async (flag, ...args) => {
      await assert.rejects(divisi(...args), new RegExp(`${flag}.*:${gateway.control}`));
    };
    const taken = `127.0.0.1:${gateway.control}`;
    await fails('--control-port', 'gateway', '--model', 'models/tiny-qwen3', '--port', '0',
      '--control-port', `${gateway.control}`);
    await fails('--port', 'gateway', '--model', 'models/tiny-qwen3', '--control-port', '0',
      '--port', `${gateway.control}`);
    await fails('--data-listen', 'worker', '--model', 'models/tiny-qwen3', '--threads', '1',
      '--kv-memory', '16MiB', '--gateway', taken, '--data-listen', taken);
    await assert.rejects(divisi('worker', '--model', 'models/tiny-qwen3', '--threads', '1',
      '--kv-memory', '16MiB', '--gateway', taken, '--data-listen', '0.0.0.0:0'),
    /--data-listen.*every interface/);
    await gateway.stop();
  });
});
