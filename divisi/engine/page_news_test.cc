#include "divisi/engine/page_news.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "divisi/core/random.h"
#include "divisi/kv/event_log.h"
#include "divisi/kv/held_blocks.h"

namespace divisi {
namespace {

constexpr size_t kAll = 1000;

BlockKey Key(uint64_t number) {
  BlockKey key;
  std::memcpy(key.bytes.data(), &number, sizeof number);
  return key;
}
PageChange Stored(uint64_t number, uint64_t parent = 0) {
  return {.kind = PageChange::Kind::kStored,
          .key = Key(number),
          .parent = Key(parent),
          .root = Key(0),
          .tokens = std::vector<TokenId>(kBlockTokens, static_cast<TokenId>(number))};
}
PageChange Removed(uint64_t number) {
  return {.kind = PageChange::Kind::kRemoved, .key = Key(number)};
}
TierEvent TierTells(TierEvent::Kind kind, uint64_t number, Tier tier) {
  return {kind, {.key = Key(number), .parent = Key(0), .root = Key(0)}, tier};
}

TEST(PageNewsTest, TellsPagesWithParentsAndTokens) {
  PageNews news;
  news.Take({Stored(1), Stored(2, 1)});
  news.Take({TierTells(TierEvent::Kind::kStored, 1, Tier::kDisk)});
  news.Take({Removed(1), Removed(7)});
  const auto events = news.Next(kAll);
  ASSERT_EQ(events.size(), 4u);
  const auto& first = std::get<StoredEvent>(events[0]);
  EXPECT_EQ(first.hashes[0], EventHash(Key(1)));
  EXPECT_FALSE(first.parent);
  EXPECT_EQ(first.tokens.size(), size_t{kBlockTokens});
  EXPECT_EQ(first.medium, "GPU");
  EXPECT_EQ(std::get<StoredEvent>(events[1]).parent, EventHash(Key(1)));
  EXPECT_EQ(std::get<StoredEvent>(events[2]).medium, "DISK");
  EXPECT_EQ(std::get<RemovedEvent>(events[3]).hashes[0], EventHash(Key(1)));
  EXPECT_TRUE(news.Next(kAll).empty());
  EXPECT_EQ(news.stats().held, 2);
}

TEST(PageNewsTest, ATierThatIsClearedLosesItsPagesAndNoOther) {
  PageNews news;
  news.Take({Stored(1)});
  news.Take({TierTells(TierEvent::Kind::kStored, 1, Tier::kHost),
             TierTells(TierEvent::Kind::kStored, 2, Tier::kHost),
             TierTells(TierEvent::Kind::kCleared, 0, Tier::kHost)});
  HeldBlocks held;
  for (const KvEvent& event : news.Next(kAll)) held.Apply(event);
  EXPECT_TRUE(held.Holds(EventHash(Key(1)), EventTier::kDevice));
  EXPECT_EQ(held.On(EventTier::kHost), 0u);
}

TEST(PageNewsTest, WhatNobodyTakesIsBoundedAndToldAnewInOrder) {
  PageNews news(8);
  for (uint64_t i = 1; i <= 100; ++i) news.Take({Stored(i, i - 1)});
  for (uint64_t i = 51; i <= 100; ++i) news.Take({Removed(i)});
  EXPECT_LE(news.stats().waiting, 8);
  const auto events = news.Next(kAll);
  ASSERT_EQ(events.size(), 51u);
  EXPECT_TRUE(std::holds_alternative<ClearedEvent>(events[0]));
  for (uint64_t i = 1; i <= 50; ++i) {
    EXPECT_EQ(std::get<StoredEvent>(events[i]).hashes[0], EventHash(Key(i)));
  }
  EXPECT_EQ(news.stats().retold, 1);
}

// Whatever is taken when: who hears all of it knows what is held.
TEST(PageNewsTest, FollowersEndUpWithWhatIsHeld) {
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    Random random(seed);
    PageNews news(static_cast<size_t>(random.Between(1, 40)));
    HeldBlocks held, expected;
    for (int step = 0; step < 400; ++step) {
      const auto number = static_cast<uint64_t>(random.Between(1, 60));
      const bool stores = random.Chance(0.6);
      const auto tier = static_cast<Tier>(random.Between(0, 2));
      const auto event_tier = static_cast<EventTier>(tier);
      if (tier == Tier::kDevice) {
        news.Take({stores ? Stored(number) : Removed(number)});
      } else {
        using Kind = TierEvent::Kind;
        news.Take({TierTells(stores ? Kind::kStored : Kind::kRemoved, number, tier)});
      }
      if (stores && !expected.Holds(EventHash(Key(number)), event_tier)) {
        expected.Apply(PageStored(Key(number), nullptr, {}, event_tier));
      } else if (!stores) {
        expected.Apply(PageRemoved(Key(number), event_tier));
      }
      if (!random.Chance(0.05)) continue;
      const auto most = static_cast<size_t>(random.Between(1, 30));
      for (const KvEvent& told : news.Next(most)) held.Apply(told);
    }
    for (const KvEvent& told : news.Next(kAll)) held.Apply(told);
    ASSERT_TRUE(held == expected) << "seed " << seed;
  }
}

}  // namespace
}  // namespace divisi
