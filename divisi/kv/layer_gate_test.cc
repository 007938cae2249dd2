#include "divisi/kv/layer_gate.h"

#include <gtest/gtest.h>

#include <thread>

#include "divisi/core/clock.h"

namespace divisi {
namespace {

TEST(LayerGateTest, OpensAndNeverCloses) {
  LayerGate gate;
  EXPECT_FALSE(gate.Wait(0, Seconds(0)));
  gate.Open(3);
  gate.Open(1);
  EXPECT_EQ(gate.opened(), 3);
  EXPECT_TRUE(gate.Wait(2, Seconds(0)));
  EXPECT_FALSE(gate.Wait(3, Seconds(0)));
}

TEST(LayerGateTest, WhatWasOpenStaysOpenAfterAFailure) {
  LayerGate gate;
  gate.Open(2);
  gate.Fail();
  gate.Open(4);
  EXPECT_TRUE(gate.Wait(1, Seconds(100)));
  EXPECT_FALSE(gate.Wait(2, Seconds(100)));
  EXPECT_TRUE(gate.failed());
}

TEST(LayerGateTest, WaitsForTheLoaderAndCountsIt) {
  LayerGate gate;
  const SteadyClock clock;
  const Seconds until = clock.Now() + Seconds(30);
  // Each layer opens 5 ms after somebody began to wait for it.
  std::thread loader([&] {
    const auto waits_for = [&](int layer) {
      const auto waiting = gate.waiting();
      return waiting.waits == layer && waiting.now == 1;
    };
    for (int layer = 0; layer < 4; ++layer) {
      while (!waits_for(layer) && clock.Now() < until) std::this_thread::yield();
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
      gate.Open(layer + 1);
    }
  });
  for (int layer = 0; layer < 4; ++layer) EXPECT_TRUE(gate.Wait(layer, Seconds(30)));
  loader.join();
  EXPECT_EQ(gate.waiting().waits, 4);
  EXPECT_GT(gate.waiting().waited.value, 0.019);
  EXPECT_EQ(gate.waiting().in_vain, 0);
}

TEST(LayerGateTest, AFailureWakesWhoWaits) {
  LayerGate gate;
  std::thread loader([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    gate.Fail();
  });
  EXPECT_FALSE(gate.Wait(0, Seconds(1e300)));
  loader.join();
  EXPECT_EQ(gate.waiting().in_vain, 1);
}

TEST(LayerGateTest, NobodyWaitsLongerThanAsked) {
  LayerGate gate;
  EXPECT_FALSE(gate.Wait(0, Seconds(0.01)));
  EXPECT_FALSE(gate.Wait(0, Seconds(-1)));
  EXPECT_GE(gate.waiting().waited.value, 0.009);
}

TEST(LayerGateTest, NobodyWaitsBeyondTheGatesOwnTime) {
  LayerGate gate(Seconds(0.02));
  gate.Open(1);
  const SteadyClock clock;
  const Seconds start = clock.Now();
  EXPECT_TRUE(gate.Wait(0, Seconds(30)));
  EXPECT_FALSE(gate.Wait(1, Seconds(30)));
  EXPECT_FALSE(gate.Wait(1, Seconds(30)));
  EXPECT_GE(clock.Now() - start, Seconds(0.02));
  EXPECT_LT(clock.Now() - start, Seconds(5));
}

}  // namespace
}  // namespace divisi
