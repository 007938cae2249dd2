#include "divisi/plan/migration.h"

#include <gtest/gtest.h>

#include "divisi/plan/flow.h"

namespace divisi {
namespace {

// 32 sequences of Qwen3-8B on an H20, 8704 tokens each.
GrowingState Example() {
  return GrowingState::Of({.batch = 32,
                           .context = 8704,
                           .step = Seconds(0.027444736),
                           .state_per_token = Bytes(144 << 10)});
}

TEST(MigrationTest, TheCopyCatchesUpWithAStateThatGrows) {
  const GrowingState state = Example();
  EXPECT_EQ(state.bytes.value, 41070624768);
  EXPECT_NEAR(state.growth.value, 0.17193067552189242e9, 1e-3);
  EXPECT_NEAR(state.CatchUp(BytesPerSecond(25e9)).value, 1.6542013086578697, 1e-9);
  EXPECT_NEAR(state.CatchUp(BytesPerSecond(6.25e9)).value, 6.757182680131165, 1e-9);
  EXPECT_NEAR(state.AddedMeanwhile(BytesPerSecond(25e9)).value, 284407948.44674605, 1);
}

TEST(MigrationTest, WhatIsCopiedIsTheStateAndWhatWasAdded) {
  const GrowingState state = Example();
  const BytesPerSecond link(6.25e9);
  EXPECT_NEAR(Flowed(link, state.CatchUp(link)).value,
              (state.bytes + state.AddedMeanwhile(link)).value, 2);
}

TEST(MigrationTest, ALinkNoFasterThanGrowthNeverCatchesUp) {
  const GrowingState state{Bytes(1000), BytesPerSecond(10)};
  EXPECT_EQ(state.CatchUp(BytesPerSecond(10)), kNever);
  EXPECT_EQ(state.CatchUp(BytesPerSecond(0)), kNever);
  EXPECT_EQ(state.AddedMeanwhile(BytesPerSecond(10)).value, INT64_MAX);
  EXPECT_EQ((GrowingState{Bytes(0), BytesPerSecond(10)}).CatchUp(BytesPerSecond(0)), Seconds(0));
}

TEST(MigrationTest, PreparationBoundsAResharding) {
  const Resharding tp4_to_tp8{Bytes(16400000000), Seconds(9)};
  EXPECT_NEAR(tp4_to_tp8.Total(BytesPerSecond(6.25e9)).value, 11.6, 0.05);
  EXPECT_NEAR(tp4_to_tp8.Total(BytesPerSecond(25e9)).value, 9.7, 0.05);
  const Resharding busiest_card{Bytes(4700000000), Seconds(9)};
  EXPECT_NEAR(busiest_card.Transfer(BytesPerSecond(300e9)).value, 0.0157, 5e-5);
  EXPECT_NEAR(busiest_card.Total(BytesPerSecond(300e9)).value, 9.0, 0.05);
}

}  // namespace
}  // namespace divisi
