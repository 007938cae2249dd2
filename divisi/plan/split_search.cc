#include "divisi/plan/split_search.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "divisi/plan/waiting.h"

namespace divisi {
namespace {

constexpr double kEqual = 1e-3;

// A split by what is cheap to know of it.
struct Outlook {
  const Split* split = nullptr;
  PerSecond throughput;
  Seconds ttft;  // Without waiting.
};

// Looks at splits without evaluating them, since an evaluation takes microseconds and a plan asks
// for many thousand.
class Screen {
 public:
  // any: the evaluation of any split of the scheme, for what all of them share.
  Screen(const Evaluator& evaluator, const std::vector<SplitType>& types, const Candidate& any)
      : scenario_(evaluator.scenario()),
        types_(types),
        link_(evaluator.LinkRate(any.scheme)),
        transfer_(any.ttft_transfer),
        link_wait_(any.link_wait),
        arrivals_(scenario_.workload.arrivals.LongTermRate()) {
    for (const WorkerCost& worker : evaluator.workers()) steps_.push_back(MeanStep(worker));
    const auto& classes = scenario_.workload.classes;
    const bool one_schedule = std::ranges::none_of(
        classes, [](const RequestClass& request) { return request.arrivals.has_value(); });
    if (!one_schedule) return;  // Stages may then see other rates.
    needed_ = arrivals_;
    const auto& limit = scenario_.objective.clear_by;
    if (!limit) return;
    const auto to_clear = RateToClear(scenario_.workload.arrivals, scenario_.startup, *limit);
    needed_ = std::max(needed_, to_clear.value_or(PerSecond(HUGE_VAL)));
  }

  Outlook Of(const Split& split) const {
    const PoolRates rates = RatesOf(types_, split);
    const Seconds prefill(PrefillWorkers(split) / rates.prefill.value);
    return {&split, std::min(rates.Slower(), link_), prefill + transfer_};
  }

  // False only where the split certainly misses the objective. Waits are those of like requests on
  // like cards, which others only lengthen.
  bool MayMeet(const Outlook& outlook) const {
    constexpr double kRounding = 1 + 1e-9;
    if (outlook.throughput.value * kRounding < needed_.value) return false;
    const PoolRates rates = RatesOf(types_, *outlook.split);
    if (!(rates.Slower().value > 0)) return false;
    const Objective& objective = scenario_.objective;
    if (objective.tpot && MeanStep(*outlook.split, rates) > *objective.tpot * kRounding) {
      return false;
    }
    if (!objective.ttft) return true;
    const Seconds most = *objective.ttft * kRounding;
    Seconds ttft = outlook.ttft + link_wait_;
    if (ttft > most) return false;
    ttft += WaitOfFixedService(arrivals_, {PrefillWorkers(*outlook.split), rates.prefill});
    return ttft <= most;
  }

 private:
  int PrefillWorkers(const Split& split) const {
    int workers = 0;
    for (size_t i = 0; i < split.size(); ++i) {
      if (types_[i].prefill.value > 0) workers += split[i];
    }
    return workers;
  }

  // Over the steps of all requests on a worker.
  double MeanStep(const WorkerCost& worker) const {
    double steps = 0, calls = 0;
    for (size_t c = 0; c < worker.classes.size(); ++c) {
      const RequestClass& request = scenario_.workload.classes[c];
      const double weight = request.weight * static_cast<double>(request.DecodeCalls().value);
      steps += weight * worker.classes[c].Step().value;
      calls += weight;
    }
    return steps / calls;
  }
  // Over the cards that decode, each by its share of the requests.
  Seconds MeanStep(const Split& split, const PoolRates& rates) const {
    double sum = 0;
    for (size_t i = 0; i < split.size(); ++i) {
      sum += (types_[i].count - split[i]) * types_[i].decode.value * steps_[i];
    }
    return Seconds(sum / rates.decode.value);
  }

  const Scenario& scenario_;
  const std::vector<SplitType>& types_;
  PerSecond link_;
  Seconds transfer_, link_wait_;
  PerSecond arrivals_;
  PerSecond needed_;           // To hold the arrivals and clear the backlog.
  std::vector<double> steps_;  // Seconds, by group.
};

}  // namespace

bool IsBetter(const Candidate& a, const Candidate& b) {
  if (a.meets_objective != b.meets_objective) return a.meets_objective;
  if (a.ideal != b.ideal) return b.ideal;
  const double difference = a.throughput.value - b.throughput.value;
  const bool equal = std::abs(difference) <= kEqual * std::max(a.throughput, b.throughput).value;
  if (!equal) return difference > 0;
  const Seconds first_a = a.ttft + a.reuse;
  const Seconds first_b = b.ttft + b.reuse;
  if (first_a != first_b) return first_a < first_b;
  return a.transfer < b.transfer;
}

Candidate BestOfSplits(const Evaluator& evaluator, Scheme scheme) {
  constexpr size_t kMostSearched = 2000;
  const std::vector<SplitType> types = evaluator.SplitTypes();
  Candidate best = evaluator.Evaluate(scheme, BestSplit(types));
  const Objective& objective = evaluator.scenario().objective;
  if (best.meets_objective || !(objective.ttft || objective.tpot)) return best;
  const Screen screen(evaluator, types, best);
  const std::vector<Split> splits = AllSplits(types, kMostSearched);
  std::vector<Outlook> outlooks;
  for (const Split& split : splits) {
    const Outlook outlook = screen.Of(split);
    if (screen.MayMeet(outlook)) outlooks.push_back(outlook);
  }
  std::ranges::stable_sort(outlooks, [](const Outlook& a, const Outlook& b) {
    return a.throughput != b.throughput ? a.throughput > b.throughput : a.ttft < b.ttft;
  });
  PerSecond least;  // Of interest, once one that meets is found.
  for (const Outlook& outlook : outlooks) {
    if (outlook.throughput < least) break;
    if (best.meets_objective && outlook.ttft >= best.ttft) continue;
    Candidate other = evaluator.Evaluate(scheme, *outlook.split);
    if (!other.meets_objective) continue;
    if (!best.meets_objective) least = other.throughput * (1 - kEqual);
    best = std::move(other);
  }
  return best;
}

}  // namespace divisi
