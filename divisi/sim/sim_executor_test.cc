#include "divisi/sim/sim_executor.h"

#include <gtest/gtest.h>

#include <numeric>

#include "divisi/kv/layer_gate.h"

namespace divisi {
namespace {

Sequence SequenceOf(RequestId id, size_t tokens) {
  Sequence sequence;
  sequence.request.id = id;
  sequence.request.prompt.resize(tokens);
  std::iota(sequence.request.prompt.begin(), sequence.request.prompt.end(), 1);
  sequence.tokens = sequence.request.prompt;
  return sequence;
}

TokenId RunWhole(SimExecutor& executor, const Sequence& sequence, std::vector<BlockId> blocks) {
  const int64_t size = static_cast<int64_t>(sequence.tokens.size());
  StepPlan plan;
  plan.slices = {{.sequence = &sequence, .count = size, .blocks = blocks, .sample = true}};
  plan.tokens = size;
  return executor.Execute(plan)[0].sampled->token;
}

TEST(SimExecutorTest, ChunksAndPlacesDoNotChangeTheToken) {
  SimExecutor executor({.blocks = 8});
  Sequence sequence = SequenceOf(1, 40);
  const TokenId token = RunWhole(executor, sequence, {0, 1, 2});
  const std::vector<BlockId> blocks = {7, 3, 5};
  StepPlan plan;
  plan.slices = {{.sequence = &sequence, .count = 25, .blocks = std::span(blocks).first(2)}};
  plan.tokens = 25;
  executor.Execute(plan);
  sequence.computed = 25;
  plan.slices = {
      {.sequence = &sequence, .start = 25, .count = 15, .blocks = blocks, .sample = true}};
  plan.tokens = 15;
  EXPECT_EQ(executor.Execute(plan)[0].sampled->token, token);
  EXPECT_EQ(executor.first_fault(), "");
}

TEST(SimExecutorTest, AWrongPageShows) {
  SimExecutor executor({.blocks = 8});
  Sequence sequence = SequenceOf(1, 33);
  const TokenId token = RunWhole(executor, sequence, {0, 1, 2});
  Sequence other = SequenceOf(2, 33);
  other.tokens[3] = 99;
  RunWhole(executor, other, {3, 4, 5});
  EXPECT_EQ(executor.first_fault(), "");
  sequence.computed = 32;
  StepPlan plan;
  plan.tokens = 1;
  const std::vector<BlockId> foreign = {0, 4, 2};  // The other's page of the same positions.
  plan.slices = {
      {.sequence = &sequence, .start = 32, .count = 1, .blocks = foreign, .sample = true}};
  EXPECT_NE(executor.Execute(plan)[0].sampled->token, token);
  const std::vector<BlockId> unwritten = {0, 6, 2};
  plan.slices[0].blocks = unwritten;
  executor.Execute(plan);
  EXPECT_EQ(executor.first_fault(), "request 1: position 31 is read where -1 was written");
}

TEST(SimExecutorTest, ReportsAPageWrittenForOneAndHeldByAnother) {
  SimExecutor executor({.blocks = 4});
  const Sequence a = SequenceOf(1, 5);
  const Sequence b = SequenceOf(2, 5);
  const std::vector<BlockId> blocks = {2};
  StepPlan plan;
  plan.slices = {{.sequence = &a, .count = 5, .blocks = blocks, .sample = true},
                 {.sequence = &b, .count = 5, .blocks = blocks, .sample = true}};
  plan.tokens = 10;
  executor.Execute(plan);
  EXPECT_EQ(executor.first_fault(), "block 2 is written for request 2 and held by request 1");
}

TEST(SimExecutorTest, ASliceIsLostWhoseGateIsNotOpenInFull) {
  SimExecutor executor({.blocks = 8, .layers = 2});
  Sequence sequence = SequenceOf(1, 33);
  const TokenId token = RunWhole(executor, sequence, {0, 1, 2});
  sequence.computed = 32;
  const std::vector<BlockId> blocks = {0, 1, 2};
  LayerGate gate;
  StepPlan plan;
  plan.tokens = 1;
  plan.slices = {{.sequence = &sequence,
                  .start = 32,
                  .count = 1,
                  .blocks = blocks,
                  .sample = true,
                  .gate = &gate}};
  gate.Open(1);
  EXPECT_FALSE(executor.GatesAreDecided(plan));
  EXPECT_TRUE(executor.Execute(plan)[0].lost);
  LayerGate failed;
  failed.Open(1);
  failed.Fail();
  plan.slices[0].gate = &failed;
  EXPECT_TRUE(executor.GatesAreDecided(plan));
  const SliceResult lost = executor.Execute(plan)[0];
  EXPECT_TRUE(lost.lost);
  EXPECT_FALSE(lost.sampled);
  gate.Open(2);
  gate.Fail();  // What is open stays so.
  plan.slices[0].gate = &gate;
  EXPECT_TRUE(executor.GatesAreDecided(plan));
  const SliceResult result = executor.Execute(plan)[0];
  EXPECT_FALSE(result.lost);
  EXPECT_EQ(result.sampled->token, token);
  EXPECT_EQ(executor.first_fault(), "");
}

TEST(SimExecutorTest, TakesModelledTime) {
  ManualClock clock;
  SimExecutor executor({.blocks = 4,
                        .rates = {.step = Seconds(1),
                                  .per_token = Seconds(0.1),
                                  .per_context_token = Seconds(0.01)}},
                       &clock);
  RunWhole(executor, SequenceOf(1, 10), {0});
  EXPECT_DOUBLE_EQ(clock.Now().value, 1 + 1 + 0.1);
  EXPECT_DOUBLE_EQ(executor.busy().value, clock.Now().value);
}

}  // namespace
}  // namespace divisi
