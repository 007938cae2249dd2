// The specification's example 9.7 on a modelled cluster: A holds a prefix of 8192 tokens and waits
// for 250 ms, B lacks it and waits for 20. Its four times to the first token, and what the router
// makes of them.
#include <gtest/gtest.h>

#include "divisi/plan/example_models.h"
#include "divisi/sim/sim_service.h"

namespace divisi {
namespace {

constexpr BytesPerSecond k50Gbit{6.25e9}, k200Gbit{25e9};
constexpr Seconds kTolerance{1e-3};

class RouteExampleTest : public testing::Test {
 protected:
  const ModelCost model_{ExampleQwen3_8B(), {}};
  const DeviceRates a100_{.compute = FlopsPerSecond(156e12), .memory = BytesPerSecond(2039e9)};

  // A and B. network: absent, there is no pool.
  ServiceScenario Cluster(std::optional<BytesPerSecond> network) const {
    const ServiceWorker card{
        .device = SimDevice{.model = model_, .rates = a100_},
        .scheduler = {.max_sequences = 64, .max_model_len = 32768, .blocks = 8192},
        .tiers = ServiceTiers{.host_pages = 32768, .network = network.value_or(k50Gbit)}};
    ServiceScenario scenario{.workers = {card, card}, .message = Seconds(0), .contents = false};
    if (!network) return scenario;
    scenario.pool =
        ServicePool{.memory = Bytes(int64_t{1} << 38), .link = *network, .lookup = Seconds(0.01)};
    return scenario;
  }

  // A prompt of the prefix of that number and 256 new tokens.
  static ServiceRequest Asks(Seconds at, uint64_t prefix) {
    ServiceRequest request{.arrival = at, .prompt = 8192 + 256};
    for (uint64_t i = 0; i < 16; ++i) request.contents.push_back(prefix * 100 + i);
    static uint64_t last = 1'000'000;
    request.contents.push_back(++last);
    return request;
  }

  // Of `tokens` new tokens, begun so long before `at` that `left` of it is left then.
  ServiceRequest Ahead(Seconds at, int64_t tokens, double left) const {
    const Seconds takes = TimeOf(model_.Prefill(Tokens(tokens), Tokens(0)), a100_).Total();
    return {.arrival = at + Seconds(left) - takes, .prompt = tokens};
  }

  static ServiceReport Run(const ServiceScenario& scenario) {
    ServiceReport report = RunService(scenario);
    EXPECT_EQ(report.fault, "");
    for (const ServiceOutcome& outcome : report.outcomes) EXPECT_FALSE(outcome.error);
    return report;
  }
  static double Ttft(const ServiceScenario& scenario, const ServiceReport& report) {
    return (report.outcomes.back().first_token - scenario.requests.back().arrival).value;
  }

  // The last request's, with workers in turn: A first.
  double InTurn(bool to_a, std::optional<BytesPerSecond> network) const {
    ServiceScenario scenario = Cluster(network);
    scenario.dispatch.policy = RoutePolicy::kRoundRobin;
    const Seconds at(10);
    scenario.requests = {Asks(Seconds(0), 1),
                         {.arrival = Seconds(5), .prompt = 16},
                         Ahead(at, 6000, 0.25),
                         Ahead(at, 1000, 0.02)};
    // A's turn is taken by another.
    if (!to_a) scenario.requests.push_back({.arrival = at - Seconds(0.05), .prompt = 16});
    scenario.requests.push_back(Asks(at, 1));
    return Ttft(scenario, Run(scenario));
  }
};

TEST_F(RouteExampleTest, LocalHitAt281ms) {
  EXPECT_NEAR(InTurn(true, {}), 0.281, kTolerance.value);
}
TEST_F(RouteExampleTest, RecomputingAt907ms) {
  EXPECT_NEAR(InTurn(false, {}), 0.907, kTolerance.value);
}
TEST_F(RouteExampleTest, FetchingOver50GbitAt282ms) {
  EXPECT_NEAR(InTurn(false, k50Gbit), 0.282, kTolerance.value);
}
TEST_F(RouteExampleTest, FetchingOver200GbitAt137ms) {
  EXPECT_NEAR(InTurn(false, k200Gbit), 0.137, kTolerance.value);
}

}  // namespace
}  // namespace divisi
