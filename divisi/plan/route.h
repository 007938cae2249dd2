// Which worker answers first: one that holds the state and is busy, or one that is free and must
// fetch or recompute. Source: section 9.5.4.
#pragma once

#include <span>
#include <vector>

#include "divisi/core/units.h"

namespace divisi {

// One route of a request, from its arrival.
struct RouteTimes {
  Seconds queue;    // Q: until the device can start
  Seconds ready;    // R: until the state is there
  Seconds compute;  // C: what is left to compute then

  // Time to first token when the state is prepared while the request waits:  max(Q, R) + C.
  Seconds Overlapped() const;
  // When preparing begins only once the device is free:  Q + R + C.
  Seconds Serial() const { return queue + ready + compute; }
};

// State from a remote store: found, moved over the network into host memory, then to the device.
struct RemoteFetch {
  Bytes state;
  Seconds lookup;
  BytesPerSecond network;
  BytesPerSecond host_to_device;

  Seconds Time() const;
};

// The network bandwidth at which a route that fetches (`fetch`, its own network rate aside) returns
// the first token after `target`:
//   B = V / (target - C - lookup - V / B_host)
// Infinite where no bandwidth is enough: the rest alone, or the queue, takes longer.
BytesPerSecond BreakEvenNetwork(const RemoteFetch& fetch, const RouteTimes& route, Seconds target);

// A link that a new read shares with others.
struct SharedLink {
  BytesPerSecond rate;
  Bytes under_way;  // Left of the others
  int64_t reads = 0;
};
// A read's time while all go on alike, until it or the others end:
//   (V + min(n V, V_others)) / B,   n: the other reads
Seconds TimeToShare(Bytes bytes, const SharedLink& link);

// Preparations of state that follow each other; a worker that has all of it starts first while its
// queue is shorter than their sum.
Seconds SerialPreparation(std::span<const Seconds> steps);

// A time that depends on what turns out to be there.
struct Outcome {
  double probability = 0;
  Seconds time;
};

// Of points whose probabilities sum to 1.
Seconds MeanOf(std::span<const Outcome> points);
// The smallest time t with P(T <= t) >= q.  points: in order of time, at least one;  0 < q <= 1
Seconds QuantileOf(std::span<const Outcome> points, double q);

// Outcomes whose probabilities sum to 1.
class Outcomes {
 public:
  // Points of probability 0 are left out, those of one time joined. Requires: no probability is
  // negative; their sum is 1 within 1e-9.
  explicit Outcomes(std::vector<Outcome> outcomes);

  Seconds Mean() const;
  // The inverse of the distribution function, as QuantileOf.
  Seconds Quantile(double q) const;
  const std::vector<Outcome>& points() const { return points_; }

 private:
  std::vector<Outcome> points_;  // In order of time.
};

// First-token times of a worker whose copy may be gone.
struct UncertainHit {
  Seconds hit;
  Seconds miss;

  // Two points: a hit with probability `available`, 0 to 1.
  Outcomes At(double available) const;

  // The least probability of a hit at which the mean is within `target`, 0 to 1:
  //   p = (miss - target) / (miss - hit)
  // Infinite where even a certain hit is slower.
  double AvailabilityForMean(Seconds target) const;

  // The least at which the q-quantile is within `target`: 0 where a miss is, q where a hit is;
  // infinite where neither is.
  double AvailabilityForQuantile(double q, Seconds target) const;
};

// A copy on the device may be gone while one in host memory remains.
struct CopyChances {
  double device = 1;     // The copy on the device is there.
  double host_copy = 0;  // Where it is not, the one in host memory is.
};
// First-token times of a worker with such copies: from the device's copy, else from the host's,
// whose fetch (`host_route.ready`) overlaps the queue, unless recomputing is sooner; else
// recomputed. Without host copies it is
// the two-point model; with them always there, and a fetch shorter than the queue, it is one point.
Outcomes CopyOutcomes(const CopyChances& chances, const RouteTimes& host_route, Seconds recompute);

}  // namespace divisi
