// ChatTemplate on any text: it refuses it or renders a conversation within its bounds.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "divisi/model/chat_template.h"

namespace divisi {
namespace {

Json Conversation() {
  auto variables = Json::Parse(R"({
    "messages": [{"role": "system", "content": "Be brief."},
                 {"role": "user", "content": "Gr\u00fc\u00dfe\n\"x\""},
                 {"role": "assistant", "content": "<think>\na\n</think>\n\nb",
                  "tool_calls": [{"type": "function",
                                  "function": {"name": "f", "arguments": {"a": 1.5}}}]},
                 {"role": "tool", "content": [{"type": "text", "text": "y"}]}],
    "tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}],
    "add_generation_prompt": true, "bos_token": "<s>", "eos_token": "</s>"})");
  return std::move(variables).value();
}

void CheckError(const Error& error) {
  CHECK(error.code == Code::kInvalidArgument || error.code == Code::kUnimplemented ||
            error.code == Code::kOutOfRange,
        "{}", error.message);
}

}  // namespace
}  // namespace divisi

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const divisi::Json variables = divisi::Conversation();
  const std::string_view source(reinterpret_cast<const char*>(data), size);
  const auto parsed = divisi::ChatTemplate::Parse(source);
  if (!parsed) {
    divisi::CheckError(parsed.error());
    return 0;
  }
  constexpr double kNow = 1721999109;
  const auto text = parsed->Render(variables, kNow);
  if (!text) {
    divisi::CheckError(text.error());
  } else {
    CHECK(text->size() <= (size_t{64} << 20));
  }
  return 0;
}
