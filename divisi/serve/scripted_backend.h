// For tests of the gateway: a backend whose every event the test sends by hand, and an exchange
// that records what the client would get. No threads, no sockets.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "divisi/serve/gateway_backend.h"
#include "divisi/serve/http.h"

namespace divisi {

class ScriptedBackend final : public RequestBackend {
 public:
  struct Running {
    Request request;
    Engine::EventSink sink;
  };

  Result<RequestId> Submit(Request request, Engine::EventSink sink) override {
    if (refusals_after_ && static_cast<int>(submitted_.size()) >= *refusals_after_) {
      return Error{Code::kResourceExhausted, "the queue is full"};
    }
    const RequestId id = next_id_++;
    submitted_.push_back(id);
    running_[id] = {std::move(request), std::move(sink)};
    if (echoing_) EchoPrompt(id);
    return id;
  }
  void Cancel(RequestId id) override {
    cancelled_.push_back(id);
    if (const auto found = running_.find(id); found != running_.end()) {
      Send(id, {}, FinishReason::kCancelled);
    }
  }
  std::string NotReady() const override { return not_ready_; }
  void SayNotReady(std::string why) { not_ready_ = std::move(why); }
  EngineStats stats() const override {
    EngineStats stats;
    stats.scheduler.running = static_cast<int64_t>(running_.size());
    return stats;
  }

  // The request's last event: it can't go on.
  void Fail(RequestId id, Error error) {
    const Engine::EventSink sink = std::move(running_.at(id).sink);
    running_.erase(id);
    sink({.request = id, .time = now_, .finish = FinishReason::kError, .error = std::move(error)});
  }
  // One engine event for a running request; with `finish`, its last.
  void Send(RequestId id, std::vector<SampledToken> tokens,
            std::optional<FinishReason> finish = std::nullopt,
            std::vector<SampledToken> prompt_scores = {}) {
    RequestEvent event{.request = id};
    event.time = now_ += Seconds(0.001);
    event.tokens = std::move(tokens);
    event.prompt_scores = std::move(prompt_scores);
    event.finish = finish;
    event.timeline.scheduled = Seconds(0.5);
    event.timeline.first_token = Seconds(0.75);
    const Engine::EventSink sink = running_.at(id).sink;
    if (finish) running_.erase(id);
    sink(std::move(event));
  }
  void SendIds(RequestId id, const std::vector<TokenId>& ids,
               std::optional<FinishReason> finish = std::nullopt) {
    std::vector<SampledToken> tokens;
    for (const TokenId token : ids) tokens.push_back({.token = token});
    Send(id, std::move(tokens), finish);
  }

  // From now on every request is answered at once with its own prompt, cut to max_tokens.
  void EchoPrompts() { echoing_ = true; }
  // From the n-th request on, the queue is full.
  void RefuseAfter(int n) { refusals_after_ = n; }

  const Request& request(RequestId id) const { return running_.at(id).request; }
  bool IsRunning(RequestId id) const { return running_.contains(id); }
  const std::vector<RequestId>& submitted() const { return submitted_; }
  const std::vector<RequestId>& cancelled() const { return cancelled_; }

 private:
  void EchoPrompt(RequestId id) {
    const Request& request = running_.at(id).request;
    std::vector<SampledToken> tokens;
    for (const TokenId token : request.prompt) {
      if (static_cast<int64_t>(tokens.size()) == request.max_tokens) break;
      tokens.push_back({.token = token});
      if (request.sampling.top_logprobs >= 0) tokens.back().logprob = -0.5f;
    }
    Send(id, std::move(tokens), FinishReason::kLength);
  }

  std::map<RequestId, Running> running_;
  std::vector<RequestId> submitted_;
  std::vector<RequestId> cancelled_;
  RequestId next_id_ = 0;
  Seconds now_{1};
  std::string not_ready_;
  bool echoing_ = false;
  std::optional<int> refusals_after_;
};

class RecordingExchange final : public HttpExchange {
 public:
  void Post(std::function<void()> work) override { posted_.push_back(std::move(work)); }
  bool IsClosed() const override { return gone_; }
  void Respond(HttpResponse response) override {
    CHECK(!ended_ && !head_, "a second answer");
    if (!gone_) response_ = std::move(response);
    ended_ = true;
  }
  void BeginStream(HttpResponse head) override {
    CHECK(!ended_ && !head_, "a second answer");
    head_ = std::move(head);
  }
  void Write(std::string_view bytes) override {
    CHECK(head_ && !ended_, "a write outside a stream");
    if (!gone_) stream_ += bytes;
  }
  void EndStream() override {
    CHECK(head_ && !ended_, "the end of no stream");
    ended_ = true;
  }
  void OnClosed(std::function<void(HttpClosing)> closed) override { closed_ = std::move(closed); }
  void OnEnding(std::function<void()> ending) override { ending_ = std::move(ending); }

  // Runs what was posted, and what that posts.
  void RunPosted() {
    while (!posted_.empty()) {
      std::vector<std::function<void()>> work;
      work.swap(posted_);
      for (const auto& each : work) each();
    }
  }
  // The client leaves.
  void Leave(HttpClosing why = HttpClosing::kClientLeft) {
    gone_ = true;
    if (closed_) std::exchange(closed_, nullptr)(why);
  }

  // The server stops, and has waited.
  void EndNow() {
    if (ending_) std::exchange(ending_, nullptr)();
  }

  bool ended() const { return ended_; }
  const std::optional<HttpResponse>& response() const { return response_; }
  const std::optional<HttpResponse>& head() const { return head_; }
  const std::string& stream() const { return stream_; }

 private:
  std::vector<std::function<void()>> posted_;
  std::function<void(HttpClosing)> closed_;
  std::function<void()> ending_;
  std::optional<HttpResponse> response_;
  std::optional<HttpResponse> head_;
  std::string stream_;
  bool ended_ = false;
  bool gone_ = false;
};

}  // namespace divisi
