#include "divisi/plan/reasons.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "divisi/core/format.h"
#include "divisi/plan/example_scenario.h"
#include "divisi/plan/objective.h"

namespace divisi {
namespace {

using testing::Contains;
using testing::HasSubstr;

// Section 9.7.3: 856 ms of prefill against 48.3 ms of reading; 760 ms saved by one reuse.
TEST(ReasonsTest, APoolWhoseStatesAreReusedWins) {
  Scenario scenario = ExampleEightCards();
  scenario.pool = StatePool{.link = scenario.link, .reuses = 1};
  const Plan plan = MakePlan(scenario).value();
  EXPECT_EQ(plan.chosen().scheme, Scheme::kPdPool);
  EXPECT_NEAR(plan.chosen().reuse.value, 0.04831838208, 1e-12);
  EXPECT_NEAR(plan.candidates[1].reuse.value, 0.856358380990359, 1e-12);
  EXPECT_THAT(plan.why, Contains(HasSubstr("in 48.3 ms instead of computing it again in 856 ms: "
                                           "with 1 a request the pool saves 760 ms")));
  scenario.pool->reuses = 0;
  EXPECT_EQ(MakePlan(scenario).value().chosen().scheme, Scheme::kPdDirect);
}

// Section 9.7.2: 64 GiB hold 56 states of 1.125 GiB.
TEST(ReasonsTest, APoolHoldsWholeStatesOrDoesNotFit) {
  Scenario scenario = ExampleEightCards();
  scenario.schemes = {Scheme::kPdPool};
  scenario.pool = StatePool{.capacity = Bytes(int64_t{64} << 30), .link = scenario.link};
  EXPECT_EQ(MakePlan(scenario).value().chosen().pool_states, 56);
  scenario.pool->capacity = Bytes(int64_t{1} << 30);
  const Plan plan = MakePlan(scenario).value();
  EXPECT_FALSE(plan.chosen().fits);
  EXPECT_EQ(plan.chosen().fit_problem, "a state of 1.125 GiB is beyond the pool's 1 GiB");
}

TEST(ReasonsTest, SaysHowMuchTheRateLacks) {
  Scenario scenario = ExampleEightCards();
  for (CardGroup& group : scenario.groups) {
    group.efficiency = {0.4, 0.4, 0.4, {{{1, 0.4}}}};
  }
  const Plan plan = MakePlan(scenario).value();
  EXPECT_THAT(plan.why, Contains(HasSubstr("takes 4.2 requests/s: it lacks 13 %")));
}

// Long outputs take more of decode than a mean request, so that a burst of them counts for more.
TEST(ReasonsTest, TheRateToClearIsThatOfTheFullestStage) {
  Scenario scenario = ExampleEightCards();
  RequestClass brief = scenario.workload.classes[0];
  brief.arrivals = ArrivalSchedule::Constant(PerSecond(1));
  RequestClass lengthy = brief;
  lengthy.output = Tokens(4097);
  lengthy.arrivals =
      ArrivalSchedule{{{Seconds(0), PerSecond(2)}, {Seconds(10), PerSecond(0)}}, Seconds(60)};
  lengthy.weight = 1.0 / 3;  // Its rate over the period.
  scenario.workload.classes = {brief, lengthy};
  scenario.workload.arrivals = ArrivalsAt(scenario, {1, 1});
  scenario.objective.clear_by = Seconds(30);
  const Plan plan = MakePlan(scenario).value();
  const StageLoad& decode = plan.chosen().stages.back();
  const double needed = (30 * decode.class_work[0] + 20 * decode.class_work[1]) / 20;
  EXPECT_GT(needed, 3);  // Of requests as such: 50 / 20.
  EXPECT_THAT(plan.why, Contains(HasSubstr(Format("takes {:.3g} requests/s", needed))));
}

TEST(ReasonsTest, AnIdealBoundGivesNoCardsAway) {
  Scenario scenario = ExampleEightCards();
  scenario.workload.classes[0].cached_prefill = Tokens(6144);
  // Four H20 hold this load only if all prefill hides behind decode.
  for (const SmallerSet& set : MakePlan(scenario).value().smaller) {
    EXPECT_FALSE(set.meets_objective && set.reason.find("chunked") != std::string::npos);
  }
  scenario.groups[0].count = 0;
  EXPECT_TRUE(MakePlan(scenario).value().smaller.empty());
}

// Of hundreds of cards nearly any change moves one: that flips nothing.
TEST(ReasonsTest, ASplitFlipsOnlyWhereItMatters) {
  Scenario scenario = ExampleEightCards();
  for (CardGroup& group : scenario.groups) group.count = 250;
  scenario.link.bandwidth = scenario.link.bandwidth * 62.5;
  scenario.workload.arrivals = ArrivalSchedule::Constant(PerSecond(200));
  const Plan plan = MakePlan(scenario).value();
  EXPECT_FALSE(plan.flips.empty());
  for (const Flip& flip : plan.flips) {
    EXPECT_GT(std::abs(flip.factor - 1), 0.005) << flip.what << " " << flip.to;
  }
}

TEST(ReasonsTest, WhatDoesNotFitServesNothingAndSaysWhatWould) {
  Scenario scenario = ExampleEightCards();
  scenario.workload.decode_batch = 1000;
  scenario.schemes = {Scheme::kReplicas};
  const Plan plan = MakePlan(scenario).value();
  EXPECT_TRUE(std::isinf(plan.chosen().ttft.value));
  EXPECT_THAT(plan.chosen().fit_problem, HasSubstr("a decode_batch of 46 would fit"));
  scenario.workload.decode_batch = 46;
  EXPECT_TRUE(MakePlan(scenario).value().chosen().fit_problem.empty());
  scenario.groups[0].card.memory = scenario.groups[1].card.memory = Bytes(1'000'000'000);
  EXPECT_THAT(MakePlan(scenario).value().chosen().fit_problem,
              HasSubstr("give a worker more cards"));
}

TEST(ReasonsTest, NamesCardsThatHoldNothingAsIdle) {
  Scenario scenario = ExampleEightCards();
  scenario.groups[0].card.memory = Bytes(30'000'000'000);  // Weights and prompts, not 32 states.
  const Plan plan = MakePlan(scenario).value();
  for (const Candidate& candidate : plan.candidates) {
    const std::string cards = DescribeCards(scenario, candidate);
    const bool pools = candidate.prefill_rate.has_value();
    EXPECT_EQ(cards, pools ? "4 A100 prefill, 4 H20 decode" : "4 H20 do both, 4 A100 idle");
  }
}

}  // namespace
}  // namespace divisi
