// One request for text from submission to its end: n choices in the engine, one answer to the
// client, streamed or whole.
//
// Life: Start submits and registers with the exchange; engine events land in a mailbox and wake the
// exchange's strand once; the strand empties the mailbox into one write. It ends once, in one of
// these ways: all choices finished, an error, the server's end, or the client went away; what still
// runs is cancelled.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "divisi/core/clock.h"
#include "divisi/core/log.h"
#include "divisi/serve/gateway_prompt.h"
#include "divisi/serve/http.h"
#include "divisi/serve/metrics.h"

namespace divisi {

// What a completion works with; all of it outlives the completion.
struct CompletionContext {
  const GatewayModel* model = nullptr;
  const Clock* clock = nullptr;  // The engine's, since timelines are compared.
  ServeMetrics* metrics = nullptr;
  Logger* logger = nullptr;
};

// How a request is called in answers and logs.
struct CompletionLabel {
  ResponseHead head;
  std::string request_id;
  std::string peer;
  HttpHeaders headers;  // For the response.
  Seconds arrived;      // At the gateway.
};

class Completion : public std::enable_shared_from_this<Completion> {
 public:
  // Submits the request and answers through `exchange`, at the latest when the engine has ended it.
  // From the exchange's strand. Requires: request.generation.sampling.seed is drawn.
  static void Start(const CompletionContext& context, CompletionLabel label,
                    PreparedRequest request, std::shared_ptr<HttpExchange> exchange);

  Completion(const CompletionContext& context, CompletionLabel label, PreparedRequest request,
             std::shared_ptr<HttpExchange> exchange);

 private:
  struct Choice {
    Choice(const Tokenizer& tokenizer, TextOutput::Options options) : output(tokenizer, options) {}
    size_t prompt = 0;             // Index into request_.prompts.
    std::optional<RequestId> id;   // Once submitted.
    TextOutput output;
    std::vector<SampledToken> prompt_scores;
    bool begun = false;            // The role, or the echo, was given out.
    int64_t offset = 0;            // Characters of the echo, before the output's text.
    int64_t completion_tokens = 0;
    std::optional<SampledToken> terminator;  // The end token, where it is not in the text.
    std::optional<FinishReason> finish;
    Timeline timeline;
    Seconds last_token;
    std::string text;                       // Not streamed: all so far.
    std::vector<TextOutput::Token> tokens;  // Likewise.
  };
  struct Event {
    size_t choice = 0;
    RequestEvent event;
  };

  Result<void> SubmitAll();
  Request EngineRequest(const Choice& choice, uint64_t index) const;
  void Deliver(size_t choice, RequestEvent event);  // From the engine's thread.
  void EmptyMailbox();
  void OnEvent(Choice& choice, RequestEvent& event);
  // One token's effect, made at `now`; true when it completed a stop string.
  bool TakeToken(Choice& choice, SampledToken token, bool is_terminator, Seconds now,
                 TextOutput::Piece& piece);
  void Give(Choice& choice, TextOutput::Piece piece);
  void GiveBeginning(Choice& choice);
  void AppendChunk(Choice& choice, std::string_view text,
                   const std::vector<TextOutput::Token>& tokens, bool last);
  bool IsTerminator(TokenId id) const;
  bool WantsTokens() const { return request_.generation.sampling.top_logprobs >= 0; }
  // Whether the backend took every choice.
  bool WasAdmitted() const { return choices_.back().id.has_value(); }
  int IndexOf(const Choice& choice) const { return static_cast<int>(&choice - choices_.data()); }
  Usage CurrentUsage() const;

  void EndIfFinished();
  void Fail(ApiError error);
  void EndEarly();  // The server stops.
  void Abandon(HttpClosing why);
  // Cancels what runs, lets go of the exchange, writes metrics and the log line. closed: why the
  // exchange was before its end, in words; empty: it was not.
  void Close(int status, std::string_view closed = {});
  void LogEnd(int status, std::string_view closed, Seconds now);

  const CompletionContext context_;
  const CompletionLabel label_;
  const PreparedRequest request_;
  std::shared_ptr<HttpExchange> exchange_;  // Null: ended.
  const ChunkWriter writer_;
  std::vector<Choice> choices_;
  std::string out_;                         // Chunks for the next write.
  std::string failure_;                     // Why the engine ended it by kError; empty: it did not.

  std::mutex mutex_;
  // Guarded by mutex_. At most one event per engine step and choice, and those are bounded by
  // max_tokens and the prompt's chunks.
  std::vector<Event> mailbox_;
  std::shared_ptr<HttpExchange> waker_;     // Null: ended, events are dropped.
  bool woken_ = false;                      // EmptyMailbox is on its way.
};

// The seed of choice `index` of a request: the request's own for the first.
uint64_t ChoiceSeed(uint64_t seed, uint64_t index);

}  // namespace divisi
