// Renders chat templates for an oracle to compare. Each line of the input is a JSON object with
// "template" and "variables"; each line of the output is one with "text", or "error" and "code".
#include <cstdio>
#include <iostream>

#include "divisi/model/chat_template.h"

namespace divisi {
namespace {

Result<std::string> RenderLine(const std::string& line) {
  // 2024-07-26 13:05:09 UTC: any fixed time, known to the oracle.
  constexpr double kNow = 1721999109;
  ASSIGN_OR_RETURN(const Json job, Json::Parse(line));
  const Json* source = job.Find("template");
  const Json* variables = job.Find("variables");
  if (source == nullptr || !source->is_string() || variables == nullptr) {
    return Error{Code::kInvalidArgument, "a line needs a template and variables"};
  }
  ASSIGN_OR_RETURN(const ChatTemplate chat, ChatTemplate::Parse(source->as_string()));
  return chat.Render(*variables, kNow);
}

}  // namespace
}  // namespace divisi

int main() {
  for (std::string line; std::getline(std::cin, line);) {
    const auto text = divisi::RenderLine(line);
    divisi::Json answer;
    if (text) {
      answer.Set("text", *text);
    } else {
      answer.Set("error", text.error().message);
      answer.Set("code", divisi::CodeName(text.error().code));
    }
    std::cout << answer.Dump() << "\n";
  }
  return 0;
}
