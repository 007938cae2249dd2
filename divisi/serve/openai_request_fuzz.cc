// The four request parsers on any bytes: each refuses them with a whole error, or gives values
// within the documented bounds.
#include <cmath>

#include "divisi/serve/openai_request.h"

namespace divisi {
namespace {

void CheckError(const ApiError& error) {
  CHECK(error.status == 400 && !error.message.empty());
  CHECK(Json::Parse(ErrorBody(error)).ok());
}

void CheckGeneration(const GenerationRequest& request) {
  const SamplingParams& s = request.sampling;
  CHECK(request.n >= 1 && request.n <= kMaxChoices);
  CHECK(s.temperature >= 0 && std::isfinite(s.temperature));
  CHECK(s.top_p > 0 && s.top_p <= 1 && s.top_k >= 0 && s.min_p >= 0 && s.min_p <= 1);
  CHECK(std::abs(s.presence_penalty) <= 2 && std::abs(s.frequency_penalty) <= 2);
  CHECK(s.repetition_penalty > 0 && std::isfinite(s.repetition_penalty));
  CHECK(s.top_logprobs >= -1 && s.top_logprobs <= kMaxLogprobs);
  CHECK(request.stop.size() <= kMaxStops && request.stop_token_ids.size() <= kMaxStopTokenIds);
  for (const std::string& stop : request.stop) CHECK(!stop.empty() && stop.size() <= kMaxStopBytes);
  for (const TokenId id : request.stop_token_ids) CHECK(id >= 0);
  for (const auto& [id, bias] : s.logit_bias) CHECK(id >= 0 && std::abs(bias) <= 100);
  CHECK(!request.max_tokens ||
        (*request.max_tokens >= 0 && *request.max_tokens <= kMaxTokensField));
}

void CheckChat(const ChatRequest& request) {
  CheckGeneration(request.generation);
  CHECK(!request.messages.as_array().empty());
  for (const Json& message : request.messages.as_array()) {
    CHECK(message.Find("role")->is_string());
    const Json* content = message.Find("content");
    CHECK(content == nullptr || content->is_null() || content->is_string());
  }
}

void ParseAll(std::string_view body) {
  const auto completion = ParseCompletionRequest(body, {});
  if (const auto* request = std::get_if<CompletionRequest>(&completion)) {
    CheckGeneration(request->generation);
    CHECK(!request->prompts.empty());
    CHECK(request->prompts.size() * static_cast<size_t>(request->generation.n) <= kMaxChoices);
    CHECK(request->generation.max_tokens != 0 || request->echo);
  } else {
    CheckError(std::get<ApiError>(completion));
  }
  const auto chat = ParseChatRequest(body, {});
  if (const auto* request = std::get_if<ChatRequest>(&chat)) {
    CheckChat(*request);
    CHECK(request->generation.max_tokens != 0);
  } else {
    CheckError(std::get<ApiError>(chat));
  }
  const auto tokenize = ParseTokenizeRequest(body);
  if (const auto* request = std::get_if<TokenizeRequest>(&tokenize)) {
    CHECK(request->prompt.has_value() != request->chat.has_value());
  } else {
    CheckError(std::get<ApiError>(tokenize));
  }
  const auto detokenize = ParseDetokenizeRequest(body);
  if (const auto* error = std::get_if<ApiError>(&detokenize)) CheckError(*error);
}

}  // namespace
}  // namespace divisi

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view body(reinterpret_cast<const char*>(data), size);
  divisi::ParseAll(body);
  if (const auto json = divisi::Json::Parse(body)) {
    // What config files say goes the same way.
    const auto defaults = divisi::ParseGenerationDefaults(*json);
    CHECK(!defaults.top_p || (*defaults.top_p > 0 && *defaults.top_p <= 1));
  }
  return 0;
}
