// What the workers of each role have done since the gateway's start, those that are gone included,
// so that no counter falls when one dies and comes back as a new one. What a worker did between its
// last report and its death is not known.
#pragma once

#include <array>
#include <map>

#include "divisi/control/registry.h"

namespace divisi {

class ClusterTotals {
 public:
  struct OfRole {
    WorkerCounters counters;
    Bytes sent, received;  // Of KV
  };

  // What has been added since the worker's last report counts for the role that it has now.
  void Take(const HelloMessage& worker, const WorkerCounters& counters);
  // What was last heard of those that are not among the members any more.
  void ForgetGone(const std::map<NodeId, Registry::Member>& members);
  const OfRole& operator[](WorkerRole role) const { return roles_[static_cast<size_t>(role)]; }
  WorkerCounters Sum() const;

 private:
  std::map<NodeId, WorkerCounters> last_;
  std::array<OfRole, 3> roles_;
};

}  // namespace divisi
