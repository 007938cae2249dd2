// From a request's body to token ids ready for the engine: parse, render, tokenise, check against
// the model. Pure, and the only part of the gateway whose work grows with the prompt.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "divisi/model/tokenizer.h"
#include "divisi/serve/gateway_backend.h"
#include "divisi/serve/openai_request.h"
#include "divisi/serve/openai_response.h"

namespace divisi {

// A loaded model as the gateway sees it. Everything pointed to outlives the gateway.
struct GatewayModel {
  RequestBackend* backend = nullptr;
  const Tokenizer* tokenizer = nullptr;
  // Renders the chat template (ChatTemplate::Render). Empty: chat is answered 400, with the reason.
  std::function<Result<std::string>(const Json& variables, double now_unix_seconds)> render_chat;
  std::string no_chat_reason;           // Why render_chat is empty.
  Json template_variables;              // bos_token, eos_token, ...: object or null.
  GenerationDefaults defaults;
  std::vector<TokenId> eos_token_ids;   // End a request unless it says ignore_eos.
  int64_t vocab_size = 0;               // Rows of the embedding: the bound of token ids.
  int64_t max_model_len = 0;            // Prompt plus output.
  std::string limited_by;               // The flag that holds max_model_len below the model's own.
};

struct PreparedRequest {
  ApiKind kind = ApiKind::kCompletion;
  GenerationRequest generation;  // max_tokens is set, and fits.
  bool echo = false;
  std::vector<std::vector<TokenId>> prompts;  // At least one, none empty.
};

// Errors: those of the parsers; 404 model_not_found when the request names none of `names`; 400 for
// ids outside the vocabulary, an empty prompt, and context_length_exceeded.
OrApiError<PreparedRequest> PrepareRequest(ApiKind kind, std::string_view body,
                                           const GatewayModel& model,
                                           const std::vector<std::string>& names,
                                           double now_unix_seconds);

// The bodies of /tokenize's and /detokenize's answers, in vLLM's shapes:
// {"count", "max_model_len", "tokens", "token_strs"} and {"prompt"}.
OrApiError<std::string> TokenizeBody(std::string_view body, const GatewayModel& model,
                                     const std::vector<std::string>& names,
                                     double now_unix_seconds);
OrApiError<std::string> DetokenizeBody(std::string_view body, const GatewayModel& model,
                                       const std::vector<std::string>& names);

// 404 unless `name` is empty or one of `names`.
std::optional<ApiError> CheckModelName(const std::string& name,
                                       const std::vector<std::string>& names);

}  // namespace divisi
