#include "divisi/cli/load_stream.h"

#include "divisi/core/format.h"
#include "divisi/core/json.h"

namespace divisi {
namespace {

const Json* FirstChoice(const Json& chunk) {
  const Json* const choices = chunk.Find("choices");
  if (choices == nullptr || !choices->is_array() || choices->as_array().empty()) return nullptr;
  return &choices->as_array().front();
}

// The text of a completion's choice, or of a chat's delta; null where it has none.
const Json* TextOf(const Json& choice) {
  const Json* const delta = choice.Find("delta");
  const Json* const text = delta != nullptr ? delta->Find("content") : choice.Find("text");
  return text != nullptr && text->is_string() ? text : nullptr;
}

// Chunks that only open a chat (role) or only close a stream (finish_reason) carry no token.
bool BringsToken(const Json& choice, const Json* text) {
  if (text != nullptr && !text->as_string().empty()) return true;
  const Json* const delta = choice.Find("delta");
  if (delta != nullptr && delta->Find("role") != nullptr) return false;
  const Json* const finish = choice.Find("finish_reason");
  return text != nullptr && (finish == nullptr || finish->is_null());
}

std::optional<int64_t> CountIn(const Json& usage, std::string_view key) {
  const Json* const value = usage.Find(key);
  if (value == nullptr || !value->is_int() || value->as_int() < 0) return {};
  return value->as_int();
}

}  // namespace

Result<void> CompletionStream::Feed(std::string_view bytes, Seconds now) {
  Result<void> outcome;
  RETURN_IF_ERROR(parser_.Feed(bytes, [&](std::string_view data) {
    if (!outcome) return;
    if (data == "[DONE]") {
      done_ = true;
    } else {
      outcome = ReadChunk(data, now);
    }
  }));
  return outcome;
}

Result<void> CompletionStream::ReadChunk(std::string_view data, Seconds now) {
  const auto chunk = Json::Parse(data);
  if (!chunk) return WithContext(chunk.error(), "an event of the stream");
  if (const Json* const error = chunk->Find("error"); error != nullptr) {
    const Json* const message = error->Find("message");
    return Error{
        Code::kInternal,
        Format("the server broke off: {}",
               message != nullptr && message->is_string() ? message->as_string() : error->Dump())};
  }
  if (const Json* const choice = FirstChoice(*chunk); choice != nullptr) {
    const Json* const text = TextOf(*choice);
    if (text != nullptr) record_.text += text->as_string();
    if (BringsToken(*choice, text)) {
      if (events_++ == 0) {
        record_.ttft = now - sent_;
      } else {
        record_.gaps.push_back(now - last_token_);
      }
      last_token_ = now;
    }
    record_.latency = now - sent_;
  }
  if (const Json* const usage = chunk->Find("usage"); usage != nullptr && usage->is_object()) {
    usage_output_ = CountIn(*usage, "completion_tokens");
    record_.input_tokens = CountIn(*usage, "prompt_tokens").value_or(record_.input_tokens);
  }
  record_.output_tokens = usage_output_.value_or(events_);
  return {};
}

Result<void> CompletionStream::End() {
  if (!done_) return Error{Code::kDataLoss, "the stream ended before its [DONE]"};
  return {};
}

}  // namespace divisi
