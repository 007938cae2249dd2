#include "divisi/engine/gate_wait.h"

#include <gtest/gtest.h>

namespace divisi {
namespace {

TEST(GateWaitTest, IsWhatAllSlicesWaited) {
  constexpr Seconds kEach(0.01);
  LayerGate first, second;
  StepPlan plan;
  plan.slices = {{.gate = &first}, {}, {.gate = &second}};
  EXPECT_EQ(WaitedAtGates(plan), Seconds(0));
  EXPECT_FALSE(first.Wait(0, kEach));
  const Seconds one = WaitedAtGates(plan);
  EXPECT_GE(one, kEach * 0.99);
  EXPECT_FALSE(second.Wait(0, kEach));
  EXPECT_GE(WaitedAtGates(plan), one + kEach * 0.99);
}

TEST(GateWaitTest, OneLostSliceIsEnough) {
  std::vector<SliceResult> results(3);
  EXPECT_FALSE(AnyLost(results));
  results[1].lost = true;
  EXPECT_TRUE(AnyLost(results));
}

}  // namespace
}  // namespace divisi
