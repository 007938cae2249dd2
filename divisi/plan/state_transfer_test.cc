#include "divisi/plan/state_transfer.h"

#include <gtest/gtest.h>

#include <cmath>

#include "divisi/plan/flow.h"

namespace divisi {
namespace {

constexpr Bytes kState(1207959552);  // 8192 tokens of Qwen3-8B: section 9.2.2.
constexpr BytesPerSecond k100GbE(12.5e9);

TEST(StateTransferTest, BothEndsHoldTheStateUntilTheReceiverTakesOver) {
  const TransferLink link{BytesPerSecond(25e9), Seconds(5e-6)};
  const auto moments = MomentsOf({.payload = kState, .launches = 1}, link);
  ASSERT_EQ(moments.size(), 4);
  EXPECT_EQ(moments[0].target.value, 0);
  EXPECT_EQ(moments[1].source + moments[1].target, kState * 2);
  EXPECT_NEAR(moments[2].time.value, 48.32338208e-3, 1e-12);
  EXPECT_EQ(moments[3].source.value, 0);
  EXPECT_EQ(moments[3].target, kState);
}

TEST(StateTransferTest, PartsAreHeldTwiceForLess) {
  const TransferLink link{BytesPerSecond(kState.value), Seconds(0)};
  const double whole = HeldTwiceByteSeconds({.payload = kState, .launches = 1}, link);
  EXPECT_DOUBLE_EQ(whole, kState.value);
  // Two halves: both for half a second, the second for the rest.
  EXPECT_DOUBLE_EQ(HeldTwiceByteSeconds({.payload = kState, .launches = 2}, link), 0.75 * whole);
}

TEST(StateTransferTest, AStreamBeyondTheLinkGrowsItsQueue) {
  const TransferStream half{kState, PerSecond(8), k100GbE};
  EXPECT_NEAR(half.Needed().value, 9.663676416e9, 1);
  EXPECT_EQ(half.Growth().value, 0);
  EXPECT_LT(half.Utilisation(), 1);
  // M/D/1: rho / (2 mu (1 - rho)).
  const double rho = half.Utilisation();
  EXPECT_NEAR(half.MeanWait().value, rho / (2 * half.Most().value * (1 - rho)), 1e-12);
  const TransferStream full{kState, PerSecond(16), k100GbE};
  EXPECT_NEAR(full.Growth().value, 6.827352832e9, 1);
  EXPECT_TRUE(std::isinf(full.MeanWait().value));
}

// Exercise 9-2: where arrivals take the whole link, a burst stays.
TEST(StateTransferTest, ABurstDrainsOnlyByWhatTheStreamLeaves) {
  const BytesPerSecond one(static_cast<double>(kState.value));
  EXPECT_EQ(TransferStream({kState, PerSecond(1), one}).Drain(10), kNever);
  EXPECT_EQ(TransferStream({kState, PerSecond(1), one}).Drain(0).value, 0);
  EXPECT_DOUBLE_EQ(TransferStream({kState, PerSecond(0.5), one}).Drain(10).value, 20);
  EXPECT_EQ(TransferStream({kState, PerSecond(2), one}).Drain(10), kNever);
}

}  // namespace
}  // namespace divisi
