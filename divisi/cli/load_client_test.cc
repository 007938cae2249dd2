// The client and the driver against a scripted server: a few lines of sockets that answer as told,
// rightly or wrongly.
#include "divisi/cli/load_client.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <mutex>
#include <thread>

#include "divisi/cli/load_run.h"
#include "divisi/core/format.h"

namespace divisi {
namespace {

// One accepted connection of the scripted server.
class Peer {
 public:
  explicit Peer(int fd) : fd_(fd) {}
  ~Peer() { ::close(fd_); }

  // The next request's header and body; empty when the client has gone.
  std::string ReadRequest() {
    size_t end;
    while ((end = pending_.find("\r\n\r\n")) == std::string::npos) {
      if (!ReadMore()) return "";
    }
    size_t length = 0;
    if (const size_t at = pending_.find("Content-Length: "); at < end) {
      length = std::stoul(pending_.substr(at + 16));
      if (length > 1 << 20) length = 0;  // A lie: answered without waiting for it.
    }
    while (pending_.size() < end + 4 + length) {
      if (!ReadMore()) return "";
    }
    std::string request = pending_.substr(0, end + 4 + length);
    pending_.erase(0, request.size());
    return request;
  }

  // False when the client has gone.
  bool Write(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t n = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (n <= 0) return false;
      bytes.remove_prefix(static_cast<size_t>(n));
    }
    return true;
  }

 private:
  bool ReadMore() {
    char buffer[4096];
    const ssize_t n = ::recv(fd_, buffer, sizeof buffer, 0);
    if (n <= 0) return false;
    pending_.append(buffer, static_cast<size_t>(n));
    return true;
  }

  int fd_;
  std::string pending_;
};

class ScriptedServer {
 public:
  // script runs on a thread of each connection; the connection closes when it returns.
  using Script = std::function<void(Peer&, int connection)>;
  explicit ScriptedServer(Script script) : script_(std::move(script)) {
    listener_ = ::socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    CHECK(::bind(listener_, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
    CHECK(::listen(listener_, 512) == 0);
    socklen_t size = sizeof address;
    CHECK(::getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size) == 0);
    port_ = ntohs(address.sin_port);
    accepter_ = std::thread([this] { Accept(); });
  }
  // Clients are gone by now, so scripts end.
  ~ScriptedServer() {
    ::shutdown(listener_, SHUT_RDWR);
    accepter_.join();
    ::close(listener_);
    for (std::thread& thread : threads_) thread.join();
  }

  HttpAddress address() const { return {"127.0.0.1", Format("{}", port_), ""}; }
  int connections() const { return connections_; }

 private:
  void Accept() {
    while (true) {
      const int fd = ::accept(listener_, nullptr, nullptr);
      if (fd < 0) return;
      const int number = connections_++;
      threads_.emplace_back([this, fd, number] {
        const int on = 1;  // Pieces leave at once, as a real server sends them.
        ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        Peer peer(fd);
        script_(peer, number);
      });
    }
  }

  Script script_;
  int listener_ = -1;
  uint16_t port_ = 0;
  std::atomic<int> connections_{0};
  std::thread accepter_;
  std::vector<std::thread> threads_;  // Grown by the accepter alone.
};

std::string Chunk(std::string_view bytes) { return Format("{:x}\r\n{}\r\n", bytes.size(), bytes); }
std::string Reply(int status, std::string_view body) {
  return Format("HTTP/1.1 {} X\r\nContent-Length: {}\r\n\r\n{}", status, body.size(), body);
}
constexpr std::string_view kStreamHead =
    "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";
std::string TokenEvent(std::string_view text) {
  return Format("data: {{\"choices\":[{{\"text\":\"{}\",\"finish_reason\":null}}]}}\n\n", text);
}

// Streams `tokens` tokens in answer to each request, until the client leaves.
void StreamTokens(Peer& peer, int tokens, std::chrono::milliseconds pause) {
  while (!peer.ReadRequest().empty()) {
    peer.Write(kStreamHead);
    for (int i = 0; i < tokens; ++i) {
      std::this_thread::sleep_for(pause);
      const std::string chunk = Chunk(TokenEvent("x"));
      // In two pieces: the client has to put them together.
      if (!peer.Write(chunk.substr(0, 9)) || !peer.Write(chunk.substr(9))) return;
    }
    peer.Write(
        Chunk(Format("data: {{\"choices\":[],\"usage\":{{\"prompt_tokens\":4,"
                     "\"completion_tokens\":{}}}}}\n\ndata: [DONE]\n\n",
                     tokens)));
    peer.Write("0\r\n\r\n");
  }
}

std::unique_ptr<LoadClient> Client(const ScriptedServer& server, LoadClient::Options options = {}) {
  return LoadClient::Create(server.address(), options).value();
}

std::string Get(const ScriptedServer& server) {
  return HttpRequestText(server.address(), "GET", "/x", "", "");
}

TEST(LoadClient, FetchesAndKeepsTheConnection) {
  ScriptedServer server([](Peer& peer, int) {
    for (std::string request; !(request = peer.ReadRequest()).empty();) {
      peer.Write(Reply(request.starts_with("GET /x") ? 200 : 404, "hello"));
    }
  });
  const auto client = Client(server);
  for (int i = 0; i < 5; ++i) {
    const auto reply = client->Fetch(Get(server));
    ASSERT_TRUE(reply.ok()) << reply.error().message;
    EXPECT_EQ(reply->status, 200);
    EXPECT_EQ(reply->body, "hello");
  }
  EXPECT_EQ(server.connections(), 1);
}

TEST(LoadClient, SendsAgainWhenTheServerClosedTheIdleConnection) {
  ScriptedServer server([](Peer& peer, int) {
    peer.ReadRequest();
    peer.Write(Reply(200, "once"));
  });
  const auto client = Client(server);
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(client->Fetch(Get(server)).ok());
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  EXPECT_EQ(server.connections(), 3);
}

TEST(LoadClient, SaysHowAnExchangeFailed) {
  const auto code = [](const std::string& answer) {
    ScriptedServer server([answer](Peer& peer, int) {
      peer.ReadRequest();
      peer.Write(answer);
    });
    const auto reply = Client(server)->Fetch(Get(server));
    return reply.ok() ? "ok" : CodeName(reply.error().code);
  };
  EXPECT_STREQ(code(""), "data_loss");
  EXPECT_STREQ(code("HTTP/1.1 200 OK\r\nContent-Len"), "data_loss");
  EXPECT_STREQ(code("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc"), "data_loss");
  EXPECT_STREQ(code("SSH-2.0-OpenSSH\r\n\r\n"), "invalid_argument");
  EXPECT_STREQ(code("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"),
               "invalid_argument");
  EXPECT_STREQ(code("HTTP/1.0 200 OK\r\n\r\nuntil the end"), "ok");
  EXPECT_STREQ(code("HTTP/1.1 204 No\r\n\r\n"), "ok");
}

TEST(LoadClient, SilenceIsADeadline) {
  ScriptedServer server([](Peer& peer, int) {
    peer.ReadRequest();
    peer.Write("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc");
    peer.ReadRequest();  // Until the client leaves.
  });
  const auto reply = Client(server, {.silence_timeout = Seconds(0.1)})->Fetch(Get(server));
  ASSERT_FALSE(reply.ok());
  EXPECT_EQ(reply.error().code, Code::kDeadlineExceeded);
}

TEST(LoadClient, NoServerIsUnavailableAndSaysHowToStartOne) {
  HttpAddress address;
  {
    ScriptedServer gone([](Peer&, int) {});
    address = gone.address();
  }
  const auto client = LoadClient::Create(address, {}).value();
  const auto model = FirstModel(*client, address, "");
  ASSERT_FALSE(model.ok());
  EXPECT_EQ(model.error().code, Code::kUnavailable);
  EXPECT_NE(model.error().message.find("divisi serve --model"), std::string::npos);
}

LoadTarget Target(const ScriptedServer& server) {
  return {.address = server.address(), .model = "m", .alphabet = {5, 6, 7}};
}

TEST(RunLoad, MeasuresEveryRequestOfManyAtOnce) {
  ScriptedServer server(
      [](Peer& peer, int) { StreamTokens(peer, 4, std::chrono::milliseconds(2)); });
  const auto client = Client(server);
  const auto source =
      MakeSyntheticSource({.count = 300, .input_tokens = 8, .output_tokens = 4}).value();
  const LoadResult result = RunLoad(*client, Target(server), *source, {});
  ASSERT_EQ(result.records.size(), 300u);
  for (const RequestRecord& record : result.records) {
    ASSERT_TRUE(record.completed) << record.error;
    EXPECT_EQ(record.output_tokens, 4);
    EXPECT_EQ(record.input_tokens, 4);  // As usage says.
    EXPECT_EQ(record.text, "xxxx");
    EXPECT_EQ(record.gaps.size(), 3u);
    EXPECT_GE(record.ttft.value, 0.002);
    EXPECT_GE(record.latency.value, 0.008);
    EXPECT_LE(record.latency, result.duration);
  }
  EXPECT_EQ(Measure(result.records, result.duration, {}, {}).peak_concurrency, 300);
}

TEST(RunLoad, KeepsToTheConcurrencyLimitAndReusesConnections) {
  ScriptedServer server(
      [](Peer& peer, int) { StreamTokens(peer, 2, std::chrono::milliseconds(1)); });
  const auto client = Client(server);
  const auto source =
      MakeSyntheticSource({.count = 60, .input_tokens = 8, .output_tokens = 2}).value();
  const LoadResult result = RunLoad(*client, Target(server), *source, {.max_concurrency = 5});
  EXPECT_EQ(Measure(result.records, result.duration, {}, {}).completed, 60);
  EXPECT_LE(Measure(result.records, result.duration, {}, {}).peak_concurrency, 5);
  EXPECT_EQ(server.connections(), 5);
  EXPECT_GT(result.records.back().queue_time.value, 0.01);
}

TEST(RunLoad, SendsWhenRequestsAreDue) {
  ScriptedServer server([](Peer& peer, int) { StreamTokens(peer, 1, {}); });
  const auto client = Client(server);
  std::vector<PlannedRequest> requests(40);
  for (size_t i = 0; i < requests.size(); ++i) {
    requests[i] = {Seconds(0.005 * static_cast<double>(i)), {{i, 4}}, 1};
  }
  const auto source = MakeListSource(requests);
  const LoadResult result = RunLoad(*client, Target(server), *source, {});
  ASSERT_EQ(result.records.size(), requests.size());
  for (size_t i = 0; i < result.records.size(); ++i) {
    EXPECT_TRUE(result.records[i].completed) << result.records[i].error;
    EXPECT_GE(result.records[i].start, requests[i].arrival);
  }
}

TEST(RunLoad, SendsNothingDueAfterTheDurationAndDoesNotWaitForIt) {
  ScriptedServer server([](Peer& peer, int) { StreamTokens(peer, 1, {}); });
  const auto client = Client(server);
  constexpr Seconds kHour(3600), kDay(24 * 3600);  // Whoever waits for either misses ctest's limit.
  const auto source =
      MakeListSource({{Seconds(), {{0, 4}}, 1}, {Seconds(), {{1, 4}}, 1}, {kDay, {{2, 4}}, 1}});
  const LoadResult result = RunLoad(*client, Target(server), *source, {.duration = kHour});
  EXPECT_EQ(result.records.size(), 2u);
}

TEST(RunLoad, SendsNothingOnceTheDurationIsOver) {
  ScriptedServer server(
      [](Peer& peer, int) { StreamTokens(peer, 1, std::chrono::milliseconds(300)); });
  const auto client = Client(server);
  const auto source = MakeListSource({{Seconds(), {{0, 4}}, 1}, {Seconds(), {{1, 4}}, 1}});
  const LoadResult result =
      RunLoad(*client, Target(server), *source, {.max_concurrency = 1, .duration = Seconds(0.25)});
  EXPECT_LE(result.records.size(), 1u);  // None, should the machine pause for the whole duration.
}

TEST(RunLoad, ReportsRefusalsAndBrokenStreams) {
  ScriptedServer server([](Peer& peer, int) {
    for (std::string request; !(request = peer.ReadRequest()).empty();) {
      if (request.find("\"max_tokens\":1,") != std::string::npos) {
        peer.Write(Reply(429, R"({"error":{"message":"queue is full"}})"));
      } else if (request.find("\"max_tokens\":2,") != std::string::npos) {
        peer.Write(std::string(kStreamHead) + Chunk(TokenEvent("a")) + "0\r\n\r\n");
      } else if (request.find("\"max_tokens\":3,") != std::string::npos) {
        peer.Write(std::string(kStreamHead) + Chunk("data: {nonsense\n\n"));
      } else {
        peer.Write(std::string(kStreamHead) + Chunk(TokenEvent("a")));
        return;
      }
    }
  });
  const auto client = Client(server);
  std::vector<PlannedRequest> requests;
  for (int64_t tokens = 1; tokens <= 4; ++tokens) requests.push_back({Seconds(), {{1, 2}}, tokens});
  const auto source = MakeListSource(requests);
  const auto records = RunLoad(*client, Target(server), *source, {.max_concurrency = 1}).records;
  ASSERT_EQ(records.size(), 4u);
  EXPECT_EQ(records[0].error, "HTTP 429: queue is full");
  EXPECT_EQ(records[1].error, "the stream ended before its [DONE]");
  EXPECT_NE(records[2].error.find("not valid JSON"), std::string::npos);
  EXPECT_NE(records[3].error.find("connection ended within the answer"), std::string::npos);
}

TEST(RunLoad, SomeClientsLeaveMidway) {
  std::atomic<int> left = 0;
  ScriptedServer server([&](Peer& peer, int) {
    StreamTokens(peer, 500, std::chrono::milliseconds(1));
    ++left;
    left.notify_all();
  });
  const auto client = Client(server);
  const auto source =
      MakeSyntheticSource({.count = 20, .input_tokens = 4, .output_tokens = 20}).value();
  const LoadResult result = RunLoad(*client, Target(server), *source, {.disconnect_fraction = 1});
  const LoadFigures figures = Measure(result.records, result.duration, {}, {});
  EXPECT_EQ(figures.abandoned, 20);
  EXPECT_EQ(figures.failed, 0);
  // The client is there still: a connection that it kept open would keep its script.
  for (int n; (n = left) < 20;) left.wait(n);
}

TEST(RunLoad, TalliesBrokenRequestsBesideTheLoad) {
  std::atomic<int> answered = 0;  // Broken requests; the load lasts for so many.
  ScriptedServer server([&](Peer& peer, int) {
    for (std::string request; !(request = peer.ReadRequest()).empty();) {
      if (request.find("\"stream\":true") != std::string::npos) {
        for (int n; (n = answered) < 20;) answered.wait(n);
        peer.Write(std::string(kStreamHead) + Chunk(TokenEvent("a") + "data: [DONE]\n\n") +
                   "0\r\n\r\n");
        continue;
      }
      const bool unknown_model = request.find("no such model") != std::string::npos;
      const bool no_json = request.find("prompt=Once") != std::string::npos;
      peer.Write(unknown_model ? Reply(500, "oops") : Reply(no_json ? 200 : 400, "{}"));
      ++answered;
      answered.notify_all();
    }
  });
  const auto client = Client(server);
  const auto source =
      MakeSyntheticSource({.count = 1, .input_tokens = 4, .output_tokens = 1}).value();
  const LoadResult result = RunLoad(*client, Target(server), *source, {.broken_per_second = 100});
  EXPECT_TRUE(result.records.at(0).completed);
  EXPECT_GE(result.broken.sent, 20);
  EXPECT_GT(result.broken.refused, 10);
  EXPECT_GE(result.broken.accepted, 1);
  EXPECT_GE(result.broken.failed, 1);
  EXPECT_EQ(result.broken.sent, result.broken.refused + result.broken.accepted +
                                    result.broken.failed + result.broken.incomplete);
  EXPECT_TRUE(result.broken.faults.contains("unknown model: status 500"));
  EXPECT_TRUE(result.broken.faults.contains("no JSON: status 200"));
}

TEST(FirstModel, ReadsTheListAndTheAlphabetComesFromProse) {
  ScriptedServer server([&](Peer& peer, int) {
    for (std::string request; !(request = peer.ReadRequest()).empty();) {
      if (request.find("Bearer key") == std::string::npos) {
        peer.Write(Reply(401, R"({"error":{"message":"no"}})"));
      } else if (request.starts_with("GET /v1/models")) {
        peer.Write(Reply(200, R"({"data":[{"id":"tiny","max_model_len":2048},{"id":"b"}]})"));
      } else {
        peer.Write(Reply(200, R"({"count":4,"tokens":[9,300,9,12]})"));
      }
    }
  });
  const auto client = Client(server);
  const auto model = FirstModel(*client, server.address(), "key");
  ASSERT_TRUE(model.ok()) << model.error().message;
  EXPECT_EQ(model->id, "tiny");
  EXPECT_EQ(model->max_model_len, 2048);
  EXPECT_EQ(FirstModel(*client, server.address(), "").error().code, Code::kUnauthenticated);
  EXPECT_EQ(ProseAlphabet(*client, server.address(), "key", "tiny").value(),
            (std::vector<TokenId>{9, 12, 300}));
  EXPECT_EQ(ProseAlphabet(*client, server.address(), "", "tiny").error().code, Code::kNotFound);
}

}  // namespace
}  // namespace divisi
