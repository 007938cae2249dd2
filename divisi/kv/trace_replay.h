// A recorded load replayed against the tiers: which of its blocks would have been found, and what
// was written. The TierManager decides, as in a worker; copies end at once, and a request ends when
// it has begun. Time is the trace's.
//
// Each block of each request is one access, from the front; one that is found in either tier is a
// hit, whether or not the blocks before it were (prefix_hits counts those that could be used).
//   lru, lfu   every access is a use of its own, a miss is inserted at once
//   queue      a request's blocks are found together and held while it is served; the next
//              `lookahead` requests are known; blocks that are not full are never kept
//   optimum    the same with the whole future known and every block kept (one tier)
#pragma once

#include <cstdint>
#include <vector>

#include "divisi/core/units.h"
#include "divisi/kv/tier_manager.h"

namespace divisi {

struct TraceRequest {
  Seconds at;
  std::vector<uint64_t> blocks;  // Equal numbers are equal blocks.
  bool last_is_full = true;      // A block that is not full has no key in a worker.
  int64_t answer_tokens = 0;
};

enum class ReplayPolicy { kLru, kLfu, kQueue, kOptimum };

struct ReplayOptions {
  ReplayPolicy policy = ReplayPolicy::kLru;
  int64_t host_blocks = 0;
  int64_t disk_blocks = 0;
  int64_t lookahead = 512;
  DiskWrites disk_writes = DiskWrites::kAdmitted;
  WriteBudget budget;
};

struct ReplayResult {
  int64_t accesses = 0;
  int64_t host_hits = 0;
  int64_t disk_hits = 0;
  int64_t prefix_hits = 0;
  TierStats tiers;

  int64_t Hits() const { return host_hits + disk_hits; }
};

// Requests in the order in which they are served.
ReplayResult ReplayTrace(const std::vector<TraceRequest>& requests, const ReplayOptions& options);

}  // namespace divisi
