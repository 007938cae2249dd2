// The specification's example 9.7 on a modelled cluster: A holds a prefix of 8192 tokens and waits
// for 250 ms, B lacks it and waits for 20. Its four times to the first token, and what the router
// makes of them.
#include <gtest/gtest.h>

#include "divisi/plan/example_models.h"
#include "divisi/sim/sim_service.h"

namespace divisi {
namespace {

constexpr BytesPerSecond k50Gbit{6.25e9}, k200Gbit{25e9};
constexpr Seconds kLookup{0.01};
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
        ServicePool{.memory = Bytes(int64_t{1} << 38), .link = *network, .lookup = kLookup};
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

// ---- The router's view: it has measured what prompts and reads take, and hears who holds what.

class RouterOnTheExampleTest : public RouteExampleTest {
 protected:
  struct Routed {
    double at_a = 0, at_b = 0;  // As estimated
    bool to_a = false;
    double ttft = 0;  // As it was
  };

  // Of two like workers it is chance where what is asked first goes: in one of the two orders the
  // longer wait is at the holder.
  Routed ByRouter(std::optional<BytesPerSecond> network) const {
    const std::optional<Routed> routed = InOrder(network, true);
    return routed ? *routed : InOrder(network, false).value();
  }

 private:
  // Absent where A is not the one that waits for long.
  std::optional<Routed> InOrder(std::optional<BytesPerSecond> network, bool long_first) const {
    ServiceScenario scenario = Cluster(network);
    scenario.directory = 200'000;
    scenario.dispatch.keep_choices = true;
    scenario.dispatch.quantile = 0.5;  // The example takes copies to be where they are shown.
    Seconds at = Measure(scenario.requests);
    if (network) at = MeasureReads(scenario.requests, at);
    const size_t opening = scenario.requests.size();
    scenario.requests.push_back(Asks(at, 1));
    at += Seconds(10);
    // The one that is to be first begins first; their last steps have room for the 256 tokens.
    ServiceRequest long_one = Ahead(at, long_first ? 5000 : 3000, 0.25);
    ServiceRequest short_one = Ahead(at, 1000, 0.02);
    for (ServiceRequest* each : {&long_one, &short_one}) {
      if (network) each->arrival = each->arrival - kLookup;  // Before either is computed
    }
    scenario.requests.push_back(long_first ? long_one : short_one);
    scenario.requests.push_back(long_first ? short_one : long_one);
    scenario.requests.push_back(Asks(at, 1));
    const ServiceReport report = Run(scenario);
    const NodeId a = report.outcomes[opening].choice->chosen.target;
    const size_t waits = opening + (long_first ? 1 : 2);
    if (report.outcomes[waits].choice->chosen.target != a) return std::nullopt;
    const RouteChoice& choice = *report.outcomes.back().choice;
    Routed routed{.to_a = choice.chosen.target == a, .ttft = Ttft(scenario, report)};
    for (const RouteOption& option : choice.options) {
      (option.target == a ? routed.at_a : routed.at_b) = option.ttft().value;
    }
    return routed;
  }

  // Pairs at once, one for each of the two.
  static Seconds Measure(std::vector<ServiceRequest>& requests) {
    Seconds at;
    for (const int64_t tokens : {500, 1000, 2000, 4000, 8448, 700, 3000, 6000, 1000, 8448}) {
      for (int i = 0; i < 2; ++i) requests.push_back({.arrival = at, .prompt = tokens});
      at += Seconds(3);
    }
    return at;
  }

  // A prefix is asked for again while both are busy, one for long: once it is who holds it.
  Seconds MeasureReads(std::vector<ServiceRequest>& requests, Seconds at) const {
    for (const bool long_first : {true, false}) {
      const uint64_t prefix = long_first ? 2 : 3;
      requests.push_back(Asks(at, prefix));
      at += Seconds(5);
      for (const bool is_long : {long_first, !long_first}) {
        requests.push_back({.arrival = at, .prompt = is_long ? 16000 : 500});
      }
      requests.push_back(Asks(at + Seconds(1e-3), prefix));
      at += Seconds(10);
    }
    return at;
  }
};

TEST_F(RouterOnTheExampleTest, WithoutAPoolItWaitsForA) {
  const Routed routed = ByRouter({});
  EXPECT_NEAR(routed.at_a, 0.281, kTolerance.value);
  EXPECT_NEAR(routed.at_b, 0.907, kTolerance.value);
  EXPECT_TRUE(routed.to_a);
  EXPECT_NEAR(routed.ttft, 0.281, kTolerance.value);
}

TEST_F(RouterOnTheExampleTest, Over50GbitItWaitsForA) {
  const Routed routed = ByRouter(k50Gbit);
  EXPECT_NEAR(routed.at_a, 0.281, kTolerance.value);
  EXPECT_NEAR(routed.at_b, 0.282, kTolerance.value);
  EXPECT_TRUE(routed.to_a);
  EXPECT_NEAR(routed.ttft, 0.281, kTolerance.value);
}

TEST_F(RouterOnTheExampleTest, Over200GbitItFetches) {
  const Routed routed = ByRouter(k200Gbit);
  EXPECT_NEAR(routed.at_a, 0.281, kTolerance.value);
  EXPECT_NEAR(routed.at_b, 0.137, kTolerance.value);
  EXPECT_FALSE(routed.to_a);
  EXPECT_NEAR(routed.ttft, 0.137, kTolerance.value);
}

}  // namespace
}  // namespace divisi
