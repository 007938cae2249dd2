// For tests: the bundled model under the real engine, with KV tiers that a test chooses. Whatever
// comes back from them, tokens and logprobs are to the bit those of a run without a cache.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <future>
#include <utility>
#include <vector>

#include "divisi/engine/engine.h"
#include "divisi/engine/model_executor.h"
#include "divisi/engine/tier_driver.h"
#include "divisi/kv/remote_pages_fixture.h"

namespace divisi {

inline constexpr int64_t kMaxModelLen = 256;
inline constexpr int64_t kBlocks = 20;  // Little more than one request has.

// `count` tokens that are those of no other `first`, nearly.
inline std::vector<TokenId> SomeTokens(int64_t count, TokenId first) {
  std::vector<TokenId> tokens;
  for (int64_t i = 0; i < count; ++i)
    tokens.push_back(static_cast<TokenId>((first + i * 37) % 2000));
  return tokens;
}

struct Answer {
  std::vector<SampledToken> tokens;
  int64_t cached = 0;
};

inline void ExpectSame(const Answer& got, const Answer& expected) {
  ASSERT_EQ(got.tokens.size(), expected.tokens.size());
  for (size_t i = 0; i < got.tokens.size(); ++i) {
    EXPECT_EQ(got.tokens[i].token, expected.tokens[i].token) << i;
    EXPECT_EQ(got.tokens[i].logprob, expected.tokens[i].logprob) << i;
  }
}

struct TierSizes {
  // Time is the machine's own: for tests of what is late. Else (Unhurried) nothing ever is.
  bool hurried = false;
  Bytes host;
  std::filesystem::path disk;
  std::shared_ptr<DiskCalls> calls = std::make_shared<DiskCalls>();
  std::shared_ptr<ScriptedPool> pool;
  std::shared_ptr<ScriptedPool> peer;  // Host memory of another worker, as others see it
  bool share = true;                   // Requests reuse each other's pages
};

// Time that passes a twentieth as fast, so that a machine that does other things keeps the limits
// of asking and reading,
inline constexpr int kUnhurried = 20;
class UnhurriedClock final : public Clock {
 public:
  Seconds Now() const override { return steady_.Now() * (1.0 / kUnhurried); }

 private:
  const SteadyClock steady_{};
};
// and steps that take 10 ms a token by it, so that reading is always worth it.
class UnhurriedExecutor final : public Executor, public Clock {
 public:
  explicit UnhurriedExecutor(Executor& inner) : inner_(inner) {}
  Seconds Now() const override {
    return clock_.Now() + Seconds(10e-3) * static_cast<double>(tokens_);
  }
  std::vector<SliceResult> Execute(const StepPlan& plan) override {
    const int64_t tokens = plan.tokens;
    auto results = inner_.Execute(plan);
    tokens_ += tokens;
    return results;
  }

 private:
  Executor& inner_;
  const UnhurriedClock clock_;
  std::atomic<int64_t> tokens_ = 0;
};

// One life of a process.
class Process {
 public:
  explicit Process(const TierSizes& sizes) {
    auto loaded = ModelExecutor::Load({.directory = DIVISI_SOURCE_DIR "/models/tiny-qwen3",
                                       .threads = 1,
                                       .max_model_len = kMaxModelLen,
                                       .kv_memory = Bytes(kBlocks * 24576)},
                                      clock_);
    CHECK(loaded.ok(), "{}", loaded.error().message);
    executor_ = std::move(*loaded);
    const KvLayout layout = executor_->pages().layout();
    SchedulerOptions options{.max_model_len = kMaxModelLen,
                             .blocks = executor_->pages().pages(),
                             .share_prefixes = sizes.share,
                             .page_format = "test"};
    std::shared_ptr<const Clock> clock = std::make_shared<UnhurriedClock>();
    if (sizes.hurried) clock = std::make_shared<SteadyClock>();
    for (const auto& pool : {sizes.pool, sizes.peer}) {
      if (pool) pool->patience = sizes.hurried ? 1 : kUnhurried;
    }
    if (sizes.host.value > 0 || !sizes.disk.empty() || sizes.pool || sizes.peer) {
      const PageShape shape{.layers = layout.layers, .layer_bytes = layout.LayerBytes()};
      const Bytes memory = RemotePageStore::MemoryFor(shape);
      auto tiers =
          TierDriver::Open({.shape = shape,
                            .model = RootKey(KeySpaceOf(options, {})),
                            .device = executor_->pages().memory(),
                            .host = sizes.host,
                            .disk = sizes.disk,
                            .disk_size = Bytes(int64_t{64} << 20),
                            .disk_writes = DiskWrites::kAll,
                            .disk_calls = sizes.calls,
                            .pool = sizes.pool ? ScriptedHub(sizes.pool, memory) : nullptr,
                            .peers = sizes.peer ? ScriptedHub(sizes.peer, memory) : nullptr,
                            .clock = clock},
                           logger_);
      CHECK(tiers.ok(), "{}", tiers.error().message);
      tiers_ = std::move(*tiers);
    }
    unhurried_ = std::make_unique<UnhurriedExecutor>(*executor_);
    engine_ = std::make_unique<Engine>(
        options, sizes.hurried ? static_cast<Executor&>(*executor_) : *unhurried_,
        sizes.hurried ? static_cast<const Clock&>(clock_) : *unhurried_,
        EngineKv{.tiers = tiers_.get()});
  }
  ~Process() {
    engine_.reset();
    tiers_.reset();
  }

  Answer Run(std::vector<TokenId> prompt, const std::string& salt = "") {
    return Run(Request{.prompt = std::move(prompt), .max_tokens = 12, .cache_salt = salt});
  }
  Answer Run(Request request) {
    request.sampling.top_logprobs = 0;
    auto answer = std::make_shared<Answer>();
    auto ended = std::make_shared<std::promise<void>>();
    const auto sink = [answer, ended](RequestEvent event) {
      std::ranges::move(event.tokens, std::back_inserter(answer->tokens));
      if (!event.finish) return;
      answer->cached = event.timeline.cached_tokens;
      ended->set_value();
    };
    EXPECT_TRUE(engine_->Submit(std::move(request), sink).ok());
    EXPECT_EQ(ended->get_future().wait_for(std::chrono::seconds(60)), std::future_status::ready);
    return *answer;
  }
  // What other requests need pushes it out of the device.
  void PushOut() {
    for (TokenId i = 0; i < 3; ++i) Run(SomeTokens(200, static_cast<TokenId>(100 * i + 7)));
  }
  // Until what is to be saved has been.
  void Settle() {
    const Seconds until = clock_.Now() + Seconds(30);
    while (clock_.Now() < until) {
      Run({1, 2});
      const EngineStats stats = engine_->stats();
      if (!stats.prefixes) return;
      if (stats.prefixes->tiers.moves + stats.prefixes->tiers.pool_waiting == 0) return;
    }
    ADD_FAILURE() << "copies do not end";
  }
  EngineStats stats() const { return engine_->stats(); }

 private:
  const SteadyClock clock_;
  Logger logger_{Logger::Options{.least = LogLevel::kError}};
  std::unique_ptr<ModelExecutor> executor_;
  std::unique_ptr<UnhurriedExecutor> unhurried_;
  std::unique_ptr<TierDriver> tiers_;
  std::unique_ptr<Engine> engine_;
};

// With a directory for a disk tier.
class TierProcessTest : public testing::Test {
 protected:
  TierProcessTest() {
    std::string name = testing::TempDir() + "tier_process.XXXXXX";
    directory_ = mkdtemp(name.data());
  }
  ~TierProcessTest() override { std::filesystem::remove_all(directory_); }
  // The files of pages, as they are.
  std::vector<std::filesystem::path> Files() const {
    std::vector<std::filesystem::path> files;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(directory_)) {
      if (entry.is_regular_file() && entry.file_size() > 4096) files.push_back(entry.path());
    }
    return files;
  }
  std::filesystem::path directory_;
};

inline Answer WithoutCache(const std::vector<TokenId>& prompt) { return Process({}).Run(prompt); }

inline constexpr Bytes kHost(int64_t{16} << 20);

}  // namespace divisi
