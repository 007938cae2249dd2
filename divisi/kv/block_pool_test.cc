#include "divisi/kv/block_pool.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "divisi/core/random.h"

namespace divisi {
namespace {

BlockKey KeyOf(int number) {
  BlockKey key;
  for (int i = 0; i < 4; ++i) key.bytes[i] = static_cast<uint8_t>(number >> (8 * i));
  return key;
}

TEST(BlockPoolTest, GivesEachPageOnceThenNone) {
  BlockPool pool(3);
  std::vector<BlockId> blocks;
  for (int i = 0; i < 3; ++i) blocks.push_back(*pool.Allocate());
  std::ranges::sort(blocks);
  EXPECT_EQ(blocks, (std::vector<BlockId>{0, 1, 2}));
  EXPECT_EQ(pool.Allocate(), std::nullopt);
  pool.Release(blocks);
  EXPECT_EQ(pool.free(), 3);
}

TEST(BlockPoolTest, KeepsPublishedPagesUntilTheirPlaceIsNeeded) {
  BlockPool pool(2);
  const BlockId a = *pool.Allocate();
  EXPECT_TRUE(pool.Publish(a, KeyOf(1)));
  pool.Release({{a}});
  EXPECT_EQ(pool.cached(), 1);
  EXPECT_EQ(pool.Find(KeyOf(1)), a);
  const BlockId b = *pool.Allocate();
  EXPECT_NE(b, a);
  EXPECT_EQ(pool.Find(KeyOf(1)), a);
  EXPECT_EQ(*pool.Allocate(), a);
  EXPECT_EQ(pool.Find(KeyOf(1)), std::nullopt);
  EXPECT_EQ(pool.evictions(), 1);
  pool.Verify();
}

TEST(BlockPoolTest, AChainLosesItsTailFirst) {
  BlockPool pool(3);
  std::vector<BlockId> chain;
  for (int i = 0; i < 3; ++i) {
    chain.push_back(*pool.Allocate());
    pool.Publish(chain.back(), KeyOf(i));
  }
  pool.Release(chain);
  EXPECT_EQ(*pool.Allocate(), chain[2]);
  EXPECT_EQ(*pool.Allocate(), chain[1]);
  EXPECT_EQ(*pool.Allocate(), chain[0]);
}

TEST(BlockPoolTest, SharedPagesOutliveOneHolder) {
  BlockPool pool(1);
  const BlockId a = *pool.Allocate();
  pool.Publish(a, KeyOf(1));
  pool.Reference(a);
  pool.Release({{a}});
  EXPECT_EQ(pool.Allocate(), std::nullopt);
  EXPECT_EQ(pool.references(a), 1);
  pool.Release({{a}});
  EXPECT_EQ(pool.cached(), 1);
}

TEST(BlockPoolTest, TheFirstPageOfAKeyStays) {
  BlockPool pool(2);
  const BlockId a = *pool.Allocate();
  const BlockId b = *pool.Allocate();
  EXPECT_TRUE(pool.Publish(a, KeyOf(1)));
  EXPECT_FALSE(pool.Publish(b, KeyOf(1)));
  EXPECT_EQ(pool.Find(KeyOf(1)), a);
  pool.Release({{b}});
  EXPECT_EQ(pool.free(), 1);
}

TEST(BlockPoolDeathTest, RefusesToReleaseTwice) {
  BlockPool pool(1);
  const BlockId a = *pool.Allocate();
  pool.Release({{a}});
  EXPECT_DEATH(pool.Release({{a}}), "released twice");
  EXPECT_DEATH(pool.Reference(a), "is free");
}

// The same pool with nothing clever: linear searches over plain lists.
struct NaivePool {
  std::vector<BlockId> free;
  std::vector<BlockId> cached;  // Oldest first.
  std::map<BlockId, int> references;
  std::map<BlockId, BlockKey> keys;

  explicit NaivePool(int blocks) {
    for (int i = blocks - 1; i >= 0; --i) free.push_back(i);
  }
  std::optional<BlockId> Allocate() {
    BlockId block;
    if (!free.empty()) {
      block = free.back();
      free.pop_back();
    } else if (!cached.empty()) {
      block = cached.front();
      cached.erase(cached.begin());
      keys.erase(block);
    } else {
      return std::nullopt;
    }
    references[block] = 1;
    return block;
  }
  std::optional<BlockId> Find(const BlockKey& key) const {
    for (const auto& [block, known] : keys) {
      if (known == key) return block;
    }
    return std::nullopt;
  }
  void Reference(BlockId block) {
    std::erase(cached, block);
    ++references[block];
  }
  void Release(const std::vector<BlockId>& blocks) {
    for (size_t i = blocks.size(); i-- > 0;) {
      if (--references[blocks[i]] > 0) continue;
      references.erase(blocks[i]);
      (keys.contains(blocks[i]) ? cached : free).push_back(blocks[i]);
    }
  }
  bool Publish(BlockId block, const BlockKey& key) {
    if (const auto found = Find(key)) return *found == block;
    keys[block] = key;
    return true;
  }
};

TEST(BlockPoolTest, AgreesWithANaiveTwinUnderRandomOperations) {
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    const int blocks = static_cast<int>(random.Between(1, 12));
    const int names = static_cast<int>(random.Between(1, 20));
    BlockPool pool(blocks);
    NaivePool naive(blocks);
    std::vector<std::vector<BlockId>> held;
    for (int step = 0; step < 300; ++step) {
      const int64_t choice = random.Between(0, 4);
      if (choice == 0) {
        const auto block = pool.Allocate();
        ASSERT_EQ(block, naive.Allocate());
        if (block && (held.empty() || random.Chance(0.4))) held.emplace_back();
        if (block) held[random.Next64() % held.size()].push_back(*block);
      } else if (choice == 1 && !held.empty()) {
        const size_t chosen = random.Next64() % held.size();
        pool.Release(held[chosen]);
        naive.Release(held[chosen]);
        held.erase(held.begin() + static_cast<int64_t>(chosen));
      } else if (choice == 2 && !held.empty()) {
        const auto& chain = held[random.Next64() % held.size()];
        if (chain.empty()) continue;
        const BlockId block = chain[random.Next64() % chain.size()];
        const BlockKey key = KeyOf(static_cast<int>(random.Between(1, names)));
        if (naive.keys.contains(block) && naive.keys.at(block) != key) continue;
        ASSERT_EQ(pool.Publish(block, key), naive.Publish(block, key));
      } else if (choice >= 3) {
        const BlockKey key = KeyOf(static_cast<int>(random.Between(1, names)));
        const auto block = pool.Find(key);
        ASSERT_EQ(block, naive.Find(key));
        if (!block || choice == 3) continue;
        pool.Reference(*block);
        naive.Reference(*block);
        held.push_back({*block});
      }
      ASSERT_EQ(pool.free(), static_cast<int64_t>(naive.free.size()));
      ASSERT_EQ(pool.cached(), static_cast<int64_t>(naive.cached.size()));
      ASSERT_EQ(pool.referenced(), static_cast<int64_t>(naive.references.size()));
      pool.Verify();
    }
    for (const auto& chain : held) pool.Release(chain);
    EXPECT_EQ(pool.available(), blocks);
  }
}

}  // namespace
}  // namespace divisi
