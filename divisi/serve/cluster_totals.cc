#include "divisi/serve/cluster_totals.h"

#include <algorithm>

namespace divisi {

void ClusterTotals::Take(const HelloMessage& worker, const WorkerCounters& counters) {
  WorkerCounters& last = last_[worker.node];
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

void ClusterTotals::ForgetGone(const std::map<NodeId, Registry::Member>& members) {
  if (last_.size() <= members.size()) return;
  std::erase_if(last_, [&](const auto& entry) { return !members.contains(entry.first); });
}

WorkerCounters ClusterTotals::Sum() const {
  WorkerCounters sum;
  for (const OfRole& role : roles_) sum += role.counters;
  return sum;
}

}  // namespace divisi
