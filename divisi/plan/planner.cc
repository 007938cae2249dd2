#include "divisi/plan/planner.h"

#include <algorithm>
#include <utility>

#include "divisi/core/format.h"
#include "divisi/plan/reasons.h"
#include "divisi/plan/split_search.h"

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

std::vector<Candidate> Compare(const Evaluator& evaluator) {
  std::vector<Candidate> candidates;
  for (const Scheme scheme : SchemesOf(evaluator)) {
    candidates.push_back(Splits(scheme) ? BestOfSplits(evaluator, scheme)
                                        : evaluator.Evaluate(scheme, {}));
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
