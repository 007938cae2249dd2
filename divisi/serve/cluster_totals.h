// What the workers of each role have done while they were this gateway's, those that are gone
// included, so that no counter falls when one dies and comes back as a new one. Of each life of a
// worker counting begins with its first report here, which it sends as soon as it is let in: what
// it did before, for an earlier gateway say, is not this one's to tell. A life that is lost and
// comes back goes on from what was last heard of it. What a worker did between its last report and
// its death is not known.
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
  // What was last heard of lives that can't come back.
  void ForgetGone(const Registry& registry);
  const OfRole& operator[](WorkerRole role) const { return roles_[static_cast<size_t>(role)]; }
  WorkerCounters Sum() const;

 private:
  std::map<NodeId, WorkerCounters> last_;
  std::array<OfRole, 3> roles_;
};

}  // namespace divisi
