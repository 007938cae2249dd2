#include "divisi/cli/load_run.h"

#include <algorithm>
#include <set>

#include "divisi/cli/load_stream.h"
#include "divisi/core/format.h"
#include "divisi/core/json.h"

namespace divisi {
namespace {

constexpr uint64_t kLeaveStream = (1ull << 60) + 16;  // Beside those of load_source.cc.
constexpr Seconds kProgressInterval(0.2);
constexpr Seconds kIncompleteWait(0.3);  // How long half a request is left hanging.
constexpr size_t kMaxErrorBytes = 2000;  // Of an error's body, kept for the report.

// "HTTP 429: message", from an OpenAI-shaped error body or any other.
std::string StatusError(int status, const std::string& body) {
  const auto json = Json::Parse(body);
  if (json) {
    const Json* const error = json->Find("error");
    const Json* const message = (error != nullptr ? *error : *json).Find("message");
    if (message != nullptr && message->is_string()) {
      return Format("HTTP {}: {}", status, message->as_string());
    }
  }
  return Format("HTTP {}: {}", status, body.empty() ? "no body" : body);
}

class Driver {
 public:
  Driver(LoadClient& client, const LoadTarget& target, RequestSource& source,
         const RunOptions& options)
      : client_(client),
        target_(target),
        source_(source),
        options_(options),
        broken_(BrokenRequests(target.address, target.model, target.api_key)),
        next_(source.Next()),
        start_(client.Now()) {}

  LoadResult Run() {
    last_end_ = start_;
    Pump();
    if (options_.progress) Report();
    if (options_.broken_per_second > 0) SendBroken();
    if (!Done()) {
      client_.Run(options_.stop_on_interrupt ? [this] { Interrupt(); } : std::function<void()>());
    }
    LoadResult result{std::move(records_), std::move(tally_), last_end_ - start_, interrupted_};
    return result;
  }

  const LoadTarget& target() const { return target_; }
  BrokenTally& tally() { return tally_; }
  Seconds start() const { return start_; }
  RequestRecord& record(size_t index) { return records_[index]; }
  void CountToken() { ++token_events_; }

  void RequestEnded(Seconds now) {
    --running_;
    ++ended_;
    last_end_ = now;
    Pump();
    QuitWhenDone();
  }
  void BrokenEnded() {
    --broken_running_;
    QuitWhenDone();
  }

 private:
  bool Over(Seconds elapsed) const { return options_.duration && elapsed >= *options_.duration; }
  bool Done() const { return !next_ && running_ == 0 && broken_running_ == 0; }
  void QuitWhenDone() {
    if (Done()) client_.Quit();
  }

  // Sends whatever is due, and sets a timer for what comes next.
  void Pump() {
    while (next_ && (options_.max_concurrency == 0 || running_ < options_.max_concurrency)) {
      const Seconds elapsed = client_.Now() - start_;
      if (Over(std::max(elapsed, next_->arrival))) {
        next_.reset();
        break;
      }
      if (next_->arrival > elapsed) {
        if (!timer_set_) {
          timer_set_ = true;
          client_.After(next_->arrival - elapsed, [this] {
            timer_set_ = false;
            Pump();
            QuitWhenDone();
          });
        }
        return;
      }
      SendNext(elapsed);
    }
  }

  void SendNext(Seconds elapsed);
  void SendBroken();

  void Report() {
    options_.progress({.started = static_cast<int64_t>(records_.size()),
                       .ended = ended_,
                       .running = running_,
                       .total = source_.Count(),
                       .token_events = token_events_,
                       .elapsed = client_.Now() - start_});
    client_.After(kProgressInterval, [this] { Report(); });
  }

  void Interrupt() {
    interrupted_ = true;
    next_.reset();
    client_.CancelAll();
    client_.Quit();
  }

  LoadClient& client_;
  const LoadTarget& target_;
  RequestSource& source_;
  const RunOptions& options_;
  const std::vector<BrokenRequest> broken_;
  std::optional<PlannedRequest> next_;
  const Seconds start_;

  std::vector<RequestRecord> records_;
  BrokenTally tally_;
  Seconds last_end_;
  int64_t running_ = 0;
  int64_t ended_ = 0;
  int64_t broken_running_ = 0;
  int64_t token_events_ = 0;
  bool timer_set_ = false;
  bool interrupted_ = false;
};

// One request of the load.
class RequestWatcher final : public ExchangeWatcher {
 public:
  // leave_after: token events after which the client leaves; 0: it stays.
  RequestWatcher(Driver& driver, size_t index, RequestRecord record, int64_t leave_after)
      : driver_(driver),
        index_(index),
        record_(std::move(record)),
        leave_after_(leave_after),
        stream_(record_, driver.start() + record_.start) {}

  void OnStatus(int status, Seconds) override { status_ = status; }

  bool OnBody(std::string_view bytes, Seconds now) override {
    if (status_ != 200) {
      error_body_ += bytes.substr(0, kMaxErrorBytes - std::min(kMaxErrorBytes, error_body_.size()));
      return true;
    }
    const int64_t before = stream_.token_events();
    const auto fed = stream_.Feed(bytes, now);
    for (int64_t i = before; i < stream_.token_events(); ++i) driver_.CountToken();
    if (!fed) {
      record_.error = fed.error().message;
      return false;
    }
    record_.abandoned = leave_after_ > 0 && stream_.token_events() >= leave_after_;
    return !record_.abandoned;
  }

  void OnEnd(const Result<void>& outcome, Seconds now) override {
    if (!record_.abandoned && record_.error.empty()) {
      if (!outcome && outcome.error().code == Code::kCancelled) {
        record_.abandoned = true;  // The run was interrupted.
      } else if (!outcome) {
        record_.error = outcome.error().message;
      } else if (status_ != 200) {
        record_.error = StatusError(status_, error_body_);
      } else if (const auto ended = stream_.End(); !ended) {
        record_.error = ended.error().message;
      } else {
        record_.completed = true;
      }
    }
    driver_.record(index_) = std::move(record_);
    driver_.RequestEnded(now);
  }

 private:
  Driver& driver_;
  const size_t index_;
  RequestRecord record_;
  const int64_t leave_after_;
  CompletionStream stream_;
  int status_ = 0;
  std::string error_body_;
};

class BrokenWatcher final : public ExchangeWatcher {
 public:
  BrokenWatcher(Driver& driver, const BrokenRequest& request)
      : driver_(driver), request_(request) {}
  void OnStatus(int status, Seconds) override { status_ = status; }
  bool OnBody(std::string_view, Seconds) override { return true; }
  void OnEnd(const Result<void>& outcome, Seconds) override {
    BrokenTally& tally = driver_.tally();
    const Code code = outcome ? Code::kInternal : outcome.error().code;
    if (status_ >= 200 && status_ < 300) {
      Fault(tally.accepted, Format("status {}", status_));
    } else if (status_ >= 500) {
      Fault(tally.failed, Format("status {}", status_));
    } else if (status_ >= 400 || code == Code::kDataLoss) {
      ++tally.refused;
    } else if (request_.incomplete && code == Code::kCancelled) {
      ++tally.incomplete;
    } else if (code != Code::kCancelled) {
      Fault(tally.failed, outcome ? Format("status {}", status_) : outcome.error().message);
    }
    driver_.BrokenEnded();
  }

 private:
  void Fault(int64_t& count, std::string_view what) {
    ++count;
    ++driver_.tally().faults[Format("{}: {}", request_.name, what)];
  }

  Driver& driver_;
  const BrokenRequest& request_;
  int status_ = 0;
};

void Driver::SendNext(Seconds elapsed) {
  const PlannedRequest request = std::move(*next_);
  next_ = source_.Next();
  const size_t index = records_.size();
  RequestRecord record;
  record.input_tokens = request.InputTokens();
  record.start = elapsed;
  record.queue_time = elapsed - request.arrival;
  records_.push_back(record);
  int64_t leave_after = 0;
  if (UniformAt(target_.seed, kLeaveStream, index) < options_.disconnect_fraction) {
    const double where = UniformAt(target_.seed, kLeaveStream + 1, index);
    leave_after = 1 + static_cast<int64_t>(where * static_cast<double>(request.output_tokens));
  }
  const auto prompt = PromptTokens(request, target_.seed, target_.alphabet);
  const std::string body = CompletionBody({.model = target_.model,
                                           .chat = target_.chat,
                                           .prompt = prompt,
                                           .output_tokens = request.output_tokens,
                                           .temperature = target_.temperature,
                                           .ignore_eos = target_.ignore_eos});
  std::string text =
      HttpRequestText(target_.address, "POST", CompletionPath(target_.chat), target_.api_key, body);
  // Making a long prompt takes time that is not the server's.
  record.start = client_.Now() - start_;
  ++running_;
  client_.Send(std::move(text),
               std::make_unique<RequestWatcher>(*this, index, std::move(record), leave_after), {});
}

void Driver::SendBroken() {
  if (!next_ && running_ == 0) return;  // The load is over.
  const BrokenRequest& request = broken_[static_cast<size_t>(tally_.sent) % broken_.size()];
  ++tally_.sent;
  ++broken_running_;
  client_.Send(
      request.text, std::make_unique<BrokenWatcher>(*this, request),
      {.give_up_after = request.incomplete ? kIncompleteWait : Seconds(), .own_connection = true});
  client_.After(Seconds(1 / options_.broken_per_second), [this] { SendBroken(); });
}

std::string ModelsHint(const HttpAddress& address, const Error& error) {
  return Format(
      "{}\nIs a server running there? Start one with\n  divisi serve --model DIR --port {}\nor "
      "name "
      "another with --base-url.",
      error.message, address.port);
}

}  // namespace

LoadResult RunLoad(LoadClient& client, const LoadTarget& target, RequestSource& source,
                   const RunOptions& options) {
  return Driver(client, target, source, options).Run();
}

Result<ServerModel> FirstModel(LoadClient& client, const HttpAddress& address,
                               const std::string& api_key) {
  const auto reply = client.Fetch(HttpRequestText(address, "GET", "/v1/models", api_key, ""));
  if (!reply) return Error{Code::kUnavailable, ModelsHint(address, reply.error())};
  if (reply->status == 401) {
    return Error{Code::kUnauthenticated, "the server wants another key: pass it with --api-key"};
  }
  const auto json = Json::Parse(reply->body);
  const Json* const data = json ? json->Find("data") : nullptr;
  const Json* const id = data != nullptr && data->is_array() && !data->as_array().empty()
                             ? data->as_array().front().Find("id")
                             : nullptr;
  if (reply->status != 200 || id == nullptr || !id->is_string()) {
    return Error{Code::kInternal, Format("{}/v1/models gives no model ({}); name it with --model",
                                         address.Url(), StatusError(reply->status, reply->body))};
  }
  ServerModel model{id->as_string(), {}};
  const Json* const limit = data->as_array().front().Find("max_model_len");
  if (limit != nullptr && limit->is_int()) model.max_model_len = limit->as_int();
  return model;
}

Result<std::vector<TokenId>> ProseAlphabet(LoadClient& client, const HttpAddress& address,
                                           const std::string& api_key, const std::string& model) {
  const Json::Object body = {
      {"model", model}, {"prompt", SampleProse()}, {"add_special_tokens", false}};
  const auto reply =
      client.Fetch(HttpRequestText(address, "POST", "/tokenize", api_key, Json(body).Dump()));
  if (!reply) return reply.error();
  if (reply->status != 200) {
    return Error{Code::kNotFound, Format("the server has no /tokenize ({}); say which token ids "
                                         "exist with --vocab N",
                                         StatusError(reply->status, reply->body))};
  }
  const auto json = Json::Parse(reply->body);
  const Json* const tokens = json ? json->Find("tokens") : nullptr;
  std::set<TokenId> ids;
  if (tokens != nullptr && tokens->is_array()) {
    for (const Json& token : tokens->as_array()) {
      if (token.is_int()) ids.insert(static_cast<TokenId>(token.as_int()));
    }
  }
  if (ids.size() < 2) return Error{Code::kInternal, "/tokenize gave no token ids; pass --vocab N"};
  return std::vector<TokenId>(ids.begin(), ids.end());
}

}  // namespace divisi
