// How likely it is that a copy which the directory shows is really there, learned from what
// requests found: news of evictions comes late, events are lost, pages turn out damaged.
#pragma once

#include <algorithm>
#include <array>

#include "divisi/plan/kv_tiers.h"

namespace divisi {

class CopyOdds {
 public:
  // Uses after which an outcome's weight has fallen to 1/e.
  static constexpr double kMemory = 64;
  // What is assumed before anything was seen, and how many uses it weighs. The memory stays longer
  // than the assumption: after 4 uses they count alike.
  static constexpr double kAssumed = 0.95;
  static constexpr double kAssumedWeight = 4;

  // kPeer: of what other workers read of the holder's host memory.
  // One use of a copy: of the pages that were shown in `tier`, the part that was there, 0 to 1.
  void Saw(Tier tier, double part) {
    Sum& sum = sums_[static_cast<int>(tier)];
    sum.weight = sum.weight * (1 - 1 / kMemory) + 1;
    sum.there = sum.there * (1 - 1 / kMemory) + std::clamp(part, 0.0, 1.0);
  }

  //   p = (w0 p0 + sum x_i d^i) / (w0 + sum d^i),   d = 1 - 1/kMemory, x_0 the newest
  double At(Tier tier) const {
    const Sum& sum = sums_[static_cast<int>(tier)];
    return (kAssumedWeight * kAssumed + sum.there) / (kAssumedWeight + sum.weight);
  }

 private:
  struct Sum {
    double weight = 0;
    double there = 0;
  };
  std::array<Sum, kSources> sums_;
};

}  // namespace divisi
