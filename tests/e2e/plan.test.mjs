// What `divisi plan` chooses is what `divisi up` starts, and what that cluster then does is what the
// plan says of the load.
import assert from 'node:assert/strict';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { test } from 'node:test';
import { UpCluster } from './cluster.mjs';
import { divisi } from './process.mjs';

const kScenario = 'examples/cluster/plan-local.yaml';

const prompt = (length, seed) =>
  Array.from({ length }, (_, i) => 300 + ((i * 7 + (i + 1) * seed * 31) % 1500));

async function sumOf(cluster, pattern) {
  const text = await (await fetch(`${cluster.url}/metrics`)).text();
  return text.split('\n').filter((line) => pattern.test(line))
    .reduce((total, line) => total + Number(line.split(' ').at(-1)), 0);
}

test('an emitted plan runs as it is, and does what was planned', async () => {
  const folder = mkdtempSync(path.join(tmpdir(), 'divisi-plan-'));
  const file = path.join(folder, 'cluster.yaml');
  const trace = path.join(folder, 'load.jsonl');
  const plan = JSON.parse(await divisi('plan', kScenario, '--format', 'json', '--emit-cluster',
    file, '--emit-load', trace, '--load-duration', '3 s'));
  assert.equal(plan.chosen, 'pd-direct');
  const chosen = plan.candidates[0];
  // Every prompt is handed over, as the plan has it; the file as it is leaves that to the gateway.
  writeFileSync(file, readFileSync(file, 'utf8').replace('disaggregate_from: auto',
    'disaggregate_from: 0'));
  const cluster = await UpCluster.startFile(file, 2);
  try {
    const status = await cluster.status();
    for (const role of ['prefill', 'decode']) {
      assert.equal(status.workers.filter((w) => w.role === role).length,
        chosen[`${role}_cards`].core);
    }
    const load = readFileSync(trace, 'utf8').trim().split('\n').map((line) => JSON.parse(line));
    assert.ok(load.length > 20);
    await Promise.all(load.map(async (request, i) => {
      const response = await fetch(`${cluster.url}/v1/completions`, {
        method: 'POST',
        headers: { 'content-type': 'application/json' },
        body: JSON.stringify({ model: 'tiny-qwen3', prompt: prompt(request.input_length, i + 1),
          max_tokens: request.output_length, temperature: 0, ignore_eos: true }),
      });
      assert.equal(response.status, 200);
      await response.json();
    }));
    await cluster.settled();
    const total = (key) => load.reduce((sum, request) => sum + request[key], 0);
    assert.equal(await sumOf(cluster, /^divisi:role_(prefill|cached)_tokens_total.*"prefill"/),
      total('input_length'));
    assert.equal(await sumOf(cluster, /^divisi:role_decode_tokens_total.*"decode"/),
      total('output_length') - load.length);
    // The plan's mean request has three prompts of 128 tokens to one of 1536.
    const bytesPerToken = chosen.transfer_bytes / ((3 * 128 + 1536) / 4);
    assert.equal(await sumOf(cluster, /^divisi:kv_bytes_total.*"decode".*"received"/),
      total('input_length') * bytesPerToken);
  } finally {
    await cluster.stop();
    rmSync(folder, { recursive: true });
  }
});

test('the file runs unchanged', async () => {
  const folder = mkdtempSync(path.join(tmpdir(), 'divisi-plan-'));
  const file = path.join(folder, 'cluster.yaml');
  await divisi('plan', kScenario, '--emit-cluster', file);
  const cluster = await UpCluster.startFile(file, 2);
  try {
    const answer = await cluster.client().completions.create(
      { model: 'tiny-qwen3', prompt: prompt(200, 1), max_tokens: 5 });
    assert.equal(answer.usage.prompt_tokens, 200);
    assert.equal((await cluster.status()).policy, 'expected-ttft');
  } finally {
    await cluster.stop();
    rmSync(folder, { recursive: true });
  }
});

test('what cannot be started is said', async () => {
  await assert.rejects(divisi('plan', 'examples/chapter9/eight-cards.yaml', '--emit-cluster',
    '/dev/null'), /--cluster-model/);
});
