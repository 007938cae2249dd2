// The queue of a service as a fluid: requests arrive at a rate that may change over time, and from
// the moment that the service is ready they leave at its rate. Source: section 9.6.1.
#pragma once

#include <optional>
#include <vector>

#include "divisi/core/units.h"

namespace divisi {

// Arrival rates over time: each holds until the next one's time, the last one for good. With a
// period, the pattern of [0, period) repeats.
struct ArrivalSchedule {
  struct Part {
    Seconds from;
    PerSecond rate;
  };
  // In order of time, the first from 0; at least one.
  std::vector<Part> parts;
  Seconds period;  // 0: does not repeat.

  static ArrivalSchedule Constant(PerSecond rate) { return {{{Seconds(0), rate}}, Seconds(0)}; }
  PerSecond At(Seconds time) const;
  // Over a period; of the last part where there is none.
  PerSecond LongTermRate() const;
  // When the rate next changes after `time`, infinitely late where it does not.
  Seconds NextChange(Seconds time) const;
};

struct BacklogPoint {
  Seconds time;
  double requests = 0;
};

// Straight lines between points.
struct Backlog {
  std::vector<BacklogPoint> points;
  // When the queue is first empty after the start; absent: never, or not before the horizon.
  std::optional<Seconds> cleared;
  double most = 0;  // Longest queue.
  double At(Seconds time) const;
};

// ready: when service begins, the queue having grown from time 0. rate: of service. horizon: where
// the points end. `cleared` is found beyond it where arrivals do not repeat.
//   N(T) = lambda T_s, then N' = lambda(t) - mu while N > 0
// constant arrivals clear at T_s + lambda T_s / (mu - lambda).
struct BacklogInput {
  ArrivalSchedule arrivals;
  Seconds ready;
  PerSecond rate;
  Seconds horizon;
};
Backlog BacklogOver(const BacklogInput& input);

// The least service rate that clears the backlog by `deadline`; absent where none can: the deadline
// is not after the ready moment. Source: section 9.7.2, mu - lambda >= lambda T_s / (T - T_s).
std::optional<PerSecond> RateToClear(const ArrivalSchedule& arrivals, Seconds ready,
                                     Seconds deadline);

}  // namespace divisi
