#include "divisi/plan/scenario_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "divisi/plan/scenario_value.h"

namespace divisi {
namespace {

using testing::HasSubstr;

constexpr const char* kText = R"(model: qwen3-8b
cards:
  - {card: A100 80GB SXM, count: 4, host: a}
  - {card: H20, count: 4, host: b}
links:
  - {between: [a, b], bandwidth: 25 GB/s}
workload:
  arrival_rate: 3.5
  input_tokens: 8192
  output_tokens: 1025
  decode_batch: 32
)";

Result<Scenario> Read(const std::vector<std::string>& sets = {}) {
  static const Catalog catalog = Catalog::BuiltIn();
  YamlNode tree = ParseYaml(kText, "s.yaml").value();
  for (const std::string& set : sets) RETURN_IF_ERROR(SetScenarioValue(tree, set));
  return ReadScenario(tree, "s.yaml", {catalog, [](const std::string& path) -> Result<ModelSpec> {
                                         return Error{Code::kNotFound, "no file " + path};
                                       }});
}

TEST(ScenarioFileTest, BoundsAreToldWithLineAndKey) {
  for (const auto& [set, key] :
       {std::pair{"workload.arrival_rate=1e308", "s.yaml:8: workload.arrival_rate:"},
        {"links.0.bandwidth=1e-9 B/s", "s.yaml:6: links[0].bandwidth:"},
        {"efficiency=1e-300", "efficiency:"}}) {
    const auto scenario = Read({set});
    ASSERT_FALSE(scenario.ok()) << set;
    EXPECT_THAT(scenario.error().message, HasSubstr(key));
  }
}

TEST(ScenarioFileTest, AHostMayLoseItsLastCard) {
  const Scenario s = Read({"cards.1.count=0"}).value();
  EXPECT_EQ(s.link.bandwidth.value, 25e9);
  EXPECT_EQ(s.groups[1].count, 0);
}

TEST(ScenarioFileTest, ReadsValuesAndDefaults) {
  const Scenario s = Read().value();
  EXPECT_EQ(s.name, "scenario");
  EXPECT_EQ(s.groups.size(), 2);
  EXPECT_EQ(s.groups[1].name, "H20 SXM5 96GB");
  EXPECT_EQ(s.groups[0].efficiency.prefill_compute, 0.5);
  EXPECT_EQ(s.link.bandwidth.value, 25e9);
  EXPECT_EQ(s.link.launch.value, 0);
  EXPECT_EQ(s.storage.weight_bytes, 2);
  EXPECT_EQ(s.startup.value, 0);
  EXPECT_FALSE(s.pool || s.state || s.chunked_overlap || s.price_per_hour);
  EXPECT_TRUE(s.schemes.empty());
}

TEST(ScenarioFileTest, ReadsEfficienciesFromTheWholeToThePart) {
  const Scenario s = Read({"efficiency={prefill: 0.6, decode_memory: [{batch: 1, fraction: 0.33}, "
                           "{batch: 64, fraction: 0.65}]}",
                           "cards.1.efficiency={decode: 0.4, prefill_memory: 0.7}"})
                         .value();
  EXPECT_EQ(s.groups[0].efficiency.prefill_compute, 0.6);
  EXPECT_EQ(s.groups[0].efficiency.decode_compute, 0.5);
  EXPECT_NEAR(s.groups[0].efficiency.decode_memory.At(32.5), 0.49, 1e-12);
  EXPECT_EQ(s.groups[1].efficiency.prefill_compute, 0.6);
  EXPECT_EQ(s.groups[1].efficiency.prefill_memory, 0.7);
  EXPECT_EQ(s.groups[1].efficiency.decode_memory.At(1), 0.4);
}

TEST(ScenarioFileTest, ReadsClassesAndTheirArrivals) {
  const Scenario shared = Read({"workload.classes=[{output_tokens: 1}, {weight: 3}]"}).value();
  EXPECT_EQ(shared.workload.classes[0].output.value, 1);
  EXPECT_EQ(shared.workload.classes[1].output.value, 1025);
  EXPECT_EQ(shared.workload.classes[1].name, "classes[1]");
  EXPECT_EQ(shared.TotalWeight(), 4);
  const Scenario own =
      Read({"workload.arrival_rate=null",
            "workload.classes=[{arrival_rate: 1}, {arrivals: {period: 60 s, parts: "
            "[{from: 0 s, rate: 6}, {from: 10 s, rate: 0}]}}]"})
          .value();
  EXPECT_NEAR(own.workload.arrivals.LongTermRate().value, 2, 1e-12);
  EXPECT_NEAR(own.workload.classes[1].weight, 1, 1e-12);
}

struct Bad {
  const char* set;
  const char* message;
};
class ScenarioFileBadTest : public testing::TestWithParam<Bad> {};

TEST_P(ScenarioFileBadTest, IsToldWithLineAndKey) {
  const auto scenario = Read({GetParam().set});
  ASSERT_FALSE(scenario);
  EXPECT_THAT(scenario.error().message, HasSubstr(GetParam().message));
}

INSTANTIATE_TEST_SUITE_P(
    Messages, ScenarioFileBadTest,
    testing::Values(
        Bad{"cards.0.card=A100",
            "s.yaml:3: cards[0].card: there is no card 'A100' in the catalogue; "
            "did you mean A100 40GB PCIe or A100 80GB SXM?"},
        Bad{"cards.0.count=-1", "s.yaml:3: cards[0].count: expected a whole number"},
        Bad{"cards.0.tensor_parallel=3",
            "s.yaml:3: cards[0].count: 4 cards do not make whole "
            "workers of 3"},
        Bad{"cards.0.tensor_parallel=0", "s.yaml:3: cards[0].tensor_parallel: expected"},
        Bad{"cards.0.expert_parallel=2",
            "s.yaml:3: cards[0].expert_parallel: qwen3-8b has no "
            "experts"},
        Bad{"cards.1.name=A100 80GB SXM", "s.yaml:4: cards[1]: a second group called"},
        Bad{"links.0.between=[a, c]", "s.yaml:6: links[0].between: no cards are at host 'c'"},
        Bad{"cards=[]", "s.yaml:3: cards: expected a list of at least one group"},
        Bad{"links=[]", "no link joins hosts 'a' and 'b'"},
        Bad{"links.0.bandwidth=25", "s.yaml:6: links[0].bandwidth: '25' has no unit"},
        Bad{"workload.output_tokens=0", "s.yaml:10: workload.output_tokens: expected"},
        Bad{"workload.cached_prefill_tokens=8192",
            "workload.cached_prefill_tokens: 8192 of 8192 input tokens; at most 8191"},
        Bad{"workload.arrivals={parts: [{from: 0 s, rate: 1}]}",
            "workload.arrivals: given beside 'arrival_rate'"},
        Bad{"workload.input_token=1",
            "workload.input_token: unknown key; did you mean "
            "input_tokens?"},
        Bad{"workload.arrival_rate=.nan", "s.yaml:8: workload.arrival_rate: expected"},
        Bad{"efficiency={decode_memory: [{batch: 2, fraction: 0.5}, {batch: 1, fraction: 0.5}]}",
            "efficiency.decode_memory[1].batch: batches must rise"},
        Bad{"schemes=[pd]", "schemes: expected one of replicas, replicas-chunked, pd-direct"},
        Bad{"state={query_work: added}", "state: expected either 'like'"},
        Bad{"pool={reuses: 1}", "pool.capacity"},
        Bad{"model={config: x.json}", "model.config: no file x.json"},
        Bad{"workload.classes=[{arrival_rate: 1}, {}]", "arrivals are given for the whole"}));

TEST(ScenarioFileTest, SchedulesStartAtZeroAndRise) {
  const auto message = [](const char* parts) {
    return Read({"workload.arrival_rate=null",
                 std::string("workload.arrivals={period: 10 s, parts: ") + parts + "}"})
        .error()
        .message;
  };
  EXPECT_THAT(message("[{from: 1 s, rate: 1}]"), HasSubstr("parts[0].from: the first part starts"));
  EXPECT_THAT(message("[{from: 0 s, rate: 1}, {from: 0 s, rate: 2}]"),
              HasSubstr("parts[1].from: times must rise"));
  EXPECT_THAT(message("[{from: 0 s, rate: 1}, {from: 10 s, rate: 2}]"),
              HasSubstr("parts[1].from: is not before the period of 10 s ends"));
}

}  // namespace
}  // namespace divisi
