#include "divisi/serve/openai_request.h"

#include <limits>

#include "divisi/core/format.h"
#include "divisi/serve/openai_fields.h"
#include "divisi/serve/openai_generation.h"

namespace divisi {
namespace {

constexpr size_t kMaxModelNameBytes = 1024;

bool IsTokenId(const Json& value) {
  return value.is_int() && value.as_int() >= 0 &&
         value.as_int() <= std::numeric_limits<TokenId>::max();
}

// nullopt and an error when an element is no token id.
std::optional<std::vector<TokenId>> TokenIds(const Json::Array& array, std::string_view name,
                                             RequestFields& fields) {
  std::vector<TokenId> ids;
  ids.reserve(array.size());
  for (const Json& value : array) {
    if (!IsTokenId(value)) {
      fields.Fail(name, Format("'{}' must hold token ids (integers from 0), but element {} is {}",
                               name, ids.size(),
                               value.is_number() ? value.Dump() : std::string(value.TypeName())));
      return std::nullopt;
    }
    ids.push_back(static_cast<TokenId>(value.as_int()));
  }
  return ids;
}

// One element of an array of prompts.
void AddPrompt(const Json& value, std::vector<Prompt>& prompts, RequestFields& fields) {
  if (value.is_string()) {
    prompts.emplace_back(value.as_string());
  } else if (value.is_array()) {
    if (auto ids = TokenIds(value.as_array(), "prompt", fields))
      prompts.emplace_back(*std::move(ids));
  } else {
    fields.Fail("prompt",
                Format("'prompt' must be a string, an array of strings, an array of token "
                       "ids or an array of those; it holds {}",
                       value.TypeName()));
  }
}

std::vector<Prompt> Prompts(RequestFields& fields) {
  std::vector<Prompt> prompts;
  const Json* value = fields.Find("prompt");
  if (value == nullptr) {
    fields.Refuse("prompt_embeds", "send 'prompt' as text or token ids");
    fields.Fail("prompt", "'prompt' is missing; give a string or token ids");
    return prompts;
  }
  if (!value->is_array()) {
    AddPrompt(*value, prompts, fields);
    return prompts;
  }
  const Json::Array& array = value->as_array();
  if (array.empty()) fields.Fail("prompt", "'prompt' is an empty array; give at least one token");
  if (!array.empty() && array[0].is_number()) {
    AddPrompt(*value, prompts, fields);
    return prompts;
  }
  if (array.size() > kMaxPrompts) {
    fields.Fail("prompt", Format("'prompt' holds {} prompts; at most {} go in one request",
                                 array.size(), kMaxPrompts));
    return prompts;
  }
  for (const Json& element : array) AddPrompt(element, prompts, fields);
  return prompts;
}

// A message's content as one string: OpenAI's text parts are joined.
std::optional<Json> ContentText(const Json& content, std::string_view name, RequestFields& fields) {
  if (content.is_null() || content.is_string()) return content;
  if (!content.is_array()) {
    fields.Fail(name, Format("'{}' must be a string or an array of text parts, not {}", name,
                             content.TypeName()));
    return std::nullopt;
  }
  std::string text;
  for (const Json& part : content.as_array()) {
    const Json* type = part.Find("type");
    const Json* piece = part.Find("text");
    if (type == nullptr || !type->is_string() || type->as_string() != "text") {
      fields.Fail(name, Format("'{}' has a part of type {}; only text parts are supported", name,
                               type == nullptr ? "?" : type->Dump()));
      return std::nullopt;
    }
    if (piece == nullptr || !piece->is_string()) {
      fields.Fail(name, Format("'{}' has a text part without a string in 'text'", name));
      return std::nullopt;
    }
    text += piece->as_string();
  }
  return Json(std::move(text));
}

Json Messages(RequestFields& fields) {
  Json messages = Json::MakeArray();
  const Json* value = fields.Find("messages");
  if (value == nullptr || !value->is_array() || value->as_array().empty()) {
    fields.Fail("messages", "'messages' must be an array of at least one message");
    return messages;
  }
  if (value->as_array().size() > kMaxMessages) {
    fields.Fail("messages", Format("'messages' holds {} messages; at most {} are taken",
                                   value->as_array().size(), kMaxMessages));
    return messages;
  }
  for (const Json& source : value->as_array()) {
    const std::string name = Format("messages[{}]", messages.as_array().size());
    const Json* role = source.Find("role");
    if (role == nullptr || !role->is_string()) {
      fields.Fail(name, Format("'{}' must be an object with a string 'role'", name));
      return messages;
    }
    Json message = source;
    if (const Json* content = source.Find("content")) {
      auto text = ContentText(*content, name + ".content", fields);
      if (!text) return messages;
      message.Set("content", *std::move(text));
    } else if (source.Find("tool_calls") == nullptr) {
      fields.Fail(name, Format("'{}' has no 'content'", name));
      return messages;
    }
    messages.Append(std::move(message));
  }
  return messages;
}

Json Tools(RequestFields& fields) {
  const Json* choice = fields.Find("tool_choice");
  if (choice != nullptr && *choice != Json("auto") && *choice != Json("none")) {
    fields.Fail("tool_choice", "'tool_choice' may be \"auto\" or \"none\"; forcing a tool is not "
                               "supported");
  }
  const Json* tools = fields.Find("tools");
  if (tools == nullptr) return {};
  if (!tools->is_array()) {
    fields.Fail("tools", Format("'tools' must be an array, not {}", tools->TypeName()));
    return {};
  }
  const bool unused = tools->as_array().empty() || (choice != nullptr && *choice == Json("none"));
  return unused ? Json() : *tools;
}

void ReadChatLogprobs(RequestFields& fields, SamplingParams& sampling) {
  const bool wanted = fields.Bool("logprobs").value_or(false);
  const auto top = fields.Int("top_logprobs", 0, kMaxLogprobs);
  if (top.value_or(0) > 0 && !wanted) {
    fields.Fail("top_logprobs", "'top_logprobs' needs 'logprobs': true");
  }
  if (wanted) sampling.top_logprobs = static_cast<int>(top.value_or(0));
}

// The parts of a chat request that make its prompt; /tokenize has them too.
void ReadConversation(RequestFields& fields, ChatRequest& chat) {
  chat.messages = Messages(fields);
  chat.tools = Tools(fields);
  chat.add_generation_prompt = fields.Bool("add_generation_prompt").value_or(true);
  chat.generation.add_special_tokens = fields.Bool("add_special_tokens").value_or(false);
  if (const Json* variables = fields.Find("chat_template_kwargs")) {
    if (!variables->is_object()) {
      fields.Fail("chat_template_kwargs", "'chat_template_kwargs' must be an object");
    }
    chat.template_variables = *variables;
  }
  fields.Refuse("chat_template", "the checkpoint's own template is used");
  fields.Refuse("documents", "put the text into a message");
  if (fields.Bool("continue_final_message").value_or(false)) {
    fields.Fail("continue_final_message", "'continue_final_message' is not supported; use "
                                          "/v1/completions with the rendered prompt");
  }
}

void RefuseChatOnly(RequestFields& fields) {
  fields.Refuse("functions", "use 'tools'");
  fields.Refuse("function_call", "use 'tools'");
  fields.Refuse("audio", "only text is produced");
  fields.Refuse("web_search_options", "there is no web search");
}

OrApiError<Json> ParseBody(std::string_view body) {
  Result<Json> json = Json::Parse(body);
  if (json) return *std::move(json);
  return ApiError{.message = Format("the request body is {}", json.error().message)};
}

template <typename T>
OrApiError<T> ValueOrError(T value, const RequestFields& fields) {
  if (fields.error()) return *fields.error();
  return value;
}

}  // namespace

OrApiError<CompletionRequest> ParseCompletionRequest(std::string_view body,
                                                     const GenerationDefaults& defaults) {
  auto parsed = ParseBody(body);
  if (auto* error = std::get_if<ApiError>(&parsed)) return *error;
  RequestFields fields(std::get<Json>(parsed));
  CompletionRequest request;
  GenerationRequest& generation = request.generation;
  generation = ReadGeneration(fields, defaults);
  request.prompts = Prompts(fields);
  request.echo = fields.Bool("echo").value_or(false);
  generation.add_special_tokens = fields.Bool("add_special_tokens").value_or(true);
  generation.max_tokens = fields.Int("max_tokens", 0, kMaxTokensField);
  if (generation.max_tokens == 0 && !request.echo) {
    fields.Fail("max_tokens", "'max_tokens' must be at least 1 (0 is taken with 'echo' only)");
  }
  const auto logprobs = fields.Int("logprobs", 0, kMaxLogprobs);
  generation.sampling.top_logprobs = static_cast<int>(logprobs.value_or(-1));
  const auto best_of = fields.Int("best_of", 1, kMaxChoices);
  if (best_of && *best_of != generation.n) {
    fields.Fail("best_of", Format("'best_of' must equal 'n' ({}); ranking more candidates than are "
                                  "returned is not supported",
                                  generation.n));
  }
  fields.Refuse("suffix", "insertion is not supported");
  const size_t choices = request.prompts.size() * static_cast<size_t>(generation.n);
  if (choices > kMaxChoices) {
    fields.Fail("n",
                Format("{} prompts times 'n' {} make {} choices; at most {} fit in one request",
                       request.prompts.size(), generation.n, choices, kMaxChoices));
  }
  return ValueOrError(std::move(request), fields);
}

OrApiError<ChatRequest> ParseChatRequest(std::string_view body,
                                         const GenerationDefaults& defaults) {
  auto parsed = ParseBody(body);
  if (auto* error = std::get_if<ApiError>(&parsed)) return *error;
  RequestFields fields(std::get<Json>(parsed));
  ChatRequest request;
  request.generation = ReadGeneration(fields, defaults);
  ReadConversation(fields, request);
  ReadChatLogprobs(fields, request.generation.sampling);
  // The newer name wins, as in OpenAI's API, where max_tokens is deprecated.
  const auto older = fields.Int("max_tokens", 1, kMaxTokensField);
  const auto newer = fields.Int("max_completion_tokens", 1, kMaxTokensField);
  request.generation.max_tokens = newer ? newer : older;
  RefuseChatOnly(fields);
  return ValueOrError(std::move(request), fields);
}

OrApiError<TokenizeRequest> ParseTokenizeRequest(std::string_view body) {
  auto parsed = ParseBody(body);
  if (auto* error = std::get_if<ApiError>(&parsed)) return *error;
  RequestFields fields(std::get<Json>(parsed));
  TokenizeRequest request;
  request.model = fields.String("model", kMaxModelNameBytes).value_or("");
  request.return_token_strings = fields.Bool("return_token_strs").value_or(false);
  if (fields.Find("messages") != nullptr) {
    request.chat.emplace();
    ReadConversation(fields, *request.chat);
    request.add_special_tokens = request.chat->generation.add_special_tokens;
  } else {
    request.prompt = fields.String("prompt", std::numeric_limits<size_t>::max());
    if (!request.prompt) fields.Fail("prompt", "give 'prompt' (a string) or 'messages'");
    request.add_special_tokens = fields.Bool("add_special_tokens").value_or(true);
  }
  return ValueOrError(std::move(request), fields);
}

OrApiError<DetokenizeRequest> ParseDetokenizeRequest(std::string_view body) {
  auto parsed = ParseBody(body);
  if (auto* error = std::get_if<ApiError>(&parsed)) return *error;
  RequestFields fields(std::get<Json>(parsed));
  DetokenizeRequest request;
  request.model = fields.String("model", kMaxModelNameBytes).value_or("");
  const Json* tokens = fields.Find("tokens");
  if (tokens == nullptr || !tokens->is_array()) {
    fields.Fail("tokens", "'tokens' must be an array of token ids");
  } else if (auto ids = TokenIds(tokens->as_array(), "tokens", fields)) {
    request.tokens = *std::move(ids);
  }
  return ValueOrError(std::move(request), fields);
}

}  // namespace divisi
