// What the HTTP front adds, in processor time, which others on the machine disturb least.
//   gateway_bench [--tiny]
// chunk: one streamed token from the engine's event to the bytes of its chunk, without sockets.
// stream: the same over loopback sockets, of many streams at once; the engine's and the simulated
//   executor's own time, measured first without HTTP, is taken off. The client's share is in it.
// first token: wall time from a client's request to the first byte of its answer, by a backend that
//   answers at once.
#include <time.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <thread>
#include <vector>

#include "divisi/serve/byte_tokenizer.h"
#include "divisi/serve/gateway.h"
#include "divisi/serve/http_server.h"
#include "divisi/serve/http_test_client.h"
#include "divisi/serve/scripted_backend.h"
#include "divisi/sim/sim_executor.h"

namespace divisi {
namespace {

double CpuSeconds() {
  timespec now;
  CHECK(clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now) == 0);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

constexpr int64_t kModelLength = 8192;

struct Front {
  SteadyClock clock;
  Logger logger{{.least = LogLevel::kError}};
  Tokenizer tokenizer = MakeByteTokenizer();
  Gateway gateway{{.model_names = {"bench"}}, clock, logger};

  explicit Front(RequestBackend& backend) {
    GatewayModel model;
    model.backend = &backend;
    model.tokenizer = &tokenizer;
    model.vocab_size = tokenizer.vocab_size();
    model.max_model_len = kModelLength;
    gateway.SetModel(std::move(model));
  }
};

std::string Ask(int64_t tokens) {
  return Format(R"({{"prompt":[1,2,3],"seed":1,"max_tokens":{},"ignore_eos":true,"stream":true}})",
                tokens);
}

void MeasureChunks(int64_t tokens) {
  ScriptedBackend backend;
  Front front(backend);
  auto exchange = std::make_shared<RecordingExchange>();
  front.gateway.Handle(
      {.method = "POST", .target = "/v1/completions", .body = Ask(kModelLength - 3)}, exchange);
  const double start = CpuSeconds();
  for (int64_t i = 0; i < tokens; ++i) {
    backend.SendIds(0, {static_cast<TokenId>('a' + i % 26)});
    exchange->RunPosted();
  }
  const double seconds = CpuSeconds() - start;
  std::printf("chunk        %8.3f us/token  %6.1f bytes/token\n",
              1e6 * seconds / static_cast<double>(tokens),
              static_cast<double>(exchange->stream().size()) / static_cast<double>(tokens));
}

struct SimEngine {
  SteadyClock clock;
  SimExecutor executor{{.blocks = 65536, .vocab = 128}};
  Engine engine;
  explicit SimEngine(int64_t streams)
      : engine({.max_sequences = streams, .max_model_len = kModelLength, .blocks = 65536}, executor,
               clock) {}
};

double EngineAlone(int streams, int64_t tokens) {
  SimEngine sim(streams);
  std::atomic<int> left{streams};
  const double start = CpuSeconds();
  for (int i = 0; i < streams; ++i) {
    Request request{.prompt = {1, 2, 3}, .max_tokens = tokens};
    auto id = sim.engine.Submit(std::move(request), [&left](const RequestEvent& event) {
      if (event.finish) --left;
    });
    CHECK(id.ok(), "{}", id.error().message);
  }
  while (left > 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  return CpuSeconds() - start;
}

double OverHttp(int streams, int64_t tokens) {
  SimEngine sim(streams);
  EngineBackend backend(sim.engine);
  Front front(backend);
  auto server = HttpServer::Start({}, front.gateway);
  CHECK(server.ok(), "{}", server.error().message);
  const double start = CpuSeconds();
  std::vector<HttpTestClient> clients;
  for (int i = 0; i < streams; ++i) {
    clients.emplace_back(server->port());
    clients.back().Send(HttpTestClient::Post("/v1/completions", Ask(tokens)));
  }
  for (HttpTestClient& client : clients) {
    const auto response = client.Read();
    CHECK(response && response->body.ends_with("data: [DONE]\n\n"), "a broken stream");
  }
  const double seconds = CpuSeconds() - start;
  server->Stop(Seconds(0));
  return seconds;
}

void MeasureStreams(int streams, int64_t tokens) {
  const double alone = EngineAlone(streams, tokens);
  const double http = OverHttp(streams, tokens);
  const double all = static_cast<double>(streams) * static_cast<double>(tokens);
  std::printf("stream %5d %8.3f us/token of HTTP  (%.3f with the engine, %.3f the engine alone)\n",
              streams, 1e6 * (http - alone) / all, 1e6 * http / all, 1e6 * alone / all);
}

void MeasureFirstToken(int requests) {
  ScriptedBackend backend;
  backend.EchoPrompts();
  Front front(backend);
  auto server = HttpServer::Start({}, front.gateway);
  CHECK(server.ok(), "{}", server.error().message);
  HttpTestClient client(server->port());
  std::vector<double> seconds;
  for (int i = 0; i < requests; ++i) {
    const auto start = std::chrono::steady_clock::now();
    client.Send(HttpTestClient::Post("/v1/completions", Ask(1)));
    CHECK(client.ReadThrough("data: "), "no answer");
    seconds.push_back(
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
    CHECK(client.ReadThrough("\r\n0\r\n\r\n"), "no end");
  }
  std::ranges::sort(seconds);
  const auto at = [&](double part) {
    return 1e6 * seconds[static_cast<size_t>(part * static_cast<double>(seconds.size() - 1))];
  };
  std::printf("first token  %8.1f us median  %8.1f p10  %8.1f p90  %8.1f p99\n", at(0.5), at(0.1),
              at(0.9), at(0.99));
  server->Stop(Seconds(0));
}

}  // namespace
}  // namespace divisi

int main(int argc, char** argv) {
  const bool tiny = argc > 1 && std::strcmp(argv[1], "--tiny") == 0;
  divisi::MeasureChunks(tiny ? 100 : 8000);
  for (const int streams : {1, 64, 1000}) {
    divisi::MeasureStreams(tiny ? std::min(streams, 8) : streams, tiny ? 10 : 200);
  }
  divisi::MeasureFirstToken(tiny ? 10 : 2000);
  return 0;
}
