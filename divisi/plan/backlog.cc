#include "divisi/plan/backlog.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "divisi/core/check.h"

namespace divisi {
namespace {

constexpr Seconds kForever(std::numeric_limits<double>::infinity());
// A queue that falls by less than this fraction of a period's arrivals is taken to stand: rounding
// makes no smaller difference certain.
constexpr double kLeastDrift = 1e-9;

// Where in the pattern `time` lies, and the start of its period.
struct Phase {
  double start = 0;
  double offset = 0;
};
Phase PhaseOf(const ArrivalSchedule& schedule, Seconds time) {
  if (schedule.period.value <= 0) return {0, time.value};
  const double start = std::floor(time.value / schedule.period.value) * schedule.period.value;
  return {start, time.value - start};
}

// The first part that begins after `offset`. Parts are in order of time.
std::vector<ArrivalSchedule::Part>::const_iterator FirstAfter(
    const std::vector<ArrivalSchedule::Part>& parts, double offset) {
  return std::partition_point(
      parts.begin(), parts.end(),
      [offset](const ArrivalSchedule::Part& part) { return part.from.value <= offset; });
}

// Arrivals of [0, end).
double Arrived(const ArrivalSchedule& arrivals, Seconds end) {
  double count = 0;
  for (Seconds now; now < end;) {
    const Seconds next = std::min(end, arrivals.NextChange(now));
    count += arrivals.At(now) * (next - now);
    now = next;
  }
  return count;
}

// The queue on its way through time, from piece to piece of the arrivals.
struct Fluid {
  const BacklogInput& input;
  Seconds now;
  double queue = 0;
  double most = 0;
  std::optional<Seconds> cleared;

  // One straight piece, no further than `end`; false where nothing ever changes from here on.
  bool Step(Seconds end) {
    const bool ready = now >= input.ready;
    Seconds next = std::min(input.arrivals.NextChange(now), end);
    if (!ready) next = std::min(next, input.ready);
    const double slope = input.arrivals.At(now).value - (ready ? input.rate.value : 0);
    if (ready && queue <= 0 && slope <= 0) {  // Nothing waits.
      if (!cleared) cleared = now;
    } else if (ready && slope < 0 && now.value + queue / -slope <= next.value) {
      next = Seconds(now.value + queue / -slope);
      queue = 0;
      if (!cleared) cleared = next;
    } else if (std::isfinite(next.value)) {
      queue += slope * (next - now).value;
    }
    if (!std::isfinite(next.value)) return false;
    now = next;
    most = std::max(most, queue);
    return true;
  }
  void WalkTo(Seconds end) {
    while (!cleared && now < end) Step(end);
  }
};

// Walks on until the queue is empty, if ever.
void FindCleared(Fluid& fluid) {
  const Seconds period = fluid.input.arrivals.period;
  if (period.value <= 0) {
    while (!fluid.cleared && fluid.Step(kForever)) continue;
    return;
  }
  fluid.WalkTo(std::max(fluid.now, fluid.input.ready));
  // Every period like this one moves the queue by `drift`; at its least it stood at `lowest`.
  const double before = fluid.queue;
  double lowest = before;
  for (const Seconds end = fluid.now + period; !fluid.cleared && fluid.now < end;) {
    fluid.Step(end);
    lowest = std::min(lowest, fluid.queue);
  }
  const double drift = fluid.queue - before;
  const double arrived = fluid.input.arrivals.LongTermRate().value * period.value;
  if (fluid.cleared || drift > -kLeastDrift * arrived) return;
  // Periods that certainly do not empty it are passed over.
  const double skipped = std::max(0.0, std::floor(lowest / -drift) - 1);
  fluid.now += skipped * period;
  fluid.queue += skipped * drift;
  fluid.WalkTo(fluid.now + 4 * period);
}

}  // namespace

PerSecond ArrivalSchedule::At(Seconds time) const {
  CHECK(!parts.empty(), "an empty schedule");
  const auto next = FirstAfter(parts, PhaseOf(*this, time).offset);
  return next == parts.begin() ? next->rate : std::prev(next)->rate;
}

PerSecond ArrivalSchedule::LongTermRate() const {
  CHECK(!parts.empty(), "an empty schedule");
  if (period.value <= 0) return parts.back().rate;
  return PerSecond(Arrived(*this, period) / period.value);
}

Seconds ArrivalSchedule::NextChange(Seconds time) const {
  const Phase phase = PhaseOf(*this, time);
  for (auto part = FirstAfter(parts, phase.offset); part != parts.end(); ++part) {
    const Seconds change(phase.start + part->from.value);
    if (change > time) return change;
  }
  if (period.value <= 0) return kForever;
  // Rounding may put the period's end at `time` itself; the next one then.
  const Seconds end(phase.start + period.value);
  return end > time ? end : end + period;
}

double Backlog::At(Seconds time) const {
  CHECK(!points.empty(), "an empty backlog");
  for (size_t i = 1; i < points.size(); ++i) {
    if (time > points[i].time) continue;
    const Seconds span = points[i].time - points[i - 1].time;
    const double share = span.value > 0 ? (time - points[i - 1].time) / span : 1;
    return points[i - 1].requests + share * (points[i].requests - points[i - 1].requests);
  }
  return points.back().requests;
}

Backlog BacklogOver(const BacklogInput& input) {
  Fluid fluid{.input = input};
  Backlog backlog{.points = {{Seconds(0), 0}}};
  while (fluid.now < input.horizon && fluid.Step(input.horizon)) {
    backlog.points.push_back({fluid.now, fluid.queue});
  }
  if (!fluid.cleared) FindCleared(fluid);
  backlog.cleared = fluid.cleared;
  backlog.most = fluid.most;
  return backlog;
}

std::optional<PerSecond> RateToClear(const ArrivalSchedule& arrivals, Seconds ready,
                                     Seconds deadline) {
  if (deadline <= ready) return std::nullopt;
  // Served without a pause until the queue is empty, so it is empty at some t in (ready, deadline]
  // when rate >= arrivals of [0, t) / (t - ready). Between changes that quotient has no inner
  // minimum, so the changes and the deadline are enough to look at.
  double least = std::numeric_limits<double>::infinity();
  double arrived = Arrived(arrivals, ready);
  for (Seconds now = ready; now < deadline;) {
    const Seconds next = std::min(deadline, arrivals.NextChange(now));
    arrived += arrivals.At(now) * (next - now);
    now = next;
    least = std::min(least, arrived / (now - ready).value);
  }
  return PerSecond(least);
}

}  // namespace divisi
