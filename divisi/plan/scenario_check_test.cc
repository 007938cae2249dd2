#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "divisi/plan/example_scenario.h"

namespace divisi {
namespace {

using testing::HasSubstr;

constexpr double kHuge = 1e300;

template <typename Change>
std::string ErrorAfter(Change change) {
  Scenario scenario = ExampleEightCards();
  change(scenario);
  const auto checked = CheckScenario(scenario);
  return checked ? "accepted" : checked.error().message;
}

TEST(ScenarioCheckTest, TakesTheExample) {
  EXPECT_EQ(ErrorAfter([](Scenario&) {}), "accepted");
}

TEST(ScenarioCheckTest, NumbersBeyondAllThatIsRealNameTheirKey) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_THAT(ErrorAfter([](Scenario& s) { s.link.bandwidth = BytesPerSecond(kHuge); }),
              HasSubstr("link.bandwidth: 1e+300 B/s; from 1 to 1e+18"));
  EXPECT_THAT(ErrorAfter([](Scenario& s) { s.link.launch = Seconds(kHuge); }),
              HasSubstr("link.launch"));
  EXPECT_THAT(ErrorAfter([](Scenario& s) { s.groups[0].card.bf16_peak = FlopsPerSecond(kHuge); }),
              HasSubstr("groups.A100.bf16"));
  EXPECT_THAT(ErrorAfter([](Scenario& s) { s.groups[1].efficiency.decode_compute = 1e-300; }),
              HasSubstr("groups.H20.efficiency.decode_compute"));
  EXPECT_THAT(ErrorAfter([&](Scenario& s) { s.startup = Seconds(nan); }), HasSubstr("startup"));
  EXPECT_THAT(ErrorAfter([](Scenario& s) { s.price_per_hour = kHuge; }),
              HasSubstr("price.per_hour"));
  EXPECT_THAT(ErrorAfter([](Scenario& s) { s.objective.ttft = Seconds(kHuge); }),
              HasSubstr("objective.ttft"));
  EXPECT_THAT(ErrorAfter([](Scenario& s) { s.workload.classes[0].weight = kHuge; }),
              HasSubstr("workload.all.weight"));
  EXPECT_THAT(ErrorAfter([](Scenario& s) {
                s.workload.arrivals = ArrivalSchedule::Constant(PerSecond(kHuge));
              }),
              HasSubstr("workload.arrivals.rate"));
}

// Each number alone is possible, their product is not countable in 64 bits.
TEST(ScenarioCheckTest, StatesAreCountable) {
  EXPECT_THAT(ErrorAfter([](Scenario& s) {
                s.workload.decode_batch = 1e6;
                s.workload.classes[0].input = Tokens(int64_t{1} << 30);
              }),
              HasSubstr("lower decode_batch or the tokens"));
  EXPECT_THAT(ErrorAfter([](Scenario& s) {
                s.state = StateOverride{.name = "x", .bytes_per_token = Bytes(int64_t{1} << 55)};
              }),
              HasSubstr("workload.all: 32 states of 9217 tokens"));
  EXPECT_THAT(
      ErrorAfter([](Scenario& s) { s.model.layers = 1 << 20, s.model.intermediate = 1 << 30; }),
      HasSubstr("model: its weights take"));
}

// A plan walks through every change of the rate.
TEST(ScenarioCheckTest, ArrivalsChangeABoundedNumberOfTimes) {
  const auto with = [](double period, double clear_by) {
    return ErrorAfter([&](Scenario& s) {
      s.workload.arrivals = {{{Seconds(0), PerSecond(1)}}, Seconds(period)};
      s.objective.clear_by = Seconds(clear_by);
    });
  };
  EXPECT_EQ(with(1, 60), "accepted");
  EXPECT_THAT(with(1e-9, 60), HasSubstr("a longer period or an earlier deadline"));
  EXPECT_THAT(with(1, 1e6), HasSubstr("the rate changes 1200000 times within 1200000 s"));
}

}  // namespace
}  // namespace divisi
