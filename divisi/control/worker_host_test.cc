#include "divisi/control/worker_host.h"

#include <gtest/gtest.h>

#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>

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
  bool WaitForWorker() {
    std::unique_lock lock(mutex_);
    return told_.wait_for(lock, std::chrono::seconds(20), [this] { return joined_; });
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
      joined_ = true;
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
  bool joined_ = false;
  int64_t writes_ = 0;
  bool worked_ = false, reported_first_ = false;
  std::deque<HandoffMessage> messages_;
  int port_ = 0;
  FrameLoop loop_;  // Last: it calls the rest.
};

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
  static Result<std::unique_ptr<PageCarrier>> MakeCarrier(NodeId, const std::function<void()>&) {
    return std::unique_ptr<PageCarrier>(std::make_unique<NoCarrier>());
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

}  // namespace
}  // namespace divisi
