// Many streams at once through the gateway of 2P+2D: no error, bounded memory, and what the gateway
// itself costs. 200 streams; DIVISI_SOAK=1 makes it 2,000, several times over.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { UpCluster } from './cluster.mjs';
import { cpuSeconds, residentBytes, soak } from './process.mjs';
import { bench } from './server.mjs';

const kStreams = soak ? 2000 : 200;
const kOutput = soak ? 64 : 48;
const kGrowthBytes = 24 << 20;  // Buffers of the connections; a wave after the second adds none.
// Of one core, for a thousand tokens a second.
const kGatewayShare = 0.2;

const wave = (seed) => ['--num-prompts', `${2 * kStreams}`, '--max-concurrency', `${kStreams}`,
  '--input-len', '32', '--prefix-len', '16', '--output-len', `${kOutput}`, '--seed', `${seed}`];

test(`${kStreams} streams on 2P+2D`, { timeout: soak ? 500_000 : 100_000 }, async () => {
  const cluster = await UpCluster.start(['prefill', 'prefill', 'decode', 'decode'], {
    args: ['--max-num-seqs', '256'], gatewayArgs: ['--max-waiting', '4000'], kvMemory: '128 MiB' });
  try {
    const pid = cluster.pid('gateway');
    let resident;
    for (let seed = 1; seed <= (soak ? 4 : 2); ++seed) {
      const before = cpuSeconds(pid);
      const report = await bench(cluster, wave(seed));
      const used = cpuSeconds(pid) - before;
      assert.equal(report.failed, 0);
      assert.equal(report.completed, 2 * kStreams);
      assert.ok(report.max_concurrent_requests >= 0.9 * kStreams);
      const share = used / (report.total_output_tokens / 1000);
      console.log(`## load: ${kStreams} streams, ${Math.round(report.output_throughput)} tok/s, ` +
        `p99 TTFT ${Math.round(report.p99_ttft_ms)} ms; gateway ${used.toFixed(2)} s for ` +
        `${report.total_output_tokens} tokens: ${(100 * share).toFixed(1)} % of a core per 1,000 ` +
        `tok/s; resident ${residentBytes(pid) >> 20} MiB`);
      assert.ok(share < kGatewayShare, `${share} of a core`);
      await cluster.settled(30_000);
      if (seed === (soak ? 2 : 1)) resident = residentBytes(pid);
    }
    const grown = residentBytes(pid) - resident;
    assert.ok(grown < kGrowthBytes, `grew by ${grown >> 20} MiB`);
  } finally {
    await cluster.stop();
  }
});
