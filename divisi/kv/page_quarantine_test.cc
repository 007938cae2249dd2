#include "divisi/kv/page_quarantine.h"

#include <gtest/gtest.h>

namespace divisi {
namespace {

constexpr BlockKey kOne{.bytes = {1}}, kOther{.bytes = {2}}, kThird{.bytes = {3}};

TEST(PageQuarantineTest, HoldsUntilItIsRewrittenAndBarsWhatFailsAgainAndAgain) {
  PageQuarantine bad(8);
  for (int i = 0; i <= PageQuarantine::kMostRewrites; ++i) {
    EXPECT_FALSE(bad.Bars(kOne, Tier::kDisk));
    bad.Failed(kOne, Tier::kDisk);
    EXPECT_TRUE(bad.Holds(kOne, Tier::kDisk));
    bad.Rewritten(kOne, Tier::kDisk);
    EXPECT_FALSE(bad.Holds(kOne, Tier::kDisk));
  }
  EXPECT_TRUE(bad.Bars(kOne, Tier::kDisk));
  EXPECT_FALSE(bad.Bars(kOne, Tier::kHost));
  EXPECT_EQ(bad.failures(), PageQuarantine::kMostRewrites + 1);
}

TEST(PageQuarantineTest, WhatFailedLongestAgoIsForgottenFirst) {
  PageQuarantine bad(2);
  bad.Failed(kOne, Tier::kDisk);
  bad.Failed(kOther, Tier::kDisk);
  bad.Failed(kOne, Tier::kDisk);
  bad.Failed(kThird, Tier::kDisk);
  EXPECT_TRUE(bad.Holds(kOne, Tier::kDisk));
  EXPECT_FALSE(bad.Holds(kOther, Tier::kDisk));
  EXPECT_EQ(bad.size(), 2);
}

// Nobody writes to a peer: without that the page would stay barred, of whoever has it.
TEST(PageQuarantineTest, APeersPageIsForgottenOnceHostMemoryHasIt) {
  PageQuarantine bad(8);
  for (int i = 0; i < 9; ++i) {
    bad.Failed(kOne, Tier::kPeer);
    bad.Failed(kOther, Tier::kPeer);
    bad.Rewritten(kOne, Tier::kDisk);
    EXPECT_TRUE(bad.Holds(kOne, Tier::kPeer));
    bad.Rewritten(kOne, Tier::kHost);
    EXPECT_FALSE(bad.Holds(kOne, Tier::kPeer));
    EXPECT_TRUE(bad.Holds(kOther, Tier::kPeer));
  }
  EXPECT_EQ(bad.size(), 1);
}

}  // namespace
}  // namespace divisi
