// Example 9.8 of the specification, in code: for tests of this folder. examples/chapter9 has it as
// a file.
#pragma once

#include "divisi/plan/example_models.h"
#include "divisi/plan/scenario.h"

namespace divisi {

inline CardGroup ExampleGroup(const char* name, double tflops, double gbytes, int64_t memory) {
  CardGroup group;
  group.name = name;
  group.card = {.name = name,
                .bf16_peak = FlopsPerSecond(tflops * 1e12),
                .memory_bandwidth = BytesPerSecond(gbytes * 1e9),
                .memory = Bytes(memory * 1'000'000'000)};
  group.count = 4;
  group.host = name;
  group.price_per_hour = 1;
  return group;
}

inline Scenario ExampleEightCards() {
  Scenario scenario;
  scenario.name = "eight cards";
  scenario.model_name = "qwen3-8b";
  scenario.model = ExampleQwen3_8B();
  scenario.groups = {ExampleGroup("A100", 312, 2039, 80), ExampleGroup("H20", 148, 4096, 96)};
  scenario.link = {.name = "between", .bandwidth = BytesPerSecond(25e9)};
  scenario.workload = {.arrivals = ArrivalSchedule::Constant(PerSecond(3.5)),
                       .decode_batch = 32,
                       .classes = {{.input = Tokens(8192), .output = Tokens(1025)}}};
  scenario.startup = Seconds(10);
  scenario.objective.clear_by = Seconds(60);
  scenario.price_per_hour = 8;
  scenario.currency = "yuan";
  return scenario;
}

}  // namespace divisi
