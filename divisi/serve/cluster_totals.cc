#include "divisi/serve/cluster_totals.h"

#include <algorithm>

namespace divisi {
namespace {

// Lives that were lost and may come back are remembered up to this many, some 2 MB; beyond it they
// begin anew if they do. Far more than a cluster loses without declaring them dead.
constexpr size_t kMostLives = 4096;

}  // namespace

void ClusterTotals::Take(const HelloMessage& worker, const WorkerCounters& counters) {
  const auto [at, first] = last_.try_emplace(worker.node, counters);
  if (first) return;
  WorkerCounters& last = at->second;
  const bool rises = std::ranges::all_of(
      WorkerCounters::kCounts, [&](const auto count) { return counters.*count >= last.*count; });
  if (!rises) return;  // No counter of ours does that.
  WorkerCounters added = counters;
  added -= last;
  last = counters;
  OfRole& role = roles_[static_cast<size_t>(worker.role)];
  role.counters += added;
  role.sent += Bytes(worker.page_bytes * added.pages_sent);
  role.received += Bytes(worker.page_bytes * added.pages_received);
}

void ClusterTotals::ForgetGone(const Registry& registry) {
  if (last_.size() <= registry.members().size()) return;
  const bool crowded = last_.size() > kMostLives;
  std::erase_if(last_, [&](const auto& entry) {
    if (registry.members().contains(entry.first)) return false;
    return crowded || registry.IsGone(entry.first);
  });
}

WorkerCounters ClusterTotals::Sum() const {
  WorkerCounters sum;
  for (const OfRole& role : roles_) sum += role.counters;
  return sum;
}

}  // namespace divisi
