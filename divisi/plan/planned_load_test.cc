#include "divisi/plan/planned_load.h"

#include <gtest/gtest.h>

#include "divisi/plan/example_scenario.h"

namespace divisi {
namespace {

TEST(PlannedLoadTest, HasTheRatesOfTheScenario) {
  Scenario scenario = ExampleEightCards();
  RequestClass longer = scenario.workload.classes[0];
  longer.weight = 3;
  longer.output = Tokens(4097);
  longer.cached_prefill = Tokens(1024);
  scenario.workload.classes.push_back(longer);
  const auto load = PlannedLoad(scenario, {.duration = Seconds(10000), .seed = 3}).value();
  EXPECT_NEAR(static_cast<double>(load.size()), 35000, 4 * 187);
  const auto longs = std::count_if(load.begin(), load.end(),
                                   [](const LoadRequest& r) { return r.request_class == 1; });
  EXPECT_NEAR(static_cast<double>(longs), 26250, 4 * 162);
  for (size_t i = 1; i < load.size(); ++i) ASSERT_LE(load[i - 1].arrival, load[i].arrival);
  EXPECT_EQ(load[0].input, Tokens(8192));
  const auto again = PlannedLoad(scenario, {.duration = Seconds(10000), .seed = 3}).value();
  EXPECT_EQ(again.size(), load.size());
  EXPECT_EQ(again.back().arrival, load.back().arrival);
}

TEST(PlannedLoadTest, FollowsTheSchedule) {
  Scenario scenario = ExampleEightCards();
  scenario.workload.arrivals = {{{Seconds(0), PerSecond(100)}, {Seconds(10), PerSecond(0)}},
                                Seconds(60)};
  const auto load = PlannedLoad(scenario, {.duration = Seconds(600)}).value();
  EXPECT_NEAR(static_cast<double>(load.size()), 10000, 400);
  for (const LoadRequest& request : load) EXPECT_LT(std::fmod(request.arrival.value, 60), 10);
}

TEST(PlannedLoadTest, RefusesWhatNoFileHolds) {
  EXPECT_FALSE(PlannedLoad(ExampleEightCards(), {.duration = Seconds(1e9)}).ok());
}

}  // namespace
}  // namespace divisi
