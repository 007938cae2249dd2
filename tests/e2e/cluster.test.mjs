// A cluster gives the tokens of one server, whatever its roles: pages handed from prefill to decode
// workers, shared, cut into chunks, and with workers killed in between.
import assert from 'node:assert/strict';
import { execFileSync, spawn } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import net from 'node:net';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { before, describe, test } from 'node:test';
import OpenAI from 'openai';
import { binary, root, Server, sleep } from './server.mjs';

const kStartMs = 60_000;

async function freePort() {
  const server = net.createServer();
  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
  const { port } = server.address();
  await new Promise((resolve) => server.close(resolve));
  return port;
}

class Cluster {
  // workers: "prefill", "decode" and "replica", in any number.
  static async start(workers, args = []) {
    const cluster = new Cluster();
    cluster.folder = mkdtempSync(path.join(tmpdir(), 'divisi-cluster-'));
    cluster.port = await freePort();
    cluster.control = await freePort();
    const file = path.join(cluster.folder, 'cluster.yaml');
    const lines = workers.map(
      (role) => `  - {role: ${role}, threads: 1, kv_memory: 64 MiB` +
        `${args.length > 0 ? `, args: [${args.join(', ')}]` : ''}}`);
    writeFileSync(file, `model: ${path.join(root, 'models/tiny-qwen3')}\n` +
      `gateway: {port: ${cluster.port}, control_port: ${cluster.control}}\n` +
      `workers:\n${lines.join('\n')}\n`);
    cluster.child = spawn(binary, ['up', file], { stdio: ['ignore', 'pipe', 'pipe'] });
    cluster.log = '';
    const keep = (text) => { cluster.log = (cluster.log + text).slice(-200_000); };
    cluster.child.stdout.on('data', keep);
    cluster.child.stderr.on('data', keep);
    process.on('exit', () => cluster.child.kill('SIGKILL'));
    await cluster.ready(workers.length);
    return cluster;
  }

  status() {
    return JSON.parse(execFileSync(binary,
      ['cluster', 'status', '--format', 'json', '--gateway', `127.0.0.1:${this.control}`],
      { stdio: ['ignore', 'pipe', 'ignore'] }));
  }

  async ready(count) {
    for (const begun = Date.now(); Date.now() - begun < kStartMs; await sleep(50)) {
      try {
        if (this.status().workers.filter((w) => w.connected).length >= count) return;
      } catch { /* Not there yet. */ }
      if (this.child.exitCode !== null) break;
    }
    throw new Error(`the cluster did not start:\n${this.log}`);
  }

  // Until nothing is held anywhere.
  async idle() {
    let status;
    await sleep(1000);  // Every worker has reported since.
    for (const begun = Date.now(); Date.now() - begun < 20_000; await sleep(100)) {
      status = this.status();
      const busy = status.workers.some(
        (w) => w.requests + w.running + w.held + w.reserved + w.stopping + w.pages_used > 0);
      if (!busy && status.live === 0) return status;
    }
    throw new Error(`pages or requests are left: ${JSON.stringify(status)}`);
  }

  // The process that has `name`, by its arguments.
  pid(name) {
    const found = execFileSync('ps', ['-eo', 'pid,ppid,args'], { encoding: 'utf8' }).split('\n')
      .find((line) => line.includes(` ${this.child.pid} `) && line.endsWith(`--name ${name}`));
    return Number(found.trim().split(/\s+/)[0]);
  }

  client() {
    return new OpenAI({ baseURL: `http://127.0.0.1:${this.port}/v1`, apiKey: 'none', maxRetries: 0 });
  }

  async stop() {
    const ended = new Promise((resolve) => this.child.on('exit', resolve));
    this.child.kill('SIGTERM');
    const code = await ended;
    rmSync(this.folder, { recursive: true });
    assert.equal(code, 0, this.log);
  }
}

// Lengths around the edges of pages (16 tokens) and of chunks, prefixes in common, every sampling.
function requests() {
  const all = [];
  let number = 0;
  for (const length of [1, 2, 15, 16, 17, 31, 32, 33, 47, 64, 65, 100, 128, 129, 200]) {
    const prompt = Array.from({ length }, (_, i) => 300 + ((i * 7 + (i > 20 ? number : 0)) % 1500));
    all.push({ prompt, max_tokens: 12, temperature: 0 });
    all.push({ prompt, max_tokens: 9, temperature: 1, seed: number, top_p: 0.9 });
    all.push({ prompt, max_tokens: 1, temperature: 0, logprobs: 2 });
    if (number % 4 === 0) {
      all.push({ prompt, max_tokens: 6, temperature: 0.8, seed: 5, n: 2, logprobs: 1 });
      all.push({ prompt, max_tokens: 4, temperature: 0, echo: true, logprobs: 1 });
      all.push({ prompt, max_tokens: 8, temperature: 1, seed: 9, repetition_penalty: 1.3,
        presence_penalty: 0.5, ignore_eos: true });
    }
    ++number;
  }
  return all;
}

const shown = (answer) => answer.choices.map(
  ({ text, finish_reason, logprobs }) => ({ text, finish_reason, logprobs }));

async function answers(client, list) {
  const ask = (body) => client.completions.create({ model: 'tiny-qwen3', ...body });
  return Promise.all(list.map(async (body) => {
    const answer = await ask(body);
    return { choices: shown(answer), usage: [answer.usage.prompt_tokens, answer.usage.completion_tokens] };
  }));
}

describe('a cluster gives the tokens of one server', () => {
  const list = requests();
  let expected;
  before(async () => {
    const server = await Server.start();
    expected = await answers(server.client(), list);
    // A first token that is a stop token.
    const first = expected[0].choices[0].text;
    list.push({ prompt: list[0].prompt, max_tokens: 12, temperature: 0, stop: [first.slice(0, 3)] });
    expected.push(...await answers(server.client(), list.slice(-1)));
    await server.stop();
  });

  for (const [name, workers, args] of [
    ['1 replica', ['replica'], []],
    ['3 replicas', ['replica', 'replica', 'replica'], []],
    ['1P+1D', ['prefill', 'decode'], []],
    ['2P+2D in small chunks', ['prefill', 'prefill', 'decode', 'decode'],
      ['--max-num-batched-tokens', '"24"', '--max-num-seqs', '"8"']],
  ]) {
    test(name, async () => {
      const cluster = await Cluster.start(workers, args);
      try {
        const got = await answers(cluster.client(), list);
        for (let i = 0; i < list.length; ++i) {
          assert.deepEqual(got[i], expected[i], `request ${i}: ${JSON.stringify(list[i])}`);
        }
        const status = await cluster.idle();
        const sum = (role, key) => status.workers.filter((w) => w.role === role)
          .reduce((total, w) => total + w[key], 0);
        if (workers.includes('prefill')) {
          // Each role did its part, and no other.
          assert.ok(sum('prefill', 'handovers') > 0 && sum('prefill', 'pages_written') > 0);
          assert.equal(sum('prefill', 'decode_tokens'), 0);
          assert.equal(sum('decode', 'pages_written'), 0);
          assert.ok(sum('decode', 'decode_tokens') > 0);
        }
      } finally {
        await cluster.stop();
      }
    });
  }
});

describe('workers that die', () => {
  test('a prefill worker: its requests are tried elsewhere', async () => {
    const cluster = await Cluster.start(['prefill', 'prefill', 'decode']);
    try {
      const asked = answers(cluster.client(), requests());
      process.kill(cluster.pid('prefill-1'), 'SIGKILL');
      const got = await asked;
      assert.equal(got.length, requests().length);
      await cluster.ready(3);  // It came back, as a new one.
      await cluster.idle();
    } finally {
      await cluster.stop();
    }
  });

  test('a decode worker: streams end with one error within a second or so, others go on', async () => {
    const cluster = await Cluster.start(['prefill', 'decode', 'decode']);
    try {
      const client = cluster.client();
      const streams = await Promise.all(Array.from({ length: 8 }, (_, i) =>
        client.completions.create({ model: 'tiny-qwen3', prompt: [400 + i, 401, 402],
          max_tokens: 1900, temperature: 1, seed: i, ignore_eos: true, stream: true })));
      const outcomes = streams.map(async (stream) => {
        try {
          for await (const part of stream) {
            if (part.choices[0]?.finish_reason) return 'finished';
          }
          return 'cut';
        } catch (error) {
          return error instanceof OpenAI.APIError ? 'error' : String(error);
        }
      });
      await sleep(150);
      const killed = Date.now();
      process.kill(cluster.pid('decode-2'), 'SIGKILL');
      const ended = await Promise.all(outcomes.map(async (outcome) => {
        const what = await outcome;
        return { what, after: Date.now() - killed };
      }));
      for (const { what, after } of ended) {
        assert.ok(what === 'finished' || what === 'error', what);
        if (what === 'error') assert.ok(after < 5000, `an error after ${after} ms`);
      }
      await cluster.ready(3);
      await cluster.idle();
    } finally {
      await cluster.stop();
    }
  });

  test('clients that go away leave nothing behind', async () => {
    const cluster = await Cluster.start(['prefill', 'decode']);
    try {
      await Promise.all(Array.from({ length: 40 }, async (_, i) => {
        const leaving = new AbortController();
        const asked = cluster.client().completions.create(
          { model: 'tiny-qwen3', prompt: Array.from({ length: 20 + 5 * i }, (_, t) => 300 + t + i),
            max_tokens: 2000, ignore_eos: true, stream: true }, { signal: leaving.signal });
        setTimeout(() => leaving.abort(), 5 * i);
        try {
          for await (const part of await asked) void part;
        } catch { /* It left. */ }
      }));
      await cluster.idle();
    } finally {
      await cluster.stop();
    }
  });

  test('a role changes while requests run; drained workers get none', async () => {
    const cluster = await Cluster.start(['replica', 'replica']);
    const command = (...words) => execFileSync(binary,
      ['cluster', ...words, '--gateway', `127.0.0.1:${cluster.control}`], { stdio: 'pipe' });
    try {
      const asked = answers(cluster.client(), requests());
      command('role', 'replica-1', 'prefill');
      command('role', 'replica-2', 'decode');
      await asked;
      await answers(cluster.client(), requests());
      const status = await cluster.idle();
      assert.ok(status.workers.find((w) => w.role === 'prefill').handovers > 0);
      command('drain', 'replica-1');
      await assert.rejects(cluster.client().completions.create(
        { model: 'tiny-qwen3', prompt: [300], max_tokens: 2 }, { timeout: 3000 }));
    } finally {
      await cluster.stop();
    }
  });
});

