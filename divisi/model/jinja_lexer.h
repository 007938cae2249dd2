// Cuts a chat template into text and the tokens of its tags, with Jinja's white-space rules as
// Hugging Face sets them: trim_blocks and lstrip_blocks on, one newline at the end dropped.
// Source: Jinja 3.1, "Template Designer Documentation", White Space Control.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "divisi/core/result.h"

namespace divisi {

// A place in the source, counted from 1; columns in bytes.
struct JinjaPlace {
  int line = 1;
  int column = 1;
};

// The error with its place before the message.
Error AtPlace(JinjaPlace place, Code code, std::string_view message);

struct JinjaToken {
  enum class Kind {
    kText,           // Output as it is.
    kVariableBegin,  // {{
    kVariableEnd,    // }}
    kBlockBegin,     // {%
    kBlockEnd,       // %}
    kName,
    kString,   // text: the decoded value
    kInteger,  // text: digits without underscores
    kFloat,
    kOperator,
    kEnd,  // Exactly one, the last.
  };
  Kind kind = Kind::kEnd;
  std::string text;
  JinjaPlace place;
};

// Errors: kInvalidArgument for an unclosed tag, comment or string, a character that starts no
// token, and text that is not UTF-8; kOutOfRange above kMaxSourceBytes.
Result<std::vector<JinjaToken>> LexJinja(std::string_view source);

// Known templates have at most 20 kB.
inline constexpr size_t kMaxJinjaSourceBytes = 1 << 20;

}  // namespace divisi
