#include "divisi/plan/planned_load.h"

#include <algorithm>
#include <cmath>

#include "divisi/core/format.h"
#include "divisi/core/random.h"

namespace divisi {
namespace {

ArrivalSchedule ArrivalsOf(const Scenario& scenario, const RequestClass& request) {
  if (request.arrivals) return *request.arrivals;
  ArrivalSchedule schedule = scenario.workload.arrivals;
  const double share = request.weight / scenario.TotalWeight();
  for (auto& part : schedule.parts) part.rate = part.rate * share;
  return schedule;
}

double ExpectedIn(const ArrivalSchedule& schedule, Seconds duration) {
  double most = 0;
  for (const auto& part : schedule.parts) most = std::max(most, part.rate.value);
  return most * duration.value;
}

// A Poisson process whose rate is constant between changes: where the next gap leaves the stretch,
// it starts anew at the change, for a Poisson process has no memory.
std::vector<Seconds> Arrivals(const ArrivalSchedule& schedule, Seconds duration, Random& random) {
  std::vector<Seconds> times;
  for (Seconds now; now < duration;) {
    const Seconds change = std::min(duration, schedule.NextChange(now));
    const PerSecond rate = schedule.At(now);
    const double gap = rate.value > 0 ? random.Exponential(1 / rate.value) : HUGE_VAL;
    if (now.value + gap >= change.value) {
      now = change;
      continue;
    }
    now = Seconds(now.value + gap);
    times.push_back(now);
  }
  return times;
}

}  // namespace

Result<std::vector<LoadRequest>> PlannedLoad(const Scenario& scenario, const LoadOptions& options) {
  std::vector<LoadRequest> load;
  double expected = 0;
  for (const RequestClass& request : scenario.workload.classes) {
    expected += ExpectedIn(ArrivalsOf(scenario, request), options.duration);
  }
  if (!(expected <= static_cast<double>(kMostLoadRequests))) {
    return Error{Code::kOutOfRange,
                 Format("a load of {} at these rates may have {:.3g} requests, more than {}; ask "
                        "for a shorter one",
                        HumanSeconds(options.duration), expected, kMostLoadRequests)};
  }
  for (size_t c = 0; c < scenario.workload.classes.size(); ++c) {
    const RequestClass& request = scenario.workload.classes[c];
    Random random(options.seed * 1'000'003 + c);
    for (const Seconds time : Arrivals(ArrivalsOf(scenario, request), options.duration, random)) {
      load.push_back({time, c, request.input, request.output,
                      std::max(request.cached_prefill, request.cached_decode)});
    }
  }
  std::stable_sort(load.begin(), load.end(), [](const LoadRequest& a, const LoadRequest& b) {
    return a.arrival < b.arrival;
  });
  return load;
}

}  // namespace divisi
