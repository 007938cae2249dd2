// What a worker has done since its start: for metrics, and to be held against a plan.
#pragma once

#include <array>
#include <cstdint>

#include "divisi/core/units.h"

namespace divisi {

// Times by size: counts[i] of those at most kBounds[i] seconds, the last of those beyond.
struct TimeCounts {
  static constexpr std::array<double, 16> kBounds = {
      0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10};
  std::array<int64_t, kBounds.size() + 1> counts{};
  double seconds = 0;

  void Add(Seconds time);
  int64_t Count() const;
};

struct WorkerCounters {
  int64_t prefill_tokens = 0;  // Computed of prompts, new ones or again
  int64_t queried_tokens = 0;  // Of prompts looked up in shared pages
  int64_t cached_tokens = 0;   // Of them, found there
  int64_t decode_tokens = 0;
  int64_t preemptions = 0;
  int64_t pages_sent = 0;      // Written to other workers
  int64_t pages_received = 0;  // Taken over with a prompt; those present already not counted
  int64_t reservations = 0;    // Of D
  int64_t reservations_refused = 0;
  int64_t transfers = 0;  // Of P, begun. Those that are over are each one of the following four:
  int64_t handovers = 0;  // taken by D;
  int64_t transfers_failed = 0;    // not computed or written, not taken in time, or D is gone;
  int64_t transfers_aborted = 0;   // the gateway or D gave it up, or the gateway is silent;
  int64_t transfers_answered = 0;  // the first token was the last.
  int64_t expired_leases = 0;      // Of requests of D, replicas and P: the gateway was silent
  // Of the tiers below the device (engine/prefix_loader.h, kv/tier_io.h, kv/remote_store.h).
  int64_t kv_loads = 0, kv_loads_failed = 0;
  int64_t kv_pages_read = 0, kv_pages_used = 0;  // By loads; of them, by their requests
  int64_t kv_pages_bad = 0;                      // Not there, or not as they were put
  int64_t host_read_bytes = 0, disk_read_bytes = 0, pool_read_bytes = 0, peer_read_bytes = 0;
  int64_t host_written_bytes = 0, disk_written_bytes = 0, pool_written_bytes = 0;
  int64_t pool_questions = 0, pool_unanswered = 0;
  int64_t pool_late = 0;  // Gets
  int64_t pool_puts = 0, pool_puts_failed = 0, pool_puts_dropped = 0;
  int64_t pool_failures = 0;  // Of connections to its nodes
  TimeCounts transfer_times;  // Of P: from the first page sent until taken
  TimeCounts tail_times;      // From the prompt's last chunk computed until taken

  WorkerCounters& operator+=(const WorkerCounters& other);
  WorkerCounters& operator-=(const WorkerCounters& other);

  static constexpr int64_t WorkerCounters::*const kCounts[] = {
      &WorkerCounters::prefill_tokens,
      &WorkerCounters::queried_tokens,
      &WorkerCounters::preemptions,
      &WorkerCounters::cached_tokens,
      &WorkerCounters::decode_tokens,
      &WorkerCounters::pages_sent,
      &WorkerCounters::pages_received,
      &WorkerCounters::reservations,
      &WorkerCounters::reservations_refused,
      &WorkerCounters::transfers,
      &WorkerCounters::handovers,
      &WorkerCounters::transfers_failed,
      &WorkerCounters::transfers_aborted,
      &WorkerCounters::transfers_answered,
      &WorkerCounters::expired_leases,
      &WorkerCounters::kv_loads,
      &WorkerCounters::kv_loads_failed,
      &WorkerCounters::kv_pages_read,
      &WorkerCounters::kv_pages_used,
      &WorkerCounters::kv_pages_bad,
      &WorkerCounters::host_read_bytes,
      &WorkerCounters::disk_read_bytes,
      &WorkerCounters::pool_read_bytes,
      &WorkerCounters::peer_read_bytes,
      &WorkerCounters::host_written_bytes,
      &WorkerCounters::disk_written_bytes,
      &WorkerCounters::pool_written_bytes,
      &WorkerCounters::pool_questions,
      &WorkerCounters::pool_unanswered,
      &WorkerCounters::pool_late,
      &WorkerCounters::pool_puts,
      &WorkerCounters::pool_puts_failed,
      &WorkerCounters::pool_puts_dropped,
      &WorkerCounters::pool_failures};
  static constexpr TimeCounts WorkerCounters::*const kTimes[] = {&WorkerCounters::transfer_times,
                                                                 &WorkerCounters::tail_times};
};

}  // namespace divisi
