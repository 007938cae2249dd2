// A thousand clients at once on the tiny model, with broken requests beside them and clients that
// leave midway: no error, memory bounded, every page back.
// DIVISI_SOAK=1 makes it ten times as long.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { soak } from './process.mjs';
import { bench, Server } from './server.mjs';

const kClients = 1000;
const kRounds = soak ? 10 : 1;
// The pool's memory is taken as pages are first written: distinct prompts of more tokens than it
// has touch them all, since free pages are used before cached ones. The first wave then brings the
// buffers of a thousand connections and the allocator's arenas. A further wave added nothing when
// this was written; the bound is 16 KiB a request.
const kPoolTokens = 43_690;  // 64 MiB of pages of 24 KiB, 16 tokens each.
const kPoolWarmth = [
  '--num-prompts', `${Math.ceil((1.2 * kPoolTokens) / 1500)}`, '--max-concurrency', '8',
  '--input-len', '1500', '--output-len', '1', '--seed', '99',
];
const kGrowthBytes = 16 << 20;

const wave = [
  '--num-prompts', `${kClients * kRounds}`, '--max-concurrency', `${kClients}`,
  '--input-len', '32', '--prefix-len', '16', '--output-len', '24', '--range-ratio', '0.5',
  '--malformed-rate', '40',
];

test('a thousand streams at once, twice', { timeout: soak ? 565_000 : 110_000 }, async () => {
  const server = await Server.start([
    '--max-num-seqs', '256', '--max-waiting', '2000', '--kv-memory', '64MiB',
  ]);
  try {
    assert.equal((await bench(server, kPoolWarmth)).failed, 0);
    const first = await bench(server, wave);
    check(first);
    await server.idle();
    const before = server.residentBytes();
    const second = await bench(server, [...wave, '--seed', '1']);
    check(second);
    const after = server.residentBytes();
    assert.ok(after - before < kGrowthBytes, `grew by ${(after - before) >> 20} MiB`);
    await server.idle();

    const leaving = await bench(server, [...wave, '--seed', '2', '--disconnect-fraction', '0.5']);
    assert.equal(leaving.failed, 0);
    assert.ok(leaving.disconnected > kClients * 0.4, `${leaving.disconnected} left`);
    await server.idle();
    const last = server.residentBytes();
    assert.ok(last - before < kGrowthBytes, `grew by ${(last - before) >> 20} MiB`);
    const rate = (report) => Math.round(report.output_throughput);
    console.log(
      `tok/s ${rate(first)}, ${rate(second)}; p99 TTFT ${Math.round(second.p99_ttft_ms)} ms; ` +
        `resident ${before >> 20}, ${after >> 20}, ${last >> 20} MiB; ` +
        `${second.malformed.sent} broken requests beside`,
    );
  } finally {
    assert.equal(await server.stop(), 0);
  }
});

function check(report) {
  assert.equal(report.failed, 0);
  assert.equal(report.completed, kClients * kRounds);
  assert.ok(report.max_concurrent_requests >= 0.9 * kClients, `${report.max_concurrent_requests}`);
  assert.ok(report.malformed.sent > 0);
  assert.deepEqual(report.malformed.faults, {});
}
