// How long work takes on a device: the roofline, the larger of the time to compute and the time to
// move bytes, each at a fraction of the peak. Source: Williams et al., CACM 2009; section 9.2.3.
#pragma once

#include <algorithm>

#include "divisi/core/units.h"
#include "divisi/plan/pass_cost.h"

namespace divisi {

// What a device gives to one kind of work, efficiency included.
struct DeviceRates {
  FlopsPerSecond compute;
  BytesPerSecond memory;
};

enum class Bound { kCompute, kMemory };

struct StageTime {
  Seconds compute;
  Seconds memory;
  Seconds Total() const { return std::max(compute, memory); }
  Bound bound() const { return compute >= memory ? Bound::kCompute : Bound::kMemory; }
};

inline StageTime TimeOf(const Work& work, const DeviceRates& rates) {
  return {.compute = work.flops / rates.compute, .memory = work.bytes / rates.memory};
}

}  // namespace divisi
