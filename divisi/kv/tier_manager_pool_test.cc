// What TierManager puts into the remote pool, and what not.
#include <gtest/gtest.h>

#include <algorithm>

#include "divisi/kv/tier_manager_fixture.h"

namespace divisi {
namespace {

TEST(TierManagerPoolTest, APoolGetsEachSavedPageOnce) {
  TierOptions options = Sizes(4, 0);
  options.pool = true;
  Driver driver(options);
  driver.Serve(Chain(1, 3));
  driver.CarryOut();
  driver.Serve(Chain(1, 3));
  driver.CarryOut();
  EXPECT_EQ(driver.Copies(Tier::kRemote), 3);
  EXPECT_EQ(driver.tiers.stats().pool_puts, 3);
}

// A prompt's pages become complete at once: the pool gets all of them, a few at a time.
TEST(TierManagerPoolTest, PagesWaitForThePoolInTheirOrder) {
  TierOptions options = Sizes(100, 0);
  options.pool = true;
  options.most_pool_moves = 3;
  Driver driver(options);
  const auto chain = Chain(1, 50);
  driver.Start(chain);
  std::vector<BlockKey> put;
  for (auto actions = driver.tiers.TakeActions(); !actions.empty();
       actions = driver.tiers.TakeActions()) {
    EXPECT_LE(std::ranges::count(actions, Tier::kRemote, &TierAction::to), 3);
    for (const TierAction& action : actions) {
      if (action.to == Tier::kRemote) put.push_back(action.page.key);
      driver.tiers.Done(action.id, true, Seconds(0));
      driver.tiers.Verify();
    }
  }
  EXPECT_EQ(put, chain);
}

// Host memory goes on while puts don't end, and what it gives up is not put any more.
TEST(TierManagerPoolTest, APoolThatHangsHoldsAFewPagesOnly) {
  TierOptions options = Sizes(8, 0);
  options.pool = true;
  options.most_pool_moves = 2;
  options.most_pool_waiting = 5;
  Driver driver(options);
  std::vector<uint64_t> hanging;
  for (int64_t first = 1; first < 1000; first += 4) {
    driver.tiers.Used(Chain(first, 4));
    for (size_t i = 0; i < 4; ++i) driver.tiers.Complete(NameOf(Chain(first, 4), i), 0, Seconds(0));
    for (const TierAction& action : driver.tiers.TakeActions()) {
      if (action.kind != TierAction::Kind::kCopy) continue;
      if (action.to == Tier::kRemote) {
        hanging.push_back(action.id);
      } else {
        driver.tiers.Done(action.id, true, Seconds(0));
      }
    }
    driver.tiers.Verify();
    EXPECT_EQ(driver.tiers.Find(Chain(first, 4), 0).size(), 4);
  }
  EXPECT_EQ(hanging.size(), 2);
  EXPECT_EQ(driver.tiers.stats().pool_waiting, 5);
  EXPECT_EQ(driver.tiers.stats().saves_refused, 0);
  driver.tiers.TakeActions();
  for (const uint64_t id : hanging) driver.tiers.Done(id, true, Seconds(0));
  driver.CarryOut();
  const TierStats stats = driver.tiers.stats();
  EXPECT_EQ(stats.pool_waiting, 0);
  EXPECT_EQ(stats.pool_puts + stats.pool_puts_dropped, 1000);
}

TEST(TierManagerPoolTest, WithoutHostMemoryPagesGoToThePoolFromTheDevice) {
  TierOptions options = Sizes(0, 0);
  options.pool = true;
  options.most_pool_pins = 2;
  Driver driver(options);
  const auto chain = Chain(1, 10);
  driver.Start(chain);
  driver.Start(chain);
  const auto actions = driver.tiers.TakeActions();
  ASSERT_EQ(actions.size(), 2);
  for (const TierAction& action : actions) {
    EXPECT_EQ(action.from, Tier::kDevice);
    EXPECT_EQ(action.to, Tier::kRemote);
    driver.tiers.Done(action.id, false, Seconds(0));
  }
  driver.CarryOut();
  EXPECT_EQ(driver.tiers.stats().pool_puts, 8);
  EXPECT_EQ(driver.tiers.stats().pool_puts_failed, 2);
  EXPECT_EQ(driver.tiers.stats().saves_refused, 0);
  driver.Start(chain);  // Those that failed are put, the others are there.
  driver.CarryOut();
  EXPECT_EQ(driver.tiers.stats().pool_puts, 10);
}

TEST(TierManagerPoolTest, WhatThePoolHasIsNotPutAndWhatItLostIsPutAgain) {
  TierOptions options = Sizes(0, 0);
  options.pool = true;
  Driver driver(options);
  const auto chain = Chain(1, 3);
  for (const BlockKey& key : chain) driver.tiers.PoolHas(key, true);
  driver.Start(chain);
  EXPECT_TRUE(driver.tiers.TakeActions().empty());
  driver.tiers.PoolHas(chain[0], false);
  driver.tiers.Bad(chain[1], Tier::kRemote);
  EXPECT_TRUE(driver.tiers.Quarantined(chain[1], Tier::kRemote));
  driver.Start(chain);
  driver.CarryOut();
  EXPECT_EQ(driver.tiers.stats().pool_puts, 2);
  EXPECT_FALSE(driver.tiers.Quarantined(chain[1], Tier::kRemote));
}

TEST(TierManagerPoolTest, WhatLostACopyInThePoolIsPutOnceMore) {
  for (const int64_t host : {0, 8}) {
    TierOptions options = Sizes(host, 0);
    options.pool = true;
    Driver driver(options);
    const auto chain = Chain(1, 3);
    for (const BlockKey& key : chain) driver.tiers.PoolHas(key, true);
    driver.tiers.PoolLostCopy(chain[1]);
    driver.Start(chain);
    driver.CarryOut();
    EXPECT_EQ(driver.tiers.stats().pool_puts, 1);
    driver.Start(chain);
    driver.CarryOut();
    EXPECT_EQ(driver.tiers.stats().pool_puts, 1);
    EXPECT_TRUE(driver.tiers.PoolHas(chain[1]));
  }
}

}  // namespace
}  // namespace divisi
