#include "divisi/control/worker_host.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <condition_variable>
#include <deque>
#include <filesystem>
#include <mutex>
#include <thread>
#include <utility>

#include "divisi/core/format.h"

namespace divisi {
namespace {

constexpr NodeId kGateway{1}, kPrefill{2};

// Steps that last until the test lets one end.
class HeldExecutor final : public Executor {
 public:
  std::vector<SliceResult> Execute(const StepPlan& plan) override {
    std::unique_lock lock(mutex_);
    ++begun_;
    changed_.notify_all();
    changed_.wait(lock, [this] { return ended_ < allowed_; });
    ++ended_;
    std::vector<SliceResult> results(plan.slices.size());
    for (size_t i = 0; i < results.size(); ++i) {
      if (plan.slices[i].sample) results[i].sampled = SampledToken{.token = 3};
    }
    return results;
  }
  bool WaitForStep(int number) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::seconds(20), [&] { return begun_ >= number; });
  }
  void Allow(int steps) {
    const std::lock_guard lock(mutex_);
    allowed_ += steps;
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int begun_ = 0, ended_ = 0, allowed_ = 0;
};

class NoCarrier final : public PageCarrier {
 public:
  std::string address() const override { return "127.0.0.1:1"; }
  std::vector<std::byte> descriptor() const override { return {}; }
  void AddPeer(NodeId, const std::string&, std::span<const std::byte>) override {}
  bool RemovePeer(NodeId) override { return true; }
  void Write(const PageWrite& write) override { written_.push_back({write.id, true}); }
  std::vector<Done> Poll() override { return std::exchange(written_, {}); }

 private:
  std::vector<Done> written_;
};

// The gateway's end of one worker's connection.
class Gateway {
 public:
  Gateway() {
    port_ = loop_.Listen("127.0.0.1", 0, [this](auto connection) { Accept(connection.value()); })
                .value();
    loop_.Every(kHeartbeat, [this] {
      const std::lock_guard lock(mutex_);
      if (connection_) connection_->Send(EncodeClusterMessage(PingMessage{}));
    });
  }
  int port() const { return port_; }
  void Send(HandoffMessage message) {
    const std::lock_guard lock(mutex_);
    connection_->Send(EncodeClusterMessage(RelayMessage{kGateway, worker_, std::move(message)}));
  }
  // The next message of the hand-off; none within some seconds is a failure.
  std::optional<HandoffMessage> Next() {
    std::unique_lock lock(mutex_);
    if (!told_.wait_for(lock, std::chrono::seconds(20), [this] { return !messages_.empty(); })) {
      ADD_FAILURE() << "no message";
      return std::nullopt;
    }
    HandoffMessage message = std::move(messages_.front());
    messages_.pop_front();
    return message;
  }
  // Once it has reported so many writes.
  bool WaitForWrites(int64_t count) {
    std::unique_lock lock(mutex_);
    return told_.wait_for(lock, std::chrono::seconds(20), [&] { return writes_ >= count; });
  }
  bool reported_first() {
    const std::lock_guard lock(mutex_);
    return reported_first_;
  }
  // Once so many lives of it have said hello.
  bool WaitForWorker(int lives = 1) {
    std::unique_lock lock(mutex_);
    return told_.wait_for(lock, std::chrono::seconds(20), [&] { return joined_ >= lives; });
  }
  void DeclareDead() {
    const std::lock_guard lock(mutex_);
    connection_->Send(EncodeClusterMessage(RejectMessage{"it was silent", /*dead=*/true}));
  }

 private:
  void Accept(const std::shared_ptr<FrameConnection>& connection) {
    {
      const std::lock_guard lock(mutex_);
      connection_ = connection;
    }
    connection->Start([this](std::vector<std::byte> frame) { Take(frame); },
                      [](const std::string&) {});
  }
  void Take(const std::vector<std::byte>& frame) {
    auto message = DecodeClusterMessage(frame).value();
    const std::lock_guard lock(mutex_);
    if (const auto* hello = std::get_if<HelloMessage>(&message)) {
      worker_ = hello->node;
      connection_->Welcome();
      connection_->Send(EncodeClusterMessage(WelcomeMessage{kGateway}));
      ++joined_;
    } else if (const auto* report = std::get_if<ReportMessage>(&message)) {
      writes_ = report->rates.writes;
      reported_first_ |= !worked_;
    } else if (auto* relay = std::get_if<RelayMessage>(&message)) {
      worked_ = true;
      messages_.push_back(std::move(relay->message));
    }
    told_.notify_all();
  }

  std::mutex mutex_;
  std::condition_variable told_;
  std::shared_ptr<FrameConnection> connection_;
  NodeId worker_;
  int joined_ = 0;
  int64_t writes_ = 0;
  bool worked_ = false, reported_first_ = false;
  std::deque<HandoffMessage> messages_;
  int port_ = 0;
  FrameLoop loop_;  // Last: it calls the rest.
};

Result<std::unique_ptr<PageCarrier>> MakeCarrier(NodeId, const std::function<void()>&) {
  return std::unique_ptr<PageCarrier>(std::make_unique<NoCarrier>());
}

class WorkerHostTest : public testing::Test {
 protected:
  WorkerHostTest()
      : host_({.core = {.role = WorkerRole::kDecode,
                        .name = "d",
                        .gateways = {{"127.0.0.1", gateway_.port()}},
                        .scheduler = {.blocks = 64},
                        .page = Bytes(1 << 20)}},
              executor_, MakeCarrier, clock_, logger_),
        thread_([this] {
          result_ = host_.Run({stop_, Seconds(0)});
        }) {}
  ~WorkerHostTest() override {
    stop_ = true;
    executor_.Allow(1000);
    thread_.join();
    EXPECT_TRUE(result_.ok()) << result_.error().message;
  }
  static Request Prompt(int64_t tokens) {
    Request request{.max_tokens = 2};
    for (int64_t i = 0; i < tokens; ++i) request.prompt.push_back(static_cast<TokenId>(i));
    return request;
  }

  Gateway gateway_;
  HeldExecutor executor_;
  SteadyClock clock_{};
  Logger logger_{{.least = LogLevel::kError}};
  std::atomic<bool> stop_ = false;
  Result<void> result_;
  WorkerHost host_;
  std::thread thread_;  // Last: it uses the rest.
};

TEST_F(WorkerHostTest, AnswersWhileAStepRuns) {
  ASSERT_TRUE(gateway_.WaitForWorker());
  const TransferId served{kGateway, 1, 1}, reserved{kGateway, 2, 1};
  gateway_.Send(ServeMessage{served, Prompt(40)});
  ASSERT_TRUE(executor_.WaitForStep(1));
  gateway_.Send(ReserveMessage{reserved, Prompt(100), kPrefill});
  const auto answer = gateway_.Next();
  ASSERT_TRUE(answer && std::holds_alternative<ReservedMessage>(*answer));
  EXPECT_EQ(std::get<ReservedMessage>(*answer).pages.size(), 7u);
  // What the step ran is cancelled, and its pages are kept until it ends.
  gateway_.Send(AbortMessage{served});
  gateway_.Send(ServeMessage{{kGateway, 3, 1}, Prompt(20)});
  gateway_.Send(ReserveMessage{reserved, Prompt(100), kPrefill});  // Again: answered after those.
  const auto again = gateway_.Next();
  ASSERT_TRUE(again && std::holds_alternative<ReservedMessage>(*again));
  executor_.Allow(1);
  ASSERT_TRUE(executor_.WaitForStep(2));
  executor_.Allow(2);
  const auto tokens = gateway_.Next();
  ASSERT_TRUE(tokens && std::holds_alternative<TokensMessage>(*tokens));
  EXPECT_EQ(IdOf(*tokens).number, 3u);
}

// So that a gateway can tell what it did before from what it does for it.
TEST_F(WorkerHostTest, ReportsBeforeItAnswersAnything) {
  ASSERT_TRUE(gateway_.WaitForWorker());
  gateway_.Send(ReserveMessage{{kGateway, 1, 1}, Prompt(20), kPrefill});
  ASSERT_TRUE(gateway_.Next());
  EXPECT_TRUE(gateway_.reported_first());
}

TEST_F(WorkerHostTest, MeasuresHowFastItsPagesGo) {
  ASSERT_TRUE(gateway_.WaitForWorker());
  executor_.Allow(1);
  gateway_.Send(PrefillMessage{
      .id = {kGateway, 3, 1}, .request = Prompt(20), .decode = {9}, .pages = {1, 2}});
  EXPECT_TRUE(gateway_.WaitForWrites(1));
}

// A disk whose writes stand still from Hang to Release.
class HangingDisk final : public DiskCalls {
 public:
  int64_t Write(int fd, std::span<const std::byte> from, int64_t at) override {
    std::unique_lock lock(mutex_);
    stands_ |= hangs_;
    changed_.notify_all();
    changed_.wait(lock, [this] { return !hangs_; });
    lock.unlock();
    return DiskCalls::Write(fd, from, at);
  }
  void Hang() { Set(true); }
  void Release() { Set(false); }
  bool WaitForWrite() {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::seconds(20), [this] { return stands_; });
  }

 private:
  void Set(bool hangs) {
    const std::lock_guard lock(mutex_);
    hangs_ = hangs;
    changed_.notify_all();
  }
  std::mutex mutex_;
  std::condition_variable changed_;
  bool hangs_ = false, stands_ = false;
};

class WorkerHostDiskTest : public testing::Test {
 protected:
  static constexpr int64_t kPages = 64, kPageBytes = 4096;
  WorkerHostDiskTest() { std::filesystem::create_directories(folder_); }
  ~WorkerHostDiskTest() override {
    calls_->Release();
    // The thread that was left behind has gone, too.
    for (int i = 0; i < 2000 && calls_.use_count() > 1; ++i) usleep(10'000);
    EXPECT_EQ(calls_.use_count(), 1);
    std::filesystem::remove_all(folder_);
  }
  WorkerHostOptions Options() {
    return {.core = {.name = "w",
                     .gateways = {{"127.0.0.1", gateway_.port()}},
                     .scheduler = {.blocks = kPages, .report_pages = true},
                     .page = Bytes(kPageBytes)},
            .open_tiers = [this](bool disk) {
              return TierDriver::Open({.shape = {.layers = 1, .layer_bytes = kPageBytes},
                                       .device = device_,
                                       .host = Bytes(1 << 20),
                                       .disk = disk ? folder_ + "/kv" : "",
                                       .disk_size = Bytes(1 << 20),
                                       .disk_writes = DiskWrites::kAll,
                                       .disk_calls = calls_},
                                      logger_);
            }};
  }
  // Whether it is answered to its end.
  bool Serves(uint64_t number) {
    Request request{.prompt = std::vector<TokenId>(40, 3), .max_tokens = 1};
    gateway_.Send(ServeMessage{{kGateway, number, 1}, request});
    while (const auto answer = gateway_.Next()) {
      const auto* tokens = std::get_if<TokensMessage>(&*answer);
      if (IdOf(*answer).number == number) return tokens != nullptr && tokens->finish;
    }
    return false;
  }

  const std::string folder_ = testing::TempDir() + Format("worker-host-{}", getpid());
  std::vector<std::byte> device_ = std::vector<std::byte>(kPages * kPageBytes);
  std::shared_ptr<HangingDisk> calls_ = std::make_shared<HangingDisk>();
  Gateway gateway_;
  HeldExecutor executor_;
  SteadyClock clock_{};
  Logger logger_{{.least = LogLevel::kWarning}};
};

// The thread that hangs keeps the directory's lock: a new life can't have it, and lives.
TEST_F(WorkerHostDiskTest, ALifeAfterOneWhoseDiskHangsGoesOnWithoutIt) {
  executor_.Allow(1000);
  testing::internal::CaptureStderr();
  std::atomic<bool> stop = false;
  Result<void> result;
  WorkerHost host(Options(), executor_, MakeCarrier, clock_, logger_);
  std::thread thread([&] { result = host.Run({stop, Seconds(0)}); });
  EXPECT_TRUE(gateway_.WaitForWorker());
  calls_->Hang();
  EXPECT_TRUE(Serves(1));
  EXPECT_TRUE(calls_->WaitForWrite());
  gateway_.DeclareDead();
  EXPECT_TRUE(gateway_.WaitForWorker(2) && Serves(2));
  stop = true;
  thread.join();
  EXPECT_TRUE(result.ok()) << result.error().message;
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              testing::AllOf(testing::HasSubstr("KV goes on without the disk"),
                             testing::HasSubstr("start this worker again")));
}

}  // namespace
}  // namespace divisi
