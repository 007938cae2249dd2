// KV tiers below the device pages: a later turn reuses what an earlier one left behind, also after
// the device gave it up, on another worker of a restarted process, and gives the tokens of a server
// without any cache.
import assert from 'node:assert/strict';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { after, before, describe, test } from 'node:test';
import { PartCluster } from './cluster.mjs';
import { sleep } from './process.mjs';
import { Server } from './server.mjs';

// Device pages for little more than one of these prompts (6 layers of 2 heads: 24 KiB a page).
const kDevice = ['--max-model-len', '1024', '--kv-memory', '2MiB'];
const prompt = (first, length = 900) =>
  Array.from({ length }, (_, i) => 5 + ((first * 131 + i * 7) % 1900));
const body = (tokens, more = {}) =>
  ({ model: 'tiny-qwen3', prompt: tokens, max_tokens: 12, temperature: 0, ignore_eos: true, ...more });

async function ask(surface, tokens, more) {
  const answer = await surface.client().completions.create(body(tokens, more));
  return { text: answer.choices[0].text,
    cached: answer.usage.prompt_tokens_details.cached_tokens };
}

// Other prompts take the device's pages.
async function pushOut(surface) {
  for (let i = 0; i < 3; i++) await ask(surface, prompt(50 + i));
}

const expected = new Map();
before(async () => {
  const server = await Server.start(['--no-prefix-caching']);
  for (let i = 0; i < 4; i++) expected.set(i, (await ask(server, prompt(i))).text);
  await server.stop();
});

describe('one server', () => {
  let folder;
  before(() => { folder = mkdtempSync(path.join(tmpdir(), 'divisi-tiers-')); });
  after(() => rmSync(folder, { recursive: true, force: true }));

  test('host memory brings a prefix back, but to no other tenant', async () => {
    const server = await Server.start([...kDevice, '--kv-host', '64MiB']);
    for (let i = 0; i < 4; i++) assert.equal((await ask(server, prompt(i))).text, expected.get(i));
    await pushOut(server);
    for (let i = 0; i < 4; i++) {
      const again = await ask(server, prompt(i));
      assert.equal(again.text, expected.get(i));
      assert.equal(again.cached, 896);
    }
    const salted = await ask(server, prompt(0), { cache_salt: 'other' });
    assert.equal(salted.text, expected.get(0));
    assert.equal(salted.cached, 0);
    // What is said of the conversation changes no token.
    for (const kv_session of ['open', 'closed']) {
      assert.equal((await ask(server, prompt(0), { kv_session })).text, expected.get(0));
    }
    await assert.rejects(ask(server, prompt(0), { kv_session: 'shut' }), /kv_session/);
    const metrics = await server.metrics();
    assert.equal(metrics['divisi:kv_pages_read_total'], metrics['divisi:kv_pages_used_total']);
    assert.ok(metrics['divisi:kv_loads_total'] >= 4);
    await server.stop();
  });

  test('the disk outlives a kill', async () => {
    const args = [...kDevice, '--kv-host', '64MiB', '--kv-disk', folder, '--kv-disk-size', '256MiB',
      '--kv-disk-writes', 'all'];
    const first = await Server.start(args);
    await ask(first, prompt(0));
    for (let i = 0; i < 200; i++) {
      if ((await first.metrics())['divisi:kv_tier_writes_total'] >= 2 * 56) break;
      await sleep(50);
    }
    first.process.signal('SIGKILL');
    await first.process.ended;
    const second = await Server.start(args);
    const again = await ask(second, prompt(0));
    assert.equal(again.text, expected.get(0));
    assert.equal(again.cached, 896);
    await second.stop();
  });
});

test('workers of a cluster have tiers', async () => {
  for (const roles of [['replica'], ['prefill', 'decode']]) {
    const cluster = await PartCluster.start(roles,
      { args: ['--max-model-len', '1024', '--kv-host', '64MiB'], kvMemory: '2MiB',
        gatewayArgs: ['--max-model-len', '1024'] });
    for (let i = 0; i < 2; i++) assert.equal((await ask(cluster, prompt(i))).text, expected.get(i));
    await pushOut(cluster);
    const again = await ask(cluster, prompt(0));
    assert.equal(again.text, expected.get(0), roles.join());
    const { found } = await cluster.prompts();
    assert.ok(found >= 896, `${found} tokens found`);
    await cluster.settled();
    await cluster.stop();
  }
});
