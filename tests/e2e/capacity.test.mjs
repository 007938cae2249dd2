// More requests than a cluster can run, workers that are drained, and counters that add up.
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { PartCluster, UpCluster } from './cluster.mjs';
import { sleep } from './process.mjs';

// Bytes of a page of the tiny model: 6 layers of 2 heads of 32, keys and values, two bytes each.
const kPageBytes = 6 * 2 * 2 * 32 * 2 * 16;

const prompt = (length, seed) =>
  Array.from({ length }, (_, i) => 300 + ((i * 7 + seed * 31) % 1500));

function ask(cluster, body) {
  return fetch(`${cluster.url}/v1/completions`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ model: 'tiny-qwen3', temperature: 0, ignore_eos: true, ...body }),
  });
}

// Samples of /metrics: {name: [{labels, value}]}.
async function samples(cluster) {
  const text = await (await fetch(`${cluster.url}/metrics`)).text();
  const all = {};
  for (const line of text.split('\n')) {
    const found = line.match(/^([\w:]+)\{([^}]*)\} (\S+)$/);
    if (!found) continue;
    const labels = Object.fromEntries(
      [...found[2].matchAll(/(\w+)="([^"]*)"/g)].map(([, key, value]) => [key, value]));
    (all[found[1]] ??= []).push({ labels, value: Number(found[3]) });
  }
  return all;
}

function sum(all, name, labels = {}) {
  const matching = (all[name] ?? []).filter((sample) =>
    Object.entries(labels).every(([key, value]) => sample.labels[key] === value));
  assert.ok(matching.length > 0, `no ${name} with ${JSON.stringify(labels)}`);
  return matching.reduce((total, sample) => total + sample.value, 0);
}

describe('beyond capacity', () => {
  test('four sequences serve two hundred requests, and tell those beyond the line', async () => {
    const cluster = await PartCluster.start(['prefill', 'decode'],
      { args: ['--max-num-seqs', '4'], gatewayArgs: ['--max-waiting', '60'] });
    try {
      await ask(cluster, { prompt: prompt(20, 999), max_tokens: 2 });  // Connections are made.
      const before = cluster.get('gateway').residentBytes();
      let refused = 0;
      let last = Date.now();
      let longestGap = 0;
      // Each client comes again when it is told to.
      const answers = await Promise.all(Array.from({ length: 200 }, async (_, i) => {
        for (;;) {
          const response = await ask(cluster, { prompt: prompt(40 + i % 50, i), max_tokens: 30 });
          const text = await response.text();
          if (response.status === 429) {
            ++refused;
            const after = Number(response.headers.get('retry-after'));
            assert.ok(after >= 1 && after <= 60, `Retry-After: ${after}`);
            await sleep(after * 1000);
            continue;
          }
          assert.equal(response.status, 200, text);
          longestGap = Math.max(longestGap, Date.now() - last);
          last = Date.now();
          return JSON.parse(text);
        }
      }));
      for (const answer of answers) assert.equal(answer.usage.completion_tokens, 30);
      assert.ok(refused > 0, 'nobody was beyond the line');
      assert.ok(longestGap < 20_000, `nothing ended for ${longestGap} ms`);
      const growth = cluster.get('gateway').residentBytes() - before;
      assert.ok(growth < 64 << 20, `the gateway grew by ${growth} bytes`);
      await cluster.settled();
    } finally {
      await cluster.stop();
    }
  });
});

// How a stream ends: "finished", "error" or "cut".
async function streamed(cluster, body) {
  const response = await ask(cluster, { ...body, stream: true });
  const text = await response.text();
  if (text.includes('"error"')) return 'error';
  return text.trimEnd().endsWith('data: [DONE]') ? 'finished' : 'cut';
}

describe('drained workers', () => {
  test('a drain ends in time; what has not begun goes elsewhere; it may be taken back', async () => {
    const cluster = await UpCluster.start(['prefill', 'decode', 'decode'],
      { args: ['--max-num-seqs', '8'] });
    try {
      const long = Array.from({ length: 8 }, (_, i) =>
        streamed(cluster, { prompt: prompt(20, i), max_tokens: 1990 }));
      await sleep(300);
      const begun = Date.now();
      const text = await cluster.command('drain', 'decode-2', '--timeout', '1s', '--wait');
      assert.ok(Date.now() - begun < 5000, `the drain took ${Date.now() - begun} ms`);
      assert.match(text, /decode-2.*drained/);
      const ends = await Promise.all(long);
      assert.ok(ends.every((end) => end === 'finished' || end === 'error'), ends.join());
      // All new ones go to the other.
      const before = (await cluster.status()).workers.find((w) => w.name === 'decode-2');
      for (let i = 0; i < 6; ++i) {
        assert.equal((await ask(cluster, { prompt: prompt(30, 50 + i), max_tokens: 3 })).status, 200);
      }
      await cluster.settled();
      const after = (await cluster.status()).workers.find((w) => w.name === 'decode-2');
      assert.equal(after.decode_tokens, before.decode_tokens);
      await cluster.command('undrain', 'decode-2');
      await Promise.all(Array.from({ length: 12 }, (_, i) =>
        ask(cluster, { prompt: prompt(30, 80 + i), max_tokens: 40 }).then((r) => r.text())));
      const status = await cluster.settled();
      const back = status.workers.find((w) => w.name === 'decode-2');
      assert.equal(back.state, 'ready');
      assert.ok(back.decode_tokens > after.decode_tokens, 'it gets nothing after undrain');
    } finally {
      await cluster.stop();
    }
  });

  test('roles change under load, and no request is lost', async () => {
    const cluster = await UpCluster.start(['prefill', 'prefill', 'decode', 'decode']);
    try {
      let stop = false;
      let number = 0;
      const clients = Array.from({ length: 6 }, async () => {
        while (!stop) {
          const response = await ask(cluster, { prompt: prompt(20 + number % 90, ++number),
            max_tokens: 20 });
          const text = await response.text();
          assert.equal(response.status, 200, text);
        }
      });
      for (const [worker, role] of [['prefill-2', 'decode'], ['decode-3', 'prefill'],
        ['prefill-2', 'replica'], ['prefill-2', 'prefill'], ['decode-3', 'decode']]) {
        await sleep(400);
        await cluster.command('role', worker, role);
      }
      await sleep(400);
      stop = true;
      await Promise.all(clients);
      assert.ok(number > 20, `${number} requests`);
      await cluster.settled();
    } finally {
      await cluster.stop();
    }
  });
});

describe('counters', () => {
  test('add up, and do not fall when a worker dies', async () => {
    const cluster = await PartCluster.start(['prefill', 'decode']);
    try {
      // Some prompts begin alike, so that pages are found again; one asks for one token.
      const bodies = Array.from({ length: 30 }, (_, i) =>
        ({ prompt: [...prompt(48, i % 3), ...prompt(5 + 3 * i, 100 + i)],
          max_tokens: i === 7 ? 1 : 2 + i }));
      let prompts = 0;
      let outputs = 0;
      for (const body of bodies) {
        const { usage } = await (await ask(cluster, body)).json();
        prompts += usage.prompt_tokens;
        outputs += usage.completion_tokens;
      }
      await cluster.settled();
      const now = await samples(cluster);
      const role = (name, of) => sum(now, `divisi:role_${name}_tokens_total`, { role: of });
      assert.equal(role('prefill', 'prefill') + role('cached', 'prefill'), prompts);
      assert.ok(role('cached', 'prefill') > 0);
      assert.equal(role('prefill', 'decode'), 0);
      assert.equal(role('decode', 'decode'), outputs - bodies.length);
      assert.equal(role('decode', 'prefill'), 0);
      assert.equal(sum(now, 'divisi:prompt_tokens_total'), prompts);
      assert.equal(sum(now, 'divisi:generation_tokens_total'), outputs);
      const received = sum(now, 'divisi:kv_pages_received_total', { role: 'decode' });
      const bytes = (direction, of) =>
        sum(now, 'divisi:kv_bytes_total', { role: of, direction });
      assert.equal(bytes('received', 'decode'), received * kPageBytes);
      assert.equal(bytes('sent', 'prefill'),
        sum(now, 'divisi:kv_pages_sent_total', { role: 'prefill' }) * kPageBytes);
      // The prompt of one token's output may have sent pages that nobody took.
      assert.ok(bytes('sent', 'prefill') >= bytes('received', 'decode'));
      const taken = sum(now, 'divisi:kv_transfers_taken_total', { role: 'prefill' });
      assert.equal(taken, bodies.length - 1);
      assert.equal(sum(now, 'divisi:kv_transfer_tail_seconds_count', { role: 'prefill' }), taken);
      assert.equal(sum(now, 'divisi:workers', { state: 'ready' }), 2);

      process.kill(cluster.pid('prefill-1'), 'SIGKILL');
      cluster.startWorker('prefill-1');
      await sleep(1000);
      await cluster.ready(2);
      assert.equal((await ask(cluster, bodies[0])).status, 200);
      await cluster.settled();
      const later = await samples(cluster);
      for (const name of Object.keys(now).filter((key) => key.endsWith('_total'))) {
        assert.ok(sum(later, name) >= sum(now, name), `${name} fell`);
      }
      assert.ok(sum(later, 'divisi:role_prefill_tokens_total') >
        sum(now, 'divisi:role_prefill_tokens_total'));
    } finally {
      await cluster.stop();
    }
  });
});

describe('short prompts', () => {
  test('run whole below the threshold, with the same tokens', async () => {
    const cluster = await UpCluster.start(['prefill', 'decode'],
      { gatewayArgs: ['--disaggregate-from', '50', '--policy', 'least-loaded'] });
    const apart = await UpCluster.start(['prefill', 'decode']);
    try {
      for (const length of [1, 17, 49, 50, 51, 120]) {
        const body = { prompt: prompt(length, length), max_tokens: 12, temperature: 1, seed: 3 };
        const texts = [];
        for (const one of [cluster, apart]) {
          texts.push((await (await ask(one, body)).json()).choices[0].text);
        }
        assert.equal(texts[0], texts[1], `${length} tokens`);
      }
      const now = await samples(cluster);
      assert.equal(sum(now, 'divisi:gateway_attempts_total', { way: 'whole' }), 3);
      assert.equal(sum(now, 'divisi:gateway_attempts_total', { way: 'apart' }), 3);
      const status = await cluster.status();
      assert.equal(status.policy, 'least-loaded');
      assert.equal(status.disaggregate.from_tokens, 50);
      assert.match(await cluster.command('status'), /prompts are handed over from 50 tokens/);
    } finally {
      await Promise.all([cluster.stop(), apart.stop()]);
    }
  });
});
