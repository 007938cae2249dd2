#include "divisi/cli/plan_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "divisi/plan/example_scenario.h"

namespace divisi {
namespace {

using testing::ContainsRegex;
using testing::HasSubstr;
using testing::Not;

// Figure 9-42: 35 requests wait when the service is ready; replicas have 59 at 60 s.
TEST(PlanTextTest, ShowsWhoWaitsOverTime) {
  const Scenario scenario = ExampleEightCards();
  const std::string text = PlanText(scenario, MakePlan(scenario).value(), false);
  EXPECT_THAT(text, ContainsRegex("Requests waiting +0 s +10 s +20 s"));
  EXPECT_THAT(text, ContainsRegex("\npd-direct +0 +35 +24.5"));
  EXPECT_THAT(text, ContainsRegex("\nreplicas +0 +35 +39.8 +44.7 +49.5 +54.3 +59.2"));
}

TEST(PlanTextTest, ShowsNoQueueWhereNobodyWaits) {
  Scenario scenario = ExampleEightCards();
  scenario.startup = Seconds(0);
  scenario.workload.arrivals = ArrivalSchedule::Constant(PerSecond(1));
  const std::string text = PlanText(scenario, MakePlan(scenario).value(), false);
  EXPECT_THAT(text, Not(HasSubstr("Requests waiting")));
}

// Figure 9-10.
TEST(PlanTextTest, ListsTheSplits) {
  const Scenario scenario = ExampleEightCards();
  const std::string text = SplitsText(scenario, MakePlan(scenario).value());
  EXPECT_THAT(text, ContainsRegex("\n +4 +0 +4.671 +4.555 +4.555\n"));
  EXPECT_EQ(std::ranges::count(text, '\n'), 1 + 2 + 25);
}

}  // namespace
}  // namespace divisi
