#include "divisi/serve/openai_response.h"

#include <array>
#include <charconv>
#include <cmath>

#include "divisi/core/format.h"
#include "divisi/core/json.h"

namespace divisi {
namespace {

void AppendInt(int64_t value, std::string& out) {
  std::array<char, 24> digits;
  const auto [end, status] = std::to_chars(digits.data(), digits.data() + digits.size(), value);
  out.append(digits.data(), end);
}

// JSON has no infinities: OpenAI shows the logprob of the impossible as -9999.
constexpr float kImpossibleLogprob = -9999;

void AppendLogprob(float logprob, std::string& out) {
  if (!std::isfinite(logprob)) logprob = kImpossibleLogprob;
  std::array<char, 32> digits;
  const auto [end, status] = std::to_chars(digits.data(), digits.data() + digits.size(), logprob);
  const std::string_view text(digits.data(), static_cast<size_t>(end - digits.data()));
  out += text;
  // Some clients check that a logprob is not an integer.
  if (text.find_first_of(".e") == std::string_view::npos) out += ".0";
}

std::string TokenText(const Tokenizer& tokenizer, TokenId id) {
  return tokenizer.Decode(std::span(&id, 1), false);
}

void AppendChatToken(const Tokenizer& tokenizer, TokenId id, float logprob, std::string& out) {
  out += "{\"token\":";
  AppendJsonString(TokenText(tokenizer, id), out);
  out += ",\"logprob\":";
  AppendLogprob(logprob, out);
  out += ",\"bytes\":[";
  bool first = true;
  for (const char byte : tokenizer.TokenBytes(id)) {
    if (!first) out += ',';
    first = false;
    AppendInt(static_cast<unsigned char>(byte), out);
  }
  out += ']';
}

void AppendChatLogprobs(const Tokenizer& tokenizer, const std::vector<TextOutput::Token>& tokens,
                        int top, std::string& out) {
  out += "{\"content\":[";
  for (size_t i = 0; i < tokens.size(); ++i) {
    const SampledToken& sampled = tokens[i].sampled;
    if (i > 0) out += ',';
    AppendChatToken(tokenizer, sampled.token, sampled.logprob.value_or(0), out);
    out += ",\"top_logprobs\":[";
    for (size_t k = 0; k < sampled.top.size() && k < static_cast<size_t>(top); ++k) {
      if (k > 0) out += ',';
      AppendChatToken(tokenizer, sampled.top[k].token, sampled.top[k].logprob, out);
      out += '}';
    }
    out += "]}";
  }
  out += "],\"refusal\":null}";
}

// {"token": logprob, ...} of the chosen token and the best ones; of tokens with equal text the
// first counts, since a JSON object has each name once.
void AppendTopObject(const Tokenizer& tokenizer, const SampledToken& sampled, int top,
                     std::string& out) {
  std::vector<std::string> names;
  const auto add = [&](TokenId id, float logprob) {
    std::string name = TokenText(tokenizer, id);
    for (const std::string& known : names) {
      if (known == name) return;
    }
    if (!names.empty()) out += ',';
    AppendJsonString(name, out);
    out += ':';
    AppendLogprob(logprob, out);
    names.push_back(std::move(name));
  };
  out += '{';
  add(sampled.token, *sampled.logprob);
  for (size_t k = 0; k < sampled.top.size() && k < static_cast<size_t>(top); ++k) {
    add(sampled.top[k].token, sampled.top[k].logprob);
  }
  out += '}';
}

void AppendCompletionLogprobs(const Tokenizer& tokenizer,
                              const std::vector<TextOutput::Token>& tokens, int top,
                              std::string& out) {
  const auto list = [&](const char* name, auto append) {
    out += name;
    for (size_t i = 0; i < tokens.size(); ++i) {
      if (i > 0) out += ',';
      append(tokens[i]);
    }
    out += ']';
  };
  list("{\"tokens\":[", [&](const TextOutput::Token& token) {
    AppendJsonString(TokenText(tokenizer, token.sampled.token), out);
  });
  list(",\"token_logprobs\":[", [&](const TextOutput::Token& token) {
    token.sampled.logprob ? AppendLogprob(*token.sampled.logprob, out) : void(out += "null");
  });
  if (top > 0) {
    list(",\"top_logprobs\":[", [&](const TextOutput::Token& token) {
      token.sampled.logprob ? AppendTopObject(tokenizer, token.sampled, top, out)
                            : void(out += "null");
    });
  } else {
    out += ",\"top_logprobs\":null";
  }
  list(",\"text_offset\":[", [&](const TextOutput::Token& token) {
    AppendInt(token.text_offset, out);
  });
  out += '}';
}

void AppendUsageObject(const Usage& usage, std::string& out) {
  out += "{\"prompt_tokens\":";
  AppendInt(usage.prompt_tokens, out);
  out += ",\"completion_tokens\":";
  AppendInt(usage.completion_tokens, out);
  out += ",\"total_tokens\":";
  AppendInt(usage.prompt_tokens + usage.completion_tokens, out);
  out += ",\"prompt_tokens_details\":{\"cached_tokens\":";
  AppendInt(usage.cached_tokens, out);
  out += "}}";
}

void AppendFinish(std::optional<FinishReason> finish, std::string& out) {
  out += ",\"finish_reason\":";
  if (finish) {
    out += '"';
    out += FinishReasonName(*finish);
    out += '"';
  } else {
    out += "null";
  }
}

// {"id":...,"choices":[ of a response or chunk.
std::string HeadText(const ResponseHead& head, const char* object) {
  std::string text = "{\"id\":";
  AppendJsonString(head.id, text);
  text += Format(",\"object\":\"{}\",\"created\":{},\"model\":", object, head.created_unix_seconds);
  AppendJsonString(head.model, text);
  text += ",\"choices\":[";
  return text;
}

}  // namespace

const char* FinishReasonName(FinishReason reason) {
  switch (reason) {
    case FinishReason::kStop: return "stop";
    case FinishReason::kLength: return "length";
    case FinishReason::kCancelled: return "abort";
    case FinishReason::kError: return "error";
  }
  return "error";
}

void AppendLogprobs(ApiKind kind, const Tokenizer& tokenizer,
                    const std::vector<TextOutput::Token>& tokens, int top, std::string& out) {
  if (kind == ApiKind::kChat) {
    AppendChatLogprobs(tokenizer, tokens, top, out);
  } else {
    AppendCompletionLogprobs(tokenizer, tokens, top, out);
  }
}

ChunkWriter::ChunkWriter(const ResponseHead& head)
    : kind_(head.kind),
      prefix_("data: " + HeadText(head, head.kind == ApiKind::kChat ? "chat.completion.chunk"
                                                                    : "text_completion")) {}

void ChunkWriter::AppendChunk(const Chunk& chunk, std::string& out) const {
  const bool empty_end = chunk.finish && chunk.text.empty();
  Append(chunk, empty_end ? Delta::kNone : Delta::kText, out);
}

void ChunkWriter::AppendRole(const Chunk& chunk, std::string& out) const {
  CHECK(kind_ == ApiKind::kChat, "a role in a text completion");
  Append(chunk, Delta::kRole, out);
}

void ChunkWriter::Append(const Chunk& chunk, Delta delta, std::string& out) const {
  out += prefix_;
  out += "{\"index\":";
  AppendInt(chunk.index, out);
  if (kind_ == ApiKind::kCompletion) {
    out += ",\"text\":";
    AppendJsonString(chunk.text, out);
  } else if (delta == Delta::kRole) {
    out += ",\"delta\":{\"role\":\"assistant\",\"content\":\"\"}";
  } else if (delta == Delta::kText) {
    out += ",\"delta\":{\"content\":";
    AppendJsonString(chunk.text, out);
    out += '}';
  } else {
    out += ",\"delta\":{}";
  }
  out += ",\"logprobs\":";
  out += chunk.logprobs.empty() ? "null" : chunk.logprobs;
  AppendFinish(chunk.finish, out);
  out += "}]";
  if (chunk.usage) {
    out += ",\"usage\":";
    AppendUsageObject(*chunk.usage, out);
  } else if (chunk.usage_null) {
    out += ",\"usage\":null";
  }
  out += "}\n\n";
}

void ChunkWriter::AppendUsage(const Usage& usage, std::string& out) const {
  out += prefix_;
  out += "],\"usage\":";
  AppendUsageObject(usage, out);
  out += "}\n\n";
}

void ChunkWriter::AppendDone(std::string& out) { out += "data: [DONE]\n\n"; }

void ChunkWriter::AppendError(const ApiError& error, std::string& out) {
  out += "data: ";
  out += ErrorBody(error);
  out += "\n\n";
}

std::string ResponseBody(const ResponseHead& head, const std::vector<ChoiceResult>& choices,
                         const Usage& usage) {
  const bool chat = head.kind == ApiKind::kChat;
  std::string out = HeadText(head, chat ? "chat.completion" : "text_completion");
  for (size_t i = 0; i < choices.size(); ++i) {
    if (i > 0) out += ',';
    out += "{\"index\":";
    AppendInt(static_cast<int64_t>(i), out);
    out += chat ? ",\"message\":{\"role\":\"assistant\",\"content\":" : ",\"text\":";
    AppendJsonString(choices[i].text, out);
    if (chat) out += ",\"refusal\":null}";
    out += ",\"logprobs\":";
    out += choices[i].logprobs.empty() ? "null" : choices[i].logprobs;
    AppendFinish(choices[i].finish, out);
    out += '}';
  }
  out += "],\"usage\":";
  AppendUsageObject(usage, out);
  out += '}';
  return out;
}

}  // namespace divisi
