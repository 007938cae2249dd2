#include "divisi/plan/objective.h"

#include <algorithm>
#include <cmath>

#include "divisi/core/format.h"
#include "divisi/plan/waiting.h"

namespace divisi {
namespace {

constexpr double kSecondsPerHour = 3600;
constexpr int kMostCopies = 1000000;

PerSecond ClassRate(const Scenario& scenario, size_t c, Seconds time) {
  const RequestClass& request = scenario.workload.classes[c];
  if (request.arrivals) return request.arrivals->At(time);
  return scenario.workload.arrivals.At(time) * (request.weight / scenario.TotalWeight());
}

// One schedule's change times, and those of the classes.
std::vector<Seconds> Changes(const Scenario& scenario, Seconds period) {
  std::vector<Seconds> times = {Seconds(0)};
  const auto add = [&](const ArrivalSchedule& schedule) {
    constexpr size_t kMostChanges = 10000;
    Seconds now;
    while (times.size() < kMostChanges) {
      now = schedule.NextChange(now);
      if (!std::isfinite(now.value) || (period.value > 0 && now >= period)) return;
      times.push_back(now);
    }
  };
  add(scenario.workload.arrivals);
  for (const RequestClass& request : scenario.workload.classes) {
    if (request.arrivals) add(*request.arrivals);
  }
  std::sort(times.begin(), times.end());
  times.erase(std::unique(times.begin(), times.end()), times.end());
  return times;
}

Seconds PeriodOf(const Scenario& scenario) {
  Seconds period = scenario.workload.arrivals.period;
  for (const RequestClass& request : scenario.workload.classes) {
    if (request.arrivals) period = std::max(period, request.arrivals->period);
  }
  return period;
}

// The queues of a candidate's stages.
using StageQueues = std::vector<BacklogInput>;

StageQueues QueuesOf(const Scenario& scenario, const Candidate& candidate) {
  StageQueues queues;
  for (const StageLoad& stage : candidate.stages) {
    queues.push_back({.arrivals = ArrivalsAt(scenario, stage.class_work),
                      .ready = scenario.startup,
                      .rate = stage.rate,
                      .horizon = scenario.Horizon()});
  }
  return queues;
}

// Of the stages, the one that clears last; of those that never do, the longest queue.
Backlog WorstBacklog(const StageQueues& queues, int copies) {
  Backlog worst;
  for (BacklogInput queue : queues) {
    queue.rate = queue.rate * copies;
    Backlog backlog = BacklogOver(queue);
    const double infinite = HUGE_VAL;
    const double time = backlog.cleared ? backlog.cleared->value : infinite;
    const double before = worst.cleared ? worst.cleared->value : infinite;
    const bool first = worst.points.empty();
    if (first || time > before || (time == before && backlog.most > worst.most)) {
      worst = std::move(backlog);
    }
  }
  if (worst.points.empty()) worst.points = {{Seconds(0), 0}};
  return worst;
}

bool ClearsWith(const Scenario& scenario, const StageQueues& queues, int copies) {
  const Backlog backlog = WorstBacklog(queues, copies);
  if (!backlog.cleared) return false;
  // The deadline is met by a queue that empties at it, rounding aside.
  const auto& limit = scenario.objective.clear_by;
  return !limit || backlog.cleared->value <= limit->value * (1 + 1e-12);
}

// The smallest number of copies for which good(n) holds, good being monotone; absent where
// kMostCopies do not do.
template <typename Good>
std::optional<int> LeastCopies(Good good) {
  int high = 1;
  while (!good(high)) {
    if (high >= kMostCopies) return std::nullopt;
    high = std::min(2 * high, kMostCopies);
  }
  int low = high / 2;  // Not enough, or 0.
  while (high - low > 1) {
    const int middle = low + (high - low) / 2;
    (good(middle) ? high : low) = middle;
  }
  return high;
}

// More than the arrivals of the long run, at every stage.
bool HoldsWith(const StageQueues& queues, int copies) {
  return std::ranges::all_of(queues, [&](const BacklogInput& queue) {
    return queue.rate.value * copies > queue.arrivals.LongTermRate().value;
  });
}

void CountCopies(const Scenario& scenario, const StageQueues& queues, Candidate& candidate) {
  if (!candidate.fits) return;
  candidate.copies_to_hold = LeastCopies([&](int n) { return HoldsWith(queues, n); });
  const auto& limit = scenario.objective.clear_by;
  if (!limit) {
    candidate.copies_to_clear = candidate.copies_to_hold;
  } else if (*limit > scenario.startup) {
    candidate.copies_to_clear =
        LeastCopies([&](int n) { return HoldsWith(queues, n) && ClearsWith(scenario, queues, n); });
  }
}

// Waits come from the pools; the probability of waiting at all is taken of the bottleneck, the
// fullest of them.
double ShareWithinTtft(const Scenario& scenario, const Candidate& candidate) {
  if (!scenario.objective.ttft) return 1;
  const Seconds left = *scenario.objective.ttft - candidate.ttft;
  if (left.value < 0) return 0;
  const Seconds wait = candidate.TtftAtArrival() - candidate.ttft;
  const PerSecond arrivals = scenario.workload.arrivals.LongTermRate();
  const double busy = std::min(1.0, arrivals / candidate.throughput);
  return 1 - WaitsLonger(left, busy, wait);
}

void Price(const Scenario& scenario, Candidate& candidate) {
  const double price = scenario.PricePerHour();
  const PerSecond arrivals = scenario.workload.arrivals.LongTermRate();
  const auto per_1000 = [&](double rate) {
    return rate > 0 ? price / (kSecondsPerHour * rate) * 1000 : HUGE_VAL;
  };
  const double served = std::min(arrivals, candidate.throughput).value;
  candidate.cost_per_1000 = per_1000(served);
  candidate.cost_per_1000_at_saturation = per_1000(candidate.throughput.value);
  candidate.cost_per_1000_within_slo = per_1000(served * candidate.slo_share);
}

using Kind = Shortfall::Kind;

void JudgeRates(const Scenario& scenario, const StageQueues& queues, Candidate& candidate) {
  const double arrivals = scenario.workload.arrivals.LongTermRate().value;
  const double rate = candidate.throughput.value;
  const auto copies = [](const std::optional<int>& n) {
    return n ? Format("{} of the whole set would do", *n) : std::string("no number of sets does");
  };
  if (!HoldsWith(queues, 1)) {
    candidate.shortfalls.push_back(
        {Kind::kTooFewCards,
         Format("{} requests/s do not hold the {} that arrive; {}", HumanNumber(rate),
                HumanNumber(arrivals), copies(candidate.copies_to_hold))});
  }
  const auto& limit = scenario.objective.clear_by;
  if (!limit || ClearsWith(scenario, queues, 1)) return;
  if (*limit <= scenario.startup) {
    candidate.shortfalls.push_back(
        {Kind::kTooSlow, Format("the service starts for {} and the backlog is to be gone by {}",
                                HumanSeconds(scenario.startup), HumanSeconds(*limit))});
    return;
  }
  const auto& cleared = candidate.backlog.cleared;
  candidate.shortfalls.push_back(
      {Kind::kTooFewCards,
       Format("the backlog of the start {}, not by {:.4g} s; {}",
              cleared ? Format("is gone at {:.1f} s", cleared->value) : std::string("never goes"),
              limit->value, copies(candidate.copies_to_clear))});
}

void JudgeTimes(const Scenario& scenario, Candidate& candidate) {
  const Objective& objective = scenario.objective;
  if (objective.ttft && candidate.ttft > *objective.ttft) {
    candidate.shortfalls.push_back(
        {Kind::kTooSlow,
         Format("one request alone has its first token after {}, beyond {}: prefill {}, transfer "
                "{}",
                HumanSeconds(candidate.ttft), HumanSeconds(*objective.ttft),
                HumanSeconds(candidate.ttft_prefill), HumanSeconds(candidate.ttft_transfer))});
  } else if (objective.ttft && candidate.TtftAtArrival() > *objective.ttft) {
    candidate.shortfalls.push_back(
        {Kind::kTooFewCards,
         Format("at the arrival rate the first token comes after {}, beyond {}, of which waiting "
                "takes {}",
                HumanSeconds(candidate.TtftAtArrival()), HumanSeconds(*objective.ttft),
                HumanSeconds(candidate.TtftAtArrival() - candidate.ttft))});
  }
  if (!objective.tpot || !candidate.tpot) return;
  if (*candidate.tpot > *objective.tpot) {
    candidate.shortfalls.push_back(
        {Kind::kTooSlow, Format("a decode step takes {}, beyond the TPOT of {}",
                                HumanSeconds(*candidate.tpot), HumanSeconds(*objective.tpot))});
  } else if (*candidate.tpot_at_arrival > *objective.tpot) {
    candidate.shortfalls.push_back(
        {Kind::kTooFewCards,
         Format("with prompts in between a token takes {}, beyond the TPOT of {}",
                HumanSeconds(*candidate.tpot_at_arrival), HumanSeconds(*objective.tpot))});
  }
}

}  // namespace

ArrivalSchedule ArrivalsAt(const Scenario& scenario, const std::vector<double>& class_work) {
  ArrivalSchedule schedule;
  schedule.period = PeriodOf(scenario);
  for (const Seconds time : Changes(scenario, schedule.period)) {
    PerSecond rate;
    for (size_t c = 0; c < class_work.size(); ++c) {
      rate += ClassRate(scenario, c, time) * class_work[c];
    }
    schedule.parts.push_back({time, rate});
  }
  return schedule;
}

void JudgeObjective(const Scenario& scenario, Candidate& candidate) {
  const StageQueues queues = QueuesOf(scenario, candidate);
  candidate.backlog = WorstBacklog(queues, 1);
  CountCopies(scenario, queues, candidate);
  candidate.slo_share = candidate.fits ? ShareWithinTtft(scenario, candidate) : 0;
  const Objective& objective = scenario.objective;
  const auto& tpot = candidate.tpot_at_arrival;
  if (objective.tpot && tpot && *tpot > *objective.tpot) candidate.slo_share = 0;
  Price(scenario, candidate);
  if (!candidate.fits) {
    candidate.shortfalls.push_back(
        {Kind::kDoesNotFit, candidate.fit_problem.empty() ? "no cards are left to one of the stages"
                                                          : candidate.fit_problem});
    return;
  }
  JudgeRates(scenario, queues, candidate);
  JudgeTimes(scenario, candidate);
  candidate.meets_objective = candidate.shortfalls.empty();
}

}  // namespace divisi
