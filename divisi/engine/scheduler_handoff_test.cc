// The scheduler's part of a hand-off: prompts computed for another worker, and prompts that another
// worker computes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "divisi/core/random.h"
#include "divisi/engine/scheduler.h"
#include "divisi/sim/sim_executor.h"

namespace divisi {
namespace {

using Kind = SchedulerEvent::Kind;
using testing::ElementsAre;

Request Prompt(RequestId id, int64_t tokens, int64_t max_tokens = 4) {
  Request request{.id = id, .max_tokens = max_tokens};
  for (int64_t i = 0; i < tokens; ++i) request.prompt.push_back(static_cast<TokenId>(i));
  return request;
}

Request Held(RequestId id, int64_t tokens, int64_t max_tokens = 4) {
  Request request = Prompt(id, tokens, max_tokens);
  request.hold_after_prompt = true;
  return request;
}

// A scheduler and what stands for its model.
struct Worker {
  explicit Worker(SchedulerOptions options)
      : scheduler(options), executor({.blocks = options.blocks}) {}
  std::vector<SchedulerEvent> Step() {
    const StepPlan& plan = scheduler.Plan();
    if (plan.slices.empty()) return {};
    auto events = scheduler.Commit(executor.Execute(plan));
    scheduler.Verify();
    return events;
  }
  Scheduler scheduler;
  SimExecutor executor;
};

std::vector<Kind> Kinds(const std::vector<SchedulerEvent>& events) {
  std::vector<Kind> kinds;
  for (const SchedulerEvent& event : events) kinds.push_back(event.kind);
  return kinds;
}

TEST(SchedulerHandoffTest, HoldsAComputedPromptUntilItIsCancelled) {
  Worker worker({.max_batched_tokens = 32, .blocks = 10});
  ASSERT_TRUE(worker.scheduler.Add(Held(1, 40)).ok());
  auto events = worker.Step();
  EXPECT_THAT(Kinds(events), ElementsAre(Kind::kScheduled, Kind::kComputed));
  EXPECT_EQ(events[1].computed_tokens, 32);
  events = worker.Step();
  EXPECT_THAT(Kinds(events), ElementsAre(Kind::kComputed, Kind::kToken, Kind::kHeld));
  EXPECT_EQ(events[0].computed_tokens, 40);
  EXPECT_FALSE(worker.scheduler.HasWork());
  EXPECT_EQ(worker.scheduler.PagesOf(1).size(), 3);
  EXPECT_EQ(worker.scheduler.stats().held, 1);
  EXPECT_EQ(worker.scheduler.stats().blocks_used, 3);
  EXPECT_TRUE(worker.scheduler.Cancel(1));
  EXPECT_FALSE(worker.scheduler.Cancel(1));
  EXPECT_EQ(worker.scheduler.stats().blocks_used, 0);
  worker.scheduler.Verify();
}

TEST(SchedulerHandoffTest, OneOutputTokenEndsWhereItIsDrawn) {
  Worker worker({.blocks = 10});
  ASSERT_TRUE(worker.scheduler.Add(Held(1, 5, 1)).ok());
  EXPECT_THAT(Kinds(worker.Step()),
              ElementsAre(Kind::kScheduled, Kind::kComputed, Kind::kToken, Kind::kFinished));
  EXPECT_EQ(worker.scheduler.stats().blocks_used, 0);
}

TEST(SchedulerHandoffTest, AnAdoptedRequestRunsOn) {
  Worker worker({.blocks = 10});
  const Reservation reservation = worker.scheduler.Reserve(Prompt(1, 20)).value();
  EXPECT_EQ(reservation.pages.size(), 2);
  EXPECT_EQ(reservation.present, 0);
  EXPECT_FALSE(worker.scheduler.HasWork());
  worker.scheduler.Verify();
  EXPECT_TRUE(worker.scheduler.Adopt(2, {}).empty());
  EXPECT_THAT(Kinds(worker.scheduler.Adopt(1, {.token = 7})),
              ElementsAre(Kind::kScheduled, Kind::kToken));
  worker.scheduler.Verify();
  EXPECT_TRUE(worker.scheduler.Adopt(1, {.token = 7}).empty());  // Once only.
  const StepPlan& plan = worker.scheduler.Plan();
  ASSERT_EQ(plan.slices.size(), 1);
  EXPECT_EQ(plan.slices[0].start, 20);
  EXPECT_EQ(plan.slices[0].sequence->tokens.back(), 7);
}

TEST(SchedulerHandoffTest, AFirstTokenThatStopsEndsAtOnce) {
  Worker worker({.blocks = 10});
  Request request = Prompt(1, 20);
  request.stop_token_ids = {7};
  ASSERT_TRUE(worker.scheduler.Reserve(request).ok());
  const auto events = worker.scheduler.Adopt(1, {.token = 7});
  EXPECT_EQ(events.back().kind, Kind::kFinished);
  EXPECT_EQ(worker.scheduler.stats().blocks_used, 0);
  worker.scheduler.Verify();
}

TEST(SchedulerHandoffTest, PresentPagesAreNotAskedForAgain) {
  Worker worker({.blocks = 10});
  ASSERT_TRUE(worker.scheduler.Reserve(Prompt(1, 40)).ok());
  worker.scheduler.Adopt(1, {.token = 7});
  const Reservation again = worker.scheduler.Reserve(Prompt(2, 40)).value();
  EXPECT_EQ(again.present, 2);
  EXPECT_EQ(again.pages.size(), 3);
  EXPECT_EQ(worker.scheduler.stats().blocks_used, 4);
  worker.scheduler.Verify();
}

TEST(SchedulerHandoffTest, RefusesWhatHasNoRoomNow) {
  Worker worker({.max_sequences = 2, .blocks = 4});
  ASSERT_TRUE(worker.scheduler.Reserve(Prompt(1, 32)).ok());
  const auto full = worker.scheduler.Reserve(Prompt(2, 32));
  ASSERT_FALSE(full.ok());
  EXPECT_EQ(full.error().code, Code::kResourceExhausted);
  EXPECT_FALSE(worker.scheduler.Reserve(Prompt(1, 3)).ok());  // The id is in use.
  EXPECT_EQ(worker.scheduler.Reserve(Prompt(3, 1000)).error().code, Code::kOutOfRange);
  EXPECT_TRUE(worker.scheduler.Cancel(1));
  EXPECT_TRUE(worker.scheduler.Reserve(Prompt(2, 32)).ok());
}

TEST(SchedulerHandoffTest, DecodesWaitForPinnedPagesWithoutEnding) {
  Worker worker({.blocks = 3});
  ASSERT_TRUE(worker.scheduler.Add(Prompt(1, 16, 30)).ok());
  worker.Step();
  ASSERT_TRUE(worker.scheduler.Reserve(Prompt(2, 10)).ok());
  while (!worker.Step().empty()) {
  }
  // 33 tokens would need a third page; the reservation has it.
  EXPECT_TRUE(worker.scheduler.HasWork());
  EXPECT_EQ(worker.scheduler.stats().preemptions, 0);
  EXPECT_TRUE(worker.scheduler.Cancel(2));
  EXPECT_FALSE(worker.Step().empty());
}

// Both sides at random, the transfer being a copy of what the pages hold: every request's tokens
// are those of a run alone, and every page comes back.
TEST(SchedulerHandoffTest, RandomHandOffsGiveTheSameTokens) {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    const SchedulerOptions options{.max_sequences = 6,
                                   .max_batched_tokens = random.Between(5, 60),
                                   .max_model_len = 100,
                                   .blocks = random.Between(7, 30)};
    Worker prefill(options), decode(options);
    std::map<RequestId, std::vector<TokenId>> got, expected;
    std::map<RequestId, Reservation> reserved;
    std::vector<Request> todo;
    for (RequestId id = 1; id <= 12; ++id) {
      Request request = Prompt(id, random.Between(1, 60), random.Between(1, 30));
      if (random.Chance(0.5)) request.prompt[0] = static_cast<TokenId>(id);
      todo.push_back(request);
      Worker alone({.max_model_len = 100, .blocks = 10});
      ASSERT_TRUE(alone.scheduler.Add(request).ok());
      while (alone.scheduler.HasWork()) {
        for (auto& event : alone.Step()) {
          if (event.kind == Kind::kToken) expected[id].push_back(event.token.token);
        }
      }
    }
    size_t next = 0;
    const auto take = [&](std::vector<SchedulerEvent> events, bool at_prefill) {
      for (SchedulerEvent& event : events) {
        const RequestId id = event.request;
        if (event.kind == Kind::kToken && !at_prefill) got[id].push_back(event.token.token);
        if (event.kind == Kind::kToken && at_prefill) expected[id + 1000] = {event.token.token};
        if (at_prefill && event.kind == Kind::kFinished) {
          got[id] = expected[id + 1000];
          EXPECT_TRUE(decode.scheduler.Cancel(id));
        }
        if (event.kind != Kind::kHeld) continue;
        const auto from = prefill.scheduler.PagesOf(id);
        const Reservation& to = reserved.at(id);
        for (size_t i = static_cast<size_t>(to.present); i < to.pages.size(); ++i) {
          decode.executor.WritePage(to.pages[i], prefill.executor.ReadPage(from[i]));
        }
        EXPECT_TRUE(prefill.scheduler.Cancel(id));
        for (auto& adopted : decode.scheduler.Adopt(id, {.token = expected[id + 1000][0]})) {
          if (adopted.kind == Kind::kToken) got[id].push_back(adopted.token.token);
        }
      }
    };
    for (int step = 0; step < 3000; ++step) {
      if (next < todo.size()) {
        auto reservation = decode.scheduler.Reserve(todo[next]);
        if (reservation) {
          reserved[todo[next].id] = *reservation;
          Request held = todo[next++];
          held.hold_after_prompt = true;
          ASSERT_TRUE(prefill.scheduler.Add(held).ok());
        }
      }
      take(prefill.Step(), true);
      take(decode.Step(), false);
      decode.scheduler.Verify();
    }
    EXPECT_EQ(next, todo.size());
    EXPECT_EQ(prefill.executor.first_fault(), "");
    EXPECT_EQ(decode.executor.first_fault(), "");
    for (const Request& request : todo) EXPECT_EQ(got[request.id], expected[request.id]);
    EXPECT_EQ(prefill.scheduler.stats().blocks_used, 0);
    EXPECT_EQ(decode.scheduler.stats().blocks_used, 0);
  }
}

}  // namespace
}  // namespace divisi
