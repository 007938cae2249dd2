// The server over real sockets, with the gateway, the engine and the simulated executor behind it.
#include "divisi/serve/http_server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "divisi/serve/gateway.h"
#include "divisi/serve/http_test_client.h"
#include "divisi/sim/sim_executor.h"

namespace divisi {
namespace {

using testing::HasSubstr;

// Gives clients time to act while a request runs.
class PacedExecutor final : public Executor {
 public:
  PacedExecutor(Executor& inner, std::atomic<int>& microseconds)
      : inner_(inner), microseconds_(microseconds) {}
  std::vector<SliceResult> Execute(const StepPlan& plan) override {
    std::this_thread::sleep_for(std::chrono::microseconds(microseconds_));
    return inner_.Execute(plan);
  }

 private:
  Executor& inner_;
  std::atomic<int>& microseconds_;
};

class HttpServerTest : public testing::Test {
 protected:
  static constexpr int64_t kBlocks = 4096;

  HttpServerTest()
      : tokenizer_(
            *Tokenizer::Load(std::filesystem::path(DIVISI_SOURCE_DIR) / "models/tiny-qwen3")),
        sim_({.blocks = kBlocks}),
        paced_(sim_, step_microseconds_),
        engine_({.max_sequences = 64, .max_model_len = 16384, .blocks = kBlocks}, paced_, clock_),
        backend_(engine_),
        gateway_({.model_names = {"tiny"}}, clock_, logger_) {
    gateway_.SetModel(Model());
  }
  ~HttpServerTest() override {
    if (server_) server_->Stop(Seconds(0));
    EXPECT_EQ(sim_.first_fault(), "");
  }

  GatewayModel Model() {
    GatewayModel model;
    model.backend = &backend_;
    model.tokenizer = &tokenizer_;
    model.vocab_size = tokenizer_.vocab_size();
    model.max_model_len = 16384;
    return model;
  }
  // Its chat template takes until `hold` is false.
  GatewayModel HoldingModel(std::atomic<int>& renders, const std::atomic<bool>& hold) {
    GatewayModel model = Model();
    model.render_chat = [&](const Json&, double) -> Result<std::string> {
      ++renders;
      while (hold) std::this_thread::yield();
      return std::string("hello");
    };
    return model;
  }
  void Start(HttpServerOptions options = {}) {
    auto server = HttpServer::Start(options, gateway_);
    ASSERT_TRUE(server) << server.error().message;
    server_.emplace(*std::move(server));
  }
  HttpTestClient Client() { return HttpTestClient(server_->port()); }
  static std::string Completion(const std::string& fields) {
    return HttpTestClient::Post("/v1/completions",
                                "{\"prompt\":[1,2,3],\"seed\":7," + fields + "}");
  }
  // Large enough for the gateway's worker.
  static std::string LargeChat() {
    return HttpTestClient::Post(
        "/v1/chat/completions",
        "{\"max_tokens\":1,\"messages\":[{\"role\":\"user\",\"content\":\"" +
            std::string(100000, 'x') + "\"}]}");
  }
  static std::string Endless() {
    return Completion("\"max_tokens\":16000,\"ignore_eos\":true,\"stream\":true");
  }

  // All of a stream's text.
  static std::string StreamText(const std::string& body) {
    std::string text;
    size_t at = 0;
    while ((at = body.find("data: ", at)) != std::string::npos) {
      const size_t end = body.find("\n\n", at);
      const std::string data = body.substr(at + 6, end - at - 6);
      if (data != "[DONE]") {
        const auto event = Json::Parse(data);
        EXPECT_TRUE(event) << data;
        EXPECT_EQ(event->Find("error"), nullptr) << data;
        text += event->Find("choices")->as_array()[0].Find("text")->as_string();
      }
      at = end;
    }
    return text;
  }
  // Waits until the engine holds no request and no page.
  bool EngineIsIdle() {
    for (int i = 0; i < 3000; ++i) {
      const EngineStats stats = engine_.stats();
      if (stats.queued == 0 && stats.scheduler.running == 0 && stats.scheduler.blocks_used == 0) {
        return true;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return false;
  }

  SteadyClock clock_;
  Logger logger_{{.least = LogLevel::kError}};
  Tokenizer tokenizer_;
  std::atomic<int> step_microseconds_{0};
  SimExecutor sim_;
  PacedExecutor paced_;
  Engine engine_;
  EngineBackend backend_;
  Gateway gateway_;
  std::optional<HttpServer> server_;
};

TEST_F(HttpServerTest, OneConnectionCarriesPlainAndStreamedAnswers) {
  Start();
  auto client = Client();
  client.Send(Completion("\"max_tokens\":40"));
  const auto plain = client.Read();
  ASSERT_TRUE(plain);
  EXPECT_EQ(plain->status, 200);
  const Json body = *Json::Parse(plain->body);
  const std::string text = body.Find("choices")->as_array()[0].Find("text")->as_string();
  EXPECT_EQ(*body.Find("usage")->Find("completion_tokens"), Json(40));
  client.Send(Completion("\"max_tokens\":40,\"stream\":true"));
  const auto streamed = client.Read();
  ASSERT_TRUE(streamed);
  EXPECT_EQ(StreamText(streamed->body), text);
  EXPECT_TRUE(streamed->body.ends_with("data: [DONE]\n\n"));
  client.Send("GET /health HTTP/1.1\r\nHost: t\r\n\r\n");
  EXPECT_EQ(client.Read()->status, 200);
}

TEST_F(HttpServerTest, PipelinedRequestsAreAnsweredInOrder) {
  Start();
  auto client = Client();
  std::string all = Completion("\"max_tokens\":3,\"stream\":true");
  for (int i = 0; i < 20; ++i) {
    all += "GET /v1/models/m" + std::to_string(i) + " HTTP/1.1\r\nHost: t\r\n\r\n";
  }
  client.Send(all);
  EXPECT_THAT(client.Read()->body, HasSubstr("[DONE]"));
  for (int i = 0; i < 20; ++i) {
    const auto response = client.Read();
    ASSERT_TRUE(response);
    EXPECT_THAT(response->body, HasSubstr("'m" + std::to_string(i) + "'"));
  }
}

TEST_F(HttpServerTest, AClientThatLeavesOrHalfClosesFreesItsPages) {
  Start();
  step_microseconds_ = 300;
  for (const bool half : {false, true}) {
    auto client = Client();
    client.Send(Endless());
    ASSERT_TRUE(client.ReadThrough("data: "));
    EXPECT_GT(engine_.stats().scheduler.running, 0);
    half ? client.CloseSending() : client.Close();
    EXPECT_TRUE(EngineIsIdle());
  }
  EXPECT_LT(engine_.stats().generated_tokens, 16000);
}

TEST_F(HttpServerTest, AClientThatLeavesBeforeTheFirstTokenIsNoticed) {
  Start();
  step_microseconds_ = 1000;
  auto client = Client();
  client.Send(
      Completion("\"max_tokens\":16000,\"ignore_eos\":true"));  // Nothing is written for long.
  while (engine_.stats().scheduler.running == 0) std::this_thread::yield();
  client.Close();
  EXPECT_TRUE(EngineIsIdle());
  EXPECT_LT(engine_.stats().generated_tokens, 16000);
}

TEST_F(HttpServerTest, ASlowReaderIsCutOff) {
  Start({.max_buffered_bytes = 16 << 10, .send_buffer_bytes = 16 << 10});
  HttpTestClient client(server_->port(), 4096);
  client.Send(Endless());
  while (engine_.stats().generated_tokens == 0) std::this_thread::yield();
  EXPECT_TRUE(EngineIsIdle());
  EXPECT_LT(engine_.stats().generated_tokens, 16000);
  while (client.ReadThrough("\n")) {  // Until the cut, which may be within a line.
  }
  while (server_->connections() != 0) std::this_thread::yield();
}

TEST_F(HttpServerTest, BoundsBodiesAndHeads) {
  Start({.parser = {.max_head_bytes = 2048, .max_body_bytes = 10000}});
  auto declared = Client();
  declared.Send("POST /v1/completions HTTP/1.1\r\nHost: t\r\nContent-Length: 99999999\r\n\r\n{");
  EXPECT_EQ(declared.Read()->status, 413);
  EXPECT_TRUE(declared.IsClosedByServer());
  auto sent = Client();
  sent.Send("POST /v1/completions HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n");
  for (int i = 0; i < 20; ++i) sent.Send("400\r\n" + std::string(1024, ' ') + "\r\n");
  EXPECT_EQ(sent.Read()->status, 413);
  auto head = Client();
  head.Send("GET /" + std::string(5000, 'x') + " HTTP/1.1\r\nHost: t\r\n\r\n");
  EXPECT_EQ(head.Read()->status, 431);
  auto frame = Client();
  frame.Send("POST / HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n5;" +
             std::string(9000, 'x'));
  EXPECT_EQ(frame.Read()->status, 400);
}

TEST_F(HttpServerTest, ABodyOfUnknownCodingIsNoSecondRequest) {
  Start();
  auto client = Client();
  client.Send(
      "POST /tokenize HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: gzip\r\n\r\n"
      "GET /version HTTP/1.1\r\nHost: t\r\n\r\n");
  const auto response = client.Read();
  ASSERT_TRUE(response);
  EXPECT_EQ(response->status, 400);
  EXPECT_THAT(response->head, HasSubstr("Connection: close"));
  EXPECT_TRUE(client.IsClosedByServer());
}

TEST_F(HttpServerTest, BodiesTogetherAreBounded) {
  Start({.max_body_bytes_together = 100'000});
  const auto ask = [](size_t size) {
    std::string body = "{\"prompt\":[1],\"max_tokens\":1}";
    body.resize(size, ' ');
    return HttpTestClient::Post("/v1/completions", body);
  };
  // Until the server has read what others sent or did: at once, but for a busy machine.
  const auto becomes = [&](int status, int tries = 1000) {
    for (int i = 0; i < tries; ++i) {
      auto client = Client();
      client.Send(ask(60'000));
      const auto response = client.Read();
      if (response && response->status == status) {
        EXPECT_EQ(response->head.find("Retry-After: 1") != std::string::npos, status == 503);
        if (status == 503) {
          EXPECT_TRUE(client.IsClosedByServer());
        }
        return true;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return false;
  };
  // A client whose body is counted: one that asks may be read before it, and have it refused.
  const auto hold = [&] {
    std::optional<HttpTestClient> client;
    for (int i = 0; i < 100; ++i) {
      client.emplace(Client());
      client->Send(ask(60'000).substr(0, 60'000));
      if (becomes(503, 50)) return client;
    }
    return std::optional<HttpTestClient>();
  };
  auto slow = hold();
  ASSERT_TRUE(slow);
  auto small = Client();
  small.Send(ask(1000));
  EXPECT_EQ(small.Read()->status, 200);
  slow->Send(ask(60'000).substr(60'000));
  EXPECT_EQ(slow->Read()->status, 200);
  EXPECT_TRUE(becomes(200));
  auto leaving = hold();
  ASSERT_TRUE(leaving);
  leaving->Close();
  EXPECT_TRUE(becomes(200));
}

TEST_F(HttpServerTest, ContinuesAndHttp10) {
  Start();
  auto client = Client();
  const std::string body = "{\"prompt\":[1],\"max_tokens\":1}";
  client.Send(
      "POST /v1/completions HTTP/1.1\r\nHost: t\r\nExpect: 100-continue\r\nContent-Length: " +
      std::to_string(body.size()) + "\r\n\r\n");
  EXPECT_EQ(client.Read()->status, 100);
  client.Send(body);
  EXPECT_EQ(client.Read()->status, 200);
  auto old = Client();
  const std::string streamed = "{\"prompt\":[1],\"max_tokens\":5,\"stream\":true}";
  old.Send("POST /v1/completions HTTP/1.0\r\nContent-Length: " + std::to_string(streamed.size()) +
           "\r\n\r\n" + streamed);
  const auto response = old.Read();
  EXPECT_EQ(response->head.find("chunked"), std::string::npos);
  EXPECT_TRUE(response->body.ends_with("data: [DONE]\n\n"));
}

TEST_F(HttpServerTest, WaitsHaveAnEnd) {
  Start({.idle_timeout = Seconds(1), .body_timeout = Seconds(1)});
  auto idle = Client();
  EXPECT_TRUE(idle.IsClosedByServer());
  auto head = Client();
  head.Send("GET /health HT");
  const auto late = testing::Optional(testing::Field(&HttpTestClient::Response::status, 408));
  EXPECT_THAT(head.Read(), late);
  auto body = Client();
  body.Send("POST /v1/completions HTTP/1.1\r\nHost: t\r\nContent-Length: 100\r\n\r\n{");
  EXPECT_THAT(body.Read(), late);
  EXPECT_TRUE(body.IsClosedByServer());
}

TEST_F(HttpServerTest, TooManyConnectionsAreTurnedAway) {
  Start({.max_connections = 2});
  auto first = Client();
  auto second = Client();
  first.Send("GET /health HTTP/1.1\r\nHost: t\r\n\r\n");
  second.Send("GET /health HTTP/1.1\r\nHost: t\r\n\r\n");
  EXPECT_EQ(first.Read()->status, 200);
  EXPECT_EQ(second.Read()->status, 200);
  auto third = Client();
  const auto response = third.Read();
  ASSERT_TRUE(response);
  EXPECT_EQ(response->status, 503);
  EXPECT_THAT(response->head, HasSubstr("Retry-After: 1"));
  second.Send("GET /health HTTP/1.1\r\nHost: t\r\n\r\n");
  EXPECT_EQ(second.Read()->status, 200);
}

TEST_F(HttpServerTest, MalformedRequestsDoNotDisturbAStream) {
  Start({.threads = 2});
  const std::string ask = Completion("\"max_tokens\":300,\"ignore_eos\":true,\"stream\":true");
  auto quiet = Client();
  quiet.Send(ask);
  const std::string expected = StreamText(quiet.Read()->body);
  step_microseconds_ = 1000;
  auto stream = Client();
  stream.Send(ask);
  const std::vector<std::string> malformed{
      "\r\n\r\n\r\n",
      "GET\r\n\r\n",
      std::string(300, '\0'),
      "GET / HTTP/9.9\r\n\r\n",
      "POST /v1/completions HTTP/1.1\r\nHost: t\r\nContent-Length: -5\r\n\r\n",
      "POST /v1/completions HTTP/1.1\r\nHost: t\r\nContent-Length: 5\r\nContent-Length: "
      "6\r\n\r\n{}",
      "POST /v1/completions HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
      HttpTestClient::Post("/v1/completions", "{"),
      HttpTestClient::Post("/v1/completions", "[]"),
      HttpTestClient::Post("/v1/completions", "{\"prompt\":[1],\"n\":1000000000}"),
      HttpTestClient::Post("/v1/completions", "{\"prompt\":[1],\"temperature\":1e400}"),
      HttpTestClient::Post("/v1/completions", "{\"prompt\":" + std::string(100000, '[')),
      HttpTestClient::Post("/v1/completions", "{\"prompt\":\"\xff\xfe\"}"),
      HttpTestClient::Post("/nothing", "{}"),
      "DELETE /v1/models HTTP/1.1\r\nHost: t\r\n\r\n"};
  for (int round = 0; round < 10; ++round) {
    for (const std::string& bytes : malformed) {
      auto client = Client();
      client.Send(bytes);
      client.CloseSending();
      if (const auto response = client.Read()) {
        EXPECT_GE(response->status, 400) << bytes.substr(0, 100);
        EXPECT_LT(response->status, 500) << bytes.substr(0, 100);
      }
    }
  }
  const auto response = stream.Read();
  ASSERT_TRUE(response);
  EXPECT_EQ(StreamText(response->body), expected);
  EXPECT_TRUE(EngineIsIdle());
}

TEST_F(HttpServerTest, ServesTwoHundredStreamsAtOnce) {
  Start({.threads = 2});
  std::vector<HttpTestClient> clients;
  for (int i = 0; i < 200; ++i) {
    clients.push_back(Client());
    clients.back().Send(HttpTestClient::Post(
        "/v1/completions",
        Format(R"({{"prompt":[{},7],"seed":7,"max_tokens":30,"ignore_eos":true,"stream":true}})",
               i % 50)));
  }
  std::vector<std::string> texts;
  for (HttpTestClient& client : clients) {
    const auto response = client.Read();
    ASSERT_TRUE(response);
    EXPECT_TRUE(response->body.ends_with("data: [DONE]\n\n"));
    texts.push_back(StreamText(response->body));
  }
  for (size_t i = 50; i < texts.size(); ++i) EXPECT_EQ(texts[i], texts[i % 50]) << i;
  EXPECT_TRUE(EngineIsIdle());
}

TEST_F(HttpServerTest, StopLetsStreamsEnd) {
  Start();
  step_microseconds_ = 500;
  auto stream = Client();
  stream.Send(Completion("\"max_tokens\":200,\"ignore_eos\":true,\"stream\":true"));
  ASSERT_TRUE(stream.ReadThrough("\r\n\r\n"));
  auto idle = Client();
  gateway_.Drain();
  server_->Stop(Seconds(60));
  EXPECT_TRUE(stream.ReadThrough("data: [DONE]"));
  EXPECT_TRUE(idle.IsClosedByServer());
  EXPECT_FALSE(HttpTestClient(server_->port()).connected());
}

TEST_F(HttpServerTest, StopEndsWhatDoesNotEnd) {
  Start();
  step_microseconds_ = 1000;
  auto stream = Client();
  stream.Send(Endless());
  auto plain = Client();
  plain.Send(Completion("\"max_tokens\":16000,\"ignore_eos\":true"));
  ASSERT_TRUE(stream.ReadThrough("data: "));
  while (engine_.stats().scheduler.running < 2) std::this_thread::yield();
  server_->Stop(Seconds(0.05));
  EXPECT_EQ(server_->connections(), 0);
  EXPECT_TRUE(EngineIsIdle());
  const auto answer = plain.Read();
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->status, 503);
  EXPECT_THAT(answer->head, HasSubstr("Retry-After: "));
  EXPECT_TRUE(plain.IsClosedByServer());
  const auto last = stream.ReadThrough("\r\n0\r\n\r\n");
  ASSERT_TRUE(last) << "the stream was cut";
  EXPECT_THAT(*last, HasSubstr("data: {\"error\":"));
  EXPECT_THAT(*last, HasSubstr("the server is stopping"));
}

TEST_F(HttpServerTest, LargePromptsAreTokenisedAside) {
  Start();
  std::string text;
  while (text.size() < 200000) text += "Once upon a time there was a cat. ";
  auto client = Client();
  client.Send(HttpTestClient::Post("/tokenize", "{\"prompt\":\"" + text + "\"}"));
  const auto response = client.Read();
  ASSERT_TRUE(response);
  EXPECT_EQ(response->status, 200);
  EXPECT_EQ(*Json::Parse(response->body)->Find("count"),
            Json(static_cast<int64_t>(tokenizer_.Encode(text, true).size())));
}

// What the worker was to do for a client that left is not done.
TEST_F(HttpServerTest, LargeBodiesOfGoneClientsAreSkipped) {
  std::atomic<int> renders{0};
  std::atomic<bool> hold{true};
  Gateway gateway({.model_names = {"tiny"}}, clock_, logger_);
  gateway.SetModel(HoldingModel(renders, hold));
  auto server = HttpServer::Start({}, gateway);
  ASSERT_TRUE(server);
  const std::string ask = LargeChat();
  HttpTestClient first(server->port());
  first.Send(ask);
  while (renders == 0) std::this_thread::yield();
  {
    HttpTestClient gone(server->port());
    gone.Send(ask);
    while (server->connections() != 2) std::this_thread::yield();
    // It reaches the queue; were it late, this test would see less, not fail.
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  while (server->connections() != 1) std::this_thread::yield();
  hold = false;
  EXPECT_EQ(first.Read()->status, 200);
  HttpTestClient last(server->port());
  last.Send(ask);
  EXPECT_EQ(last.Read()->status, 200);
  EXPECT_EQ(renders, 2);
  server->Stop(Seconds(0));
}

// The worker is at it still when the server will wait no longer.
TEST_F(HttpServerTest, ALargeBodyBeingReadAtTheEndIsAnswered) {
  std::atomic<int> renders{0};
  std::atomic<bool> hold{true};
  Gateway gateway({.model_names = {"tiny"}}, clock_, logger_);
  gateway.SetModel(HoldingModel(renders, hold));
  auto server = HttpServer::Start({}, gateway);
  ASSERT_TRUE(server);
  HttpTestClient client(server->port());
  client.Send(LargeChat());
  while (renders == 0) std::this_thread::yield();
  gateway.Drain();
  server->Stop(Seconds(0.05));
  hold = false;
  const auto answer = client.Read();
  ASSERT_TRUE(answer) << "the connection was cut";
  EXPECT_EQ(answer->status, 503);
  EXPECT_THAT(answer->head, HasSubstr("Retry-After: "));
}

}  // namespace
}  // namespace divisi
