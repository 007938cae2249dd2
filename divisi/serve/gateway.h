// The front of a server: OpenAI's HTTP API over a RequestBackend.
//
// A request's path: Handle (route, key, readiness) -> PrepareRequest (parse, render, tokenise;
// large bodies on a thread of their own) -> Completion (submit, stream, end). Routes:
// /v1/completions, /v1/chat/completions, /v1/models[/NAME], /tokenize, /detokenize, /health,
// /metrics, /version.
//
// It listens before there is a model: until SetModel, and again from Drain on, what needs the model
// is answered 503 with Retry-After, and /health says so.
// Threads: Handle and completions run on their exchange's strand, engine events arrive from the
// engine's thread; SetModel and Drain may be called from any.
// Order of ending: the HTTP server stops, then the gateway goes, then what its model points to: the
// worker's thread may be at a large body until the gateway's destructor has returned.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "divisi/serve/gateway_completion.h"
#include "divisi/serve/gateway_prompt.h"
#include "divisi/serve/gateway_worker.h"
#include "divisi/serve/http.h"
#include "divisi/serve/metrics.h"

namespace divisi {

struct GatewayOptions {
  std::vector<std::string> model_names;  // At least one; the first is what responses say.
  std::string api_key;                   // Empty: none is asked for. /health is open always.
  std::string allowed_origin;            // For CORS: "*" or an origin; empty: no CORS headers.
  std::string version;
};

class Gateway final : public HttpHandler {
 public:
  // clock: the engine's. clock and logger outlive this.
  Gateway(GatewayOptions options, const Clock& clock, Logger& logger);
  ~Gateway() override;

  // The model is loaded: requests are served from now on. Once.
  void SetModel(GatewayModel model);
  // New requests are refused from now on; those that run go on.
  void Drain() { draining_ = true; }

  void Handle(HttpRequest request, std::shared_ptr<HttpExchange> exchange) override;
  // Counts it, and logs a line, but at most one a second: it may be a flood.
  void OnRefusal(const HttpRefusal& refusal) override;

 private:
  struct Call;
  struct LargeCall;
  // A model with what counts its requests.
  struct Loaded {
    GatewayModel model;
    ServeMetrics metrics;
  };

  struct Route {
    std::string_view method;
    std::string_view path;
    void (Gateway::*serve)(Call& call);
    bool open = false;  // Without a key.
  };
  static const std::vector<Route>& Routes();

  void ServeCompletion(Call& call);
  void ServeChat(Call& call);
  void ServeModels(Call& call);
  void ServeModel(Call& call);
  void ServeTokenize(Call& call);
  void ServeDetokenize(Call& call);
  void ServeHealth(Call& call);
  void ServeMetricsText(Call& call);
  void ServeVersion(Call& call);

  void Generate(ApiKind kind, Call& call);
  void StartCompletion(const Call& call, Loaded& loaded, PreparedRequest request);
  // Runs prepare(body) at once or, for a large body, on the worker; then finish(result) on the
  // exchange's strand, unless the server stops before: then the answer is 503.
  template <typename Prepare, typename Finish>
  void PrepareThen(Call& call, Prepare prepare, Finish finish);
  // The model, or nullptr after having answered 503.
  Loaded* ReadyModel(Call& call);
  void AnswerMethod(Call& call, const std::string& allowed);
  HttpHeaders CommonHeaders(const Call& call) const;
  void Answer(const Call& call, HttpResponse response);
  void AnswerError(const Call& call, const ApiError& error);
  void AnswerJson(const Call& call, std::string body);
  bool Authorised(const HttpRequest& request) const;
  Json ModelCard(const std::string& name) const;
  uint64_t DrawNumber();

  const GatewayOptions options_;
  const Clock& clock_;
  Logger& logger_;
  const int64_t started_unix_seconds_;
  const uint64_t random_key_;              // From the system, once.
  std::atomic<uint64_t> draws_{0};
  std::atomic<bool> draining_{false};
  std::mutex refusals_mutex_;
  std::optional<Seconds> refusal_logged_;  // Guarded by refusals_mutex_, as the next.
  int64_t refusals_unlogged_ = 0;          // Since then.
  std::unique_ptr<Loaded> loaded_;         // Written once, before ready_.
  std::atomic<Loaded*> ready_{nullptr};
  GatewayWorker worker_;                   // Last: its tasks use the rest.
};

// Whether two secrets are equal, in a time that depends on their lengths alone.
bool EqualSecrets(std::string_view a, std::string_view b);

}  // namespace divisi
