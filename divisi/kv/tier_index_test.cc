#include "divisi/kv/tier_index.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "divisi/core/random.h"

namespace divisi {
namespace {

BlockKey KeyOf(int64_t number) {
  BlockKey key;
  for (int i = 0; i < 8; ++i) key.bytes[i] = static_cast<uint8_t>(number >> (8 * i));
  return key;
}

EvictionRank RankAt(int64_t value) { return {.value = value}; }

TEST(TierIndexTest, APageIsOfferedWhenItHasArrived) {
  TierIndex tier(1);
  EXPECT_TRUE(tier.Reserve(KeyOf(1)));
  EXPECT_FALSE(tier.Has(KeyOf(1)));
  EXPECT_FALSE(tier.Reserve(KeyOf(1)));
  EXPECT_FALSE(tier.Reserve(KeyOf(2)));
  tier.Publish(KeyOf(1), RankAt(1));
  EXPECT_TRUE(tier.Has(KeyOf(1)));
  EXPECT_TRUE(tier.Remove(KeyOf(1)));
  EXPECT_EQ(tier.size(), 0);
}

TEST(TierIndexTest, APageThatIsReadOutlivesItsRemovalUnseen) {
  TierIndex tier(1);
  tier.Reserve(KeyOf(1));
  tier.Publish(KeyOf(1), RankAt(1));
  tier.Pin(KeyOf(1));
  tier.Pin(KeyOf(1));
  EXPECT_FALSE(tier.First());
  EXPECT_FALSE(tier.Remove(KeyOf(1)));
  EXPECT_FALSE(tier.Has(KeyOf(1)));
  EXPECT_TRUE(tier.full());
  tier.Verify();
  EXPECT_FALSE(tier.Unpin(KeyOf(1)));
  EXPECT_TRUE(tier.Unpin(KeyOf(1)));
  EXPECT_EQ(tier.size(), 0);
}

TEST(TierIndexDeathTest, RefusesWhatTheStateForbids) {
  TierIndex tier(2);
  tier.Reserve(KeyOf(1));
  EXPECT_DEATH(tier.Pin(KeyOf(1)), "is in state");
  EXPECT_DEATH(tier.Unpin(KeyOf(1)), "not pinned");
  EXPECT_DEATH(tier.Publish(KeyOf(2), {}), "in no such tier");
}

// The same with linear searches over a plain map.
struct NaivePage {
  bool arriving = true;
  bool hidden = false;
  int pins = 0;
  EvictionRank rank;
};

TEST(TierIndexTest, AgreesWithANaiveTwinUnderRandomOperations) {
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    const int64_t capacity = random.Between(0, 8);
    TierIndex tier(capacity);
    std::map<BlockKey, NaivePage> naive;
    for (int step = 0; step < 500; ++step) {
      const BlockKey key = KeyOf(random.Between(1, 12));
      const auto found = naive.find(key);
      const bool known = found != naive.end();
      const bool present = known && !found->second.arriving && !found->second.hidden;
      const EvictionRank rank = RankAt(random.Between(0, 5));
      const int64_t choice = random.Between(0, 6);
      if (choice == 0) {
        const bool room = !known && static_cast<int64_t>(naive.size()) < capacity;
        ASSERT_EQ(tier.Reserve(key), room);
        if (room) naive[key] = {};
      } else if (choice == 1 && known && found->second.arriving) {
        const bool kept = random.Chance(0.8);
        if (kept) {
          tier.Publish(key, rank);
          found->second = {.arriving = false, .rank = rank};
        } else {
          tier.Cancel(key);
          naive.erase(found);
        }
      } else if (choice == 2 && present) {
        tier.Pin(key);
        ++found->second.pins;
      } else if (choice == 3 && known && found->second.pins > 0) {
        const bool gone = --found->second.pins == 0 && found->second.hidden;
        ASSERT_EQ(tier.Unpin(key), gone);
        if (gone) naive.erase(found);
      } else if (choice == 4) {
        tier.Rerank(key, rank);
        if (present) found->second.rank = rank;
      } else if (choice == 5 && present && random.Chance(0.5)) {
        const bool gone = found->second.pins == 0;
        ASSERT_EQ(tier.Remove(key), gone);
        found->second.hidden = true;
        if (gone) naive.erase(found);
      }
      std::optional<std::pair<EvictionRank, BlockKey>> first;
      for (const auto& [name, page] : naive) {
        if (page.arriving || page.hidden || page.pins > 0) continue;
        first = std::min(first.value_or(std::pair(page.rank, name)), std::pair(page.rank, name));
      }
      const auto victim = tier.First();
      ASSERT_EQ(victim.has_value(), first.has_value());
      if (victim) {
        ASSERT_EQ(std::pair(victim->rank, victim->key), *first);
      }
      ASSERT_EQ(tier.size(), static_cast<int64_t>(naive.size()));
      tier.Verify();
    }
  }
}

}  // namespace
}  // namespace divisi
