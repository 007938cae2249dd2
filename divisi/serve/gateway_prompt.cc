#include "divisi/serve/gateway_prompt.h"

#include <algorithm>

#include "divisi/core/format.h"

namespace divisi {
namespace {

constexpr int64_t kDefaultMaxTokens = 16;  // OpenAI's, of /v1/completions; chat has none.

// The rendered conversation. Special tokens are in the template's text, so none are added to it.
OrApiError<std::string> RenderChat(const ChatRequest& chat, const GatewayModel& model,
                                   double now_unix_seconds) {
  if (!model.render_chat) {
    return InvalidField("messages", Format("no chat with this model, use /v1/completions: {}",
                                           model.no_chat_reason));
  }
  Json variables =
      model.template_variables.is_null() ? Json::MakeObject() : model.template_variables;
  if (chat.template_variables.is_object()) {
    for (const auto& [name, value] : chat.template_variables.as_object())
      variables.Set(name, value);
  }
  variables.Set("messages", chat.messages);
  if (chat.tools.is_array()) variables.Set("tools", chat.tools);
  variables.Set("add_generation_prompt", chat.add_generation_prompt);
  Result<std::string> text = model.render_chat(variables, now_unix_seconds);
  if (text) return *std::move(text);
  return InvalidField("messages", Format("the chat template refused the messages: {}",
                                         text.error().message));
}

std::optional<ApiError> CheckIds(std::string_view field, const std::vector<TokenId>& ids,
                                 int64_t vocab_size) {
  const auto bad =
      std::ranges::find_if(ids, [&](TokenId id) { return id < 0 || id >= vocab_size; });
  if (bad == ids.end()) return std::nullopt;
  return InvalidField(std::string(field),
                      Format("'{}' holds token id {}, but this model's ids are 0 "
                             "to {}",
                             field, *bad, vocab_size - 1));
}

// max_tokens: as asked for, if it was. The first sentence is OpenAI's: clients look for it.
ApiError TooLong(std::string param, int64_t prompt_tokens, std::optional<int64_t> max_tokens,
                 const GatewayModel& model) {
  std::string text =
      Format("This model's maximum context length is {} tokens. ", model.max_model_len);
  if (max_tokens == 0) {
    text += Format("However, the prompt has {} tokens. Please reduce its length.", prompt_tokens);
  } else if (max_tokens) {
    text += Format(
        "However, you requested {} tokens ({} in the prompt, {} in the completion). "
        "Please reduce the length of the prompt or completion.",
        prompt_tokens + *max_tokens, prompt_tokens, *max_tokens);
  } else {
    text += Format(
        "However, the prompt has {} tokens, which leaves no room for one more. Please "
        "reduce its length.",
        prompt_tokens);
  }
  if (!model.limited_by.empty()) {
    text += Format(" The limit is this server's {}, not the model's own.", model.limited_by);
  }
  ApiError error = InvalidField(std::move(param), std::move(text));
  error.code = "context_length_exceeded";
  return error;
}

// Sets max_tokens where the request leaves it open, and checks that all fits the context.
std::optional<ApiError> FitContext(PreparedRequest& request, const GatewayModel& model) {
  const char* param = request.kind == ApiKind::kChat ? "messages" : "prompt";
  size_t longest = 0;
  for (const auto& prompt : request.prompts) {
    if (prompt.empty()) return InvalidField(param, "the prompt is empty; give at least one token");
    longest = std::max(longest, prompt.size());
  }
  const int64_t prompt_tokens = static_cast<int64_t>(longest);
  auto& max_tokens = request.generation.max_tokens;
  const int64_t least = max_tokens.value_or(1);
  const int64_t room = model.max_model_len - prompt_tokens;
  if (least > room) return TooLong(param, prompt_tokens, max_tokens, model);
  if (!max_tokens) {
    max_tokens = request.kind == ApiKind::kChat ? room : std::min(room, kDefaultMaxTokens);
  }
  return std::nullopt;
}

std::optional<ApiError> CheckRequest(PreparedRequest& request, const GatewayModel& model) {
  for (const auto& prompt : request.prompts) {
    if (auto error = CheckIds("prompt", prompt, model.vocab_size)) return error;
  }
  if (auto error =
          CheckIds("stop_token_ids", request.generation.stop_token_ids, model.vocab_size)) {
    return error;
  }
  std::vector<TokenId> biased;
  for (const auto& [id, bias] : request.generation.sampling.logit_bias) biased.push_back(id);
  if (auto error = CheckIds("logit_bias", biased, model.vocab_size)) return error;
  return FitContext(request, model);
}

OrApiError<PreparedRequest> PrepareCompletion(std::string_view body, const GatewayModel& model,
                                              const std::vector<std::string>& names) {
  auto parsed = ParseCompletionRequest(body, model.defaults);
  if (auto* error = std::get_if<ApiError>(&parsed)) return *error;
  auto& completion = std::get<CompletionRequest>(parsed);
  if (auto error = CheckModelName(completion.generation.model, names)) return *error;
  PreparedRequest request{.kind = ApiKind::kCompletion, .echo = completion.echo};
  for (Prompt& prompt : completion.prompts) {
    if (auto* ids = std::get_if<std::vector<TokenId>>(&prompt)) {
      request.prompts.push_back(std::move(*ids));
    } else {
      request.prompts.push_back(model.tokenizer->Encode(std::get<std::string>(prompt),
                                                        completion.generation.add_special_tokens));
    }
  }
  request.generation = std::move(completion.generation);
  return request;
}

OrApiError<PreparedRequest> PrepareChat(std::string_view body, const GatewayModel& model,
                                        const std::vector<std::string>& names,
                                        double now_unix_seconds) {
  auto parsed = ParseChatRequest(body, model.defaults);
  if (auto* error = std::get_if<ApiError>(&parsed)) return *error;
  auto& chat = std::get<ChatRequest>(parsed);
  if (auto error = CheckModelName(chat.generation.model, names)) return *error;
  auto text = RenderChat(chat, model, now_unix_seconds);
  if (auto* error = std::get_if<ApiError>(&text)) return *error;
  PreparedRequest request{.kind = ApiKind::kChat};
  request.prompts.push_back(
      model.tokenizer->Encode(std::get<std::string>(text), chat.generation.add_special_tokens));
  request.generation = std::move(chat.generation);
  return request;
}

}  // namespace

std::optional<ApiError> CheckModelName(const std::string& name,
                                       const std::vector<std::string>& names) {
  if (name.empty() || std::ranges::find(names, name) != names.end()) return std::nullopt;
  return ApiError{
      .status = 404,
      .message = Format("The model '{}' does not exist here; /v1/models lists what does.", name),
      .param = "model",
      .code = "model_not_found"};
}

OrApiError<PreparedRequest> PrepareRequest(ApiKind kind, std::string_view body,
                                           const GatewayModel& model,
                                           const std::vector<std::string>& names,
                                           double now_unix_seconds) {
  auto prepared = kind == ApiKind::kChat ? PrepareChat(body, model, names, now_unix_seconds)
                                         : PrepareCompletion(body, model, names);
  if (auto* request = std::get_if<PreparedRequest>(&prepared)) {
    if (auto error = CheckRequest(*request, model)) return *error;
  }
  return prepared;
}

OrApiError<std::string> TokenizeBody(std::string_view body, const GatewayModel& model,
                                     const std::vector<std::string>& names,
                                     double now_unix_seconds) {
  auto parsed = ParseTokenizeRequest(body);
  if (auto* error = std::get_if<ApiError>(&parsed)) return *error;
  const auto& request = std::get<TokenizeRequest>(parsed);
  if (auto error = CheckModelName(request.model, names)) return *error;
  std::string text = request.prompt.value_or("");
  if (request.chat) {
    auto rendered = RenderChat(*request.chat, model, now_unix_seconds);
    if (auto* error = std::get_if<ApiError>(&rendered)) return *error;
    text = std::get<std::string>(std::move(rendered));
  }
  Json tokens = Json::MakeArray();
  Json strings = request.return_token_strings ? Json::MakeArray() : Json();
  for (const TokenId id : model.tokenizer->Encode(text, request.add_special_tokens)) {
    tokens.Append(id);
    if (request.return_token_strings) {
      strings.Append(model.tokenizer->Decode(std::span(&id, 1), false));
    }
  }
  const int64_t count = static_cast<int64_t>(tokens.as_array().size());
  return Json(Json::Object{{"count", count},
                           {"max_model_len", model.max_model_len},
                           {"tokens", std::move(tokens)},
                           {"token_strs", std::move(strings)}})
      .Dump();
}

OrApiError<std::string> DetokenizeBody(std::string_view body, const GatewayModel& model,
                                       const std::vector<std::string>& names) {
  auto parsed = ParseDetokenizeRequest(body);
  if (auto* error = std::get_if<ApiError>(&parsed)) return *error;
  const auto& request = std::get<DetokenizeRequest>(parsed);
  if (auto error = CheckModelName(request.model, names)) return *error;
  if (auto error = CheckIds("tokens", request.tokens, model.vocab_size)) return *error;
  return Json(Json::Object{{"prompt", model.tokenizer->Decode(request.tokens, false)}}).Dump();
}

}  // namespace divisi
