#include "divisi/plan/waiting.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "divisi/core/random.h"

namespace divisi {
namespace {

TEST(WaitingTest, OneServerOfFixedServiceIsPollaczekKhinchine) {
  // rho = 0.8, service 1 s: W = 0.8 / (2 * 0.2) = 2 s.
  EXPECT_NEAR(WaitOfFixedService(PerSecond(0.8), {1, PerSecond(1)}).value, 2, 1e-12);
  EXPECT_NEAR(WaitOfRandomService(PerSecond(0.8), {1, PerSecond(1)}).value, 4, 1e-12);
}

TEST(WaitingTest, ErlangCIsTheTextbooks) {
  EXPECT_NEAR(ErlangC(PerSecond(1), {2, PerSecond(2)}), 1.0 / 3, 1e-12);
  // Erlang's own check: 10 servers, load 8.
  EXPECT_NEAR(ErlangC(PerSecond(8), {10, PerSecond(10)}), 0.409180, 1e-6);
  EXPECT_NEAR(ErlangC(PerSecond(900), {1000, PerSecond(1000)}), 0, 0.01);
}

// The naive twin: Erlang B by its recurrence over all servers.
TEST(WaitingTest, ErlangCIsThatOfTheRecurrence) {
  for (const int servers : {1, 2, 7, 32, 1000, 30000}) {
    for (const double rho : {0.001, 0.2, 0.5, 0.9, 0.99, 0.9999}) {
      double blocked = 1;
      const double load = rho * servers;
      for (int k = 1; k <= servers; ++k) blocked = load * blocked / (k + load * blocked);
      const double expected = blocked / (1 - rho * (1 - blocked));
      const double found = ErlangC(PerSecond(load), {servers, PerSecond(servers)});
      EXPECT_NEAR(found, expected, 1e-10 * expected + 1e-290) << servers << " servers, " << rho;
    }
  }
}

TEST(WaitingTest, FullPoolsWaitForever) {
  EXPECT_TRUE(std::isinf(WaitOfFixedService(PerSecond(2), {4, PerSecond(2)}).value));
  EXPECT_TRUE(std::isinf(WaitOfFixedService(PerSecond(2), {4, PerSecond(0)}).value));
  EXPECT_EQ(WaitOfFixedService(PerSecond(0), {4, PerSecond(2)}).value, 0);
  EXPECT_EQ(WaitsLonger(Seconds(1), 1, Seconds(INFINITY)), 1);
  EXPECT_EQ(WaitsLonger(Seconds(-1), 0.5, Seconds(1)), 1);
}

// Requests one by one through k servers.
double SimulatedWait(double rate, const ServerPool& pool, bool fixed) {
  Random random(11);
  constexpr int kRequests = 400000;
  const double service = pool.servers / pool.rate.value;
  std::vector<double> free(static_cast<size_t>(pool.servers), 0);
  double now = 0, waited = 0;
  for (int i = 0; i < kRequests; ++i) {
    now += -std::log(1 - random.Uniform()) / rate;
    const auto first = std::min_element(free.begin(), free.end());
    const double start = std::max(now, *first);
    waited += start - now;
    *first = start + (fixed ? service : -std::log(1 - random.Uniform()) * service);
  }
  return waited / kRequests;
}

TEST(WaitingTest, MeansAreThoseOfASimulatedQueue) {
  for (const int servers : {1, 2, 4, 8}) {
    for (const double rho : {0.5, 0.8, 0.9}) {
      const ServerPool pool{servers, PerSecond(servers / 0.9)};
      const PerSecond arrivals = pool.rate * rho;
      const double fixed = SimulatedWait(arrivals.value, pool, true);
      EXPECT_NEAR(WaitOfFixedService(arrivals, pool).value, fixed, 0.04 * fixed + 0.002)
          << servers << " servers, " << rho;
      const double random = SimulatedWait(arrivals.value, pool, false);
      EXPECT_NEAR(WaitOfRandomService(arrivals, pool).value, random, 0.06 * random + 0.002);
    }
  }
}

}  // namespace
}  // namespace divisi
