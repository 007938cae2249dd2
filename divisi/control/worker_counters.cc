#include "divisi/control/worker_counters.h"

#include <algorithm>
#include <numeric>

namespace divisi {
namespace {

// left += sign * right, field by field.
void Sum(WorkerCounters& left, const WorkerCounters& right, int sign) {
  for (const auto count : WorkerCounters::kCounts) left.*count += sign * right.*count;
  for (const auto times : WorkerCounters::kTimes) {
    TimeCounts& sum = left.*times;
    const TimeCounts& add = right.*times;
    for (size_t i = 0; i < sum.counts.size(); ++i) sum.counts[i] += sign * add.counts[i];
    sum.seconds += sign * add.seconds;
  }
}

}  // namespace

void TimeCounts::Add(Seconds time) {
  const auto bound = std::ranges::lower_bound(kBounds, time.value);
  ++counts[static_cast<size_t>(bound - kBounds.begin())];
  seconds += time.value;
}

int64_t TimeCounts::Count() const {
  return std::accumulate(counts.begin(), counts.end(), int64_t{0});
}

WorkerCounters& WorkerCounters::operator+=(const WorkerCounters& other) {
  Sum(*this, other, 1);
  return *this;
}

WorkerCounters& WorkerCounters::operator-=(const WorkerCounters& other) {
  Sum(*this, other, -1);
  return *this;
}

}  // namespace divisi
