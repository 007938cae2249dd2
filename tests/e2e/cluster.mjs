// Clusters for the tests: by `divisi up`, or process by process, where a test ends some of them.
import { execFileSync } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { divisi, freePort, kStartMs, Process, root, sleep } from './process.mjs';
import { Surface } from './server.mjs';

const kModel = 'models/tiny-qwen3';
// `up` lets the gateway drain before it stops the workers.
const kStopMs = 60_000;

// Every prompt is handed over, short ones too, unless a test says otherwise: hand-overs are what
// most tests are about.
const gatewayWords = (args) =>
  args.includes('--disaggregate-from') ? args : ['--disaggregate-from', '0', ...args];

// What both kinds have in common: a gateway's HTTP surface and its control port.
export class Cluster extends Surface {
  host = '127.0.0.1';  // Of the control port

  async command(...words) {
    return divisi('cluster', ...words, '--gateway', `${this.host}:${this.control}`);
  }

  async status() {
    return JSON.parse(await this.command('status', '--format', 'json'));
  }

  // Requests by phase at the gateway, and prompts on their way by state at the workers, which
  // report a few times a second.
  async phases() {
    const text = await (await fetch(`${this.url}/metrics`)).text();
    const phases = {};
    const wanted = /^divisi:(?:gateway_requests|kv_transfers)\{.*(?:phase|state)="(\w+)".*\} (\d+)$/gm;
    for (const [, phase, value] of text.matchAll(wanted)) {
      phases[phase] = (phases[phase] ?? 0) + Number(value);
    }
    return phases;
  }

  // {computed, found}: prompt tokens that workers computed, and that they found in pages, here or
  // elsewhere, once they have reported of all prompts that were asked: twice a second. For clusters
  // that lost no worker and no request.
  async prompts(limitMs = 20_000) {
    let metrics;
    for (const begun = Date.now(); Date.now() - begun < limitMs; await sleep(50)) {
      metrics = await this.metrics();
      const computed = metrics['divisi:role_prefill_tokens_total'];
      const found = metrics['divisi:role_cached_tokens_total'];
      if (computed + found >= metrics['divisi:prompt_tokens_total']) return { computed, found };
    }
    throw new Error(`not all prompts are reported: ${JSON.stringify(metrics, null, 1)}`);
  }

  // Until so many workers are connected.
  async ready(count, limitMs = kStartMs) {
    let status;
    for (const begun = Date.now(); Date.now() - begun < limitMs; await sleep(50)) {
      if (!this.up()) break;
      try {
        status = await this.status();
        if (status.workers.filter((w) => w.connected).length >= count) return status;
      } catch {
        // Not there yet.
      }
    }
    throw new Error(`${count} workers did not come: ${JSON.stringify(status)}\n${this.log}`);
  }

  // Until nothing is held anywhere: no request, page, reservation or count is left.
  async settled(limitMs = 20_000) {
    let status, phases;
    await sleep(1000);  // Every worker has reported since.
    for (const begun = Date.now(); Date.now() - begun < limitMs; await sleep(100)) {
      status = await this.status();
      phases = await this.phases();
      const busy = Object.values(phases).some((count) => count > 0);
      if (held(status).length === 0 && !busy) return status;
    }
    throw new Error(`something is left: ${held(status)} ${JSON.stringify(phases)}\n` +
      JSON.stringify(status));
  }

  async idle(limitMs = 10_000) {
    await this.settled(limitMs);
    return super.idle(limitMs);
  }
}

// What a status says that something holds; empty at rest.
export function held(status) {
  const left = ['live', 'waiting'].filter((key) => status[key] !== 0)
    .map((key) => `${key} ${status[key]}`);
  for (const worker of status.workers) {
    for (const key of ['requests', 'running', 'waiting', 'held', 'reserved', 'stopping',
      'pages_used']) {
      const rest = worker.connected || key === 'requests' ? 0 : null;  // Lost: it is not known.
      if (worker[key] !== rest) left.push(`${worker.name} ${key} ${worker[key]}`);
    }
  }
  return left;
}

// Started by `divisi up`, which starts workers again that end.
export class UpCluster extends Cluster {
  // roles: "prefill", "decode" and "replica", in any number. pool: the file's.
  static async start(roles, options = {}) {
    const cluster = new UpCluster();
    await cluster.#start(roles, options);
    return cluster;
  }

  // A file as it is, but for its ports. workers: how many it starts.
  static async startFile(file, workers) {
    const cluster = new UpCluster();
    cluster.port = await freePort();
    cluster.control = await freePort();
    await cluster.#up(['up', file, '--port', cluster.port, '--control-port', cluster.control],
      workers, {});
    return cluster;
  }

  async #start(roles, { args = [], gatewayArgs = [], kvMemory = '64 MiB', env = {},
    model = kModel, pool = null }) {
    this.folder = mkdtempSync(path.join(tmpdir(), 'divisi-cluster-'));
    this.port = await freePort();
    this.control = await freePort();
    const file = path.join(this.folder, 'cluster.yaml');
    const list = (words) =>
      words.length > 0 ? `, args: ${JSON.stringify(words.map(String))}` : '';
    const workers = roles.map((role) =>
      `  - {role: ${role}, threads: 1, kv_memory: ${kvMemory}${list(args)}}`);
    writeFileSync(file, `model: ${path.join(root, model)}\n` +
      `gateway: {port: ${this.port}, control_port: ${this.control}${list(gatewayWords(gatewayArgs))}}\n` +
      (pool ? `pool: ${pool}\n` : '') + `workers:\n${workers.join('\n')}\n`);
    await this.#up(['up', file], roles.length, env);
  }

  async #up(args, workers, env) {
    this.url = `http://127.0.0.1:${this.port}`;
    this.process = new Process(args, { env });
    await this.ready(workers);
    await this.process.said(/listening on/);
  }

  up() {
    return this.process.running;
  }

  get log() {
    return this.process.log;
  }

  // The process of the worker that has `name`, by its arguments; "gateway" is the gateway's.
  pid(name) {
    const end = name === 'gateway' ? `--control-port ${this.control}` : `--name ${name}`;
    const found = execFileSync('ps', ['-o', 'pid,args', '--ppid', this.process.pid],
      { encoding: 'utf8' }).split('\n').find((line) => line.includes(end));
    if (!found) throw new Error(`no process ${name}:\n${this.log}`);
    return Number(found.trim().split(/\s+/)[0]);
  }

  // The exit status.
  async stop() {
    const code = await this.process.stop(kStopMs);
    if (this.folder) rmSync(this.folder, { recursive: true });
    if (code !== 0) throw new Error(`divisi up ended with ${code}:\n${this.log}`);
    return code;
  }
}

// Each process a child of the test: any may end, and be started again, on its own.
export class PartCluster extends Cluster {
  // roles: as above; workers are named ROLE-NUMBER, counted from 1 over all.
  static async start(roles, options = {}) {
    const cluster = new PartCluster(roles, options);
    await cluster.startGateway();
    cluster.names.map((name) => cluster.startWorker(name));
    await cluster.ready(roles.length);
    return cluster;
  }

  constructor(roles, options) {
    super();
    this.options = { args: [], gatewayArgs: [], kvMemory: '64MiB', model: kModel, env: {},
      ...options };
    this.names = roles.map((role, i) => `${role}-${i + 1}`);
    this.processes = new Map();
    this.all = [];
  }

  // At the ports that it had before, if it was there.
  async startGateway() {
    const { gatewayArgs, model, env } = this.options;
    const gateway = new Process(['gateway', '--model', model, '--port', `${this.port ?? 0}`,
      '--control-port', `${this.control ?? 0}`, ...gatewayWords(gatewayArgs)], { env });
    this.#keep('gateway', gateway);
    this.control = Number((await gateway.said(/control on \S+:(\d+)/))[1]);
    this.url = (await gateway.said(/listening on (http:\/\/\S+)/))[1];
    this.port = Number(new URL(this.url).port);
    return gateway;
  }

  startWorker(name, { model = this.options.model, kvMemory = this.options.kvMemory,
    args = [] } = {}) {
    const { env } = this.options;
    return this.#keep(name, new Process(['worker', '--model', model, '--role', name.split('-')[0],
      '--gateway', `127.0.0.1:${this.control}`, '--name', name, '--threads', '1',
      '--kv-memory', kvMemory, ...this.options.args, ...args], { env }));
  }

  #keep(name, process) {
    this.processes.set(name, process);
    this.all.push([name, process]);
    return process;
  }

  up() {
    return this.processes.get('gateway').running;
  }

  get log() {
    return this.all.map(([name, process]) =>
      process.log.split('\n').map((line) => `[${name} ${process.pid}] ${line}`).join('\n')).join('\n');
  }

  get(name) {
    return this.processes.get(name);
  }

  pid(name) {
    return this.get(name).pid;
  }

  // The gateway first, as `up` does it.
  async stop() {
    const gateway = this.processes.get('gateway');
    const codes = [await gateway.stop(kStopMs)];
    codes.push(...await Promise.all([...this.processes.values()].map((p) => p.stop(kStopMs))));
    const bad = codes.find((code) => code !== 0 && code !== null);
    if (bad !== undefined) throw new Error(`a process ended with ${bad}:\n${this.log}`);
    return 0;
  }
}
