#include "divisi/cli/cluster_emit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "divisi/cli/cluster_file.h"
#include "divisi/core/format.h"
#include "divisi/plan/example_scenario.h"

namespace divisi {
namespace {

using testing::Contains;
using testing::HasSubstr;
using testing::Not;

// A directory that passes for a checkpoint.
std::string Model() {
  const std::string folder = testing::TempDir() + Format("cluster-emit-{}", getpid());
  std::filesystem::create_directories(folder);
  std::ofstream(folder + "/config.json") << "{}";
  return folder;
}

std::string Emitted(const Scenario& scenario) {
  const auto text = ClusterFileText(scenario, MakePlan(scenario).value(), Model());
  EXPECT_TRUE(text) << text.error().message;
  return text ? *text : "";
}

int64_t Count(const ClusterPlan& plan, const std::string& role) {
  return std::ranges::count_if(
      plan.workers, [&](const ClusterProcess& worker) { return worker.name.starts_with(role); });
}

TEST(ClusterEmitTest, UpReadsWhatThePlanChose) {
  const std::string text = Emitted(ExampleEightCards());
  EXPECT_THAT(text, HasSubstr("# eight cards: pd-direct with 4 A100 prefill, 4 H20 decode\n"));
  EXPECT_THAT(text, HasSubstr("carries 4.55 requests/s"));
  const auto plan = ReadClusterFile(text, "cluster.yaml", {});
  ASSERT_TRUE(plan) << plan.error().message;
  EXPECT_EQ(Count(*plan, "prefill"), 4);
  EXPECT_EQ(Count(*plan, "decode"), 4);
  EXPECT_THAT(plan->gateway.args, Contains(Model()));
  EXPECT_THAT(plan->gateway.args, Contains("expected-ttft"));
  EXPECT_THAT(plan->gateway.args, Contains("auto"));
  EXPECT_THAT(plan->workers.front().args, Not(Contains("--max-num-seqs")));
  EXPECT_THAT(plan->workers.back().args, Contains("32"));  // The plan's batch
  // What an H20 has beside 16.38 GB of weights, and of it nine tenths.
  EXPECT_THAT(text, HasSubstr("kv_memory: 68337 MiB"));
}

TEST(ClusterEmitTest, ReplicasHaveEveryCard) {
  Scenario scenario = ExampleEightCards();
  scenario.schemes = {Scheme::kReplicas};
  scenario.groups[0].card.threads = 6;
  const std::string text = Emitted(scenario);
  EXPECT_THAT(text, HasSubstr("# It misses the objective"));
  const auto plan = ReadClusterFile(text, "cluster.yaml", {});
  ASSERT_TRUE(plan) << plan.error().message;
  EXPECT_EQ(Count(*plan, "replica"), 8);
  EXPECT_THAT(text, HasSubstr("count: 4, threads: 6, "));
}

// Workers of less context than the gateway promises are refused.
TEST(ClusterEmitTest, TheGatewayPromisesWhatTheLeastOfTheWorkersHolds) {
  EXPECT_THAT(Emitted(ExampleEightCards()), Not(HasSubstr("--max-model-len")));
  Scenario scenario = ExampleEightCards();
  scenario.model.max_positions = 10'000'000;
  const auto plan = ReadClusterFile(Emitted(scenario), "cluster.yaml", {});
  ASSERT_TRUE(plan) << plan.error().message;
  EXPECT_THAT(plan->gateway.args, Contains("--max-model-len"));
  // An A100's 54606 MiB, in whole pages of 16 tokens of 144 KiB each.
  EXPECT_THAT(plan->gateway.args, Contains("388288"));
}

TEST(ClusterEmitTest, SaysWhatUpCannotStart) {
  Scenario scenario = ExampleEightCards();
  scenario.groups[0].tensor_parallel = scenario.groups[1].tensor_parallel = 2;
  const auto wide = ClusterFileText(scenario, MakePlan(scenario).value(), "m");
  ASSERT_FALSE(wide);
  EXPECT_THAT(wide.error().message, HasSubstr("workers of 2 cards"));
  scenario = ExampleEightCards();
  scenario.groups[0].count = 61;
  const auto many = ClusterFileText(scenario, MakePlan(scenario).value(), "m");
  ASSERT_FALSE(many);
  EXPECT_THAT(many.error().message, HasSubstr("at most 64"));
}

}  // namespace
}  // namespace divisi
