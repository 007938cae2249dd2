#include "divisi/plan/planner.h"

#include <algorithm>
#include <utility>

#include "divisi/core/format.h"
#include "divisi/plan/reasons.h"

namespace divisi {
namespace {

std::vector<Scheme> SchemesOf(const Evaluator& evaluator) {
  const Scenario& scenario = evaluator.scenario();
  std::vector<Scheme> schemes = scenario.schemes;
  if (schemes.empty()) {
    schemes = {Scheme::kReplicas, Scheme::kReplicasChunked, Scheme::kPdDirect, Scheme::kPdPool};
  }
  if (evaluator.decodes()) return schemes;
  // Of one output token nothing is decoded and nothing moved: every worker is a replica.
  return {Scheme::kReplicas};
}

bool Splits(Scheme scheme) { return scheme == Scheme::kPdDirect || scheme == Scheme::kPdPool; }

// The best split by throughput; where that misses the objective, the best of all splits, if they
// are few enough to look at each: a slower one may answer sooner.
Candidate BestOfScheme(const Evaluator& evaluator, Scheme scheme) {
  if (!Splits(scheme)) return evaluator.Evaluate(scheme, {});
  constexpr size_t kMostEvaluated = 2000;
  const std::vector<SplitType> types = evaluator.SplitTypes();
  Candidate best = evaluator.Evaluate(scheme, BestSplit(types));
  const Objective& objective = evaluator.scenario().objective;
  if (best.meets_objective || !(objective.ttft || objective.tpot)) return best;
  for (const Split& split : AllSplits(types, kMostEvaluated)) {
    Candidate other = evaluator.Evaluate(scheme, split);
    if (IsBetter(other, best)) best = std::move(other);
  }
  return best;
}

std::vector<Candidate> Compare(const Evaluator& evaluator) {
  std::vector<Candidate> candidates;
  for (const Scheme scheme : SchemesOf(evaluator)) {
    candidates.push_back(BestOfScheme(evaluator, scheme));
  }
  std::stable_sort(candidates.begin(), candidates.end(), IsBetter);
  return candidates;
}

std::vector<SplitRates> GridOf(const Evaluator& evaluator) {
  std::vector<SplitRates> grid;
  if (!evaluator.decodes()) return grid;
  const std::vector<SplitType> types = evaluator.SplitTypes();
  const PerSecond link = evaluator.LinkRate(Scheme::kPdDirect);
  for (const Split& split : AllSplits(types, kMostGrid)) {
    const PoolRates rates = RatesOf(types, split);
    grid.push_back({split, rates.prefill, rates.decode, std::min(rates.Slower(), link)});
  }
  return grid;
}

}  // namespace

bool IsBetter(const Candidate& a, const Candidate& b) {
  if (a.meets_objective != b.meets_objective) return a.meets_objective;
  if (a.ideal != b.ideal) return b.ideal;
  constexpr double kEqual = 1e-3;
  const double difference = a.throughput.value - b.throughput.value;
  const bool equal = std::abs(difference) <= kEqual * std::max(a.throughput, b.throughput).value;
  if (!equal) return difference > 0;
  if (a.ttft != b.ttft) return a.ttft < b.ttft;
  return a.transfer < b.transfer;
}

std::string DescribeCards(const Scenario& scenario, const Candidate& candidate) {
  std::string prefill, decode;
  const auto add = [](std::string& text, int cards, const std::string& name) {
    if (cards > 0) text += Format("{}{} {}", text.empty() ? "" : " + ", cards, name);
  };
  for (size_t i = 0; i < scenario.groups.size(); ++i) {
    const CardGroup& group = scenario.groups[i];
    const int cards = candidate.prefill_workers[i] * group.CardsPerWorker();
    add(prefill, cards, group.name);
    add(decode, group.count - cards, group.name);
  }
  if (!Splits(candidate.scheme)) return prefill + " do both";
  if (prefill.empty()) prefill = "none";
  if (decode.empty()) decode = "none";
  return Format("{} prefill, {} decode", prefill, decode);
}

Result<std::vector<Candidate>> CompareCandidates(const Scenario& scenario) {
  RETURN_IF_ERROR(CheckScenario(scenario));
  return Compare(Evaluator(scenario));
}

Result<Plan> MakePlan(const Scenario& scenario) {
  RETURN_IF_ERROR(CheckScenario(scenario));
  const Evaluator evaluator(scenario);
  Plan plan;
  plan.candidates = Compare(evaluator);
  plan.grid = GridOf(evaluator);
  plan.why = ExplainChoice(scenario, plan.candidates);
  plan.flips = FindFlips(scenario, plan.chosen());
  plan.smaller = TrySmallerSets(scenario);
  return plan;
}

}  // namespace divisi
