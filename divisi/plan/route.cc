#include "divisi/plan/route.h"

#include <algorithm>
#include <cmath>

#include "divisi/core/check.h"
#include "divisi/plan/flow.h"

namespace divisi {
namespace {

// Sums of probabilities round; quantiles at a step of the distribution must not miss it by that.
constexpr double kRounding = 1e-9;

}  // namespace

Seconds RouteTimes::Overlapped() const { return std::max(queue, ready) + compute; }

Seconds RemoteFetch::Time() const {
  return lookup + TimeToMove(state, network) + TimeToMove(state, host_to_device);
}

BytesPerSecond BreakEvenNetwork(const RemoteFetch& fetch, const RouteTimes& route, Seconds target) {
  const Seconds ready_by = target - route.compute;
  if (!(ready_by >= route.queue)) return BytesPerSecond(kNever.value);
  const Seconds rest = fetch.lookup + TimeToMove(fetch.state, fetch.host_to_device);
  // A fetch that never ends is slower than a target that never comes, too.
  if (!std::isfinite(rest.value)) return BytesPerSecond(kNever.value);
  return RateToMove(fetch.state, ready_by - rest);
}

Seconds TimeToShare(Bytes bytes, const SharedLink& link) {
  const Bytes others = std::min(bytes * link.reads, link.under_way);
  return TimeToMove(bytes, link.rate) + TimeToMove(others, link.rate);
}

Seconds SerialPreparation(std::span<const Seconds> steps) {
  Seconds total;
  for (const Seconds step : steps) total += step;
  return total;
}

Outcomes::Outcomes(std::vector<Outcome> outcomes) {
  std::sort(outcomes.begin(), outcomes.end(),
            [](const Outcome& a, const Outcome& b) { return a.time < b.time; });
  double sum = 0;
  for (const Outcome& outcome : outcomes) {
    CHECK(outcome.probability >= 0, "probability {}", outcome.probability);
    sum += outcome.probability;
    if (outcome.probability == 0) continue;
    if (!points_.empty() && points_.back().time == outcome.time) {
      points_.back().probability += outcome.probability;
    } else {
      points_.push_back(outcome);
    }
  }
  CHECK(std::abs(sum - 1) <= kRounding, "probabilities sum to {}", sum);
}

Seconds MeanOf(std::span<const Outcome> points) {
  Seconds mean;
  for (const Outcome& outcome : points) mean += outcome.time * outcome.probability;
  return mean;
}

Seconds QuantileOf(std::span<const Outcome> points, double q) {
  CHECK(q > 0 && q <= 1 && !points.empty(), "quantile {} of {} points", q, points.size());
  double reached = 0;
  for (const Outcome& outcome : points) {
    reached += outcome.probability;
    if (reached >= q - kRounding) return outcome.time;
  }
  return points.back().time;
}

Seconds Outcomes::Mean() const { return MeanOf(points_); }
Seconds Outcomes::Quantile(double q) const { return QuantileOf(points_, q); }

Outcomes UncertainHit::At(double available) const {
  return Outcomes({{available, hit}, {1 - available, miss}});
}

double UncertainHit::AvailabilityForMean(Seconds target) const {
  if (miss <= target) return 0;
  if (hit > target) return kNever.value;
  if (!std::isfinite(miss.value)) return 1;
  return (miss - target) / (miss - hit);
}

double UncertainHit::AvailabilityForQuantile(double q, Seconds target) const {
  if (miss <= target) return 0;
  return hit <= target ? q : kNever.value;
}

Outcomes CopyOutcomes(const CopyChances& chances, const RouteTimes& host_route, Seconds recompute) {
  const double gone = 1 - chances.device;
  return Outcomes(
      {{chances.device, host_route.queue + host_route.compute},
       {gone * chances.host_copy, std::min(host_route.Overlapped(), host_route.queue + recompute)},
       {gone * (1 - chances.host_copy), host_route.queue + recompute}});
}

}  // namespace divisi
