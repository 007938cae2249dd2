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

}  // namespace

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

std::string DescribeCards(const Scenario& scenario, const Candidate& candidate) {
  std::string prefill, decode, idle;
  const auto add = [&](std::string& text, int cards, size_t group) {
    if (cards == 0) return;
    text += Format("{}{} {}", text.empty() ? "" : " + ", cards, scenario.groups[group].name);
  };
  const auto fits = [](const std::vector<MemoryNeed>& memory, size_t group) {
    return memory.size() <= group || memory[group].Fits();
  };
  const bool pools = Splits(candidate.scheme);
  const auto& prefill_memory = pools ? candidate.prefill_memory : candidate.decode_memory;
  for (size_t i = 0; i < scenario.groups.size(); ++i) {
    const CardGroup& group = scenario.groups[i];
    const int cards = candidate.prefill_workers[i] * group.CardsPerWorker();
    add(fits(prefill_memory, i) ? prefill : idle, cards, i);
    add(fits(candidate.decode_memory, i) ? decode : idle, group.count - cards, i);
  }
  if (prefill.empty()) prefill = "none";
  if (decode.empty()) decode = "none";
  const std::string rest = idle.empty() ? "" : Format(", {} idle", idle);
  if (!pools) return Format("{} do both{}", prefill, rest);
  return Format("{} prefill, {} decode{}", prefill, decode, rest);
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
