// divisi simulate: its inputs and sums. What policies are worth: replay_sim_test.
#include "divisi/cli/simulate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>

#include "divisi/core/format.h"

namespace divisi {
namespace {

using testing::HasSubstr;

Result<std::vector<SimulatedRun>> Simulated(const SimulateOptions& options) {
  return Simulate(options, Catalog::BuiltIn(), [](const std::string&, double) {});
}

SimulateOptions Small() {
  SimulateOptions options;
  options.workers = 2;
  options.host = Bytes(int64_t{16} << 30);
  options.pool = Bytes(int64_t{64} << 30);
  options.policies = {RoutePolicy::kRoundRobin};
  return options;
}

// Two turns of one conversation; the first block is shared with another.
std::string SmallTrace() {
  const std::string path = testing::TempDir() + Format("/simulate-{}.jsonl", getpid());
  std::ofstream(path)
      << R"({"timestamp": 0, "input_length": 1024, "output_length": 9, "hash_ids": [0, 1]})"
      << "\n"
      << R"({"timestamp": 1000, "input_length": 1000, "output_length": 9, "hash_ids": [0, 2]})"
      << "\n"
      << R"({"timestamp": 2500, "input_length": 1536, "output_length": 9, "hash_ids": [0, 1, 3]})"
      << "\n";
  return path;
}

TEST(SimulateTest, ReplaysATrace) {
  SimulateOptions options = Small();
  options.trace = SmallTrace();
  const auto runs = Simulated(options);
  ASSERT_TRUE(runs) << runs.error().message;
  ASSERT_EQ(runs->size(), 1u);
  const SimulatedRun& run = runs->front();
  EXPECT_EQ(run.requests, 3);
  EXPECT_EQ(run.failed, 0);
  // One block of the second, two of the third: from the other worker, or its own.
  EXPECT_EQ(run.computed_tokens, 1024 + 1000 + 1536 - 3 * 512);
  EXPECT_DOUBLE_EQ(run.hit_rate, 3 * 512.0 / (1024 + 1000 + 1536));
  EXPECT_LE(run.p50, run.p99);
}

TEST(SimulateTest, LoadsArePartsOfRoundRobinsCapacity) {
  SimulateOptions options = Small();
  options.requests = 40;
  options.loads = {0.5, 1};
  const auto runs = Simulated(options);
  ASSERT_TRUE(runs) << runs.error().message;
  ASSERT_EQ(runs->size(), 2u);
  EXPECT_DOUBLE_EQ((*runs)[1].speed, 2 * (*runs)[0].speed);
  EXPECT_LE((*runs)[0].mean, (*runs)[1].mean);
  const Json json = SimulateJson(*runs);
  EXPECT_THAT(json.Dump(), HasSubstr("\"mean_ttft_seconds\""));
  EXPECT_THAT(SimulateTable(*runs), HasSubstr("round-robin"));
}

TEST(SimulateTest, SaysWhatCannotBeSimulated) {
  SimulateOptions options = Small();
  options.model = "Qwen3-8";
  EXPECT_THAT(Simulated(options).error().message, HasSubstr("--model"));
  options = Small();
  options.trace = "/no/such/trace";
  EXPECT_THAT(Simulated(options).error().message, HasSubstr("/no/such/trace"));
  options = Small();
  options.model = "Qwen3-235B-A22B";
  EXPECT_THAT(Simulated(options).error().message, HasSubstr("--card"));
  options = Small();
  options.card = "B200";
  EXPECT_THAT(Simulated(options).error().message, HasSubstr("pcie"));
  options = Small();
  options.network = BytesPerSecond(0);
  EXPECT_THAT(Simulated(options).error().message, HasSubstr("--network"));
  options = Small();
  options.requests = 1;
  options.loads = {0.5};
  EXPECT_THAT(Simulated(options).error().message, HasSubstr("--load"));
}

}  // namespace
}  // namespace divisi
