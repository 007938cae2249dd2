#include "divisi/plan/activation_transfer.h"

#include <gtest/gtest.h>

#include <cmath>

namespace divisi {
namespace {

constexpr ActivationRoute kQwen3{.layers = 36, .hidden = 4096};
constexpr TransferLink kLink{BytesPerSecond(25e9), Seconds(5e-6)};

TEST(ActivationTransferTest, AStepIsMostlyLaunches) {
  const auto step = ActivationTransfers(kQwen3, 1);
  ASSERT_TRUE(step);
  EXPECT_EQ(step->payload.value, 576 << 10);
  EXPECT_EQ(step->launches, 72);
  EXPECT_NEAR(step->Payload(kLink).value, 23.6e-6, 0.05e-6);
  EXPECT_NEAR(step->Total(kLink).value, 383.59296e-6, 1e-15);
}

TEST(ActivationTransferTest, APrefillIsMostlyPayload) {
  const auto prefill = ActivationTransfers(kQwen3, 8192);
  ASSERT_TRUE(prefill);
  EXPECT_EQ(prefill->payload.value, int64_t{9} << 29);
  EXPECT_EQ(prefill->launches, 72);
}

// At the break-even launch both sides take the same time.
TEST(ActivationTransferTest, BreakEvenMakesBothSidesEqual) {
  const Bytes state(1207959552);
  const auto step = ActivationTransfers(kQwen3, 1);
  ASSERT_TRUE(step);
  const Seconds launch = BreakEvenLaunch(state, *step, kLink.bandwidth);
  EXPECT_NEAR(launch.value, 680.2082974647888e-6, 1e-15);
  const TransferLink link{kLink.bandwidth, launch};
  const SerialTransfers whole{.payload = state, .launches = 1};
  EXPECT_NEAR(whole.Total(link).value, step->Total(link).value, 1e-12);
}

TEST(ActivationTransferTest, BreakEvenHasNoDivisionByZero) {
  const SerialTransfers one{.payload = Bytes(10), .launches = 1};
  EXPECT_EQ(BreakEvenLaunch(Bytes(11), one, kLink.bandwidth).value, HUGE_VAL);
  EXPECT_EQ(BreakEvenLaunch(Bytes(10), one, kLink.bandwidth).value, -HUGE_VAL);
}

TEST(ActivationTransferTest, RefusesWhatCannotBeCounted) {
  EXPECT_FALSE(ActivationTransfers({.layers = 0, .hidden = 4096}, 1));
  EXPECT_FALSE(ActivationTransfers(kQwen3, 0));
  EXPECT_FALSE(ActivationTransfers(kQwen3, 1e300));
  EXPECT_FALSE(ActivationTransfers(kQwen3, std::nan("")));
}

}  // namespace
}  // namespace divisi
