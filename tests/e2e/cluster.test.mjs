// A cluster gives the tokens of one server, whatever its roles: pages handed from prefill to decode
// workers, shared, cut into chunks, and with workers killed in between.
import assert from 'node:assert/strict';
import { before, describe, test } from 'node:test';
import OpenAI from 'openai';
import { UpCluster } from './cluster.mjs';
import { sleep } from './process.mjs';
import { Server } from './server.mjs';

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

  for (const [name, workers, args, gatewayArgs = []] of [
    ['1 replica', ['replica'], []],
    ['3 replicas', ['replica', 'replica', 'replica'], []],
    ['1P+1D', ['prefill', 'decode'], []],
    ['1 replica beside 1P+1D, by what each costs', ['replica', 'prefill', 'decode'], [],
      ['--disaggregate-from', 'auto', '--log-level', 'debug']],
    ['2P+2D in small chunks', ['prefill', 'prefill', 'decode', 'decode'],
      ['--max-num-batched-tokens', 24, '--max-num-seqs', 8]],
  ]) {
    test(name, async () => {
      const cluster = await UpCluster.start(workers, { args, gatewayArgs });
      try {
        const got = await answers(cluster.client(), list);
        for (let i = 0; i < list.length; ++i) {
          assert.deepEqual(got[i], expected[i], `request ${i}: ${JSON.stringify(list[i])}`);
        }
        const status = await cluster.settled();
        const sum = (role, key) => status.workers.filter((w) => w.role === role)
          .reduce((total, w) => total + w[key], 0);
        if (gatewayArgs.includes('auto')) {
          // Each request's line has the choice, and what it was compared with.
          assert.match(cluster.log, /request finished.*whole replica-1 ttft .*; whole decode-3 ttft/);
        } else if (workers.includes('prefill')) {
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
    const cluster = await UpCluster.start(['prefill', 'prefill', 'decode']);
    try {
      const asked = answers(cluster.client(), requests());
      process.kill(cluster.pid('prefill-1'), 'SIGKILL');
      const got = await asked;
      assert.equal(got.length, requests().length);
      await cluster.ready(3);  // It came back, as a new one.
      await cluster.settled();
    } finally {
      await cluster.stop();
    }
  });

  test('a decode worker: streams end with one error within a second or so, others go on', async () => {
    const cluster = await UpCluster.start(['prefill', 'decode', 'decode']);
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
      await cluster.settled();
    } finally {
      await cluster.stop();
    }
  });

  test('clients that go away leave nothing behind', async () => {
    const cluster = await UpCluster.start(['prefill', 'decode']);
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
      await cluster.settled();
    } finally {
      await cluster.stop();
    }
  });

  test('a role changes while requests run; drained workers get none', async () => {
    const cluster = await UpCluster.start(['replica', 'replica']);
    try {
      const asked = answers(cluster.client(), requests());
      await cluster.command('role', 'replica-1', 'prefill');
      await cluster.command('role', 'replica-2', 'decode');
      await asked;
      await answers(cluster.client(), requests());
      const status = await cluster.settled();
      assert.ok(status.workers.find((w) => w.role === 'prefill').handovers > 0);
      // Without prefill workers the decode worker runs the whole request; without any nobody does.
      await cluster.command('drain', 'replica-1');
      await answers(cluster.client(), requests().slice(0, 3));
      await cluster.command('drain', 'replica-2');
      await assert.rejects(cluster.client().completions.create(
        { model: 'tiny-qwen3', prompt: [300], max_tokens: 2 }, { timeout: 3000 }));
    } finally {
      await cluster.stop();
    }
  });
});

