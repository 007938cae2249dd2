// The whole path from submission to tokens: engine, scheduler, pages and the real model. Whatever
// the engine does to a request (chunks, batches, shared prefixes, preemption, neighbours that are
// cancelled), its tokens, logprobs and prompt scores are, to the bit, those of a run alone with
// room for everything.
#include <gtest/gtest.h>

#include <algorithm>
#include <condition_variable>
#include <filesystem>
#include <mutex>

#include "divisi/core/random.h"
#include "divisi/engine/engine.h"
#include "divisi/engine/model_executor.h"

namespace divisi {
namespace {

const std::filesystem::path kModel = std::filesystem::path(DIVISI_SOURCE_DIR) / "models/tiny-qwen3";
constexpr int64_t kMaxModelLen = 256;
constexpr int64_t kTightBlocks = 20;  // 16 are a sequence of kMaxModelLen.

struct Asked {
  Request request;
  int64_t cancel_after = 0;  // Tokens; 0: never.
};

struct Output {
  std::vector<SampledToken> tokens;
  std::vector<SampledToken> scores;
  std::optional<FinishReason> finish;
};

struct RunResult {
  std::vector<Output> outputs;
  EngineStats stats;
};

bool Same(const SampledToken& a, const SampledToken& b) {
  const auto same = [](const TokenLogprob& x, const TokenLogprob& y) {
    return x.token == y.token && x.logprob == y.logprob;
  };
  return a.token == b.token && a.logprob == b.logprob && std::ranges::equal(a.top, b.top, same);
}

// Submits all at once, cancels those that are to be, and waits for all ends.
RunResult RunAll(const SchedulerOptions& options, Executor& executor,
                 const std::vector<Asked>& asked) {
  std::mutex mutex;
  std::condition_variable changed;
  size_t ended = 0;
  RunResult result{.outputs = std::vector<Output>(asked.size())};
  const SteadyClock clock;
  Engine engine(options, executor, clock);
  for (size_t i = 0; i < asked.size(); ++i) {
    const auto sink = [&, i](RequestEvent event) {
      std::lock_guard lock(mutex);
      Output& output = result.outputs[i];
      EXPECT_FALSE(output.finish.has_value()) << "an event after the last one";
      std::ranges::move(event.tokens, std::back_inserter(output.tokens));
      std::ranges::move(event.prompt_scores, std::back_inserter(output.scores));
      output.finish = event.finish;
      const int64_t after = asked[i].cancel_after;
      if (after > 0 && static_cast<int64_t>(output.tokens.size()) >= after && !event.finish) {
        engine.Cancel(event.request);
      }
      if (event.finish && ++ended == asked.size()) changed.notify_one();
    };
    EXPECT_TRUE(engine.Submit(asked[i].request, sink).ok());
  }
  std::unique_lock lock(mutex);
  EXPECT_TRUE(
      changed.wait_for(lock, std::chrono::seconds(60), [&] { return ended == asked.size(); }));
  lock.unlock();
  result.stats = engine.stats();
  return result;
}

// Some begin alike, over several pages; they sample in all ways and some are cancelled midway.
std::vector<Asked> DrawRequests(uint64_t seed) {
  Random random(seed);
  const auto draw_tokens = [&](std::vector<TokenId>& tokens, int64_t count) {
    for (int64_t i = 0; i < count; ++i) {
      tokens.push_back(static_cast<TokenId>(random.Between(1, 2000)));
    }
  };
  std::vector<TokenId> prefixes[2];
  draw_tokens(prefixes[0], 40);
  draw_tokens(prefixes[1], 80);
  std::vector<Asked> asked(20);
  for (Asked& each : asked) {
    Request& request = each.request;
    if (const int64_t which = random.Between(0, 2); which < 2) request.prompt = prefixes[which];
    draw_tokens(request.prompt, random.Between(1, 50));
    request.max_tokens = random.Between(1, 90);
    request.stop_token_ids = {2045, 2047};
    SamplingParams& sampling = request.sampling;
    sampling.seed = static_cast<uint64_t>(random.Between(0, 1 << 20));
    sampling.temperature = random.Between(0, 1) == 0 ? 0 : 1.3;
    if (random.Between(0, 2) == 0) sampling.top_k = 20;
    if (random.Between(0, 2) == 0) sampling.repetition_penalty = 1.2;
    if (random.Between(0, 2) == 0) sampling.top_logprobs = 2;
    if (random.Between(0, 4) == 0) request.prompt_logprobs = 1;
    if (random.Between(0, 4) == 0) each.cancel_after = random.Between(1, 30);
  }
  return asked;
}

std::unique_ptr<ModelExecutor> LoadTiny() {
  const SteadyClock clock;
  auto executor = ModelExecutor::Load({.directory = kModel,
                                       .threads = 1,
                                       .max_model_len = kMaxModelLen,
                                       .kv_memory = Bytes(int64_t{8} << 20)},
                                      clock);
  CHECK(executor.ok(), "{}", executor.error().message);
  return std::move(executor).value();
}

void ExpectSame(const Output& got, const Output& alone, bool cancelled) {
  if (!cancelled) {
    EXPECT_EQ(got.finish, alone.finish);
    EXPECT_EQ(got.tokens.size(), alone.tokens.size());
    EXPECT_EQ(got.scores.size(), alone.scores.size());
  }
  ASSERT_LE(got.tokens.size(), alone.tokens.size());
  for (size_t i = 0; i < got.tokens.size(); ++i) {
    ASSERT_TRUE(Same(got.tokens[i], alone.tokens[i]))
        << "token " << i << ": " << got.tokens[i].token << ", alone " << alone.tokens[i].token;
  }
  ASSERT_LE(got.scores.size(), alone.scores.size());
  for (size_t i = 0; i < got.scores.size(); ++i) {
    ASSERT_TRUE(Same(got.scores[i], alone.scores[i])) << "prompt score " << i;
  }
}

TEST(EngineModelTest, PressureDoesNotChangeWhatARequestGets) {
  const auto executor = LoadTiny();
  ASSERT_GE(executor->pages().pages(), kMaxModelLen / kBlockTokens);
  ASSERT_GE(executor->pages().pages(), kTightBlocks);
  int64_t preemptions = 0, shared = 0, evictions = 0, cancelled = 0;
  for (const uint64_t seed : {1, 2, 3, 4}) {
    const std::vector<Asked> asked = DrawRequests(seed);
    std::vector<Output> alone;
    for (const Asked& each : asked) {
      const SchedulerOptions solo{.max_batched_tokens = 512,
                                  .max_model_len = kMaxModelLen,
                                  .blocks = executor->pages().pages(),
                                  .share_prefixes = false};
      alone.push_back(RunAll(solo, *executor, {{.request = each.request}}).outputs[0]);
    }
    for (const int64_t budget : {7, 16, 50, 512}) {
      SCOPED_TRACE(Format("seed {}, {} tokens a step", seed, budget));
      const RunResult run = RunAll(
          {.max_batched_tokens = budget, .max_model_len = kMaxModelLen, .blocks = kTightBlocks},
          *executor, asked);
      for (size_t i = 0; i < asked.size(); ++i) {
        SCOPED_TRACE(Format("request {}", i));
        const bool was_cancelled = run.outputs[i].finish == FinishReason::kCancelled;
        EXPECT_TRUE(!was_cancelled || asked[i].cancel_after > 0);
        cancelled += was_cancelled;
        ExpectSame(run.outputs[i], alone[i], was_cancelled);
      }
      EXPECT_EQ(run.stats.scheduler.blocks_used, 0);
      preemptions += run.stats.scheduler.preemptions;
      evictions += run.stats.scheduler.evictions;
      shared += run.stats.scheduler.prefix_hit_tokens;
    }
  }
  // The pressure was real.
  EXPECT_GT(preemptions, 10);
  EXPECT_GT(evictions, 100);
  EXPECT_GT(shared, 1000);
  EXPECT_GT(cancelled, 5);
  std::puts(Format("{} preemptions, {} evictions, {} shared tokens, {} cancelled", preemptions,
                   evictions, shared, cancelled)
                .c_str());
}

}  // namespace
}  // namespace divisi
