// Bytes on their way over links that they share, on virtual time: at every moment each transfer has
// its max-min fair share of the links of its path, as TCP and PCIe come near to.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <vector>

#include "divisi/core/units.h"
#include "divisi/sim/sim_schedule.h"

namespace divisi {

class SimFlows {
 public:
  using Link = size_t;
  using Flow = uint64_t;

  // schedule outlives this.
  explicit SimFlows(SimSchedule& schedule) : schedule_(schedule) {}

  // One direction. Requires: rate > 0.
  Link AddLink(BytesPerSecond rate);
  // Over all of the path's links at once; done when the last byte is there. Requires: a path.
  Flow Start(Bytes bytes, std::vector<Link> path, std::function<void()> done);
  // What of it was not there yet; of one that is done nothing.
  Bytes Cancel(Flow flow);
  // What the link has carried.
  Bytes Carried(Link link) const { return Bytes(static_cast<int64_t>(links_[link].carried)); }

 private:
  struct Road {
    double rate = 0;  // Bytes per second
    double carried = 0;
    // Of one sharing
    double left = 0;
    int unshared = 0;
  };
  struct Transfer {
    double left = 0;  // Bytes
    double rate = 0;
    std::vector<Link> path;
    std::function<void()> done;
    bool shared = false;
  };

  void Advance();
  void Share();
  Road* Narrowest();
  void Changed();
  void EndSome();

  SimSchedule& schedule_;
  std::vector<Road> links_;
  std::map<Flow, Transfer> flows_;
  Flow last_ = 0;
  Seconds advanced_;
  uint64_t version_ = 0;  // Of the shares: an end that was foreseen for others is none.
};

}  // namespace divisi
