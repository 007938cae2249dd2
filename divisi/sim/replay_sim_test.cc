// What routing policies make the turns of conversations wait, on a cluster of sixteen: the default
// serves them soonest, in the mean and at the 99th percent.
#include <gtest/gtest.h>

#include <cstdio>

#include "divisi/plan/example_models.h"
#include "divisi/sim/sim_service.h"

namespace divisi {
namespace {

// Qwen3-8B on an A100 at half of its peaks, 64 GiB of host memory for KV, and a pool.
ServiceScenario Cluster(size_t workers) {
  const ServiceWorker worker{
      .device =
          SimDevice{.model = ModelCost(ExampleQwen3_8B(), {}),
                    .rates = {.compute = FlopsPerSecond(156e12), .memory = BytesPerSecond(1020e9)}},
      .scheduler = {.max_sequences = 64, .max_model_len = 131072, .blocks = 20000},
      .tiers = ServiceTiers{.host_pages = 29000}};
  return {.workers = std::vector<ServiceWorker>(workers, worker),
          .pool = ServicePool{.memory = Bytes(int64_t{1} << 40)},
          .directory = 1'000'000,
          .contents = false};
}

struct Times {
  Seconds mean, p99;
};

Times Measure(ServiceScenario scenario, RoutePolicy policy) {
  scenario.dispatch.policy = policy;
  const ServiceReport report = RunService(scenario);
  EXPECT_EQ(report.fault, "");
  for (const ServiceOutcome& outcome : report.outcomes) EXPECT_FALSE(outcome.error);
  const Times times{report.MeanTtft(scenario), report.TtftQuantile(scenario, 0.99)};
  std::printf("%-14s TTFT mean %7.1f ms, p99 %7.1f ms, hits %.3f, %ld prompt tokens computed\n",
              PolicyName(policy), times.mean.value * 1e3, times.p99.value * 1e3, report.HitRate(),
              static_cast<long>(report.PromptTokensComputed()));
  return times;
}

TEST(ReplaySimTest, ExpectedTtftServesConversationsSoonest) {
  ServiceScenario scenario = Cluster(16);
  scenario.requests = DrawConversations({.requests = 500, .sessions = PerSecond(20)}, 7);
  std::printf("%.2f requests a second\n", ArrivalRate(scenario.requests).value);
  const Times ours = Measure(scenario, RoutePolicy::kExpectedTtft);
  for (const RoutePolicy policy :
       {RoutePolicy::kRoundRobin, RoutePolicy::kLeastLoaded, RoutePolicy::kCacheFirst}) {
    const Times other = Measure(scenario, policy);
    EXPECT_LT(ours.mean, other.mean) << PolicyName(policy);
    EXPECT_LT(ours.p99, other.p99) << PolicyName(policy);
  }
}

}  // namespace
}  // namespace divisi
