#include "divisi/plan/backlog.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "divisi/core/check.h"

namespace divisi {
namespace {

constexpr Seconds kForever(std::numeric_limits<double>::infinity());
// A repeating pattern that has not emptied the queue for this many periods will not: its drift
// would have to be a billionth of a period's arrivals.
constexpr int kMostPeriods = 1000;

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

}  // namespace

PerSecond ArrivalSchedule::At(Seconds time) const {
  CHECK(!parts.empty(), "an empty schedule");
  const double offset = PhaseOf(*this, time).offset;
  PerSecond rate = parts.front().rate;
  for (const Part& part : parts) {
    if (part.from.value <= offset) rate = part.rate;
  }
  return rate;
}

PerSecond ArrivalSchedule::LongTermRate() const {
  CHECK(!parts.empty(), "an empty schedule");
  if (period.value <= 0) return parts.back().rate;
  return PerSecond(Arrived(*this, period) / period.value);
}

Seconds ArrivalSchedule::NextChange(Seconds time) const {
  const Phase phase = PhaseOf(*this, time);
  for (const Part& part : parts) {
    const Seconds change(phase.start + part.from.value);
    if (part.from.value > phase.offset && change > time) return change;
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
  const ArrivalSchedule& arrivals = input.arrivals;
  Seconds last = input.horizon;
  if (arrivals.period.value > 0) {
    last = std::max(last, input.ready + kMostPeriods * arrivals.period);
  } else {
    last = kForever;
  }
  Backlog backlog{.points = {{Seconds(0), 0}}};
  Seconds now;
  double queue = 0;
  const auto add = [&](Seconds time, double requests) {
    backlog.most = std::max(backlog.most, requests);
    if (time <= input.horizon) backlog.points.push_back({time, requests});
  };
  while (now < last && (now < input.horizon || !backlog.cleared)) {
    const bool ready = now >= input.ready;
    Seconds next = std::min(arrivals.NextChange(now), last);
    if (!ready) next = std::min(next, input.ready);
    if (now < input.horizon) next = std::min(next, input.horizon);
    const double slope = arrivals.At(now).value - (ready ? input.rate.value : 0);
    if (ready && queue <= 0 && slope <= 0) {  // Nothing waits.
      if (!backlog.cleared) backlog.cleared = now;
    } else if (ready && slope < 0 && now.value + queue / -slope <= next.value) {
      next = Seconds(now.value + queue / -slope);
      queue = 0;
      if (!backlog.cleared) backlog.cleared = next;
    } else if (std::isinf(next.value)) {
      break;  // Grows, or stands, for good.
    } else {
      queue += slope * (next - now).value;
    }
    if (std::isinf(next.value)) break;
    now = next;
    add(now, queue);
  }
  if (backlog.points.back().time < input.horizon) {
    const double rest = (input.horizon - backlog.points.back().time).value;
    const double slope = queue > 0 ? arrivals.At(now).value - input.rate.value : 0;
    add(input.horizon, queue + std::max(0.0, slope) * rest);
  }
  return backlog;
}

std::optional<PerSecond> RateToClear(const ArrivalSchedule& arrivals, Seconds ready,
                                     Seconds deadline) {
  if (deadline <= ready) return std::nullopt;
  // Served without a pause until the queue is empty, so it is empty at some t in (ready, deadline]
  // when rate >= arrivals of [0, t) / (t - ready). Between changes that quotient has no inner
  // minimum, so the changes and the deadline are enough to look at.
  double least = std::numeric_limits<double>::infinity();
  for (Seconds now = ready; now < deadline;) {
    now = std::min(deadline, arrivals.NextChange(now));
    least = std::min(least, Arrived(arrivals, now) / (now - ready).value);
  }
  return PerSecond(least);
}

}  // namespace divisi
