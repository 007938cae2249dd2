// The checkpoint's own chat template: the part of Jinja that chat templates of the supported
// families use, interpreted with bounds on work and output, since a template is a stranger's file.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "divisi/core/json.h"

namespace divisi {

class ChatTemplate {
 public:
  // Errors: kInvalidArgument for broken syntax, kUnimplemented for Jinja outside the subset; both
  // give line and column and name the construct.
  static Result<ChatTemplate> Parse(std::string_view source);
  ChatTemplate(ChatTemplate&&) noexcept;
  ChatTemplate& operator=(ChatTemplate&&) noexcept;
  ~ChatTemplate();

  // variables: an object: messages, add_generation_prompt, tools, bos_token, eos_token, ...
  // now_unix_seconds: what strftime_now shows (templates may print the date).
  // Errors: kInvalidArgument with the template's own words for raise_exception, and for type errors
  // at run time; kUnimplemented for a method, filter or format that only shows itself at run time
  // and is outside the subset; kOutOfRange when output or work passes its bound.
  Result<std::string> Render(const Json& variables, double now_unix_seconds) const;

 private:
  struct State;
  explicit ChatTemplate(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace divisi
