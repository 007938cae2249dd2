#include "divisi/engine/scheduler.h"

#include <gtest/gtest.h>

#include <map>

#include "divisi/sim/sim_executor.h"

namespace divisi {
namespace {

using Kind = SchedulerEvent::Kind;

std::vector<TokenId> Prompt(int64_t tokens, TokenId first = 1) {
  std::vector<TokenId> prompt;
  for (int64_t i = 0; i < tokens; ++i) prompt.push_back(first + static_cast<TokenId>(i));
  return prompt;
}

Request RequestOf(RequestId id, std::vector<TokenId> prompt, int64_t max_tokens) {
  Request request;
  request.id = id;
  request.prompt = std::move(prompt);
  request.max_tokens = max_tokens;
  return request;
}

// A scheduler, its executor, and what the requests got from them.
struct Bench {
  explicit Bench(SchedulerOptions options)
      : scheduler(options), executor({.blocks = options.blocks}) {}

  void Add(Request request) {
    const auto added = scheduler.Add(std::move(request));
    ASSERT_TRUE(added.ok()) << added.error().message;
  }
  // The slices of the step, as request -> tokens.
  std::map<RequestId, int64_t> Step() {
    std::map<RequestId, int64_t> ran;
    const StepPlan& plan = scheduler.Plan();
    for (const StepSlice& slice : plan.slices) ran[slice.sequence->request.id] = slice.count;
    for (SchedulerEvent& event : scheduler.Commit(executor.Execute(plan))) {
      if (event.kind == Kind::kToken) tokens[event.request].push_back(event.token.token);
      if (event.kind == Kind::kScheduled) cached[event.request] = event.cached_tokens;
      if (event.kind == Kind::kPreempted) preempted.push_back(event.request);
      if (event.kind == Kind::kFinished) finished[event.request] = event.reason;
      for (const SampledToken& score : event.prompt_scores) {
        scores[event.request].push_back(score.token);
      }
    }
    scheduler.Verify();
    EXPECT_EQ(executor.first_fault(), "");
    return ran;
  }
  void Finish() {
    for (int steps = 0; scheduler.HasWork(); ++steps) {
      ASSERT_LT(steps, 10000);
      Step();
    }
  }

  Scheduler scheduler;
  SimExecutor executor;
  std::map<RequestId, std::vector<TokenId>> tokens;
  std::map<RequestId, std::vector<TokenId>> scores;
  std::map<RequestId, int64_t> cached;
  std::vector<RequestId> preempted;
  std::map<RequestId, FinishReason> finished;
};

using Ran = std::map<RequestId, int64_t>;

TEST(SchedulerTest, RefusesWhatCouldNeverRun) {
  Scheduler scheduler({.max_model_len = 100, .max_waiting = 2, .blocks = 4});
  EXPECT_EQ(scheduler.Add(RequestOf(1, {}, 1)).error().code, Code::kInvalidArgument);
  EXPECT_EQ(scheduler.Add(RequestOf(1, {1}, -1)).error().code, Code::kInvalidArgument);
  // The pool of 64 tokens is the tighter limit; the last one is the output's.
  EXPECT_EQ(scheduler.Add(RequestOf(1, Prompt(64), 1)).error().code, Code::kOutOfRange);
  EXPECT_EQ(scheduler.Add(RequestOf(1, Prompt(65), 0)).error().code, Code::kOutOfRange);
  EXPECT_TRUE(scheduler.Add(RequestOf(1, Prompt(63), 1)).ok());
  EXPECT_EQ(scheduler.Add(RequestOf(1, {1}, 1)).error().code, Code::kInvalidArgument);
  EXPECT_TRUE(scheduler.Add(RequestOf(2, {1}, 1)).ok());
  EXPECT_EQ(scheduler.Add(RequestOf(3, {1}, 1)).error().code, Code::kResourceExhausted);
}

TEST(SchedulerTest, WithoutOutputAPromptMayFillTheContext) {
  Bench bench({.max_batched_tokens = 40, .max_model_len = 100, .blocks = 4});
  Request request = RequestOf(1, Prompt(64), 0);
  request.prompt_logprobs = 0;
  bench.Add(std::move(request));
  bench.Finish();
  EXPECT_EQ(bench.finished.at(1), FinishReason::kLength);
  EXPECT_FALSE(bench.tokens.contains(1));
  EXPECT_EQ(bench.scores.at(1).size(), 63u);
  EXPECT_EQ(bench.scheduler.stats().blocks_used, 0);
}

TEST(SchedulerTest, DecodesGoFirstAndPrefillFillsTheBudget) {
  Bench bench({.max_batched_tokens = 40, .max_model_len = 200, .blocks = 64});
  bench.Add(RequestOf(1, Prompt(8, 1000), 10));
  EXPECT_EQ(bench.Step(), (Ran{{1, 8}}));
  bench.Add(RequestOf(2, Prompt(90, 2000), 10));
  EXPECT_EQ(bench.Step(), (Ran{{1, 1}, {2, 32}}));  // 39 left, cut to whole pages.
  EXPECT_EQ(bench.Step(), (Ran{{1, 1}, {2, 32}}));
  EXPECT_EQ(bench.Step(), (Ran{{1, 1}, {2, 26}}));
  EXPECT_EQ(bench.Step(), (Ran{{1, 1}, {2, 1}}));
  bench.Finish();
  EXPECT_EQ(bench.tokens[1].size(), 10u);
  EXPECT_EQ(bench.tokens[2].size(), 10u);
}

TEST(SchedulerTest, ALongPromptLeavesRoomForShortOnes) {
  Bench bench({.max_batched_tokens = 64, .max_model_len = 1000, .blocks = 64});
  bench.Add(RequestOf(1, Prompt(400, 1000), 1));
  bench.Add(RequestOf(2, Prompt(300, 2000), 1));  // Long too: waits for the first.
  bench.Add(RequestOf(3, Prompt(10, 3000), 1));
  EXPECT_EQ(bench.Step(), (Ran{{1, 48}, {3, 10}}));
  bench.Add(RequestOf(4, Prompt(16, 4000), 1));
  EXPECT_EQ(bench.Step(), (Ran{{1, 48}, {4, 16}}));
  bench.Finish();
  EXPECT_EQ(bench.finished.size(), 4u);
}

TEST(SchedulerTest, WhatNoShortPromptTakesGoesToTheLongOne) {
  Bench bench({.max_batched_tokens = 64, .max_model_len = 1000, .blocks = 64});
  bench.Add(RequestOf(1, Prompt(150, 1000), 1));
  bench.Add(RequestOf(2, Prompt(300, 2000), 1));
  EXPECT_EQ(bench.Step(), (Ran{{1, 64}}));
  bench.Add(RequestOf(3, Prompt(10, 3000), 1));
  EXPECT_EQ(bench.Step(), (Ran{{1, 48}, {3, 10}}));
  EXPECT_EQ(bench.Step(), (Ran{{1, 38}, {2, 16}}));
  bench.Finish();
  EXPECT_EQ(bench.finished.size(), 3u);
}

TEST(SchedulerTest, EndsAtStopTokensMaxTokensAndTheContext) {
  Bench bench({.max_model_len = 40, .blocks = 16});
  bench.Add(RequestOf(1, Prompt(5), 3));
  bench.Add(RequestOf(2, Prompt(5, 500), 1000));
  bench.Finish();
  EXPECT_EQ(bench.tokens[1].size(), 3u);
  EXPECT_EQ(bench.finished[1], FinishReason::kLength);
  EXPECT_EQ(bench.tokens[2].size(), 35u);
  EXPECT_EQ(bench.finished[2], FinishReason::kLength);
  Request again = RequestOf(3, Prompt(5), 100);
  again.stop_token_ids = {bench.tokens[1][2]};
  bench.Add(again);
  bench.Finish();
  EXPECT_EQ(bench.tokens[3], bench.tokens[1]);
  EXPECT_EQ(bench.finished[3], FinishReason::kStop);
}

TEST(SchedulerTest, SharesPagesButComputesTheLastToken) {
  Bench bench({.max_model_len = 200, .blocks = 32});
  bench.Add(RequestOf(1, Prompt(48), 1));
  bench.Finish();
  bench.Add(RequestOf(2, Prompt(48), 1));  // Three full pages, of which the last must be computed.
  EXPECT_EQ(bench.Step(), (Ran{{2, 16}}));
  bench.Add(RequestOf(3, Prompt(49), 1));
  EXPECT_EQ(bench.Step(), (Ran{{3, 1}}));
  EXPECT_EQ(bench.cached[1], 0);
  EXPECT_EQ(bench.cached[2], 32);
  EXPECT_EQ(bench.cached[3], 48);
  EXPECT_EQ(bench.tokens[1], bench.tokens[2]);
  EXPECT_EQ(bench.scheduler.stats().prefix_queried_tokens, 48 + 48 + 49);
  EXPECT_EQ(bench.scheduler.stats().prefix_hit_tokens, 32 + 48);
}

TEST(SchedulerTest, OutputPagesAreSharedToo) {
  Bench bench({.max_model_len = 200, .blocks = 32});
  bench.Add(RequestOf(1, Prompt(20), 30));
  bench.Finish();
  std::vector<TokenId> next_turn = Prompt(20);
  next_turn.insert(next_turn.end(), bench.tokens[1].begin(), bench.tokens[1].end());
  bench.Add(RequestOf(2, next_turn, 1));
  bench.Finish();
  EXPECT_EQ(bench.cached[2], 48);  // 49 of 50 tokens were computed.
}

TEST(SchedulerTest, EqualPromptsAtOnceAreComputedOnce) {
  Bench bench({.max_model_len = 200, .blocks = 64});
  for (RequestId id = 1; id <= 4; ++id) {
    Request request = RequestOf(id, Prompt(50), 4);
    request.sampling.seed = id;
    bench.Add(std::move(request));
  }
  EXPECT_EQ(bench.Step(), (Ran{{1, 50}}));
  EXPECT_EQ(bench.Step(), (Ran{{1, 1}, {2, 2}, {3, 2}, {4, 2}}));
  bench.Finish();
  EXPECT_EQ(bench.finished.size(), 4u);
}

TEST(SchedulerTest, AHoldEndsWhenTheOtherIsCancelled) {
  Bench bench({.max_batched_tokens = 32, .max_model_len = 200, .blocks = 64});
  bench.Add(RequestOf(1, Prompt(100), 1));
  bench.Add(RequestOf(2, Prompt(100), 1));
  EXPECT_EQ(bench.Step(), (Ran{{1, 32}}));
  EXPECT_TRUE(bench.scheduler.Cancel(1));
  EXPECT_FALSE(bench.scheduler.Cancel(1));
  EXPECT_EQ(bench.Step(), (Ran{{2, 32}}));
  EXPECT_EQ(bench.cached[2], 32);
  bench.Finish();
}

TEST(SchedulerTest, PromptScoresForbidSharing) {
  Bench bench({.max_batched_tokens = 20, .max_model_len = 200, .blocks = 32});
  bench.Add(RequestOf(1, Prompt(48), 1));
  bench.Finish();
  Request request = RequestOf(2, Prompt(48), 2);
  request.prompt_logprobs = 0;
  bench.Add(std::move(request));
  bench.Finish();
  EXPECT_EQ(bench.cached[2], 0);
  EXPECT_EQ(bench.scores[2], Prompt(47, 2));
}

TEST(SchedulerTest, PreemptsTheYoungestAndLosesNoToken) {
  Bench bench({.max_model_len = 64, .blocks = 4, .share_prefixes = false});
  bench.Add(RequestOf(1, Prompt(16, 100), 33));
  Request scored = RequestOf(2, Prompt(14, 200), 33);
  scored.prompt_logprobs = 0;
  bench.Add(std::move(scored));
  bench.Finish();
  EXPECT_EQ(bench.preempted, (std::vector<RequestId>{2}));
  EXPECT_EQ(bench.tokens[1].size(), 33u);
  EXPECT_EQ(bench.tokens[2].size(), 33u);
  EXPECT_EQ(bench.scores[2], Prompt(13, 201));
  Bench alone({.max_model_len = 64, .blocks = 4});
  alone.Add(RequestOf(2, Prompt(14, 200), 33));
  alone.Finish();
  EXPECT_EQ(bench.tokens[2], alone.tokens[2]);
}

TEST(SchedulerTest, AFreshRequestWaitsUntilItsPagesFitBesideTheRunningOnes) {
  Bench bench({.max_model_len = 200, .blocks = 5, .share_prefixes = false});
  bench.Add(RequestOf(1, Prompt(30, 100), 10));  // Two pages now, a third soon.
  bench.Step();
  bench.Add(RequestOf(2, Prompt(40, 200), 1));  // Three pages: none is left for the first's growth.
  EXPECT_EQ(bench.Step(), (Ran{{1, 1}}));
  bench.Finish();
  EXPECT_TRUE(bench.preempted.empty());
}

TEST(SchedulerTest, PagesOwedToThePrefillUnderWayAreNotGivenAway) {
  Bench bench({.max_batched_tokens = 40, .max_model_len = 120, .blocks = 8});
  bench.Add(RequestOf(1, Prompt(100, 1000), 10));  // Seven pages.
  bench.Add(RequestOf(2, Prompt(10, 2000), 10));   // One, and with a reserve of one, too many.
  EXPECT_EQ(bench.Step(), (Ran{{1, 32}}));
  EXPECT_EQ(bench.Step(), (Ran{{1, 32}}));
  bench.Finish();
  EXPECT_TRUE(bench.preempted.empty());
}

TEST(SchedulerTest, CancelDuringAStepFreesPagesAtCommit) {
  Bench bench({.max_model_len = 200, .blocks = 8});
  bench.Add(RequestOf(1, Prompt(40), 10));
  const StepPlan& plan = bench.scheduler.Plan();
  EXPECT_TRUE(bench.scheduler.Cancel(1));
  EXPECT_FALSE(bench.scheduler.Cancel(1));
  EXPECT_EQ(bench.scheduler.stats().blocks_used, 3);
  bench.Add(RequestOf(1, Prompt(3, 500), 1));  // The id is free again.
  EXPECT_TRUE(bench.scheduler.Commit(bench.executor.Execute(plan)).empty());
  EXPECT_EQ(bench.scheduler.stats().blocks_used, 0);
  EXPECT_EQ(bench.scheduler.stats().blocks_cached, 2);  // What it computed stays useful.
  bench.Finish();
  EXPECT_EQ(bench.tokens[1].size(), 1u);
}

TEST(SchedulerTest, CancelOfAWaitingRequestIsImmediate) {
  Bench bench({.max_sequences = 1, .max_model_len = 200, .max_waiting = 1, .blocks = 8});
  bench.Add(RequestOf(1, Prompt(4), 3));
  bench.Step();
  bench.Add(RequestOf(2, Prompt(4), 3));
  EXPECT_TRUE(bench.scheduler.Cancel(2));
  bench.Add(RequestOf(3, Prompt(4), 3));
  bench.Finish();
  EXPECT_FALSE(bench.finished.contains(2));
  EXPECT_TRUE(bench.finished.contains(3));
}

}  // namespace
}  // namespace divisi
