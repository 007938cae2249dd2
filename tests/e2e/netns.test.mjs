// A gateway, a prefill and a decode worker, each in a network namespace: on one bridge the control
// connections, on another the pages. Links are taken down under load and come back. Run by
// own_network.sh, whose namespace holds the bridges.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { after, before, test } from 'node:test';
import { Cluster } from './cluster.mjs';
import { Process, sleep } from './process.mjs';
import { Server } from './server.mjs';
import { counted, longRequests, outcomes, Stream } from './traffic.mjs';

const ip = (...words) => execFileSync('ip', words.join(' ').split(' '), { stdio: 'pipe' });

// Namespaces by name: the last number of their addresses on both networks.
const kHosts = { gateway: 2, prefill: 3, decode: 4 };
const kControl = '10.77.0', kData = '10.78.0';
const kArgs = ['--model', 'models/tiny-qwen3'];

function layCables() {
  ip('link set lo up');
  for (const [bridge, net] of [['control', kControl], ['data', kData]]) {
    ip('link add', bridge, 'type bridge');
    ip('addr add', `${net}.1/24 dev`, bridge);
    ip('link set', bridge, 'up');
  }
  for (const [name, number] of Object.entries(kHosts)) {
    ip('netns add', name);
    ip('-n', name, 'link set lo up');
    for (const [bridge, net] of [['control', kControl], ['data', kData]]) {
      const end = `${bridge[0]}-${name}`;
      ip('link add', end, 'type veth peer name', bridge, 'netns', name);
      ip('link set', end, 'master', bridge, 'up');
      ip('-n', name, 'addr add', `${net}.${number}/24 dev`, bridge);
      ip('-n', name, 'link set', bridge, 'up');
    }
  }
}

class NetCluster extends Cluster {
  host = `${kControl}.${kHosts.gateway}`;
  control = 8001;
  url = `http://${kControl}.${kHosts.gateway}:8000`;
  processes = {};

  start(name, args) {
    // Shared memory, and reading another process's, reach across network namespaces. Without both,
    // as between two hosts, pages go over the network.
    const prefix = ['ip', 'netns', 'exec', name, 'setpriv', '--bounding-set=-sys_ptrace'];
    this.processes[name] = new Process(args, {
      prefix: name === 'decode' ? prefix : prefix.slice(0, 4),
      env: { UCX_TLS: 'tcp,self', UCX_NET_DEVICES: 'data' },
    });
  }

  async begin() {
    this.start('gateway', ['gateway', ...kArgs, '--host', this.host, '--control-host', this.host,
      '--disaggregate-from', '0']);
    await this.processes.gateway.said(/listening on/);
    for (const role of ['prefill', 'decode']) {
      this.start(role, ['worker', ...kArgs, '--role', role, '--name', role, '--threads', '1',
        '--kv-memory', '64MiB', '--gateway', `${this.host}:${this.control}`, '--data-listen',
        `${kData}.${kHosts[role]}:0`, '--max-num-batched-tokens', '64']);
    }
    await this.ready(2);
  }

  up() {
    return this.processes.gateway.running;
  }

  get log() {
    return Object.entries(this.processes).map(([name, p]) => `[${name}]\n${p.log}`).join('\n');
  }

  async stop() {
    for (const process of Object.values(this.processes)) await process.stop(45_000);
  }
}

const load = longRequests(16, { tokens: 1000, maxTokens: 60 });
const expected = new Map();
let cluster;
before(async () => {
  layCables();
  const server = await Server.start();
  for (const body of load) {
    const { choices } = await server.client().completions.create({ model: 'tiny-qwen3', ...body });
    expected.set(body, choices[0].text);
  }
  await server.stop();
  cluster = new NetCluster();
  await cluster.begin();
});
after(() => cluster?.stop());

const cut = (end, milliseconds) => {
  ip('link set', end, 'down');
  return sleep(milliseconds).then(() => ip('link set', end, 'up'));
};

// Under way, with a first answer.
async function begun() {
  const streams = load.map((body) => new Stream(cluster, body));
  while (!streams.some((s) => s.pieces > 0) && streams.some((s) => !s.over)) await sleep(5);
  return streams;
}

async function finished(streams, what) {
  const all = await outcomes(streams, 60_000);
  console.log(`## ${what}: ${JSON.stringify(counted(all))}`);
  all.forEach(({ kind, text }, i) => {
    assert.equal(kind, 'finished', JSON.stringify(all[i]));
    assert.equal(text, expected.get(load[i]));
  });
}

test('pages go over the network, and the tokens are the same', async () => {
  await finished(load.map((body) => new Stream(cluster, body)), 'three namespaces');
  const { workers } = await cluster.settled();
  assert.equal(workers.find((w) => w.name === 'prefill').handovers, load.length);
  const bytes = Number(execFileSync('ip', ['netns', 'exec', 'decode', 'cat',
    '/sys/class/net/data/statistics/rx_bytes'], { encoding: 'utf8' }));
  // 24 KiB for each page of 16 tokens; the requests have a few pages in common.
  assert.ok(bytes > 0.8 * load.length * (1000 / 16) * 24 * 1024, `${bytes} bytes`);
});

test('no way between prefill and decode for two seconds: requests wait, and end right', async () => {
  const streams = await begun();
  await cut('d-prefill', 2000);
  await finished(streams, 'the data link was down for 2 s');
  await cluster.settled();
});

test('clients leave while there is no way between prefill and decode', async () => {
  const streams = await begun();
  const whole = cut('d-prefill', 3000);
  await sleep(500);
  for (const stream of streams) stream.leave();
  await outcomes(streams, 5000);
  await whole;
  await cluster.settled(30_000);
});

test('a prefill worker that the gateway cannot reach is gone, and comes back', async () => {
  const streams = await begun();
  await cut('c-prefill', 5000);
  await finished(streams, 'the control link was down for 5 s');
  await cluster.ready(2);
  await cluster.settled(30_000);
  await finished(await begun(), 'after it');
  await cluster.settled();
});
