// Every scenario of examples/chapter9 is planned, and its headline figures are the specification's
// at the precision printed there; those of its exercises, which prints none, are worked out here.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

#include "divisi/catalog/catalog.h"
#include "divisi/core/yaml.h"
#include "divisi/plan/planner.h"
#include "divisi/plan/scenario_file.h"

namespace divisi {
namespace {

using testing::ElementsAre;

const std::filesystem::path kExamples =
    std::filesystem::path(DIVISI_SOURCE_DIR) / "examples/chapter9";

struct Planned {
  Scenario scenario;
  Plan plan;

  const Candidate& Of(Scheme scheme) const {
    for (const Candidate& candidate : plan.candidates) {
      if (candidate.scheme == scheme) return candidate;
    }
    ADD_FAILURE() << "no candidate " << SchemeName(scheme);
    return plan.candidates.front();
  }
  double Rate(Scheme scheme) const { return Of(scheme).throughput.value; }
};

std::string TextOf(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

// One that fails makes an empty plan, whose figures fail.
Planned PlanOf(const std::string& name) {
  const std::filesystem::path path = kExamples / (name + ".yaml");
  const Catalog catalog = Catalog::BuiltIn();
  const auto tree = ParseYaml(TextOf(path), path.string());
  if (!tree) {
    ADD_FAILURE() << tree.error().message;
    return {.plan = {.candidates = {Candidate{}}}};
  }
  const auto no_config = [](const std::string&) -> Result<ModelSpec> {
    return Error{Code::kNotFound, "examples name models of the catalogue"};
  };
  auto scenario = ReadScenario(*tree, path.string(), {catalog, no_config});
  if (!scenario) {
    ADD_FAILURE() << scenario.error().message;
    return {.plan = {.candidates = {Candidate{}}}};
  }
  Plan plan = MakePlan(*scenario).value();
  return {std::move(*scenario), std::move(plan)};
}

TEST(Chapter9Examples, EightCards) {
  const Planned p = PlanOf("eight-cards");
  const Candidate& chosen = p.plan.chosen();
  EXPECT_EQ(chosen.scheme, Scheme::kPdDirect);
  EXPECT_THAT(chosen.prefill_workers, ElementsAre(4, 0));
  EXPECT_NEAR(chosen.throughput.value, 4.55, 0.005);
  EXPECT_NEAR(p.Rate(Scheme::kReplicas), 3.02, 0.005);
  EXPECT_NEAR(p.Rate(Scheme::kReplicasChunked), 4.17, 0.005);
  EXPECT_NEAR(p.Of(Scheme::kPdPool).link_rate->value, 10.3, 0.05);
  EXPECT_EQ(p.Of(Scheme::kPdPool).pool_states, 56);
  EXPECT_NEAR(chosen.backlog.cleared->value, 43.2, 0.05);
  EXPECT_NEAR(chosen.cost_per_1000, 0.63, 0.005);
  EXPECT_NEAR(chosen.cost_per_1000_at_saturation, 0.49, 0.005);
}

TEST(Chapter9Examples, EightA100) {
  const Planned p = PlanOf("eight-a100");
  EXPECT_EQ(p.plan.chosen().scheme, Scheme::kReplicas);
  EXPECT_NEAR(p.Rate(Scheme::kReplicas), 3.05, 0.005);
  const Candidate& direct = p.Of(Scheme::kPdDirect);
  EXPECT_THAT(direct.prefill_workers, ElementsAre(3));
  EXPECT_NEAR(direct.throughput.value, 2.83, 0.005);
  const Candidate& chunked = p.Of(Scheme::kReplicasChunked);
  EXPECT_NEAR(chunked.throughput.value, 4.50, 0.005);
  EXPECT_NEAR(chunked.ttft.value, 0.94, 0.005);
}

TEST(Chapter9Examples, PrefixHit) {
  const Planned p = PlanOf("prefix-hit");
  EXPECT_THAT(p.plan.chosen().prefill_workers, ElementsAre(2, 0));
  EXPECT_NEAR(p.plan.chosen().throughput.value, 5.69, 0.005);
  EXPECT_NEAR(p.plan.chosen().backlog.cleared->value, 26.0, 0.05);
  EXPECT_NEAR(p.Rate(Scheme::kReplicas), 4.90, 0.005);
  EXPECT_NEAR(p.Of(Scheme::kReplicas).backlog.cleared->value, 35.1, 0.05);
  EXPECT_EQ(p.plan.chosen().transfer.value, 1207959552);
}

TEST(Chapter9Examples, ShortOutput) {
  const Planned p = PlanOf("short-output");
  EXPECT_THAT(p.plan.chosen().prefill_workers, ElementsAre(4, 3));
  EXPECT_NEAR(p.plan.chosen().throughput.value, 6.33, 0.005);
  EXPECT_NEAR(p.plan.chosen().throughput.value / p.Rate(Scheme::kReplicas), 1.085, 0.0005);
}

TEST(Chapter9Examples, LongReasoning) {
  const Planned p = PlanOf("long-reasoning");
  EXPECT_THAT(p.plan.chosen().prefill_workers, ElementsAre(2, 0));
  EXPECT_NEAR(p.plan.chosen().throughput.value, 1.26, 0.005);
  EXPECT_EQ(p.plan.chosen().copies_to_hold, 3);
  EXPECT_EQ(p.plan.chosen().copies_to_clear, 4);
}

TEST(Chapter9Examples, CompactState) {
  const Planned p = PlanOf("compact-state");
  const Candidate& chosen = p.plan.chosen();
  EXPECT_NEAR(chosen.throughput.value, 4.55, 0.005);
  EXPECT_NEAR(chosen.link_rate->value, 43.4, 0.05);
  EXPECT_NEAR(p.Of(Scheme::kPdPool).link_rate->value, 21.7, 0.05);
  EXPECT_EQ(p.Of(Scheme::kPdPool).pool_states, 119);
  EXPECT_NEAR(chosen.link_at_arrival.value / 1e9, 2.0, 0.05);
  EXPECT_NEAR(chosen.link_at_saturation.value / 1e9, 2.6, 0.05);
}

TEST(Chapter9Examples, CompactStateWork) {
  const Planned p = PlanOf("compact-state-work");
  EXPECT_NEAR(p.plan.chosen().decode_rate->value, 4.41, 0.005);
  EXPECT_TRUE(p.plan.chosen().meets_objective);
}

TEST(Chapter9Examples, PoolReuse) {
  const Planned p = PlanOf("pool-reuse");
  const Candidate& chosen = p.plan.chosen();
  EXPECT_EQ(chosen.scheme, Scheme::kPdPool);
  EXPECT_NEAR(chosen.link_rate->value, 6.9, 0.05);
  EXPECT_NEAR(chosen.link_at_arrival.value / 1e9, 12.7, 0.05);
  EXPECT_EQ(chosen.transfer.value, 3 * 1207959552LL);
  const Candidate& direct = p.Of(Scheme::kPdDirect);
  const Seconds saved = direct.ttft + direct.reuse - chosen.ttft - chosen.reuse;
  EXPECT_NEAR(saved.value, 0.760, 0.0005);
}

// Exercise 9-10: a long output is 4096 calls at a mean context of 8192 + 2048 tokens.
TEST(Chapter9Examples, MixedOutputs) {
  const Planned p = PlanOf("mixed-outputs");
  EXPECT_THAT(p.plan.chosen().prefill_workers, ElementsAre(2, 0));
  const double step_bytes = 15.13619456e9 + 32 * 10240 * 147456.0;
  const double a100 = (1.764216 + step_bytes / 1019.5e9 * 4096 / 32) / 2;  // GPU-seconds of decode.
  const double h20 = (0.8782316 + step_bytes / 2048e9 * 4096 / 32) / 2;
  EXPECT_NEAR(p.plan.chosen().throughput.value, 2 / a100 + 4 / h20, 1e-5);
  EXPECT_EQ(p.plan.chosen().copies_to_hold, 2);
  EXPECT_EQ(p.plan.chosen().copies_to_clear, 3);
}

TEST(Chapter9Examples, MixedOutputsInBursts) {
  const Planned smooth = PlanOf("mixed-outputs");
  const Planned bursts = PlanOf("mixed-outputs-bursts");
  EXPECT_DOUBLE_EQ(bursts.scenario.workload.arrivals.LongTermRate().value, 3.5);
  EXPECT_NEAR(bursts.plan.chosen().throughput.value, smooth.plan.chosen().throughput.value, 1e-9);
  EXPECT_GT(bursts.plan.chosen().backlog.most, 3 * smooth.plan.chosen().backlog.At(Seconds(10)));
}

// Rates are proportional to efficiency: four fifths of eight-cards.
TEST(Chapter9Examples, Efficiency40) {
  const Planned p = PlanOf("efficiency-40");
  EXPECT_NEAR(p.plan.chosen().throughput.value, 0.8 * 4.554607484655709, 1e-9);
  EXPECT_EQ(p.plan.chosen().copies_to_hold, 1);
  EXPECT_FALSE(p.plan.chosen().meets_objective);
}

TEST(Chapter9Examples, NarrowLink) {
  const Planned p = PlanOf("narrow-link");
  EXPECT_EQ(p.plan.chosen().bottleneck, Bottleneck::kLink);
  EXPECT_NEAR(p.plan.chosen().throughput.value, 1, 1e-12);
  EXPECT_FALSE(p.plan.chosen().backlog.cleared);
  EXPECT_NEAR(p.plan.chosen().backlog.At(Seconds(100)), 10, 1e-9);
}

// Section 9.1.1: the state of 8192 tokens takes 5.875 GiB of a worker of eight cards.
TEST(Chapter9Examples, Moe235B) {
  const Planned p = PlanOf("moe-235b");
  EXPECT_EQ(p.plan.chosen().scheme, Scheme::kPdDirect);
  EXPECT_TRUE(p.plan.chosen().meets_objective);
  EXPECT_NEAR(8.0 * p.plan.chosen().decode_memory[1].buffers.value / 0x1p30, 5.875, 1e-9);
  for (const MemoryNeed& need : p.plan.chosen().prefill_memory) EXPECT_TRUE(need.Fits());
}

TEST(Chapter9Examples, CalibratedDecode) {
  const Planned p = PlanOf("calibrated-decode");
  EXPECT_EQ(p.plan.chosen().evidence, Evidence::kCalibrated);
  EXPECT_NEAR(p.plan.chosen().decode_rate->value, 4.554607484655709 * 0.49 / 0.5, 1e-9);
}

// A file that no test above names would be planned by nobody.
TEST(Chapter9Examples, EveryFileIsTested) {
  const std::string tests =
      TextOf(std::filesystem::path(DIVISI_SOURCE_DIR) / "tests/chapter9_examples_test.cc");
  for (const auto& entry : std::filesystem::directory_iterator(kExamples)) {
    const std::string name = entry.path().stem();
    EXPECT_NE(tests.find("PlanOf(\"" + name + "\")"), std::string::npos) << entry.path();
    const std::string command = "#   divisi plan examples/chapter9/" + name + ".yaml\n";
    EXPECT_NE(TextOf(entry.path()).find(command), std::string::npos)
        << entry.path() << " does not say its command";
  }
}

}  // namespace
}  // namespace divisi
