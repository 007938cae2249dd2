// What policies are worth, that a full cluster serves in order, and that counters add up to a plan.
#include <gtest/gtest.h>

#include <cstdio>

#include "divisi/core/random.h"
#include "divisi/plan/worker_cost.h"
#include "divisi/sim/sim_service.h"

namespace divisi {
namespace {

SchedulerOptions Scheduling() {
  return {.max_sequences = 64, .max_batched_tokens = 256, .max_model_len = 4096, .blocks = 4096};
}

// 10,000 prompt tokens a second at speed 1.
SimRates Rates(double speed) {
  return {.step = Seconds(2e-3 / speed),
          .per_token = Seconds(1e-4 / speed),
          .per_context_token = Seconds(1e-7 / speed)};
}

ServiceWorker Worker(WorkerRole role, double speed = 1) {
  return {.role = role, .rates = Rates(speed), .scheduler = Scheduling()};
}

// Poisson arrivals; one prompt in five is long.
std::vector<ServiceRequest> Load(uint64_t seed, int64_t count, double per_second) {
  Random random(seed);
  std::vector<ServiceRequest> requests;
  Seconds at;
  for (int64_t i = 0; i < count; ++i) {
    at += Seconds(random.Exponential(1 / per_second));
    requests.push_back(
        {.arrival = at,
         .prompt = random.Chance(0.2) ? random.Between(1000, 3000) : random.Between(16, 200),
         .output = random.Between(2, 60)});
  }
  return requests;
}

struct Times {
  Seconds mean, p90;
};

// Of `seeds` loads on the workers; every request has to end well.
Times Measure(ServiceScenario scenario, double per_second, int seeds) {
  Times sum;
  for (int seed = 1; seed <= seeds; ++seed) {
    scenario.requests = Load(static_cast<uint64_t>(seed), 400, per_second);
    const ServiceReport report = RunService(scenario);
    EXPECT_EQ(report.fault, "");
    for (const ServiceOutcome& outcome : report.outcomes) EXPECT_FALSE(outcome.error);
    sum.mean += report.MeanTtft(scenario) / static_cast<double>(seeds);
    sum.p90 += report.TtftQuantile(scenario, 0.9) / static_cast<double>(seeds);
  }
  return sum;
}

Times MeasurePolicy(RoutePolicy policy, const std::vector<ServiceWorker>& workers,
                    double per_second) {
  const Times times = Measure({.dispatch = {.policy = policy}, .workers = workers}, per_second, 5);
  std::printf("%-14s TTFT mean %.1f ms, p90 %.1f ms\n", PolicyName(policy), times.mean.value * 1e3,
              times.p90.value * 1e3);
  return times;
}

// Expected time to the first token is the default because of this.
TEST(ServiceSimTest, ExpectedTtftIsShortestOnUnlikeReplicas) {
  const std::vector<ServiceWorker> workers = {Worker(WorkerRole::kReplica, 2),
                                              Worker(WorkerRole::kReplica, 1),
                                              Worker(WorkerRole::kReplica, 0.5)};
  const Times turns = MeasurePolicy(RoutePolicy::kRoundRobin, workers, 20);
  const Times load = MeasurePolicy(RoutePolicy::kLeastLoaded, workers, 20);
  const Times expected = MeasurePolicy(RoutePolicy::kExpectedTtft, workers, 20);
  EXPECT_LT(expected.mean, load.mean * 0.9);
  EXPECT_LT(expected.p90, load.p90 * 0.9);
  EXPECT_LT(load.mean, turns.mean);
}

TEST(ServiceSimTest, ExpectedTtftIsShortestOnLikeReplicas) {
  const std::vector<ServiceWorker> workers(3, Worker(WorkerRole::kReplica));
  const Times turns = MeasurePolicy(RoutePolicy::kRoundRobin, workers, 20);
  const Times load = MeasurePolicy(RoutePolicy::kLeastLoaded, workers, 20);
  const Times expected = MeasurePolicy(RoutePolicy::kExpectedTtft, workers, 20);
  EXPECT_LT(expected.mean, load.mean);
  EXPECT_LT(expected.mean, turns.mean);
}

TEST(ServiceSimTest, ExpectedTtftIsShortestOnUnlikePrefillWorkers) {
  const std::vector<ServiceWorker> workers = {
      Worker(WorkerRole::kPrefill, 2), Worker(WorkerRole::kPrefill, 0.7),
      Worker(WorkerRole::kDecode), Worker(WorkerRole::kDecode)};
  const Times turns = MeasurePolicy(RoutePolicy::kRoundRobin, workers, 15);
  const Times load = MeasurePolicy(RoutePolicy::kLeastLoaded, workers, 15);
  const Times expected = MeasurePolicy(RoutePolicy::kExpectedTtft, workers, 15);
  EXPECT_LT(expected.mean, load.mean);
  EXPECT_LT(expected.mean, turns.mean);
}

// The computed threshold is no worse than handing over everything, nor than nothing.
TEST(ServiceSimTest, TheComputedThresholdServesShortPromptsSooner) {
  ServiceScenario scenario{.workers = {Worker(WorkerRole::kPrefill), Worker(WorkerRole::kDecode)}};
  scenario.dispatch.disaggregate_from = 0;
  const Times always = Measure(scenario, 8, 5);
  scenario.dispatch.disaggregate_from.reset();
  const Times computed = Measure(scenario, 8, 5);
  std::printf("TTFT always %.1f ms, computed %.1f ms\n", always.mean.value * 1e3,
              computed.mean.value * 1e3);
  EXPECT_LT(computed.mean, always.mean);
  scenario.requests = Load(1, 400, 8);
  const DispatcherStats ways = RunService(scenario).dispatcher;
  EXPECT_GT(ways.apart, 50);
  EXPECT_GT(ways.whole, 10);
}

// ---- Beyond capacity

ServiceScenario FourAtOnce() {
  ServiceScenario scenario{.dispatch = {.max_waiting = 150},
                           .workers = {Worker(WorkerRole::kPrefill), Worker(WorkerRole::kDecode)}};
  scenario.workers[1].scheduler.max_sequences = 4;
  for (int i = 0; i < 200; ++i) {
    scenario.requests.push_back({.arrival = Seconds(1e-6 * i), .prompt = 40, .output = 20});
  }
  return scenario;
}

void ExpectServedInOrder(const ServiceScenario& scenario, const ServiceReport& report) {
  EXPECT_EQ(report.fault, "");
  EXPECT_EQ(report.most_live, 150);
  Seconds last_first, last_end;
  for (size_t i = 0; i < scenario.requests.size(); ++i) {
    const ServiceOutcome& outcome = report.outcomes[i];
    if (i >= 150) {  // Beyond the line: at once.
      ASSERT_TRUE(outcome.error) << i;
      EXPECT_EQ(outcome.error->code, Code::kResourceExhausted);
      continue;
    }
    ASSERT_FALSE(outcome.error) << i << ": " << outcome.error->message;
    EXPECT_EQ(outcome.tokens, 20);
    EXPECT_GE(outcome.first_token, last_first) << "request " << i << " was overtaken";
    // Steady: the next one is never long in coming.
    EXPECT_LT(outcome.finished - last_end, Seconds(0.3)) << i;
    last_first = outcome.first_token;
    last_end = std::max(last_end, outcome.finished);
  }
}

TEST(ServiceSimTest, FourSequencesServeTwoHundredRequestsInOrder) {
  const ServiceScenario scenario = FourAtOnce();
  const ServiceReport report = RunService(scenario);
  ExpectServedInOrder(scenario, report);
  // Nobody was asked who was known to be full.
  EXPECT_EQ(report.workers[1].counters.reservations_refused, 0);
}

// The gateway does not know the bound, of pages here: workers refuse, and the order stays.
TEST(ServiceSimTest, TheOrderStaysWhereOnlyRefusalsTellOfRoom) {
  ServiceScenario scenario = FourAtOnce();
  scenario.workers[1].scheduler.max_sequences = 64;
  scenario.workers[1].scheduler.blocks = 18;
  const ServiceReport report = RunService(scenario);
  ExpectServedInOrder(scenario, report);
  EXPECT_GT(report.workers[1].counters.reservations_refused, 0);
  // One attempt for each that ends, and now and then one after a pause: not each by its own clock.
  EXPECT_LT(report.workers[1].counters.reservations_refused, 600);
}

// ---- Sums

TEST(ServiceSimTest, CountersAddUpToThePlan) {
  Scenario plan;
  plan.model = {
      .layers = 6, .hidden = 128, .heads = 4, .kv_heads = 2, .head_dim = 32, .vocab = 2048};
  plan.workload.classes = {{.name = "short", .input = Tokens(64), .output = Tokens(9)},
                           {.name = "long", .input = Tokens(512), .output = Tokens(33)},
                           {.name = "one", .input = Tokens(32), .output = Tokens(1)}};
  ServiceScenario scenario{.dispatch = {.disaggregate_from = 0},
                           .workers = {Worker(WorkerRole::kPrefill), Worker(WorkerRole::kPrefill),
                                       Worker(WorkerRole::kDecode), Worker(WorkerRole::kDecode)}};
  int64_t prefill = 0, decode = 0;
  Bytes moved;
  for (int i = 0; i < 60; ++i) {
    const RequestClass& of = plan.workload.classes[static_cast<size_t>(i % 3)];
    scenario.requests.push_back(
        {.arrival = Seconds(0.02 * i), .prompt = of.input.value, .output = of.output.value});
    prefill += of.NewTokens().value;
    decode += of.DecodeCalls().value;
    moved += TransferOf(plan, of);
  }
  const ServiceReport report = RunService(scenario);
  EXPECT_EQ(report.fault, "");
  WorkerCounters p, d;
  for (const size_t i : {0, 1}) p += report.workers[i].counters;
  for (const size_t i : {2, 3}) d += report.workers[i].counters;
  EXPECT_EQ(p.prefill_tokens + p.cached_tokens, prefill);
  EXPECT_EQ(p.decode_tokens, 0);
  EXPECT_EQ(d.prefill_tokens, 0);
  EXPECT_EQ(d.decode_tokens, decode);
  // Prompts of whole pages: as many bytes as their tokens have.
  const Bytes page = ModelCost(plan.model, plan.storage).State(Tokens(kBlockTokens));
  EXPECT_EQ(page * d.pages_received, moved);
  EXPECT_GE(p.pages_sent, d.pages_received);  // One output token moves at most what was on its way.
  EXPECT_EQ(p.transfers, 60);
  EXPECT_EQ(p.handovers, 40);
  EXPECT_EQ(p.tail_times.Count(), 40);
  EXPECT_EQ(p.transfers_answered, 20);
  EXPECT_EQ(p.transfers_failed + p.transfers_aborted + p.expired_leases + d.expired_leases, 0);
}

}  // namespace
}  // namespace divisi
