// Tiers of a cluster's workers on a virtual clock: what is found where, and what moving it takes.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>

#include "divisi/sim/sim_service.h"

namespace divisi {
namespace {

// 10,000 prompt tokens a second; a page of 256 bytes takes 1.6 ms to compute.
ServiceWorker Worker(int64_t blocks = 4096) {
  return {.rates = {.step = Seconds(1e-3), .per_token = Seconds(1e-4), .per_context_token = {}},
          .scheduler = {.max_sequences = 64,
                        .max_batched_tokens = 2048,
                        .max_model_len = 8192,
                        .blocks = blocks},
          .tiers = ServiceTiers{.host_pages = 4096, .pcie = BytesPerSecond(8e5)}};
}

// A prompt of `contents` whole ones and 16 tokens of its own.
ServiceRequest Ask(double arrival, std::vector<uint64_t> contents, uint64_t own) {
  const auto prompt = static_cast<int64_t>(contents.size()) * kContentTokens + 16;
  contents.push_back(own);
  return {.arrival = Seconds(arrival), .prompt = prompt, .contents = std::move(contents)};
}

void ExpectAllServed(const ServiceReport& report) {
  EXPECT_EQ(report.fault, "");
  for (size_t i = 0; i < report.outcomes.size(); ++i) {
    const auto& error = report.outcomes[i].error;
    EXPECT_FALSE(error) << i << ": " << error->message;
  }
}

TEST(ServiceTiersTest, TheNextTurnOnAnotherWorkerReadsThePool) {
  ServiceScenario scenario{.dispatch = {.policy = RoutePolicy::kRoundRobin},
                           .workers = {Worker(), Worker()},
                           .pool = ServicePool{.memory = Bytes(1 << 24), .lookup = Seconds(1e-3)}};
  scenario.requests = {Ask(0, {1, 2}, 100), Ask(1, {1, 2}, 101)};
  const ServiceReport report = RunService(scenario);
  ExpectAllServed(report);
  EXPECT_EQ(report.workers[1].counters.cached_tokens, 1024);
  EXPECT_EQ(report.tiers[1].pages_used, 64);
  EXPECT_EQ(report.from_pool, Bytes(64 * 256));
  // The lookup, 64 pages at PCIe's rate, one step of 16 tokens; messages there and back.
  const Seconds ttft = report.outcomes[1].first_token - Seconds(1);
  EXPECT_NEAR(ttft.value, 1e-3 + 64 * 256 / 8e5 + 1e-3 + 16e-4 + 4e-4, 1e-3);
}

// Of a full pool the end of the chain gives way that was used longest ago, as of a real one's: its
// beginning can be used without its end, not its end without its beginning.
TEST(ServiceTiersTest, AFullPoolKeepsTheBeginningsOfPrompts) {
  constexpr int64_t kPoolPages = 98;
  ServiceScenario scenario{
      .dispatch = {.policy = RoutePolicy::kRoundRobin},
      .workers = std::vector<ServiceWorker>(3, Worker()),
      .pool = ServicePool{.memory = Bytes(kPoolPages * kStoreAlignment), .lookup = Seconds(1e-3)}};
  scenario.requests = {Ask(0, {1, 2}, 100), Ask(1, {3, 4}, 101), Ask(2, {1, 2}, 102)};
  const ServiceReport report = RunService(scenario);
  ExpectAllServed(report);
  // The other prompt's 65 pages are there.
  EXPECT_EQ(report.workers[2].counters.cached_tokens, (kPoolPages - 65) * 16);
  EXPECT_EQ(report.tiers[2].loads_failed, 0);
}

// Without a pool: over the first one's network card and the second one's, then PCIe.
ServiceScenario Peers() {
  ServiceScenario scenario{.dispatch = {.policy = RoutePolicy::kRoundRobin},
                           .workers = std::vector<ServiceWorker>(3, Worker()),
                           .peers = true,
                           .directory = 10'000};
  for (ServiceWorker& worker : scenario.workers) worker.tiers->network = BytesPerSecond(4e5);
  return scenario;
}

TEST(ServiceTiersTest, TheNextTurnOnAnotherWorkerReadsItsPeer) {
  ServiceScenario scenario = Peers();
  scenario.requests = {Ask(0, {1, 2}, 100), Ask(1, {1, 2}, 101)};
  for (const bool contents : {true, false}) {
    scenario.contents = contents;
    const ServiceReport report = RunService(scenario);
    ExpectAllServed(report);
    EXPECT_EQ(report.workers[1].counters.cached_tokens, 1024);
    EXPECT_EQ(report.tiers[1].pages_used, 64);
    EXPECT_EQ(report.from_peers, Bytes(64 * 256));
    const Seconds ttft = report.outcomes[1].first_token - Seconds(1);
    EXPECT_NEAR(ttft.value, 64 * 256 / 4e5 + 64 * 256 / 8e5 + 1e-3 + 16e-4 + 4e-4, 1e-3);
  }
  scenario.peers = false;
  EXPECT_EQ(RunService(scenario).workers[1].counters.cached_tokens, 0);
}

// Two at once take turns at the first one's network card.
TEST(ServiceTiersTest, ReadersShareTheirPeersLink) {
  ServiceScenario scenario = Peers();
  scenario.requests = {Ask(0, {1, 2}, 100), Ask(1, {1, 2}, 101)};
  const ServiceReport one = RunService(scenario);
  scenario.requests.push_back(Ask(1, {1, 2}, 102));
  const ServiceReport two = RunService(scenario);
  ExpectAllServed(two);
  EXPECT_EQ(two.from_peers, Bytes(128 * 256));
  const Seconds first = one.outcomes[1].first_token, shared = two.outcomes[1].first_token;
  EXPECT_NEAR((shared - first).value, 64 * 256 / 4e5, 1e-3);
}

TEST(ServiceTiersTest, WhatTheDeviceGaveUpComesFromHostMemory) {
  ServiceScenario scenario{.workers = {Worker(/*blocks=*/100)}};
  scenario.requests = {Ask(0, {1, 2}, 100), Ask(1, {3, 4}, 101), Ask(2, {1, 2}, 102)};
  const ServiceReport report = RunService(scenario);
  ExpectAllServed(report);
  EXPECT_EQ(report.tiers[0].pages_used, report.tiers[0].pages_read);
  EXPECT_GT(report.tiers[0].pages_used, 0);
  EXPECT_EQ(report.workers[0].counters.cached_tokens, 1024);
}

// Two workers read at once over the pool's link, which is as wide as one of theirs.
TEST(ServiceTiersTest, WorkersShareThePoolsLink) {
  ServiceScenario scenario{
      .dispatch = {.policy = RoutePolicy::kRoundRobin},
      .workers = std::vector<ServiceWorker>(3, Worker()),
      .pool =
          ServicePool{.memory = Bytes(1 << 24), .link = BytesPerSecond(4e5), .lookup = Seconds(0)}};
  for (ServiceWorker& worker : scenario.workers) worker.tiers->pcie = BytesPerSecond(1e9);
  const double alone = 64 * 256 / 4e5;
  scenario.requests = {Ask(0, {1, 2}, 100), Ask(1, {1, 2}, 101), Ask(2, {7}, 102),
                       Ask(3, {8}, 103)};
  const ServiceReport one = RunService(scenario);
  ExpectAllServed(one);
  scenario.requests[2] = Ask(1, {1, 2}, 102);
  const ServiceReport two = RunService(scenario);
  ExpectAllServed(two);
  const Seconds first = one.outcomes[1].first_token, shared = two.outcomes[1].first_token;
  EXPECT_NEAR((shared - first).value, alone, 1e-3);
}

// ---- Eight at once, with room to prefetch four

TEST(ServiceTiersTest, WithoutRoomToReadTheOthersComputeAtOnce) {
  constexpr size_t kCount = 8;
  constexpr double kCompute = 0.105, kRead = 64 * 256 / 8e5;
  ServiceScenario scenario{.workers = {Worker(/*blocks=*/640)}};
  scenario.workers[0].tiers->loading_pages = 4 * 64;
  scenario.workers[0].scheduler.max_batched_tokens = 1040;  // A prompt a step
  for (size_t i = 0; i < kCount; ++i) {
    scenario.requests.push_back(Ask(static_cast<double>(i), {2 * i + 1, 2 * i + 2}, 100 + i));
  }
  // What takes all pages of the device.
  scenario.requests.push_back(Ask(10, {50, 51, 52, 53, 54, 55, 56, 57, 58, 59}, 200));
  scenario.requests.push_back(Ask(12, {60, 61, 62, 63, 64, 65, 66, 67, 68, 69}, 201));
  const size_t first = scenario.requests.size();
  for (size_t i = 0; i < kCount; ++i) {
    scenario.requests.push_back(Ask(20, {2 * i + 1, 2 * i + 2}, 300 + i));
  }
  const ServiceReport report = RunService(scenario);
  ExpectAllServed(report);
  const PrefixLoaderStats& tiers = report.tiers[0];
  EXPECT_EQ(tiers.no_room, 4);
  // Two of the others were computed until there was room again; then the last two were read.
  EXPECT_EQ(tiers.loaded_later, 2);
  EXPECT_EQ(tiers.loads, 6);
  EXPECT_EQ(tiers.pages_read, 6 * 64);
  EXPECT_EQ(tiers.pages_used, 6 * 64);
  const WorkerCounters& counters = report.workers[0].counters;
  EXPECT_EQ(counters.cached_tokens, 6 * 1024);
  EXPECT_EQ(counters.prefill_tokens + counters.cached_tokens, counters.queried_tokens);
  for (size_t i = 0; i < kCount; ++i) {
    const Seconds ttft = report.outcomes[first + i].first_token - Seconds(20);
    // No worse than if all before it had been computed, and one that had begun.
    EXPECT_LE(ttft.value, kCompute * static_cast<double>(i + 2) + 1e-3) << i;
    // The four that are read are there in their order, none waits for those that compute.
    if (i < 4) {
      EXPECT_LE(ttft.value, kRead * 4 + kCompute * 2) << i;
    }
  }
}

// ---- News of pages comes 5 s late, and most copies are gone by then.

// What one scheduler alone answers.
std::vector<TokenId> Alone(const ServiceRequest& asked, uint64_t index) {
  constexpr int64_t kBlocks = 100;
  Scheduler scheduler({.max_model_len = 8192, .blocks = kBlocks});
  SimExecutor executor({.blocks = kBlocks});
  const Request request{.id = 1, .prompt = PromptOf(asked, index), .max_tokens = asked.output};
  EXPECT_TRUE(scheduler.Add(request).ok());
  std::vector<TokenId> tokens;
  while (scheduler.HasWork()) {
    for (const SchedulerEvent& event : scheduler.Commit(executor.Execute(scheduler.Plan()))) {
      if (event.kind == SchedulerEvent::Kind::kToken) tokens.push_back(event.token.token);
    }
  }
  return tokens;
}

// Twelve beginnings in turn over device pages for one and a half, and host memory for one.
ServiceScenario LateNews(RoutePolicy policy) {
  ServiceScenario scenario{.dispatch = {.policy = policy, .keep_choices = true},
                           .workers = std::vector<ServiceWorker>(2, Worker(/*blocks=*/100)),
                           .peers = true,
                           .directory = 10'000,
                           .event = Seconds(5)};
  for (ServiceWorker& worker : scenario.workers) worker.tiers->host_pages = 70;
  for (uint64_t i = 0; i < 150; ++i) {
    // Now and then one again that came a second ago.
    const uint64_t content = i % 5 == 4 ? (i - 2) % 12 : i % 12;
    ServiceRequest request =
        Ask(0.5 * static_cast<double>(i), {2 * content + 1, 2 * content + 2}, 1000 + i);
    request.output = 3;
    scenario.requests.push_back(std::move(request));
  }
  return scenario;
}

class LateNewsTest : public testing::TestWithParam<RoutePolicy> {};

TEST_P(LateNewsTest, RequestsSentToCopiesThatAreGoneAreServedAndTheOddsFall) {
  const ServiceScenario scenario = LateNews(GetParam());
  const ServiceReport report = RunService(scenario);
  ExpectAllServed(report);
  int64_t shown = 0, found = 0, misled = 0;
  for (size_t i = 0; i < report.outcomes.size(); ++i) {
    const ServiceOutcome& outcome = report.outcomes[i];
    EXPECT_EQ(outcome.sampled, Alone(scenario.requests[i], i)) << i;
    shown += outcome.choice->chosen.at.cached;
    found += outcome.cached_tokens;
    misled += outcome.choice->chosen.at.cached > outcome.cached_tokens;
  }
  std::printf("%ld tokens shown, %ld found; %ld requests misled\n", static_cast<long>(shown),
              static_cast<long>(found), static_cast<long>(misled));
  EXPECT_GT(misled, 20);
  for (const PrefixLoaderStats& tiers : report.tiers) {
    EXPECT_EQ(tiers.pages_used, tiers.pages_read);
  }
  double lowest = 1;
  for (const auto& odds : report.odds) lowest = std::min(lowest, odds[0]);
  EXPECT_LT(lowest, 0.7);
}

INSTANTIATE_TEST_SUITE_P(Policies, LateNewsTest,
                         testing::Values(RoutePolicy::kCacheFirst, RoutePolicy::kExpectedTtft),
                         [](const auto& policy) {
                           return policy.param == RoutePolicy::kCacheFirst ? "CacheFirst"
                                                                           : "ExpectedTtft";
                         });

}  // namespace
}  // namespace divisi
