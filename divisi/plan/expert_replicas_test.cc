#include "divisi/plan/expert_replicas.h"

#include <gtest/gtest.h>

namespace divisi {
namespace {

constexpr ExpertShape kExpert{.hidden = 4096, .width = 1536};

// Example 9.6: eight hot experts of 128 rows on one card of an HGX H100, seven of them copied.
ReplicaPlan Example(double link_gbytes = 450) {
  return {.shape = kExpert,
          .card = {FlopsPerSecond(494.7e12), BytesPerSecond(1675e9)},
          .link = {BytesPerSecond(link_gbytes * 1e9), Seconds(5e-6)},
          .hot_experts = 8,
          .rows = 128,
          .copies = 7,
          .receivers = 7,
          .room = Bytes(64 << 20)};
}

TEST(ExpertReplicasTest, TrafficOfTiles) {
  EXPECT_EQ(8 * ExpertTraffic(kExpert, {}, 128)->value, 920649728);
  EXPECT_EQ(ExpertTraffic(kExpert, {}, 0)->value, 0);
  // One row more reads all weights again.
  EXPECT_GT(ExpertTraffic(kExpert, {}, 65)->value - ExpertTraffic(kExpert, {}, 64)->value,
            kExpert.Weights().value);
}

TEST(ExpertReplicasTest, CopiesInsideAServerPayBackAtOnce) {
  const auto outcome = WeighReplicas(Example());
  ASSERT_TRUE(outcome);
  EXPECT_EQ((outcome->before.bytes - outcome->after.bytes).value, 402784256);
  EXPECT_NEAR(outcome->saving.value, 402784256 / 1675e9, 1e-15);
  EXPECT_EQ(outcome->after_time.bound(), Bound::kMemory);
  EXPECT_EQ(outcome->copied.value, 252 << 20);
  EXPECT_NEAR(outcome->copy_time.value, 0.62220256e-3, 1e-15);
  EXPECT_EQ(outcome->PayBackBatches(), 3);
  EXPECT_NEAR(outcome->NetSaving(16).value, 3.225288840597015e-3, 1e-12);
}

TEST(ExpertReplicasTest, CopiesBetweenServersNeedManyBatches) {
  const auto outcome = WeighReplicas(Example(50));
  ASSERT_TRUE(outcome);
  EXPECT_EQ(outcome->PayBackBatches(), 23);
  EXPECT_LT(outcome->NetSaving(22).value, 0);
  EXPECT_GT(outcome->NetSaving(23).value, 0);
}

TEST(ExpertReplicasTest, WhatDoesNotFitNeverPaysBack) {
  ReplicaPlan plan = Example();
  plan.room = Bytes(32 << 20);
  const auto outcome = WeighReplicas(plan);
  ASSERT_TRUE(outcome);
  EXPECT_EQ(outcome->needed.value, 36 << 20);
  EXPECT_FALSE(outcome->fits);
  EXPECT_EQ(outcome->PayBackBatches(), std::nullopt);
}

TEST(ExpertReplicasTest, AllCopiesOnOneCardMakeItTheBusiest) {
  ReplicaPlan plan = Example();
  plan.copies = 8;
  plan.receivers = 1;
  plan.rows = 129;  // 64 stay, 65 go.
  plan.room = Bytes(int64_t{1} << 40);
  const auto outcome = WeighReplicas(plan);
  ASSERT_TRUE(outcome);
  EXPECT_GT(outcome->after_time.memory, outcome->after.bytes / plan.card.memory);
}

TEST(ExpertReplicasTest, NothingSavedNeverPaysBack) {
  ReplicaPlan plan = Example();
  plan.rows = 0;
  const auto outcome = WeighReplicas(plan);
  ASSERT_TRUE(outcome);
  EXPECT_EQ(outcome->PayBackBatches(), std::nullopt);
}

TEST(ExpertReplicasTest, RefusesWhatCannotBeCounted) {
  const auto refuses = [](auto change) {
    ReplicaPlan plan = Example();
    change(plan);
    return !WeighReplicas(plan);
  };
  EXPECT_TRUE(refuses([](ReplicaPlan& plan) { plan.copies = 9; }));
  EXPECT_TRUE(refuses([](ReplicaPlan& plan) { plan.receivers = 0; }));
  EXPECT_TRUE(refuses([](ReplicaPlan& plan) { plan.hot_experts = 0; }));
  EXPECT_TRUE(refuses([](ReplicaPlan& plan) { plan.rows = -1; }));
  EXPECT_TRUE(refuses([](ReplicaPlan& plan) { plan.link.bandwidth = BytesPerSecond(0); }));
  EXPECT_TRUE(refuses([](ReplicaPlan& plan) { plan.card.memory = BytesPerSecond(0); }));
  EXPECT_TRUE(refuses([](ReplicaPlan& plan) { plan.tile.rows = 0; }));
  EXPECT_TRUE(refuses([](ReplicaPlan& plan) { plan.rows = int64_t{1} << 40; }));
}

}  // namespace
}  // namespace divisi
