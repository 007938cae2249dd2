#include "divisi/serve/cluster_backend.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <condition_variable>
#include <deque>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace divisi {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

constexpr NodeId kFirst{11}, kSecond{12};

// A worker's end of its connection to the gateway.
class Worker {
 public:
  Worker(NodeId self, int port, const std::string& name = "w") {
    loop_.Connect("127.0.0.1", port, Seconds(20), [this, self, name](auto connection) {
      if (!connection) return Told(std::nullopt);
      (*connection)->Start([this](const auto& frame) { Told(DecodeClusterMessage(frame).value()); },
                           [this](const std::string&) { Told(std::nullopt); });
      {
        const std::lock_guard lock(mutex_);
        connection_ = *connection;
      }
      Send(HelloMessage{.node = self, .name = name});
    });
    loop_.Every(kHeartbeat, [this] { Send(PingMessage{}); });
  }
  void Send(const ClusterMessage& message) {
    const std::lock_guard lock(mutex_);
    if (connection_) connection_->Send(EncodeClusterMessage(message));
  }
  // The next message of that kind; none within some seconds, or before the end, is a failure.
  template <typename Message>
  std::optional<Message> Next() {
    std::unique_lock lock(mutex_);
    while (told_.wait_for(lock, std::chrono::seconds(20), [this] { return !told_of_.empty(); })) {
      const std::optional<ClusterMessage> message = std::move(told_of_.front());
      told_of_.pop_front();
      if (!message) break;
      if (const auto* wanted = std::get_if<Message>(&*message)) return *wanted;
    }
    ADD_FAILURE() << "no such message";
    return std::nullopt;
  }

 private:
  void Told(std::optional<ClusterMessage> message) {
    const std::lock_guard lock(mutex_);
    told_of_.push_back(std::move(message));
    told_.notify_all();
  }

  std::mutex mutex_;
  std::condition_variable told_;
  std::shared_ptr<FrameConnection> connection_;
  std::deque<std::optional<ClusterMessage>> told_of_;  // None: it has ended
  FrameLoop loop_;                                     // Last: it calls the rest.
};

// A stranger may not say so much at once.
TEST(ClusterBackendTest, PassesOnLongMessagesBetweenItsWorkers) {
  const SteadyClock clock{};
  Logger logger({.least = LogLevel::kError});
  ClusterBackend backend({}, clock, logger);
  const auto port = backend.Listen("127.0.0.1", 0);
  ASSERT_TRUE(port.ok());
  Worker first(kFirst, *port), second(kSecond, *port);
  ASSERT_TRUE(first.Next<WelcomeMessage>());
  ASSERT_TRUE(second.Next<WelcomeMessage>());
  const Request request{.prompt = std::vector<TokenId>(kMostStrangerBytes, 7), .max_tokens = 2};
  first.Send(RelayMessage{kFirst, kSecond, ServeMessage{{kFirst, 1, 1}, request}});
  const auto relay = second.Next<RelayMessage>();
  ASSERT_TRUE(relay);
  EXPECT_EQ(relay->from, kFirst);
  const auto* serve = std::get_if<ServeMessage>(&relay->message);
  ASSERT_NE(serve, nullptr);
  EXPECT_EQ(serve->request.prompt, request.prompt);
}

// What the log has of a request's route.
std::string RouteOf(bool all_routes) {
  const SteadyClock clock{};
  Logger logger({.least = LogLevel::kError});
  ClusterBackend backend({.dispatch = {.keep_choices = true}}, clock, logger, all_routes);
  const int port = backend.Listen("127.0.0.1", 0).value();
  Worker first(kFirst, port, "one"), second(kSecond, port, "two");
  EXPECT_TRUE(first.Next<WelcomeMessage>() && second.Next<WelcomeMessage>());
  std::promise<std::string> route;
  const auto id = backend.Submit({.prompt = {1, 2, 3}, .max_tokens = 1}, [&](RequestEvent event) {
    if (event.finish) route.set_value(event.timeline.route);
  });
  EXPECT_TRUE(id.ok());
  const auto relay = first.Next<RelayMessage>();  // Of like ones the first is taken.
  if (!relay) return "";
  const TokensMessage answer{.id = IdOf(relay->message),
                             .tokens = {{.token = 1}},
                             .finish = FinishReason::kLength,
                             .found = PagesFound{}};
  first.Send(RelayMessage{kFirst, relay->from, answer});
  return route.get_future().get();
}

TEST(ClusterBackendTest, TheLogSaysWhatARouteWasComparedWithWhereAllIsAskedFor) {
  const std::string chosen = RouteOf(false), all = RouteOf(true);
  EXPECT_THAT(chosen, AllOf(HasSubstr("whole one ttft"), Not(HasSubstr("two"))));
  EXPECT_THAT(all, AllOf(StartsWith("whole one ttft"), HasSubstr("; whole two ttft")));
}

}  // namespace
}  // namespace divisi
