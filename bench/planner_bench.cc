// What a plan costs: one evaluation, the 4 x 4 grid of example 9.8, and four types of 250 cards
// each.
//   planner_bench [--benchmark_filter=...]
#include <benchmark/benchmark.h>

#include "divisi/core/check.h"
#include "divisi/plan/example_scenario.h"
#include "divisi/plan/planner.h"

namespace divisi {
namespace {

// Cards whose ratios of computing to reading differ, and a load that needs most of them.
Scenario ThousandCards() {
  Scenario scenario = ExampleEightCards();
  scenario.groups = {ExampleGroup("A100", 312, 2039, 80), ExampleGroup("H20", 148, 4096, 96),
                     ExampleGroup("H100", 989.4, 3350, 80), ExampleGroup("B200", 2250, 8000, 180)};
  for (CardGroup& group : scenario.groups) group.count = 250;
  scenario.link.bandwidth = BytesPerSecond(2500e9);
  scenario.workload.arrivals = ArrivalSchedule::Constant(PerSecond(900));
  scenario.price_per_hour = 1000;
  return scenario;
}

void Evaluation(benchmark::State& state) {
  const Scenario scenario = ExampleEightCards();
  for (auto _ : state) {
    const Evaluator evaluator(scenario);
    benchmark::DoNotOptimize(evaluator.Evaluate(Scheme::kPdDirect, {4, 0}));
  }
}
BENCHMARK(Evaluation);

void MakePlanEightCards(benchmark::State& state) {
  const Scenario scenario = ExampleEightCards();
  for (auto _ : state) {
    const auto plan = MakePlan(scenario);
    CHECK(plan && plan->grid.size() == 25, "the grid of 4 x 4 cards");
  }
}
BENCHMARK(MakePlanEightCards)->Unit(benchmark::kMillisecond);

void BestSplitThousandCards(benchmark::State& state) {
  const Scenario scenario = ThousandCards();
  const std::vector<SplitType> types = Evaluator(scenario).SplitTypes();
  for (auto _ : state) benchmark::DoNotOptimize(BestSplit(types));
}
BENCHMARK(BestSplitThousandCards)->Unit(benchmark::kMillisecond);

void MakePlanThousandCards(benchmark::State& state) {
  const Scenario scenario = ThousandCards();
  for (auto _ : state) {
    const auto plan = MakePlan(scenario);
    CHECK(plan.ok(), "a plan of 1000 cards");
  }
}
BENCHMARK(MakePlanThousandCards)->Unit(benchmark::kMillisecond);

// No split answers in time, so that each of 41 x 41 is judged, at every step of the search for
// flips.
void MakePlanMissedTtft(benchmark::State& state) {
  Scenario scenario = ExampleEightCards();
  for (CardGroup& group : scenario.groups) group.count = 40;
  scenario.workload.arrivals = ArrivalSchedule::Constant(PerSecond(40));
  scenario.objective.ttft = Seconds(0.1);
  for (auto _ : state) {
    const auto plan = MakePlan(scenario);
    CHECK(plan && !plan->chosen().meets_objective, "a first token that is too late");
  }
}
BENCHMARK(MakePlanMissedTtft)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace divisi

BENCHMARK_MAIN();
