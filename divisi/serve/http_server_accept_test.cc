// The server alone: what it does with connections before and beside any handler's answer.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <atomic>
#include <mutex>
#include <thread>

#include "divisi/serve/http_server.h"
#include "divisi/serve/http_test_client.h"

namespace divisi {
namespace {

using testing::HasSubstr;

TEST(HttpServer, ASlowClientIsNotOneThatLeft) {
  struct Flood final : HttpHandler {
    void Handle(HttpRequest, std::shared_ptr<HttpExchange> exchange) override {
      exchange->OnClosed([this](HttpClosing why) { closed = static_cast<int>(why); });
      exchange->BeginStream({});
      exchange->Write(std::string(2000, 'x'));  // More than the bound below.
    }
    std::atomic<int> closed{-1};
  } flood;
  auto server = HttpServer::Start({.max_buffered_bytes = 1000}, flood);
  ASSERT_TRUE(server);
  HttpTestClient client(server->port());
  client.Send("GET / HTTP/1.1\r\nHost: t\r\n\r\n");
  client.ReadThrough("xx");
  server->Stop(Seconds(0));
  EXPECT_EQ(flood.closed, static_cast<int>(HttpClosing::kClientTooSlow));
}

struct RefusalRecorder final : HttpHandler {
  void Handle(HttpRequest, std::shared_ptr<HttpExchange> exchange) override {
    exchange->Respond({});
  }
  void OnRefusal(const HttpRefusal& refusal) override {
    std::lock_guard lock(mutex);
    refusals.push_back(refusal);
  }
  std::vector<HttpRefusal> Refusals() {
    std::lock_guard lock(mutex);
    return refusals;
  }
  std::mutex mutex;
  std::vector<HttpRefusal> refusals;
};

TEST(HttpServer, ClientsLeaveDescriptorsToTheRest) {
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  // Both ends of the connections are this process's.
  rlimit low = before;
  low.rlim_cur = 2 * kSparedDescriptors;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &low), 0);
  RefusalRecorder handler;
  auto server = HttpServer::Start({}, handler);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  ASSERT_TRUE(server);
  std::vector<std::unique_ptr<HttpTestClient>> clients;
  for (int i = 0; i < kSparedDescriptors; ++i) {
    clients.push_back(std::make_unique<HttpTestClient>(server->port()));
  }
  HttpTestClient one_more(server->port());
  EXPECT_EQ(one_more.Read()->status, 503);
  server->Stop(Seconds(0));
}

TEST(HttpServer, TellsTheHandlerWhatItTurnsAway) {
  RefusalRecorder handler;
  auto server = HttpServer::Start({.max_connections = 1}, handler);
  ASSERT_TRUE(server);
  {
    HttpTestClient client(server->port());
    client.Send("GET / HTTP/1.1\r\n\r\n");
    EXPECT_EQ(client.Read()->status, 400);
    HttpTestClient second(server->port());
    EXPECT_EQ(second.Read()->status, 503);
  }
  const auto refusals = handler.Refusals();
  ASSERT_EQ(refusals.size(), 2u);
  EXPECT_EQ(refusals[0].status, 400);
  EXPECT_THAT(refusals[0].peer, testing::StartsWith("127.0.0.1:"));
  EXPECT_EQ(refusals[1].status, 503);
  EXPECT_EQ(refusals[1].reason, "too many connections");
}

TEST(HttpServer, TellsOfWantOfDescriptorsAndComesBack) {
  RefusalRecorder handler;
  auto server = HttpServer::Start({}, handler);
  ASSERT_TRUE(server);
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const int next = ::dup(0);
  ::close(next);
  const rlimit tight{.rlim_cur = static_cast<rlim_t>(next) + 1, .rlim_max = before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &tight), 0);
  HttpTestClient client(server->port());  // The last descriptor: none is left to accept it with.
  for (int i = 0; i < 1000 && handler.Refusals().empty(); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  ASSERT_FALSE(handler.Refusals().empty());
  EXPECT_EQ(handler.Refusals()[0].status, 0);
  EXPECT_THAT(handler.Refusals()[0].reason, HasSubstr("Too many open files"));
  client.Send("GET / HTTP/1.1\r\nHost: t\r\n\r\n");
  EXPECT_EQ(client.Read()->status, 200);
}

// Whoever cannot answer, or would not, does not hold up the end.
TEST(HttpServer, StopCutsWhatDoesNotAnswer) {
  struct Keeper final : HttpHandler {
    void Handle(HttpRequest, std::shared_ptr<HttpExchange> exchange) override {
      exchange->OnClosed([this](HttpClosing why) { closed = why == HttpClosing::kServerStopped; });
      kept = std::move(exchange);
      held = true;
    }
    std::shared_ptr<HttpExchange> kept;
    std::atomic<bool> held{false};
    std::atomic<bool> closed{false};
  } keeper;
  auto server = HttpServer::Start({}, keeper);
  ASSERT_TRUE(server);
  HttpTestClient client(server->port());
  client.Send("GET / HTTP/1.1\r\nHost: t\r\n\r\n");
  while (!keeper.held) std::this_thread::yield();
  server->Stop(Seconds(0));
  EXPECT_TRUE(keeper.closed);
  EXPECT_TRUE(client.IsClosedByServer());
}

static_assert(!std::is_move_assignable_v<HttpServer>, "it would drop a server that runs");

TEST(HttpServer, SaysWhyItCannotListen) {
  struct Silent final : HttpHandler {
    void Handle(HttpRequest, std::shared_ptr<HttpExchange>) override {}
  } silent;
  auto first = HttpServer::Start({}, silent);
  ASSERT_TRUE(first);
  auto second = HttpServer::Start({.port = first->port()}, silent);
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, Code::kUnavailable);
  auto third = HttpServer::Start({.host = "999.1.1.1"}, silent);
  ASSERT_FALSE(third);
  EXPECT_EQ(third.error().code, Code::kInvalidArgument);
}

}  // namespace
}  // namespace divisi
