#include "divisi/engine/engine.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "divisi/core/random.h"
#include "divisi/sim/sim_executor.h"

namespace divisi {
namespace {

Request RequestOf(int64_t prompt, int64_t max_tokens, uint64_t seed = 0) {
  Request request;
  for (int64_t i = 0; i < prompt; ++i) request.prompt.push_back(static_cast<TokenId>(i + 1));
  request.max_tokens = max_tokens;
  request.sampling.seed = seed;
  return request;
}

// Collects a request's events and lets the test wait for the last one.
class Inbox {
 public:
  Engine::EventSink Sink() {
    return [this](RequestEvent event) {
      std::lock_guard lock(mutex_);
      EXPECT_FALSE(finished_) << "an event after the last one";
      finished_ = event.finish.has_value();
      events_.push_back(std::move(event));
      arrived_.notify_all();
    };
  }
  std::vector<RequestEvent> Wait() {
    std::unique_lock lock(mutex_);
    EXPECT_TRUE(arrived_.wait_for(lock, std::chrono::seconds(60), [this] { return finished_; }));
    return events_;
  }
  void WaitForFirst() {
    std::unique_lock lock(mutex_);
    EXPECT_TRUE(
        arrived_.wait_for(lock, std::chrono::seconds(60), [this] { return !events_.empty(); }));
  }

 private:
  std::mutex mutex_;
  std::condition_variable arrived_;
  std::vector<RequestEvent> events_;
  bool finished_ = false;
};

// Holds each step until the test lets it go.
class GatedExecutor final : public Executor {
 public:
  explicit GatedExecutor(Executor& inner) : inner_(inner) {}
  std::vector<SliceResult> Execute(const StepPlan& plan) override {
    std::unique_lock lock(mutex_);
    ++entered_;
    changed_.notify_all();
    changed_.wait(lock, [this] { return allowed_ >= entered_; });
    return inner_.Execute(plan);
  }
  void Allow(int64_t steps) {
    std::lock_guard lock(mutex_);
    allowed_ += steps;
    changed_.notify_all();
  }
  void WaitUntilEntered(int64_t steps) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return entered_ >= steps; });
  }

 private:
  Executor& inner_;
  std::mutex mutex_;
  std::condition_variable changed_;
  int64_t entered_ = 0;
  int64_t allowed_ = 0;
};

constexpr int64_t kManySteps = 1'000'000;

struct Fixture {
  SchedulerOptions options{.max_sequences = 8,
                           .max_batched_tokens = 32,
                           .max_model_len = 256,
                           .max_waiting = 4,
                           .blocks = 64};
  SteadyClock clock;
  SimExecutor sim{{.blocks = options.blocks}};
  GatedExecutor gated{sim};
};

TEST(EngineTest, RunsARequestToItsEnd) {
  Fixture f;
  Engine engine(f.options, f.sim, f.clock);
  Inbox inbox;
  const RequestId id = *engine.Submit(RequestOf(40, 5), inbox.Sink());
  const std::vector<RequestEvent> events = inbox.Wait();
  EXPECT_EQ(events.size(), 5u);  // The first chunk of the prompt has nothing to say.
  for (const RequestEvent& event : events) {
    EXPECT_EQ(event.request, id);
    EXPECT_EQ(event.tokens.size(), 1u);
  }
  EXPECT_EQ(events.back().finish, FinishReason::kLength);
  const Timeline& timeline = events.back().timeline;
  EXPECT_LE(timeline.arrived, timeline.scheduled);
  EXPECT_LT(timeline.scheduled, timeline.first_token);
  EXPECT_EQ(timeline.first_token, events.front().time);
  EXPECT_EQ(timeline.finished, events.back().time);
  const EngineStats stats = engine.stats();
  EXPECT_EQ(stats.steps, 6);
  EXPECT_EQ(stats.prefill_tokens, 40);
  EXPECT_EQ(stats.decode_tokens, 4);
  EXPECT_EQ(stats.prompt_tokens, 40);
  EXPECT_EQ(stats.generated_tokens, 5);
  EXPECT_EQ(stats.finished[static_cast<size_t>(FinishReason::kLength)], 1);
  EXPECT_EQ(stats.step_tokens.sum, 44);
  EXPECT_EQ(stats.step_tokens.counts[0], 4);  // One token: the decodes.
  EXPECT_EQ(stats.scheduler.running + stats.scheduler.waiting + stats.queued, 0);
  EXPECT_EQ(stats.scheduler.blocks_used, 0);
  EXPECT_EQ(f.sim.first_fault(), "");
}

TEST(EngineTest, WithoutOutputTheLastEventFollowsThePrompt) {
  Fixture f;
  Engine engine(f.options, f.sim, f.clock);
  Inbox inbox;
  ASSERT_TRUE(engine.Submit(RequestOf(256, 0), inbox.Sink()).ok());  // All of max_model_len.
  const std::vector<RequestEvent> events = inbox.Wait();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_TRUE(events[0].tokens.empty());
  EXPECT_EQ(events[0].finish, FinishReason::kLength);
  EXPECT_EQ(events[0].timeline.first_token, Seconds());
  const EngineStats stats = engine.stats();
  EXPECT_EQ(stats.prompt_tokens, 256);
  EXPECT_EQ(stats.generated_tokens, 0);
  EXPECT_EQ(stats.scheduler.blocks_used, 0);
}

TEST(EngineTest, PromptScoresComeWithTheEvents) {
  Fixture f;
  Engine engine(f.options, f.sim, f.clock);
  Inbox inbox;
  Request request = RequestOf(40, 1);
  request.prompt_logprobs = 0;
  ASSERT_TRUE(engine.Submit(std::move(request), inbox.Sink()).ok());
  std::vector<TokenId> scored;
  for (const RequestEvent& event : inbox.Wait()) {
    for (const SampledToken& score : event.prompt_scores) scored.push_back(score.token);
  }
  ASSERT_EQ(scored.size(), 39u);
  EXPECT_EQ(scored.front(), 2);
  EXPECT_EQ(scored.back(), 40);
}

TEST(EngineTest, ARequestThatFailsEndsAloneAndGivesItsPagesBack) {
  Fixture f;
  SimExecutor executor({.blocks = f.options.blocks, .failing_token = 60});
  Engine engine(f.options, executor, f.clock);
  Inbox failing, fine;
  ASSERT_TRUE(engine.Submit(RequestOf(70, 5), failing.Sink()).ok());  // In its second chunk.
  ASSERT_TRUE(engine.Submit(RequestOf(40, 5), fine.Sink()).ok());
  const std::vector<RequestEvent> events = failing.Wait();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_TRUE(events[0].tokens.empty());
  EXPECT_EQ(events[0].finish, FinishReason::kError);
  ASSERT_TRUE(events[0].error);
  EXPECT_EQ(events[0].error->message, "the failing token");
  const std::vector<RequestEvent> others = fine.Wait();
  EXPECT_EQ(others.back().finish, FinishReason::kLength);
  EXPECT_FALSE(others.back().error);
  const EngineStats stats = engine.stats();
  EXPECT_EQ(stats.finished[static_cast<size_t>(FinishReason::kError)], 1);
  EXPECT_EQ(stats.scheduler.running + stats.scheduler.waiting + stats.queued, 0);
  EXPECT_EQ(stats.scheduler.blocks_used, 0);
}

TEST(EngineTest, RefusesAtOnceWhatCouldNeverRun) {
  Fixture f;
  Engine engine(f.options, f.sim, f.clock);
  const auto never = [](RequestEvent) { ADD_FAILURE() << "a refused request has no events"; };
  EXPECT_EQ(engine.Submit(RequestOf(256, 1), never).error().code, Code::kOutOfRange);
  EXPECT_EQ(engine.Submit(RequestOf(0, 1), never).error().code, Code::kInvalidArgument);
  EXPECT_EQ(engine.Submit(RequestOf(1, -1), never).error().code, Code::kInvalidArgument);
}

TEST(EngineTest, SubmitNeitherWaitsForAStepNorOverfillsTheQueue) {
  Fixture f;
  Engine engine(f.options, f.gated, f.clock);
  Inbox running;
  ASSERT_TRUE(engine.Submit(RequestOf(4, 2), running.Sink()).ok());
  f.gated.WaitUntilEntered(1);
  // A step is in flight and stays so: the queue fills up, then refuses.
  std::vector<Inbox> waiting(4);
  // The running request leaves the queue when its step is committed.
  for (size_t i = 0; i + 1 < waiting.size(); ++i) {
    ASSERT_TRUE(engine.Submit(RequestOf(4, 2), waiting[i].Sink()).ok());
  }
  const auto refused = engine.Submit(RequestOf(4, 2), [](RequestEvent) { ADD_FAILURE(); });
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, Code::kResourceExhausted);
  EXPECT_EQ(refused.error().message, "4 requests are waiting, which is the limit; retry later");
  EXPECT_EQ(engine.stats().queued, 4);
  f.gated.Allow(1);
  f.gated.WaitUntilEntered(2);
  ASSERT_TRUE(engine.Submit(RequestOf(4, 2), waiting[3].Sink()).ok());
  f.gated.Allow(kManySteps);
  EXPECT_EQ(running.Wait().back().finish, FinishReason::kLength);
  for (Inbox& inbox : waiting) EXPECT_EQ(inbox.Wait().back().finish, FinishReason::kLength);
}

TEST(EngineTest, CancelFreesPagesWithinAStep) {
  Fixture f;
  Engine engine(f.options, f.gated, f.clock);
  Inbox inbox;
  const RequestId id = *engine.Submit(RequestOf(20, 200), inbox.Sink());
  f.gated.WaitUntilEntered(1);
  engine.Cancel(id);
  engine.Cancel(id);        // Nothing happens.
  engine.Cancel(id + 100);  // Nothing happens.
  f.gated.Allow(1);
  const std::vector<RequestEvent> events = inbox.Wait();
  EXPECT_EQ(events.back().finish, FinishReason::kCancelled);
  EXPECT_LE(events.size(), 2u);
  EXPECT_EQ(engine.stats().scheduler.blocks_used, 0);
  EXPECT_EQ(engine.stats().steps, 1);
}

TEST(EngineTest, DestructionEndsEveryRequest) {
  Fixture f;
  // Too long to end by themselves while the destructor is on its way.
  f.options.max_model_len = 100'000;
  f.options.blocks = 30'000;
  SimExecutor sim({.blocks = f.options.blocks});
  GatedExecutor gated(sim);
  std::vector<Inbox> inboxes(4);
  {
    Engine engine(f.options, gated, f.clock);
    for (Inbox& inbox : inboxes) {
      ASSERT_TRUE(engine.Submit(RequestOf(20, 90'000), inbox.Sink()).ok());
    }
    gated.WaitUntilEntered(1);
    gated.Allow(kManySteps);
  }
  for (Inbox& inbox : inboxes) EXPECT_EQ(inbox.Wait().back().finish, FinishReason::kCancelled);
}

TEST(EngineTest, ASinkMaySubmitAndCancel) {
  Fixture f;
  Inbox second;
  Inbox third;
  Engine engine(f.options, f.sim, f.clock);
  ASSERT_TRUE(engine
                  .Submit(RequestOf(4, 1),
                          [&](RequestEvent) {
                            const RequestId id = *engine.Submit(RequestOf(4, 200), second.Sink());
                            engine.Cancel(id);
                            ASSERT_TRUE(engine.Submit(RequestOf(4, 2), third.Sink()).ok());
                            EXPECT_EQ(engine.stats().generated_tokens, 1);
                          })
                  .ok());
  EXPECT_EQ(second.Wait().back().finish, FinishReason::kCancelled);
  EXPECT_EQ(third.Wait().back().finish, FinishReason::kLength);
}

// What a client thread of the next test saw of one of its requests. Alive until the last event.
struct Watched {
  std::atomic<int> tokens{0};
  std::atomic<int> ends{0};
};

TEST(EngineTest, ManyThreadsSubmitAndCancel) {
  Fixture f;
  f.options.max_waiting = 16;
  constexpr int kThreads = 8;
  constexpr int kRequests = 150;
  std::vector<std::vector<Watched>> watched(kThreads);
  for (auto& of_thread : watched) of_thread = std::vector<Watched>(kRequests);
  std::atomic<int> refused{0};
  {
    Engine engine(f.options, f.sim, f.clock);
    std::vector<std::thread> threads;
    for (int t = 0; t < kThreads; ++t) {
      threads.emplace_back([&, t] {
        Random random(static_cast<uint64_t>(t) + 1);
        for (Watched& seen : watched[static_cast<size_t>(t)]) {
          const Request request =
              RequestOf(random.Between(1, 60), random.Between(1, 20), random.Next64());
          const auto sink = [&seen](const RequestEvent& event) {
            seen.tokens += static_cast<int>(event.tokens.size());
            seen.ends += event.finish.has_value();
          };
          Result<RequestId> id = engine.Submit(request, sink);
          while (!id.ok()) {
            EXPECT_EQ(id.error().code, Code::kResourceExhausted);
            ++refused;
            std::this_thread::sleep_for(std::chrono::microseconds(50));
            id = engine.Submit(request, sink);
          }
          if (random.Chance(0.3)) engine.Cancel(*id);
          EXPECT_LE(engine.stats().queued, f.options.max_waiting);
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    const EngineStats stats = engine.stats();
    EXPECT_LE(stats.scheduler.blocks_used, stats.scheduler.blocks_total);
  }
  for (const auto& of_thread : watched) {
    for (const Watched& seen : of_thread) {
      EXPECT_EQ(seen.ends, 1);
      EXPECT_LE(seen.tokens, 20);
    }
  }
  EXPECT_GT(refused, 0);  // Eight threads outrun a queue of 16.
  EXPECT_EQ(f.sim.first_fault(), "");
}

TEST(EngineTest, WakesAtOnceWhenIdle) {
  Fixture f;
  Engine engine(f.options, f.sim, f.clock);
  std::vector<double> waits;
  for (int i = 0; i < 50; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));  // So that the engine sleeps.
    Inbox inbox;
    ASSERT_TRUE(engine.Submit(RequestOf(4, 1), inbox.Sink()).ok());
    const Timeline timeline = inbox.Wait().back().timeline;
    waits.push_back((timeline.scheduled - timeline.arrived).value);
  }
  std::ranges::sort(waits);
  // A wake-up takes tens of microseconds; a polling loop would show its period here. The median,
  // because a shared machine may take the processor away for longer.
  EXPECT_LT(waits[waits.size() / 2], 0.01);
}

}  // namespace
}  // namespace divisi
