// Starts and stops `divisi serve` for the tests, and reads what it tells about itself. Every wait
// has an end, and a server never outlives the test that started it.
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import OpenAI from 'openai';

export const root = path.resolve(path.dirname(fileURLToPath(import.meta.url)), '../..');
export const binary = process.env.DIVISI ?? path.join(root, 'build/release/divisi/cli/divisi');

// Loading the tiny model takes well under a second; a loaded machine may take many times that.
const kStartMs = 60_000;
const kStopMs = 15_000;

export class Server {
  // args: of `divisi serve`, beside model and port. env: beside this process's.
  static async start(args = [], { model = 'models/tiny-qwen3', env = {} } = {}) {
    const child = spawn(binary, ['serve', '--model', model, '--port', '0', ...args], {
      cwd: root,
      env: { ...process.env, ...env },
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    const server = new Server(child);
    const stop = () => child.kill('SIGKILL');
    process.on('exit', stop);
    child.on('exit', (code, signal) => {
      process.off('exit', stop);
      // A server ends when it is told to; otherwise the log says why.
      if (!server.stopping) console.error(`divisi serve ended (${code ?? signal}):\n${server.log}`);
    });
    await server.#listening();
    return server;
  }

  constructor(child) {
    this.child = child;
    this.log = '';
    this.model = 'tiny-qwen3';
    const keep = (text) => {
      this.log = (this.log + text).slice(-100_000);
    };
    child.stderr.on('data', keep);
    child.stdout.on('data', keep);
  }

  async #listening() {
    const begun = Date.now();
    while (true) {
      const found = this.log.match(/listening on (http:\/\/\S+)/);
      if (found) {
        this.url = found[1];
        return;
      }
      if (this.child.exitCode !== null || Date.now() - begun > kStartMs) {
        this.stopping = true;
        this.child.kill('SIGKILL');
        throw new Error(`divisi serve did not start (status ${this.child.exitCode}):\n${this.log}`);
      }
      await sleep(20);
    }
  }

  // The exit status after SIGTERM.
  async stop() {
    if (this.child.exitCode !== null) return this.child.exitCode;
    this.stopping = true;
    const exited = once(this.child, 'exit');
    this.child.kill('SIGTERM');
    const timer = setTimeout(() => this.child.kill('SIGKILL'), kStopMs);
    const [code, signal] = await exited;
    clearTimeout(timer);
    if (signal === 'SIGKILL') throw new Error(`divisi serve did not stop:\n${this.log}`);
    return code;
  }

  client(options = {}) {
    return new OpenAI({
      baseURL: `${this.url}/v1`,
      apiKey: 'none',
      maxRetries: 0,
      timeout: 60_000,
      ...options,
    });
  }

  // {metric name: sum over its labels}.
  async metrics() {
    const response = await fetch(`${this.url}/metrics`);
    if (response.status !== 200) throw new Error(`/metrics: ${response.status}`);
    return parseMetrics(await response.text());
  }

  // Waits until nothing runs, waits or holds pages.
  async idle(limitMs = 10_000) {
    const begun = Date.now();
    while (true) {
      const now = await this.metrics();
      const busy =
        now['divisi:num_requests_running'] +
        now['divisi:num_requests_waiting'] +
        now['divisi:kv_cache_usage_perc'];
      if (busy === 0) return now;
      if (!(Date.now() - begun < limitMs)) {
        throw new Error(`still busy after ${limitMs} ms: ${JSON.stringify(now, null, 1)}`);
      }
      await sleep(10);
    }
  }

  post(route, body, headers = {}) {
    return fetch(`${this.url}${route}`, {
      method: 'POST',
      headers: { 'content-type': 'application/json', ...headers },
      body: typeof body === 'string' ? body : JSON.stringify(body),
    });
  }

  // Resident bytes of the server's process.
  residentBytes() {
    const status = readFileSync(`/proc/${this.child.pid}/status`, 'utf8');
    return Number(status.match(/^VmRSS:\s+(\d+) kB$/m)[1]) * 1024;
  }
}

// Throws for a line that is neither a comment nor a sample of the Prometheus text format.
export function parseMetrics(text) {
  const sums = {};
  for (const line of text.split('\n')) {
    if (line === '' || line.startsWith('#')) continue;
    const found = line.match(/^([a-zA-Z_:][\w:]*)(?:\{[^}]*\})? (\S+)$/);
    const value = found ? Number(found[2].replace('+Inf', 'Infinity')) : NaN;
    if (Number.isNaN(value)) throw new Error(`no sample of the text format: ${line}`);
    sums[found[1]] = (sums[found[1]] ?? 0) + value;
  }
  return sums;
}

export const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

export const golden = JSON.parse(
  readFileSync(path.join(root, 'tests/golden/tiny-qwen3.json'), 'utf8'),
).prompts.find((prompt) => prompt.name === 'len5');

// Runs `divisi bench serve` against a server; its JSON report.
export async function bench(server, args) {
  const child = spawn(
    binary,
    ['bench', 'serve', '--base-url', server.url, '--format', 'json', ...args],
    { cwd: root, stdio: ['ignore', 'pipe', 'pipe'] },
  );
  let out = '';
  let err = '';
  child.stdout.on('data', (text) => (out += text));
  child.stderr.on('data', (text) => (err += text));
  const [code] = await once(child, 'close');
  if (code !== 0) throw new Error(`divisi bench serve ended with ${code}: ${err}${out}`);
  return JSON.parse(out);
}
