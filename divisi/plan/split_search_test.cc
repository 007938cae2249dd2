#include "divisi/plan/split_search.h"

#include <gtest/gtest.h>

#include <cmath>

#include "divisi/core/random.h"
#include "divisi/plan/example_scenario.h"

namespace divisi {
namespace {

// Limits around what the cards give, classes that differ, links of all widths.
Scenario RandomScenario(Random& random) {
  Scenario scenario = ExampleEightCards();
  for (CardGroup& group : scenario.groups) {
    group.count = static_cast<int>(random.Between(1, 7));
    group.card.bf16_peak = FlopsPerSecond(1e12 * random.Between(50, 1000));
    group.card.memory_bandwidth = BytesPerSecond(1e9 * random.Between(500, 5000));
    if (random.Chance(0.1)) group.card.memory = Bytes(17'000'000'000);
  }
  scenario.link.bandwidth = BytesPerSecond(1e9 * random.Between(1, 50));
  scenario.workload.decode_batch = static_cast<double>(random.Between(1, 40));
  scenario.workload.classes = {
      {.input = Tokens(random.Between(100, 8192)), .output = Tokens(random.Between(2, 2000))}};
  if (random.Chance(0.5)) {
    scenario.workload.classes.push_back({.name = "other",
                                         .weight = random.Uniform() + 0.1,
                                         .input = Tokens(random.Between(100, 8192)),
                                         .output = Tokens(random.Between(1, 2000))});
    if (random.Chance(0.3)) {
      scenario.workload.classes[1].arrivals = ArrivalSchedule::Constant(PerSecond(1));
    }
  }
  scenario.workload.arrivals = ArrivalSchedule::Constant(PerSecond(5 * random.Uniform()));
  scenario.objective = {};
  if (random.Chance(0.5)) scenario.objective.clear_by = Seconds(60);
  if (random.Chance(0.8)) scenario.objective.ttft = Seconds(2 * random.Uniform());
  if (random.Chance(0.5)) scenario.objective.tpot = Seconds(0.04 * random.Uniform());
  return scenario;
}

// The naive twin evaluates every split.
TEST(SplitSearchTest, FindsWhatMeetsTheObjective) {
  Random random(21);
  int searched = 0;
  for (int round = 0; round < 400; ++round) {
    const Scenario scenario = RandomScenario(random);
    ASSERT_TRUE(CheckScenario(scenario).ok());
    const Evaluator evaluator(scenario);
    for (const Scheme scheme : {Scheme::kPdDirect, Scheme::kPdPool}) {
      const Candidate found = BestOfSplits(evaluator, scheme);
      double most = 0;
      for (const Split& split : AllSplits(evaluator.SplitTypes(), 1000)) {
        const Candidate other = evaluator.Evaluate(scheme, split);
        if (other.meets_objective) most = std::max(most, other.throughput.value);
      }
      EXPECT_EQ(found.meets_objective, most > 0) << "round " << round;
      EXPECT_GE(found.throughput.value, most * (1 - 1e-3)) << "round " << round;
      const Candidate fastest = evaluator.Evaluate(scheme, BestSplit(evaluator.SplitTypes()));
      if (found.meets_objective && !fastest.meets_objective) ++searched;
    }
  }
  EXPECT_GT(searched, 10);  // The search itself was needed.
}

TEST(SplitSearchTest, OrdersByObjectiveThenRateThenFirstToken) {
  const Candidate met{.throughput = PerSecond(1), .meets_objective = true};
  const Candidate missed{.throughput = PerSecond(2)};
  EXPECT_TRUE(IsBetter(met, missed));
  Candidate faster = met;
  faster.throughput = PerSecond(1.1);
  EXPECT_TRUE(IsBetter(faster, met));
  Candidate sooner = met;
  sooner.throughput = PerSecond(0.9995);
  sooner.ttft = Seconds(-1);
  EXPECT_TRUE(IsBetter(sooner, met));
}

}  // namespace
}  // namespace divisi
