#include "divisi/cli/cluster_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "divisi/core/format.h"

namespace divisi {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsSupersetOf;
using testing::Not;

// A directory that passes for a checkpoint, beside which the file is taken to be.
std::string Beside() {
  const std::string folder = testing::TempDir() + Format("cluster-file-{}/", getpid());
  std::filesystem::create_directories(folder + "m");
  std::ofstream(folder + "m/config.json") << "{}";
  return folder;
}

Result<ClusterPlan> Read(const std::string& text, const ClusterPorts& ports = {}) {
  return ReadClusterFile(text, Beside() + "c.yaml", ports);
}

constexpr const char* kFile = R"(
model: m
gateway: {port: 18000, control_port: 18001, policy: round-robin, disaggregate_from: 128}
workers:
  - {role: prefill, count: 2, threads: 3, kv_memory: 1 MiB}
  - {role: decode, args: [--max-num-seqs, "7"]}
)";

TEST(ClusterFileTest, BecomesTheArgumentsOfEachProcess) {
  const auto plan = Read(kFile);
  ASSERT_TRUE(plan) << plan.error().message;
  const std::string model = Beside() + "m";
  EXPECT_THAT(plan->gateway.args, ElementsAre("gateway", "--model", model, "--host", "127.0.0.1",
                                              "--policy", "round-robin", "--disaggregate-from",
                                              "128", "--port", "18000", "--control-port", "18001"));
  ASSERT_EQ(plan->workers.size(), 3);
  EXPECT_EQ(plan->workers[1].name, "prefill-2");
  EXPECT_THAT(
      plan->workers[1].args,
      ElementsAre("worker", "--model", model, "--gateway", "127.0.0.1:18001", "--role", "prefill",
                  "--threads", "3", "--kv-memory", "1048576", "--name", "prefill-2"));
  EXPECT_THAT(plan->workers[2].args, IsSupersetOf({"decode", "--max-num-seqs", "7", "decode-3"}));
}

TEST(ClusterFileTest, APoolIsStartedOrToldToTheWorkers) {
  const auto own = Read(
      "model: m\npool: {nodes: 2, port: 7000, memory: 1 MiB, copies: 2}\n"
      "workers: [{kv_host: 2 MiB}]");
  ASSERT_TRUE(own) << own.error().message;
  ASSERT_EQ(own->stores.size(), 2);
  EXPECT_EQ(own->stores[1].name, "store-2");
  EXPECT_THAT(own->stores[1].args, ElementsAre("store", "--listen", "127.0.0.1:7001", "--memory",
                                               "1048576", "--kv-events", "tcp://127.0.0.1:7018",
                                               "--kv-events-replay", "tcp://127.0.0.1:7019"));
  EXPECT_THAT(own->workers[0].args,
              IsSupersetOf({"--kv-host", "2097152", "--kv-pool", "127.0.0.1:7000", "--kv-pool",
                            "127.0.0.1:7001", "--kv-pool-copies", "2"}));
  const auto told = Read("model: m\npool: {at: [a:1, b:2]}\nworkers: [{}]");
  ASSERT_TRUE(told) << told.error().message;
  EXPECT_TRUE(told->stores.empty());
  EXPECT_THAT(told->workers[0].args, IsSupersetOf({"--kv-pool", "a:1", "b:2"}));
}

// Else its routes would take the pool for empty.
TEST(ClusterFileTest, TheGatewayFollowsThePoolsNodes) {
  const auto own = Read("model: m\npool: {nodes: 2, port: 7000, memory: 1 MiB}\nworkers: [{}]");
  ASSERT_TRUE(own) << own.error().message;
  EXPECT_THAT(own->gateway.args,
              IsSupersetOf({"--kv-pool-events", "tcp://127.0.0.1:7016+tcp://127.0.0.1:7017",
                            "tcp://127.0.0.1:7018+tcp://127.0.0.1:7019"}));
  const auto placed =
      Read("model: m\npool: {port: 7000, events_port: 9000, memory: 1 MiB}\nworkers: [{}]");
  ASSERT_TRUE(placed) << placed.error().message;
  EXPECT_THAT(placed->gateway.args, Contains("tcp://127.0.0.1:9000+tcp://127.0.0.1:9001"));
  const auto told =
      Read("model: m\npool: {at: [a:1], events: ['tcp://a:2+tcp://a:3']}\nworkers: [{}]");
  ASSERT_TRUE(told) << told.error().message;
  EXPECT_THAT(told->gateway.args, IsSupersetOf({"--kv-pool-events", "tcp://a:2+tcp://a:3"}));
  for (const char* silent :
       {"model: m\npool: {at: [a:1]}\nworkers: [{}]",
        "model: m\ngateway: {args: [--kv-directory-pages, '0']}\npool: {memory: 1 MiB}\n"
        "workers: [{}]"}) {
    const auto plan = Read(silent);
    ASSERT_TRUE(plan) << plan.error().message;
    EXPECT_THAT(plan->gateway.args, Not(Contains("--kv-pool-events")));
  }
}

TEST(ClusterFileTest, PortsThatAreGivenGoBeforeTheFiles) {
  const auto plan = Read(kFile, {.http = 5, .control = 6});
  ASSERT_TRUE(plan);
  EXPECT_THAT(plan->gateway.args, IsSupersetOf({"5", "6"}));
  EXPECT_THAT(plan->workers[0].args, IsSupersetOf({"127.0.0.1:6"}));
}

TEST(ClusterFileTest, SaysWhatIsWrongWithLineAndKey) {
  const auto fails = [](const char* text, const char* with) {
    const auto plan = Read(text);
    ASSERT_FALSE(plan);
    EXPECT_THAT(plan.error().message, HasSubstr(with));
  };
  fails("model: m\ngateway: {policy: fastest}\nworkers: [{role: replica}]",
        "c.yaml:2: gateway.policy: 'fastest' is no policy");
  fails("model: m\nworkers: [{role: both}]",
        "c.yaml:2: workers[0].role: 'both' is no role; there are replica, prefill and decode");
  fails("model: m\nworkers: [{role: replica, count: 65}]", "count");
  fails("model: m\nworkers: [{count: 40}, {count: 40}]", "more than 64 workers");
  fails("model: m", "at least one worker");
  fails("model: m\npool: {at: store}\nworkers: [{}]", "c.yaml:2: pool.at: --kv-pool store");
  fails("model: m\npool: {nodes: 2}\nworkers: [{}]", "memory");
  fails("model: m\npool: {nodes: 2, port: 7000, events_port: 7001, memory: 1 MiB}\nworkers: [{}]",
        "c.yaml:2: pool.events_port: two ports for each node's events, among those of the nodes");
  fails("model: m\npool: {at: [a:1, b:1], events: ['tcp://a:2']}\nworkers: [{}]",
        "c.yaml:2: pool.events: 1 given for 2 nodes");
  fails("model: m\npool: {at: [a:1], events: ['a:2']}\nworkers: [{}]",
        "c.yaml:2: pool.events: 'a:2' is no LIVE+REPLAY");
  fails("model: m\npool: {at: ['redis://a'], events: ['tcp://a:2']}\nworkers: [{}]",
        "c.yaml:2: pool.events: a Redis server publishes none");
  fails("model: m\npool: {memory: 1 MiB, events: ['tcp://a:2']}\nworkers: [{}]", "events");
  fails("model: m\nthreshold: 3\nworkers: [{role: replica}]", "threshold");
  fails("model: m\ngateway: {disaggregate_from: x}\nworkers: [{}]",
        "c.yaml:2: gateway.disaggregate_from: 'x' is neither auto nor a number");
  fails("workers: [{}]\nmodel: n", "c.yaml:2: model: 'n' is no checkpoint directory");
  fails("model: m\nworkers: [{args: [--drain-seconds, soon]}]",
        "c.yaml:2: workers[0].args: --drain-seconds: 'soon' is no number");
}

// What is asked to stop may take as long as it was told.
TEST(ClusterFileTest, DrainTimesAreThoseOfTheArguments) {
  const auto plan = Read(
      "model: m\ngateway: {args: [--drain-seconds, '5']}\nworkers: [{args: [--drain-seconds=90]}, "
      "{}]");
  ASSERT_TRUE(plan) << plan.error().message;
  EXPECT_EQ(plan->gateway.drain, Seconds(5));
  EXPECT_EQ(plan->workers[0].drain, Seconds(90));
  EXPECT_EQ(plan->workers[1].drain, Seconds(30));
}

}  // namespace
}  // namespace divisi
