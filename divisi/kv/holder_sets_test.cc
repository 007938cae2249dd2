#include "divisi/kv/holder_sets.h"

#include <gtest/gtest.h>

#include <map>
#include <utility>

#include "divisi/core/check.h"
#include "divisi/core/random.h"

namespace divisi {
namespace {

using Added = HolderSets::Added;
using Removed = HolderSets::Removed;

HolderSets SetsFor(int64_t shared, int64_t again) {
  auto sets = HolderSets::Create(shared, again);
  CHECK(sets.ok());
  return *std::move(sets);
}

TEST(HolderSetsTest, TiersAndHoldersComeAndGo) {
  HolderSets sets = SetsFor(1, 10);
  HolderSet set;
  EXPECT_EQ(sets.Add(set, 200, Tier::kDevice), Added::kHolder);
  EXPECT_EQ(sets.Add(set, 200, Tier::kDisk), Added::kTier);
  EXPECT_EQ(sets.Remove(set, 200, Tier::kHost), Removed::kAbsent);
  EXPECT_EQ(sets.Remove(set, 3, Tier::kDisk), Removed::kAbsent);
  EXPECT_EQ(sets.Remove(set, 200, Tier::kDevice), Removed::kTier);
  EXPECT_EQ(sets.Remove(set, 200, Tier::kDisk), Removed::kHolder);
  EXPECT_TRUE(set.empty());
}

// A chunked offload announces a hash with each chunk that has it.
TEST(HolderSetsTest, APageStaysUntilEachAnnouncementIsWithdrawn) {
  HolderSets sets = SetsFor(1, 10);
  HolderSet set;
  for (int round = 0; round < 3; ++round) sets.Add(set, 1, Tier::kHost);
  // More holders than a list takes: the counts go along.
  for (uint8_t slot = 10; slot < 20; ++slot) sets.Add(set, slot, Tier::kDevice);
  ASSERT_TRUE(set.shared());
  EXPECT_EQ(sets.Add(set, 1, Tier::kHost), Added::kAgain);
  EXPECT_EQ(sets.Count(set, 1, Tier::kHost), 4);
  EXPECT_EQ(sets.Remove(set, 1, Tier::kHost), Removed::kOnce);
  for (uint8_t slot = 10; slot < 20; ++slot) sets.Remove(set, slot, Tier::kDevice);
  ASSERT_FALSE(set.shared());
  EXPECT_EQ(sets.counted_again(), 0);
  EXPECT_EQ(sets.Remove(set, 1, Tier::kHost), Removed::kOnce);
  EXPECT_EQ(sets.Remove(set, 1, Tier::kHost), Removed::kOnce);
  EXPECT_EQ(sets.Remove(set, 1, Tier::kHost), Removed::kHolder);
}

TEST(HolderSetsTest, CountsEndAt15InEitherForm) {
  for (const int others : {0, 8}) {
    HolderSets sets = SetsFor(1, 10);
    HolderSet set;
    for (int i = 0; i < others; ++i) {
      sets.Add(set, static_cast<uint8_t>(100 + i), Tier::kDevice);
    }
    for (int i = 0; i < 20; ++i) sets.Add(set, 1, Tier::kRemote);
    EXPECT_EQ(sets.Count(set, 1, Tier::kRemote), 15);
    EXPECT_EQ(sets.Count(set, 1, Tier::kDisk), 0);
    EXPECT_EQ(sets.uncounted(), 5);
  }
}

TEST(HolderSetsTest, WhatDoesNotFitIsRefusedAndCounted) {
  HolderSets sets = SetsFor(1, 1);
  HolderSet one, other;
  for (uint8_t slot = 0; slot < 6; ++slot) sets.Add(one, slot, Tier::kDevice);
  for (uint8_t slot = 0; slot < 5; ++slot) sets.Add(other, slot, Tier::kDevice);
  EXPECT_EQ(sets.Add(other, 5, Tier::kDevice), Added::kRefused);
  EXPECT_EQ(sets.Holders(other)[0], 0b11111u);
  sets.Add(one, 0, Tier::kDevice);
  sets.Add(one, 1, Tier::kDevice);
  EXPECT_EQ(sets.uncounted(), 1);
  EXPECT_EQ(sets.Count(one, 1, Tier::kDevice), 1);
  // What was let go serves again.
  sets.Remove(one, 5, Tier::kDevice);
  EXPECT_EQ(sets.Add(other, 5, Tier::kDevice), Added::kHolder);
}

// The same with a map of counts.
TEST(HolderSetsTest, EqualsAMapOfCounts) {
  Random random(5);
  HolderSets sets = SetsFor(100, 10'000);
  constexpr int kPages = 20;
  std::array<HolderSet, kPages> compact;
  std::map<std::tuple<int, int, int>, int> model;  // Page, slot, tier.
  for (int step = 0; step < 60'000; ++step) {
    const int page = static_cast<int>(random.Between(0, kPages - 1));
    const int slot = static_cast<int>(random.Between(0, 7) * 31);
    const int tier = static_cast<int>(random.Between(0, 3));
    int& count = model[{page, slot, tier}];
    const auto held = [&] {
      int sum = 0;
      for (int t = 0; t < kTiers; ++t) sum += model[{page, slot, t}];
      return sum > 0;
    };
    if (random.Chance(0.48)) {
      const Added expected = count > 0 ? Added::kAgain : held() ? Added::kTier : Added::kHolder;
      ASSERT_EQ(sets.Add(compact[page], slot, static_cast<Tier>(tier)), expected);
      count = std::min(count + 1, 15);
    } else {
      Removed expected = Removed::kAbsent;
      if (count > 0) {
        --count;
        expected = count > 0 ? Removed::kOnce : held() ? Removed::kTier : Removed::kHolder;
      }
      ASSERT_EQ(sets.Remove(compact[page], slot, static_cast<Tier>(tier)), expected);
    }
    ASSERT_EQ(sets.Count(compact[page], slot, static_cast<Tier>(tier)), count);
    if (random.Chance(0.001)) {
      const SlotMask live = {random.Next64(), random.Next64(), random.Next64(), random.Next64()};
      sets.Keep(compact[page], live);
      for (auto& [key, kept] : model) {
        const auto [p, s, t] = key;
        if (p == page && (live[s / 64] >> (s % 64) & 1) == 0) kept = 0;
      }
    }
  }
  for (const auto& [key, count] : model) {
    const auto [page, slot, tier] = key;
    EXPECT_EQ(sets.Count(compact[page], slot, static_cast<Tier>(tier)), count);
  }
  for (int page = 0; page < kPages; ++page) sets.Keep(compact[page], SlotMask{});
  EXPECT_EQ(sets.shared(), 0);
  EXPECT_EQ(sets.counted_again(), 0);
}

}  // namespace
}  // namespace divisi
