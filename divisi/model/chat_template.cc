#include "divisi/model/chat_template.h"

#include "divisi/model/jinja_interpreter.h"
#include "divisi/model/jinja_parser.h"

namespace divisi {

struct ChatTemplate::State {
  JinjaBlock root;
};

ChatTemplate::ChatTemplate(std::unique_ptr<State> state) : state_(std::move(state)) {}
ChatTemplate::ChatTemplate(ChatTemplate&&) noexcept = default;
ChatTemplate& ChatTemplate::operator=(ChatTemplate&&) noexcept = default;
ChatTemplate::~ChatTemplate() = default;

Result<ChatTemplate> ChatTemplate::Parse(std::string_view source) {
  ASSIGN_OR_RETURN(auto root, ParseJinja(source));
  return ChatTemplate(std::make_unique<State>(State{std::move(root)}));
}

Result<std::string> ChatTemplate::Render(const Json& variables, double now_unix_seconds) const {
  return JinjaInterpreter(state_->root, now_unix_seconds).Render(variables);
}

}  // namespace divisi
