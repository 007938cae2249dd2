#include "divisi/kv/tier_rates.h"

#include <gtest/gtest.h>

namespace divisi {
namespace {

TEST(RecentRateTest, WhatIsNotUsedIsForgotten) {
  RecentRate recent;
  const BytesPerSecond slow(10);
  EXPECT_EQ(recent.Of(Bytes(100), slow, Seconds(1)).value, 10);
  EXPECT_EQ(recent.Of(Bytes(100), slow, Seconds(30)).value, 10);
  EXPECT_EQ(recent.Of(Bytes(100), slow, Seconds(31)).value, 0);
  EXPECT_EQ(recent.Of(Bytes(101), slow, Seconds(40)).value, 10);
}

TEST(MeasuredRateTest, FollowsTheTrafficAndForgetsAStall) {
  MeasuredRate rate;
  EXPECT_EQ(rate.rate(), BytesPerSecond(0));
  rate.Add(Bytes(1 << 20), Seconds(1e-3));
  EXPECT_NEAR(rate.rate().value, (1 << 20) * 1e3, 1);
  rate.Add(Bytes(1 << 20), Seconds(1));  // A stall.
  for (int i = 0; i < 1000; ++i) rate.Add(Bytes(1 << 20), Seconds(1e-3));
  EXPECT_NEAR(rate.rate().value, (1 << 20) * 1e3, (1 << 20) * 10);
}

}  // namespace
}  // namespace divisi
