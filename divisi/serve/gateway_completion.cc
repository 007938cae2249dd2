#include "divisi/serve/gateway_completion.h"

#include <algorithm>

#include "divisi/core/check.h"
#include "divisi/core/format.h"
#include "divisi/core/random.h"
#include "divisi/core/utf8.h"

namespace divisi {

namespace {

ApiError ServerStops() {
  return FromError({Code::kUnavailable, "the server is stopping; try again"});
}

}  // namespace

uint64_t ChoiceSeed(uint64_t seed, uint64_t index) {
  if (index == 0) return seed;
  const auto words = Philox4x32({static_cast<uint32_t>(index), 0, 0, 0},
                                {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)});
  return (static_cast<uint64_t>(words[1]) << 32) | words[0];
}

Completion::Completion(const CompletionContext& context, CompletionLabel label,
                       PreparedRequest request, std::shared_ptr<HttpExchange> exchange)
    : context_(context),
      label_(std::move(label)),
      request_(std::move(request)),
      exchange_(std::move(exchange)),
      writer_(label_.head),
      waker_(exchange_) {
  const GenerationRequest& generation = request_.generation;
  const size_t n = static_cast<size_t>(generation.n);
  choices_.reserve(request_.prompts.size() * n);
  for (size_t i = 0; i < request_.prompts.size() * n; ++i) {
    choices_.emplace_back(*context_.model->tokenizer,
                          TextOutput::Options{.stop = generation.stop,
                                              .include_stop = generation.include_stop_in_output,
                                              .skip_special_tokens = generation.skip_special_tokens,
                                              .keep_tokens = WantsTokens()});
    choices_.back().prompt = i / n;
  }
}

void Completion::Start(const CompletionContext& context, CompletionLabel label,
                       PreparedRequest request, std::shared_ptr<HttpExchange> exchange) {
  auto self = std::make_shared<Completion>(context, std::move(label), std::move(request), exchange);
  if (auto submitted = self->SubmitAll(); !submitted) {
    return self->Fail(FromError(submitted.error()));
  }
  exchange->OnClosed([weak = self->weak_from_this()](HttpClosing why) {
    if (auto alive = weak.lock()) alive->Abandon(why);
  });
  exchange->OnEnding([weak = self->weak_from_this()] {
    if (auto alive = weak.lock()) alive->EndEarly();
  });
  if (!self->request_.generation.stream) return;
  HttpResponse head{.status = 200, .headers = self->label_.headers};
  head.headers.emplace_back("Content-Type", "text/event-stream; charset=utf-8");
  head.headers.emplace_back("Cache-Control", "no-cache");
  exchange->BeginStream(std::move(head));
}

Request Completion::EngineRequest(const Choice& choice, uint64_t index) const {
  const GenerationRequest& generation = request_.generation;
  Request request{.prompt = request_.prompts[choice.prompt], .sampling = generation.sampling};
  request.sampling.seed = ChoiceSeed(generation.sampling.seed, index);
  request.max_tokens = *generation.max_tokens;
  request.stop_token_ids = generation.stop_token_ids;
  if (!generation.ignore_eos) {
    const auto& ends = context_.model->eos_token_ids;
    request.stop_token_ids.insert(request.stop_token_ids.end(), ends.begin(), ends.end());
  }
  request.cache_salt = generation.cache_salt;
  request.session = generation.session;
  if (request_.echo) request.prompt_logprobs = generation.sampling.top_logprobs;
  return request;
}

Result<void> Completion::SubmitAll() {
  for (size_t i = 0; i < choices_.size(); ++i) {
    // The same prompt and seed give the same text wherever in the array the prompt stands.
    const uint64_t index = i % static_cast<size_t>(request_.generation.n);
    Result<RequestId> id = context_.model->backend->Submit(
        EngineRequest(choices_[i], index),
        [self = shared_from_this(), i](RequestEvent event) { self->Deliver(i, std::move(event)); });
    if (!id) return id.error();
    choices_[i].id = *id;
    context_.model->backend->Label(*id, label_.request_id);
  }
  for (const Choice& choice : choices_) {
    context_.metrics->OnPrompt(static_cast<int64_t>(request_.prompts[choice.prompt].size()));
  }
  return {};
}

void Completion::Deliver(size_t choice, RequestEvent event) {
  std::lock_guard lock(mutex_);
  if (waker_ == nullptr) return;
  mailbox_.push_back({choice, std::move(event)});
  if (woken_) return;
  woken_ = true;
  waker_->Post([self = shared_from_this()] { self->EmptyMailbox(); });
}

void Completion::EmptyMailbox() {
  std::vector<Event> events;
  {
    std::lock_guard lock(mutex_);
    events.swap(mailbox_);
    woken_ = false;
  }
  for (Event& event : events) {
    if (exchange_ == nullptr) return;
    OnEvent(choices_[event.choice], event.event);
  }
  if (exchange_ == nullptr) return;
  if (!out_.empty()) {
    exchange_->Write(out_);
    out_.clear();
  }
  EndIfFinished();
}

void Completion::OnEvent(Choice& choice, RequestEvent& event) {
  if (choice.finish) return;  // It ended on a stop string; the engine learns of it a step later.
  choice.timeline = event.timeline;
  std::ranges::move(event.prompt_scores, std::back_inserter(choice.prompt_scores));
  if (event.finish == FinishReason::kError) {
    const Error error = event.error.value_or(Error{Code::kInternal, "it failed; try again"});
    failure_ = error.message;
    return Fail(FromError(error));
  }
  if (event.finish == FinishReason::kCancelled) {
    return Fail(ServerStops());
  }
  for (size_t i = 0; i < event.tokens.size(); ++i) {
    const bool last = event.finish == FinishReason::kStop && i + 1 == event.tokens.size();
    const bool is_terminator = last && IsTerminator(event.tokens[i].token);
    TextOutput::Piece piece;
    if (TakeToken(choice, std::move(event.tokens[i]), is_terminator, event.time, piece)) {
      choice.finish = FinishReason::kStop;
      if (!event.finish) context_.model->backend->Cancel(*choice.id);
    }
    Give(choice, std::move(piece));
    if (choice.finish) break;
  }
  if (event.finish && !choice.finish) {
    TextOutput::Piece rest = choice.output.Finish(std::move(choice.terminator));
    choice.finish = rest.stopped ? FinishReason::kStop : *event.finish;
    Give(choice, std::move(rest));
  }
  if (choice.finish) {
    choice.timeline.finished = event.time;
    AppendChunk(choice, {}, {}, true);
  }
}

bool Completion::TakeToken(Choice& choice, SampledToken token, bool is_terminator, Seconds now,
                           TextOutput::Piece& piece) {
  if (++choice.completion_tokens == 1) {
    context_.metrics->OnFirstToken(now - label_.arrived);
  } else {
    context_.metrics->OnInterTokenGap(now - choice.last_token);
  }
  choice.last_token = now;
  context_.metrics->OnTokens(1);
  // The token that ends the text is no part of it, as with a stop string.
  if (is_terminator && !request_.generation.include_stop_in_output) {
    choice.terminator = std::move(token);
    return false;
  }
  piece = choice.output.Push(std::move(token));
  return piece.stopped;
}

bool Completion::IsTerminator(TokenId id) const {
  const auto has = [id](const std::vector<TokenId>& ids) {
    return std::ranges::find(ids, id) != ids.end();
  };
  return has(request_.generation.stop_token_ids) ||
         (!request_.generation.ignore_eos && has(context_.model->eos_token_ids));
}

void Completion::Give(Choice& choice, TextOutput::Piece piece) {
  if (!choice.begun) GiveBeginning(choice);
  for (TextOutput::Token& token : piece.tokens) token.text_offset += choice.offset;
  if (request_.generation.stream) {
    if (!piece.text.empty() || !piece.tokens.empty()) {
      AppendChunk(choice, piece.text, piece.tokens, false);
    }
  } else {
    choice.text += piece.text;
    std::ranges::move(piece.tokens, std::back_inserter(choice.tokens));
  }
}

// The role of a chat's answer; the prompt where it is to be repeated.
void Completion::GiveBeginning(Choice& choice) {
  choice.begun = true;
  if (request_.kind == ApiKind::kChat && request_.generation.stream) {
    writer_.AppendRole({.index = IndexOf(choice), .usage_null = request_.generation.include_usage},
                       out_);
  }
  if (!request_.echo) return;
  const std::vector<TokenId>& prompt = request_.prompts[choice.prompt];
  TextOutput echo(*context_.model->tokenizer,
                  {.skip_special_tokens = request_.generation.skip_special_tokens,
                   .keep_tokens = WantsTokens()});
  std::string text;
  std::vector<TextOutput::Token> tokens;
  const auto add = [&](TextOutput::Piece piece) {
    text += piece.text;
    std::ranges::move(piece.tokens, std::back_inserter(tokens));
  };
  for (size_t i = 0; i < prompt.size(); ++i) {
    const bool scored = i > 0 && i <= choice.prompt_scores.size();
    add(echo.Push(scored ? choice.prompt_scores[i - 1] : SampledToken{.token = prompt[i]}));
  }
  add(echo.Finish());
  choice.offset = CountCodePoints(text);
  if (request_.generation.stream) {
    AppendChunk(choice, text, tokens, false);
  } else {
    choice.text = std::move(text);
    choice.tokens = std::move(tokens);
  }
}

void Completion::AppendChunk(Choice& choice, std::string_view text,
                             const std::vector<TextOutput::Token>& tokens, bool last) {
  if (!request_.generation.stream) return;
  std::string logprobs;
  if (!tokens.empty()) {
    AppendLogprobs(request_.kind, *context_.model->tokenizer, tokens,
                   request_.generation.sampling.top_logprobs, logprobs);
  }
  ChunkWriter::Chunk chunk{.index = IndexOf(choice), .text = text, .logprobs = logprobs};
  if (last) chunk.finish = choice.finish;
  chunk.usage_null = request_.generation.include_usage;
  if (request_.generation.continuous_usage) chunk.usage = CurrentUsage();
  writer_.AppendChunk(chunk, out_);
}

Usage Completion::CurrentUsage() const {
  Usage usage;
  for (const auto& prompt : request_.prompts) {
    usage.prompt_tokens += static_cast<int64_t>(prompt.size());
  }
  for (size_t i = 0; i < choices_.size(); ++i) {
    usage.completion_tokens += choices_[i].completion_tokens;
    // A prompt counts once, however many choices it has.
    if (i % static_cast<size_t>(request_.generation.n) == 0) {
      usage.cached_tokens += choices_[i].timeline.cached_tokens;
    }
  }
  return usage;
}

void Completion::EndIfFinished() {
  if (!std::ranges::all_of(choices_, [](const Choice& c) { return c.finish.has_value(); })) return;
  const Usage usage = CurrentUsage();
  if (request_.generation.stream) {
    if (request_.generation.include_usage) writer_.AppendUsage(usage, out_);
    ChunkWriter::AppendDone(out_);
    exchange_->Write(out_);
    exchange_->EndStream();
    return Close(200);
  }
  std::vector<ChoiceResult> results;
  for (Choice& choice : choices_) {
    ChoiceResult result{.text = std::move(choice.text), .finish = *choice.finish};
    if (WantsTokens()) {
      AppendLogprobs(request_.kind, *context_.model->tokenizer, choice.tokens,
                     request_.generation.sampling.top_logprobs, result.logprobs);
    }
    results.push_back(std::move(result));
  }
  HttpResponse response{.status = 200, .headers = label_.headers};
  response.headers.emplace_back("Content-Type", "application/json");
  response.body = ResponseBody(label_.head, results, usage);
  exchange_->Respond(std::move(response));
  Close(200);
}

// Before the stream has begun, an error is a response of its own; after, the stream's last event.
void Completion::Fail(ApiError error) {
  if (request_.generation.stream && WasAdmitted()) {
    ChunkWriter::AppendError(error, out_);
    exchange_->Write(out_);
    exchange_->EndStream();
  } else {
    HttpResponse response{.status = error.status, .headers = label_.headers};
    response.headers.emplace_back("Content-Type", "application/json");
    if (error.retry_after_seconds > 0) {
      response.headers.emplace_back("Retry-After", Format("{}", error.retry_after_seconds));
    }
    response.body = ErrorBody(error);
    exchange_->Respond(std::move(response));
  }
  Close(error.status);
}

void Completion::EndEarly() {
  if (exchange_ != nullptr) Fail(ServerStops());
}

void Completion::Abandon(HttpClosing why) {
  if (exchange_ == nullptr) return;
  constexpr std::string_view kWords[] = {"client left", "client too slow", "server stopped"};
  Close(499, kWords[static_cast<size_t>(why)]);  // nginx's number: the answer reached no one.
}

void Completion::Close(int status, std::string_view closed) {
  {
    std::lock_guard lock(mutex_);
    waker_.reset();
    mailbox_.clear();
  }
  exchange_.reset();
  const Seconds now = context_.clock->Now();
  for (Choice& choice : choices_) {
    if (!choice.id) continue;  // Never submitted.
    if (!choice.finish) {
      context_.model->backend->Cancel(*choice.id);
      choice.finish = status >= 500 ? FinishReason::kError : FinishReason::kCancelled;
      choice.timeline.finished = now;
    }
    if (!WasAdmitted()) continue;  // One refusal, whatever the queue had room for: no request ran.
    Timeline timeline = choice.timeline;
    timeline.arrived = label_.arrived;
    context_.metrics->OnFinished(
        {.reason = *choice.finish,
         .prompt_tokens = static_cast<int64_t>(request_.prompts[choice.prompt].size()),
         .output_tokens = choice.completion_tokens,
         .timeline = timeline});
  }
  context_.metrics->OnHttpResponse(status);
  LogEnd(status, closed, now);
}

// One line with the request's timeline; of several choices, the first's.
void Completion::LogEnd(int status, std::string_view closed, Seconds now) {
  const Choice& first = choices_.front();
  const Timeline& t = first.timeline;
  const Usage usage = CurrentUsage();
  const auto since = [&](Seconds time) {
    return time.value == 0 ? Json() : Json((time - label_.arrived).value);
  };
  Json tpot;
  if (first.completion_tokens > 1) {
    tpot =
        (first.last_token - t.first_token).value / static_cast<double>(first.completion_tokens - 1);
  }
  Json::Object fields = {{"request", label_.request_id},
                         {"api", request_.kind == ApiKind::kChat ? "chat" : "completions"},
                         {"status", status},
                         {"closed", closed.empty() ? Json() : Json(closed)},
                         {"error", failure_.empty() ? Json() : Json(failure_)},
                         {"finish", first.finish ? Json(FinishReasonName(*first.finish)) : Json()},
                         {"choices", static_cast<int64_t>(choices_.size())},
                         {"prompt_tokens", usage.prompt_tokens},
                         {"cached_tokens", usage.cached_tokens},
                         {"output_tokens", usage.completion_tokens},
                         {"queued_seconds", since(t.scheduled)},
                         {"ttft_seconds", since(t.first_token)},
                         {"tpot_seconds", std::move(tpot)},
                         {"total_seconds", (now - label_.arrived).value},
                         {"preemptions", t.preemptions},
                         {"client", label_.peer}};
  if (!t.route.empty()) fields.emplace_back("route", t.route);
  context_.logger->Log(failure_.empty() ? LogLevel::kInfo : LogLevel::kError, "request finished",
                       std::move(fields));
}

}  // namespace divisi
