// A whole cluster in one thread on a virtual clock: the production state machines of one to three
// gateways (GatewayCore) and their workers (WorkerCore), over modelled connections that delay, drop
// and repeat messages, with or without a directory, with crashes, partitions, false alarms, and
// processes that leave, and with or without KV tiers below the workers' devices, whose reads and
// writes are slow, fail and get lost, of pages whole or layer by layer, with computing behind them,
// and whose pool forgets pages and goes away. Everything is drawn from the seed; the same seed runs
// the same events.
//
// What is checked of every run:
//   - each request ends exactly once, or never after its cancellation
//   - the tokens of a request that finished are those of a run alone, and those of one that failed
//     a beginning of them
//   - no worker computes with a page that was not written for it (SimExecutor's faults)
//   - workers and dispatcher agree with themselves at every event (Verify)
//   - once faults have stopped everything ends in bounded time, no page is held, and every load
//     is 0, and every worker and every gateway have found each other
//   - then each gateway's PageDirectory knows of each worker, tier by tier, what it holds, and of
//     the pool, and of nobody else anything; batches of events are lost, repeated and reordered on
//     the way
#pragma once

#include <cstdint>
#include <string>

namespace divisi {

// What happened in a run, so that a soak can say what it never met.
struct SimClusterReport {
  std::string fault;  // Empty: all is well
  uint64_t digest = 0;
  int64_t finished = 0, failed = 0, refused = 0, cancelled = 0;
  int64_t handovers = 0, retries = 0, crashes = 0, partitions = 0, false_alarms = 0;
  int64_t dropped = 0, repeated = 0, expired_leases = 0, late_writes = 0, failed_mid_stream = 0;
  int64_t drains = 0, role_changes = 0;
  int64_t event_gaps = 0, event_replays = 0, event_snapshots = 0, event_losses = 0;
  int64_t known_pages = 0;  // By gateways, of workers, at the end
  int64_t loads = 0, failed_loads = 0, pool_pages = 0, peer_pages = 0;  // Of KV tiers
  int64_t following_steps = 0, lost_prefixes = 0;  // Behind a load; requests that computed anew
  int64_t pool_losses = 0, pool_outages = 0;       // Pages; of the whole pool
  int64_t gateway_lost = 0, directory_outages = 0, leaves = 0, declared_dead = 0;
};

SimClusterReport RunSimCluster(uint64_t seed);

}  // namespace divisi
