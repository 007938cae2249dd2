// Tiers under the real engine and model: whatever comes back from host memory or the disk, after
// evictions, restarts and damage, tokens and logprobs are to the bit those of a run without a
// cache.
#include "divisi/engine/tier_driver.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <future>
#include <thread>

#include "divisi/engine/engine.h"
#include "divisi/engine/model_executor.h"

namespace divisi {
namespace {

const std::filesystem::path kModel = std::filesystem::path(DIVISI_SOURCE_DIR) / "models/tiny-qwen3";
constexpr int64_t kMaxModelLen = 256;
constexpr int64_t kBlocks = 20;  // Little more than one request has.

std::vector<TokenId> Tokens(int64_t count, TokenId first) {
  std::vector<TokenId> tokens;
  for (int64_t i = 0; i < count; ++i)
    tokens.push_back(static_cast<TokenId>((first + i * 37) % 2000));
  return tokens;
}

struct Answer {
  std::vector<SampledToken> tokens;
  int64_t cached = 0;
};

void ExpectSame(const Answer& got, const Answer& expected) {
  ASSERT_EQ(got.tokens.size(), expected.tokens.size());
  for (size_t i = 0; i < got.tokens.size(); ++i) {
    EXPECT_EQ(got.tokens[i].token, expected.tokens[i].token) << i;
    EXPECT_EQ(got.tokens[i].logprob, expected.tokens[i].logprob) << i;
  }
}

struct TierSizes {
  Bytes host;
  std::filesystem::path disk;
};

// One life of a process.
class Process {
 public:
  explicit Process(const TierSizes& sizes) {
    auto loaded = ModelExecutor::Load({.directory = kModel,
                                       .threads = 1,
                                       .max_model_len = kMaxModelLen,
                                       .kv_memory = Bytes(kBlocks * 24576)},
                                      clock_);
    CHECK(loaded.ok(), "{}", loaded.error().message);
    executor_ = std::move(*loaded);
    const KvLayout layout = executor_->pages().layout();
    SchedulerOptions options{
        .max_model_len = kMaxModelLen, .blocks = executor_->pages().pages(), .page_format = "test"};
    if (sizes.host.value > 0 || !sizes.disk.empty()) {
      auto tiers =
          TierDriver::Open({.shape = {.layers = layout.layers, .layer_bytes = layout.LayerBytes()},
                            .model = RootKey(KeySpaceOf(options, {})),
                            .device = executor_->pages().memory(),
                            .host = sizes.host,
                            .disk = sizes.disk,
                            .disk_size = Bytes(int64_t{64} << 20),
                            .disk_writes = DiskWrites::kAll},
                           logger_);
      CHECK(tiers.ok(), "{}", tiers.error().message);
      tiers_ = std::move(*tiers);
    }
    engine_ = std::make_unique<Engine>(options, *executor_, clock_, tiers_.get());
  }
  ~Process() {
    engine_.reset();
    tiers_.reset();
  }

  Answer Run(std::vector<TokenId> prompt, const std::string& salt = "") {
    Request request{.prompt = std::move(prompt), .max_tokens = 12, .cache_salt = salt};
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
    for (TokenId i = 0; i < 3; ++i) Run(Tokens(200, static_cast<TokenId>(100 * i + 7)));
  }
  // Until what is to be saved has been.
  void Settle() {
    for (int i = 0; i < 500; ++i) {
      Run({1, 2});
      const EngineStats stats = engine_->stats();
      if (stats.prefixes->tiers.moves == 0) return;
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    ADD_FAILURE() << "copies do not end";
  }
  EngineStats stats() const { return engine_->stats(); }

 private:
  const SteadyClock clock_;
  Logger logger_{Logger::Options{.least = LogLevel::kError}};
  std::unique_ptr<ModelExecutor> executor_;
  std::unique_ptr<TierDriver> tiers_;
  std::unique_ptr<Engine> engine_;
};

class TierDriverTest : public testing::Test {
 protected:
  TierDriverTest() {
    char name[] = "/tmp/tier_driver_test.XXXXXX";
    directory_ = mkdtemp(name);
  }
  ~TierDriverTest() override { std::filesystem::remove_all(directory_); }
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

Answer WithoutCache(const std::vector<TokenId>& prompt) { return Process({}).Run(prompt); }

constexpr Bytes kHost(int64_t{16} << 20);

TEST_F(TierDriverTest, TurnTwoReusesTurnOneFromHostMemory) {
  Process process({.host = kHost});
  for (const int64_t length : {15, 16, 17, 31, 33, 100, 160, 161}) {
    SCOPED_TRACE(length);
    const auto prompt = Tokens(length, static_cast<TokenId>(length));
    const Answer first = process.Run(prompt);
    std::vector<TokenId> turn = prompt;
    for (const SampledToken& token : first.tokens) turn.push_back(token.token);
    const auto more = Tokens(20, 999);
    turn.insert(turn.end(), more.begin(), more.end());
    process.Settle();
    process.PushOut();
    const Answer second = process.Run(turn);
    // All full pages that turn 1 left behind: its last token's K and V were never computed.
    EXPECT_EQ(second.cached, (length + 11) / 16 * 16);
    ExpectSame(second, WithoutCache(turn));
  }
  const PrefixLoaderStats stats = *process.stats().prefixes;
  EXPECT_GE(stats.loads, 8);
  EXPECT_EQ(stats.loads_failed, 0);
  EXPECT_EQ(stats.pages_read, stats.pages_used);
}

TEST_F(TierDriverTest, TheDiskOutlivesTheProcess) {
  const auto prompt = Tokens(150, 11);
  Answer first;
  {
    Process process({.host = kHost, .disk = directory_});
    first = process.Run(prompt);
    process.Settle();
  }
  ASSERT_GE(Files().size(), 9);
  Process process({.host = kHost, .disk = directory_});
  const Answer again = process.Run(prompt);
  EXPECT_EQ(again.cached, 144);
  ExpectSame(again, first);
}

TEST_F(TierDriverTest, ASaltIsAnotherTenant) {
  Process process({.host = kHost});
  const auto prompt = Tokens(100, 3);
  const Answer first = process.Run(prompt, "a");
  process.Settle();
  process.PushOut();
  EXPECT_EQ(process.Run(prompt).cached, 0);
  process.PushOut();
  EXPECT_EQ(process.Run(prompt, "b").cached, 0);
  process.PushOut();
  const Answer again = process.Run(prompt, "a");
  EXPECT_EQ(again.cached, 96);
  ExpectSame(again, first);
}

TEST_F(TierDriverTest, DamagedFilesAreComputedAnew) {
  const auto prompt = Tokens(150, 11);
  Answer first;
  {
    Process process({.host = kHost, .disk = directory_});
    first = process.Run(prompt);
    process.Settle();
  }
  const auto files = Files();
  ASSERT_GE(files.size(), 9);
  for (size_t i = 0; i < files.size(); ++i) {
    if (i % 2 == 0) {
      std::filesystem::resize_file(files[i], 4096 + 24576 / 2);
    } else {
      std::fstream file(files[i], std::ios::in | std::ios::out | std::ios::binary);
      file.seekp(4096 + static_cast<int64_t>(i) * 1000);
      file.put('\x5a');
    }
  }
  Process process({.host = kHost, .disk = directory_});
  ExpectSame(process.Run(prompt), first);
  process.PushOut();
  ExpectSame(process.Run(prompt), first);
}

}  // namespace
}  // namespace divisi
