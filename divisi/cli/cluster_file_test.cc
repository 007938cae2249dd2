#include "divisi/cli/cluster_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace divisi {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsSupersetOf;

constexpr const char* kFile = R"(
model: /models/it
gateway: {port: 18000, control_port: 18001, policy: round-robin, disaggregate_from: 128}
workers:
  - {role: prefill, count: 2, threads: 3, kv_memory: 1 MiB}
  - {role: decode, args: [--max-num-seqs, "7"]}
)";

TEST(ClusterFileTest, BecomesTheArgumentsOfEachProcess) {
  const auto plan = ReadClusterFile(kFile, "c.yaml", {});
  ASSERT_TRUE(plan) << plan.error().message;
  EXPECT_THAT(plan->gateway.args,
              ElementsAre("gateway", "--model", "/models/it", "--host", "127.0.0.1", "--policy",
                          "round-robin", "--disaggregate-from", "128", "--port", "18000",
                          "--control-port", "18001"));
  ASSERT_EQ(plan->workers.size(), 3);
  EXPECT_EQ(plan->workers[1].name, "prefill-2");
  EXPECT_THAT(
      plan->workers[1].args,
      ElementsAre("worker", "--model", "/models/it", "--gateway", "127.0.0.1:18001", "--role",
                  "prefill", "--threads", "3", "--kv-memory", "1048576", "--name", "prefill-2"));
  EXPECT_THAT(plan->workers[2].args, IsSupersetOf({"decode", "--max-num-seqs", "7", "decode-3"}));
}

TEST(ClusterFileTest, PortsThatAreGivenGoBeforeTheFiles) {
  const auto plan = ReadClusterFile(kFile, "c.yaml", {.http = 5, .control = 6});
  ASSERT_TRUE(plan);
  EXPECT_THAT(plan->gateway.args, IsSupersetOf({"5", "6"}));
  EXPECT_THAT(plan->workers[0].args, IsSupersetOf({"127.0.0.1:6"}));
}

TEST(ClusterFileTest, SaysWhatIsWrongWithLineAndKey) {
  const auto fails = [](const char* text, const char* with) {
    const auto plan = ReadClusterFile(text, "c.yaml", {});
    ASSERT_FALSE(plan);
    EXPECT_THAT(plan.error().message, HasSubstr(with));
  };
  fails("model: m\ngateway: {policy: fastest}\nworkers: [{role: replica}]", "c.yaml:2");
  fails("model: m\nworkers: [{role: both}]", "role");
  fails("model: m\nworkers: [{role: replica, count: 65}]", "count");
  fails("model: m\nworkers: [{count: 40}, {count: 40}]", "more than 64 workers");
  fails("model: m", "at least one worker");
  fails("model: m\nthreshold: 3\nworkers: [{role: replica}]", "threshold");
}

}  // namespace
}  // namespace divisi
