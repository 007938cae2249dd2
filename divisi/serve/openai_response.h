// What goes back to the client, in OpenAI's formats: whole responses, and chunks of a stream.
//
// A stream's chunks repeat all but a few bytes, so a ChunkWriter makes the repeated text once per
// request and appends a chunk to a buffer without building a tree.
// A stream ends in one of two ways: a chunk with a finish reason for each choice, the usage where
// asked for, and [DONE]; or one error event.
// Source: OpenAI API reference (completions, chat completions and their streaming).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "divisi/engine/request.h"
#include "divisi/model/tokenizer.h"
#include "divisi/serve/openai_error.h"
#include "divisi/serve/text_output.h"

namespace divisi {

struct Usage {
  int64_t prompt_tokens = 0;
  int64_t completion_tokens = 0;
  int64_t cached_tokens = 0;  // Prompt tokens found in shared pages.
};

enum class ApiKind { kCompletion, kChat };

// The parts that name a response.
struct ResponseHead {
  ApiKind kind = ApiKind::kCompletion;
  std::string id;  // "cmpl-..." or "chatcmpl-..."
  int64_t created_unix_seconds = 0;
  std::string model;
};

// "stop", "length", and "abort" where the server ended it early.
const char* FinishReasonName(FinishReason reason);

// The logprobs object of each API for `tokens`, each with its `top` most probable rivals.
// An echoed prompt's first token has no logprob: null.
void AppendLogprobs(ApiKind kind, const Tokenizer& tokenizer,
                    const std::vector<TextOutput::Token>& tokens, int top, std::string& out);

class ChunkWriter {
 public:
  explicit ChunkWriter(const ResponseHead& head);

  struct Chunk {
    int index = 0;
    std::string_view text;
    std::string_view logprobs;  // JSON; empty: null
    std::optional<FinishReason> finish;
    std::optional<Usage> usage;  // Shown in this chunk.
    bool usage_null = false;     // "usage":null, as in every chunk of a stream that ends with one.
  };
  void AppendChunk(const Chunk& chunk, std::string& out) const;
  // Chat: the first chunk of a choice, which names the role.
  void AppendRole(const Chunk& chunk, std::string& out) const;
  // The chunk without choices that ends a stream with include_usage.
  void AppendUsage(const Usage& usage, std::string& out) const;
  static void AppendDone(std::string& out);
  static void AppendError(const ApiError& error, std::string& out);

 private:
  enum class Delta { kNone, kRole, kText };
  void Append(const Chunk& chunk, Delta delta, std::string& out) const;
  ApiKind kind_;
  std::string prefix_;  // data: {"id":...,"choices":[
};

// A finished choice of a response that is not streamed.
struct ChoiceResult {
  std::string text;
  std::string logprobs;  // JSON; empty: null
  FinishReason finish = FinishReason::kStop;
};
std::string ResponseBody(const ResponseHead& head, const std::vector<ChoiceResult>& choices,
                         const Usage& usage);

}  // namespace divisi
