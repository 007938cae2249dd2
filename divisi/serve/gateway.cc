#include "divisi/serve/gateway.h"

#include <algorithm>

#include "divisi/core/check.h"
#include "divisi/core/format.h"
#include "divisi/core/random.h"

namespace divisi {
namespace {

// Parsing and tokenising run at about 10 MB/s in the worst case: 3 ms, a fraction of a step.
constexpr size_t kMaxInlineBodyBytes = 32 << 10;
constexpr size_t kMaxRequestIdBytes = 128;
constexpr Seconds kRefusalLogInterval{1};
constexpr std::string_view kStopping = "the server is stopping; try another";
constexpr std::string_view kModelPrefix = "/v1/models/";

// A client's X-Request-Id goes into headers and logs: only what is harmless there.
bool IsGoodRequestId(std::string_view id) {
  return !id.empty() && id.size() <= kMaxRequestIdBytes &&
         std::ranges::all_of(id, [](char c) { return c > ' ' && c < 0x7f; });
}

ApiError NotServing(std::string message) {
  return FromError({Code::kUnavailable, std::move(message)});
}

}  // namespace

// One request on its way to an answer.
struct Gateway::Call {
  HttpRequest request;
  std::shared_ptr<HttpExchange> exchange;
  std::string request_id;
  Seconds arrived;
};

bool EqualSecrets(std::string_view a, std::string_view b) {
  unsigned difference = a.size() == b.size() ? 0 : 1;
  for (size_t i = 0; i < a.size(); ++i) {
    const char other = b.empty() ? '\0' : b[i % b.size()];
    difference |= static_cast<unsigned char>(a[i] ^ other);
  }
  return difference == 0;
}

// One whose body is with the worker.
struct Gateway::LargeCall {
  explicit LargeCall(Call c) : call(std::move(c)) {}
  Call call;
  std::atomic<bool> answered{false};  // Because the server stopped; set on the exchange's strand.
};

Gateway::Gateway(GatewayOptions options, const Clock& clock, Logger& logger)
    : options_(std::move(options)),
      clock_(clock),
      logger_(logger),
      started_unix_seconds_(static_cast<int64_t>(UnixSeconds())),
      random_key_(SystemRandom()) {
  CHECK(!options_.model_names.empty(), "a gateway without a model name");
}

Gateway::~Gateway() = default;

void Gateway::SetModel(GatewayModel model) {
  CHECK(loaded_ == nullptr, "a second model");
  CHECK(model.backend != nullptr && model.tokenizer != nullptr, "an incomplete model");
  const int64_t max_model_len = model.max_model_len;
  loaded_.reset(new Loaded{std::move(model), {options_.model_names[0], max_model_len}});
  ready_.store(loaded_.get(), std::memory_order_release);
}

const std::vector<Gateway::Route>& Gateway::Routes() {
  static const std::vector<Route> routes{
      {"POST", "/v1/completions", &Gateway::ServeCompletion},
      {"POST", "/v1/chat/completions", &Gateway::ServeChat},
      {"GET", "/v1/models", &Gateway::ServeModels},
      {"GET", kModelPrefix, &Gateway::ServeModel},
      {"POST", "/tokenize", &Gateway::ServeTokenize},
      {"POST", "/detokenize", &Gateway::ServeDetokenize},
      {"GET", "/health", &Gateway::ServeHealth, true},
      {"GET", "/metrics", &Gateway::ServeMetricsText},
      {"GET", "/version", &Gateway::ServeVersion},
  };
  return routes;
}

void Gateway::Handle(HttpRequest request, std::shared_ptr<HttpExchange> exchange) {
  Call call{.request = std::move(request), .exchange = std::move(exchange)};
  call.arrived = clock_.Now();
  const std::string_view given = call.request.Header("X-Request-Id");
  call.request_id = IsGoodRequestId(given) ? std::string(given)
                                           : Format("{:016x}{:016x}", DrawNumber(), DrawNumber());
  const std::string_view path = call.request.Path();
  const auto route = std::ranges::find_if(Routes(), [&](const Route& r) {
    return r.path == path || (r.path == kModelPrefix && path.starts_with(kModelPrefix));
  });
  if (route == Routes().end()) {
    return AnswerError(
        call,
        {.status = 404, .message = Format("there is no {} here", path), .code = "unknown_url"});
  }
  const std::string& method = call.request.method;
  if (method != route->method && !(route->method == "GET" && method == "HEAD")) {
    return AnswerMethod(call, route->method == "GET" ? "GET, HEAD, OPTIONS" : "POST, OPTIONS");
  }
  if (!route->open && !Authorised(call.request)) {
    return AnswerError(call, {.status = 401,
                              .message = "wrong or missing API key: send the server's key as "
                                         "'Authorization: Bearer KEY'",
                              .code = "invalid_api_key"});
  }
  (this->*route->serve)(call);
}

// Any method that the route does not serve: OPTIONS is answered for browsers, others refused.
void Gateway::AnswerMethod(Call& call, const std::string& allowed) {
  HttpResponse response{.status = 204, .headers = {{"Allow", allowed}}};
  if (call.request.method == "OPTIONS") {
    if (!options_.allowed_origin.empty()) {
      response.headers.emplace_back("Access-Control-Allow-Methods", allowed);
      response.headers.emplace_back("Access-Control-Allow-Headers",
                                    "Authorization, Content-Type, X-Request-Id");
      response.headers.emplace_back("Access-Control-Max-Age", "600");
    }
    return Answer(call, std::move(response));
  }
  response.status = 405;
  response.headers.emplace_back("Content-Type", "application/json");
  response.body = ErrorBody({.message = Format("{} is not a method of {}; use {}",
                                               call.request.method, call.request.Path(), allowed),
                             .code = "method_not_allowed"});
  Answer(call, std::move(response));
}

bool Gateway::Authorised(const HttpRequest& request) const {
  if (options_.api_key.empty()) return true;
  constexpr std::string_view kScheme = "Bearer ";
  const std::string_view header = request.Header("Authorization");
  return header.size() > kScheme.size() &&
         EqualsIgnoringCase(header.substr(0, kScheme.size()), kScheme) &&
         EqualSecrets(header.substr(kScheme.size()), options_.api_key);
}

Gateway::Loaded* Gateway::ReadyModel(Call& call) {
  Loaded* loaded = ready_.load(std::memory_order_acquire);
  if (loaded == nullptr) {
    AnswerError(call, NotServing("the model is being loaded; try again in a moment"));
  } else if (draining_) {
    AnswerError(call, NotServing(std::string(kStopping)));
    return nullptr;
  }
  return loaded;
}

template <typename Prepare, typename Finish>
void Gateway::PrepareThen(Call& call, Prepare prepare, Finish finish) {
  if (call.request.body.size() <= kMaxInlineBodyBytes) {
    return finish(std::as_const(call), prepare(call.request.body));
  }
  auto large = std::make_shared<LargeCall>(std::move(call));  // std::function must be copyable.
  const bool queued = worker_.TryPost([large, prepare, finish] {
    // Nobody waits for it, and others may.
    if (large->answered || large->call.exchange->IsClosed()) return;
    using Prepared = decltype(prepare(large->call.request.body));
    auto result = std::make_shared<Prepared>(prepare(large->call.request.body));
    large->call.exchange->Post([large, result, finish] {
      if (!large->answered) finish(large->call, std::move(*result));
    });
  });
  if (!queued) {
    return AnswerError(large->call,
                       FromError({Code::kResourceExhausted,
                                  "too many large requests at once; try again in a second"}));
  }
  large->call.exchange->OnEnding([this, large] {
    large->answered = true;
    AnswerError(large->call, NotServing(std::string(kStopping)));
  });
}

void Gateway::ServeCompletion(Call& call) { Generate(ApiKind::kCompletion, call); }
void Gateway::ServeChat(Call& call) { Generate(ApiKind::kChat, call); }

void Gateway::Generate(ApiKind kind, Call& call) {
  Loaded* loaded = ReadyModel(call);
  if (loaded == nullptr) return;
  PrepareThen(
      call,
      [this, kind, loaded](const std::string& body) {
        return PrepareRequest(kind, body, loaded->model, options_.model_names, UnixSeconds());
      },
      [this, loaded](const Call& done, OrApiError<PreparedRequest> prepared) {
        if (auto* error = std::get_if<ApiError>(&prepared)) return AnswerError(done, *error);
        StartCompletion(done, *loaded, std::get<PreparedRequest>(std::move(prepared)));
      });
}

void Gateway::StartCompletion(const Call& call, Loaded& loaded, PreparedRequest request) {
  if (!request.generation.seed) request.generation.sampling.seed = DrawNumber();
  CompletionLabel label;
  label.head.kind = request.kind;
  label.head.id = Format("{}-{:016x}{:016x}", request.kind == ApiKind::kChat ? "chatcmpl" : "cmpl",
                         DrawNumber(), DrawNumber());
  label.head.created_unix_seconds = static_cast<int64_t>(UnixSeconds());
  label.head.model =
      request.generation.model.empty() ? options_.model_names[0] : request.generation.model;
  label.request_id = call.request_id;
  label.peer = call.request.peer;
  label.arrived = call.arrived;
  label.headers = CommonHeaders(call);
  const CompletionContext context{
      .model = &loaded.model, .clock = &clock_, .metrics = &loaded.metrics, .logger = &logger_};
  Completion::Start(context, std::move(label), std::move(request), call.exchange);
}

Json Gateway::ModelCard(const std::string& name) const {
  const Loaded* loaded = ready_.load(std::memory_order_acquire);
  return Json::Object{{"id", name},
                      {"object", "model"},
                      {"created", started_unix_seconds_},
                      {"owned_by", "divisi"},
                      {"root", options_.model_names[0]},
                      {"parent", nullptr},
                      {"max_model_len", loaded == nullptr ? Json() : loaded->model.max_model_len}};
}

void Gateway::ServeModels(Call& call) {
  Json cards = Json::MakeArray();
  for (const std::string& name : options_.model_names) cards.Append(ModelCard(name));
  AnswerJson(call, Json(Json::Object{{"object", "list"}, {"data", std::move(cards)}}).Dump());
}

void Gateway::ServeModel(Call& call) {
  const std::string name(call.request.Path().substr(kModelPrefix.size()));
  // An empty name means "the server's" in a request's body, but nothing in a path.
  auto error = CheckModelName(name.empty() ? " " : name, options_.model_names);
  if (error) return AnswerError(call, *error);
  AnswerJson(call, ModelCard(name).Dump());
}

void Gateway::ServeTokenize(Call& call) {
  const Loaded* loaded = ReadyModel(call);
  if (loaded == nullptr) return;
  PrepareThen(
      call,
      [this, loaded](const std::string& body) {
        return TokenizeBody(body, loaded->model, options_.model_names, UnixSeconds());
      },
      [this](const Call& done, OrApiError<std::string> body) {
        if (auto* error = std::get_if<ApiError>(&body)) return AnswerError(done, *error);
        AnswerJson(done, std::get<std::string>(std::move(body)));
      });
}

void Gateway::ServeDetokenize(Call& call) {
  const Loaded* loaded = ReadyModel(call);
  if (loaded == nullptr) return;
  PrepareThen(
      call,
      [this, loaded](const std::string& body) {
        return DetokenizeBody(body, loaded->model, options_.model_names);
      },
      [this](const Call& done, OrApiError<std::string> body) {
        if (auto* error = std::get_if<ApiError>(&body)) return AnswerError(done, *error);
        AnswerJson(done, std::get<std::string>(std::move(body)));
      });
}

void Gateway::ServeHealth(Call& call) {
  const Loaded* loaded = ReadyModel(call);
  if (loaded == nullptr) return;
  const std::string why = loaded->model.backend->NotReady();
  if (!why.empty()) return AnswerError(call, NotServing(why));
  AnswerJson(call, "{\"status\":\"ok\"}");
}

void Gateway::ServeMetricsText(Call& call) {
  const Loaded* loaded = ready_.load(std::memory_order_acquire);
  if (loaded == nullptr) return static_cast<void>(ReadyModel(call));
  HttpResponse response{.headers = {{"Content-Type", "text/plain; version=0.0.4; charset=utf-8"}}};
  const RequestBackend& backend = *loaded->model.backend;
  response.body = loaded->metrics.Render(backend.stats());
  response.body += backend.Metrics(loaded->metrics.labels());
  Answer(call, std::move(response));
}

void Gateway::ServeVersion(Call& call) {
  AnswerJson(call, Json(Json::Object{{"version", options_.version}}).Dump());
}

HttpHeaders Gateway::CommonHeaders(const Call& call) const {
  HttpHeaders headers{{"X-Request-Id", call.request_id}};
  if (!options_.allowed_origin.empty()) {
    headers.emplace_back("Access-Control-Allow-Origin", options_.allowed_origin);
  }
  return headers;
}

void Gateway::Answer(const Call& call, HttpResponse response) {
  if (Loaded* loaded = ready_.load(std::memory_order_acquire)) {
    loaded->metrics.OnHttpResponse(response.status);
  }
  // What fails is told of as what is served; probes that succeed would drown both.
  const LogLevel level = response.status >= 400 ? LogLevel::kInfo : LogLevel::kDebug;
  logger_.Log(level, "http",
              {{"request", call.request_id},
               {"method", call.request.method},
               {"path", std::string(call.request.Path())},
               {"status", response.status},
               {"client", call.request.peer}});
  for (auto& header : CommonHeaders(call)) response.headers.push_back(std::move(header));
  call.exchange->Respond(std::move(response));
}

void Gateway::OnRefusal(const HttpRefusal& refusal) {
  Loaded* loaded = ready_.load(std::memory_order_acquire);
  if (loaded != nullptr && refusal.status > 0) loaded->metrics.OnHttpResponse(refusal.status);
  int64_t unlogged = 0;
  {
    std::lock_guard lock(refusals_mutex_);
    const Seconds now = clock_.Now();
    if (refusal_logged_ && now - *refusal_logged_ < kRefusalLogInterval) {
      ++refusals_unlogged_;
      return;
    }
    refusal_logged_ = now;
    unlogged = std::exchange(refusals_unlogged_, 0);
  }
  logger_.Log(LogLevel::kWarning, "refused",
              {{"status", refusal.status > 0 ? Json(refusal.status) : Json()},
               {"reason", refusal.reason},
               {"client", refusal.peer.empty() ? Json() : Json(refusal.peer)},
               {"others_since_the_last_line", unlogged}});
}

void Gateway::AnswerError(const Call& call, const ApiError& error) {
  HttpResponse response{.status = error.status, .headers = {{"Content-Type", "application/json"}}};
  if (error.retry_after_seconds > 0) {
    response.headers.emplace_back("Retry-After", Format("{}", error.retry_after_seconds));
  }
  if (error.status == 401) response.headers.emplace_back("WWW-Authenticate", "Bearer");
  response.body = ErrorBody(error);
  Answer(call, std::move(response));
}

void Gateway::AnswerJson(const Call& call, std::string body) {
  Answer(call, {.headers = {{"Content-Type", "application/json"}}, .body = std::move(body)});
}

uint64_t Gateway::DrawNumber() {
  const uint64_t draw = draws_.fetch_add(1, std::memory_order_relaxed);
  const auto words =
      Philox4x32({static_cast<uint32_t>(draw), static_cast<uint32_t>(draw >> 32), 0, 0},
                 {static_cast<uint32_t>(random_key_), static_cast<uint32_t>(random_key_ >> 32)});
  return (static_cast<uint64_t>(words[1]) << 32) | words[0];
}

}  // namespace divisi
