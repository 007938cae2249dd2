// `divisi serve` for the tests, and what anything with its HTTP surface tells about itself.
import { readFileSync } from 'node:fs';
import path from 'node:path';
import OpenAI from 'openai';
import { divisi, Process, root, sleep } from './process.mjs';

// What answers at `url`: a server, or a cluster's gateway.
export class Surface {
  model = 'tiny-qwen3';

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
}

export class Server extends Surface {
  // args: of `divisi serve`, beside model and port. env: beside this process's.
  static async start(args = [], { model = 'models/tiny-qwen3', env = {} } = {}) {
    const server = new Server();
    server.process = new Process(['serve', '--model', model, '--port', '0', ...args], { env });
    server.url = (await server.process.said(/listening on (http:\/\/\S+)/))[1];
    return server;
  }

  // The exit status after SIGTERM.
  stop() {
    return this.process.stop();
  }

  residentBytes() {
    return this.process.residentBytes();
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

export const golden = JSON.parse(
  readFileSync(path.join(root, 'tests/golden/tiny-qwen3.json'), 'utf8'),
).prompts.find((prompt) => prompt.name === 'len5');

// Runs `divisi bench serve` against a surface; its JSON report.
export async function bench(surface, args) {
  return JSON.parse(
    await divisi('bench', 'serve', '--base-url', surface.url, '--format', 'json', ...args));
}
