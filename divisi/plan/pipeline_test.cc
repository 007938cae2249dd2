#include "divisi/plan/pipeline.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "divisi/core/random.h"

namespace divisi {
namespace {

// Section 9.3.4: attention 2 ms, experts 3 ms, four micro-batches.
const Pipeline kAttentionAndExperts{.stages = {Seconds(2e-3), Seconds(3e-3)}, .micro_batches = 4};

// When the last of `count` micro-batches leaves, by following each through each stage.
Seconds Followed(const Pipeline& pipeline) {
  std::vector<Seconds> free_at(pipeline.stages.size());
  for (int i = 0; i < static_cast<int>(pipeline.micro_batches); ++i) {
    Seconds now;
    for (size_t stage = 0; stage < free_at.size(); ++stage) {
      now = std::max(now, free_at[stage]) + pipeline.stages[stage];
      free_at[stage] = now;
    }
  }
  return free_at.back();
}

TEST(PipelineTest, FourMicroBatchesOverTwoStages) {
  EXPECT_NEAR(kAttentionAndExperts.Serial().value, 20e-3, 1e-15);
  EXPECT_NEAR(kAttentionAndExperts.Overlapped().value, 14e-3, 1e-15);
}

TEST(PipelineTest, ToleratesWhatEatsTheGain) {
  EXPECT_NEAR(ToleratedSlowdown(kAttentionAndExperts, {true, false}), 2.125, 1e-12);
  EXPECT_NEAR(ToleratedSlowdown(kAttentionAndExperts, {false, true}), 1.5, 1e-12);
}

TEST(PipelineTest, FormulaAgreesWithFollowingEachMicroBatch) {
  Random random(4);
  for (int round = 0; round < 200; ++round) {
    Pipeline pipeline{.micro_batches = static_cast<double>(random.Between(1, 9))};
    for (int64_t stages = random.Between(1, 5); stages > 0; --stages) {
      pipeline.stages.push_back(Seconds(random.Exponential(1e-3)));
    }
    EXPECT_NEAR(pipeline.Overlapped().value, Followed(pipeline).value, 1e-12);
    std::vector<bool> slowed(pipeline.stages.size());
    for (size_t i = 0; i < slowed.size(); ++i) slowed[i] = random.Chance(0.5);
    const double factor = ToleratedSlowdown(pipeline, slowed);
    if (!std::isfinite(factor)) continue;
    EXPECT_GE(factor, 1 - 1e-12);
    Pipeline slow = pipeline;
    for (size_t i = 0; i < slowed.size(); ++i) {
      if (slowed[i]) slow.stages[i] = slow.stages[i] * factor;
    }
    EXPECT_NEAR(slow.Overlapped().value, pipeline.Serial().value, 1e-12);
  }
}

TEST(PipelineTest, NothingToGainNothingToLose) {
  const Pipeline one{.stages = {Seconds(1), Seconds(2)}, .micro_batches = 1};
  EXPECT_NEAR(ToleratedSlowdown(one, {true, true}), 1, 1e-12);
  const Pipeline idle{.stages = {Seconds(0), Seconds(2)}, .micro_batches = 2};
  EXPECT_EQ(ToleratedSlowdown(idle, {true, false}), HUGE_VAL);
}

TEST(PipelineTest, RefusesWhatIsNoPipeline) {
  EXPECT_TRUE(CheckPipeline(kAttentionAndExperts));
  EXPECT_FALSE(CheckPipeline({.stages = {}, .micro_batches = 2}));
  EXPECT_FALSE(CheckPipeline({.stages = {Seconds(0)}, .micro_batches = 2}));
  EXPECT_FALSE(CheckPipeline({.stages = {Seconds(-1), Seconds(2)}, .micro_batches = 2}));
  EXPECT_FALSE(CheckPipeline({.stages = {Seconds(1)}, .micro_batches = 0}));
  EXPECT_FALSE(CheckPipeline({.stages = {Seconds(1)}, .micro_batches = 1.5}));
  EXPECT_FALSE(CheckPipeline({.stages = {Seconds(std::nan(""))}, .micro_batches = 1}));
}

}  // namespace
}  // namespace divisi
