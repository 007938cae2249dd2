// What a client asks for: the bodies of /v1/completions and /v1/chat/completions as typed values.
// Pure: text in, request or error out.
//
// Fields are OpenAI's, with vLLM's additions for what the OpenAI API lacks (top_k, min_p,
// repetition_penalty, stop_token_ids, ignore_eos, include_stop_str_in_output, skip_special_tokens,
// add_special_tokens, chat_template_kwargs, cache_salt). Unknown members are ignored, as OpenAI's
// servers do.
// kv_session, "open" or "closed", is ours: whether the conversation goes on, so that its pages are
// worth keeping.
// Members that are known, would change the output, and are not supported are refused by name.
// Source: OpenAI API reference (completions, chat); vLLM's OpenAI-compatible server documentation.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "divisi/core/json.h"
#include "divisi/kv/session_state.h"
#include "divisi/model/sampler.h"
#include "divisi/serve/openai_error.h"

namespace divisi {

inline constexpr int kMaxPrompts = 128;         // Prompts in one completions request.
inline constexpr int kMaxChoices = 128;         // OpenAI's bound on n; here of prompts times n.
inline constexpr int kMaxLogprobs = 20;         // OpenAI's bound on top_logprobs.
inline constexpr int kMaxStops = 16;            // OpenAI takes 4.
inline constexpr int kMaxStopBytes = 1024;      // Of one stop string.
inline constexpr int kMaxStopTokenIds = 128;
inline constexpr int kMaxLogitBias = 1024;      // OpenAI's bound is 300 entries.
inline constexpr int kMaxMessages = 4096;
inline constexpr int64_t kMaxTokensField = 1 << 30;  // Of max_tokens; the context is far smaller.

// What a checkpoint's generation_config.json sets; a request's own fields override it.
struct GenerationDefaults {
  std::optional<double> temperature;
  std::optional<double> top_p;
  std::optional<int> top_k;
  std::optional<double> min_p;
  std::optional<double> repetition_penalty;
};
// Values outside the fields' ranges are left out: a checkpoint's odd default must not refuse every
// request.
GenerationDefaults ParseGenerationDefaults(const Json& generation_config);

// Common to both endpoints.
struct GenerationRequest {
  std::string model;            // Empty: the server's.
  SamplingParams sampling;      // seed is set from `seed` where given; top_logprobs from logprobs.
  std::optional<uint64_t> seed; // Absent: the server draws one.
  int n = 1;
  // Absent: 16 for completions, the rest of the context for chat.
  std::optional<int64_t> max_tokens;
  std::vector<std::string> stop;
  std::vector<TokenId> stop_token_ids;
  bool ignore_eos = false;
  // Keeps cached pages apart from those of other salts: one tenant's timing says nothing of
  // another's prompts.
  std::string cache_salt;
  SessionState session = SessionState::kUnknown;
  bool include_stop_in_output = false;
  bool skip_special_tokens = true;
  bool add_special_tokens = true;
  bool stream = false;
  bool include_usage = false;     // A last chunk with the usage.
  bool continuous_usage = false;  // Every chunk with the usage so far.
};

// Text to be tokenised, or ids.
using Prompt = std::variant<std::string, std::vector<TokenId>>;

struct CompletionRequest {
  GenerationRequest generation;
  std::vector<Prompt> prompts;  // At least one.
  bool echo = false;            // max_tokens 0 is allowed with it: score the prompt, make nothing.
};

struct ChatRequest {
  GenerationRequest generation;
  Json messages;              // Array of objects whose content is null or text, parts joined.
  Json tools;                 // Array for the template, or null.
  Json template_variables;    // chat_template_kwargs: object, or null.
  bool add_generation_prompt = true;
};

OrApiError<CompletionRequest> ParseCompletionRequest(std::string_view body,
                                                     const GenerationDefaults& defaults);
OrApiError<ChatRequest> ParseChatRequest(std::string_view body,
                                         const GenerationDefaults& defaults);

// /tokenize: {"prompt"} or {"messages"}; exactly one of the two below is set.
struct TokenizeRequest {
  std::optional<std::string> prompt;
  std::optional<ChatRequest> chat;
  std::string model;
  bool add_special_tokens = true;
  bool return_token_strings = false;
};
OrApiError<TokenizeRequest> ParseTokenizeRequest(std::string_view body);

struct DetokenizeRequest {
  std::string model;
  std::vector<TokenId> tokens;
};
OrApiError<DetokenizeRequest> ParseDetokenizeRequest(std::string_view body);

}  // namespace divisi
