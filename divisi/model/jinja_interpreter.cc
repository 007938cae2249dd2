#include "divisi/model/jinja_interpreter.h"

#include <algorithm>
#include <utility>

#include "divisi/model/jinja_print.h"

namespace divisi {

Result<std::string> JinjaInterpreter::Render(const Json& variables) {
  if (!variables.is_object()) {
    return TypeError(
        Format("a chat template's variables must be an object, not {}", variables.TypeName()));
  }
  ASSIGN_OR_RETURN(variables_, FromJson(variables, budget_));
  scopes_.emplace_back();
  RETURN_IF_ERROR(Run(root_));
  // Comparisons cut short by the end of the budget gave answers that mean nothing.
  if (budget_.exhausted()) return BudgetError();
  return std::move(output_);
}

Result<void> JinjaInterpreter::Write(std::string_view text, JinjaPlace place) {
  if (!budget_.Make(text.size()) || output_.size() + text.size() > JinjaBudget::kMaxOutputBytes) {
    return AtPlace(place, Code::kOutOfRange, BudgetError().message);
  }
  output_ += text;
  return {};
}

JinjaValue JinjaInterpreter::Look(std::string_view name) {
  for (size_t i = scopes_.size(); i-- > 0;) {
    budget_.Step();
    for (const auto& [key, value] : scopes_[i].variables) {
      if (key == name) return value;
    }
    if (scopes_[i].macro) i = std::min<size_t>(i, 1);
  }
  if (const JinjaValue* variable = variables_.as_dict().Find(name)) return *variable;
  if (const JinjaFunction* function = FindFunction(name)) return function;
  return JinjaValue::Undefined(Format("'{}' is undefined", name));
}

void JinjaInterpreter::Assign(std::string_view name, JinjaValue value) {
  for (auto& [key, old] : scopes_.back().variables) {
    if (key == name) {
      old = std::move(value);
      return;
    }
  }
  scopes_.back().variables.emplace_back(name, std::move(value));
}

Result<void> JinjaInterpreter::Assign(const JinjaTarget& target, JinjaValue value) {
  if (!target.items.empty()) {
    auto items = Iterate(value, budget_);
    if (!items) return AtPlace(target.place, items.error().code, items.error().message);
    const auto& values = (*items)->items;
    if (values.size() != target.items.size()) {
      return AtPlace(target.place, Code::kInvalidArgument,
                     Format("{} values for {} names", values.size(), target.items.size()));
    }
    for (size_t i = 0; i < values.size(); ++i) {
      RETURN_IF_ERROR(Assign(target.items[i], values[i]));
    }
    return {};
  }
  if (target.attribute.empty()) {
    Assign(target.name, std::move(value));
    return {};
  }
  const JinjaValue space = Look(target.name);
  if (!space.Is<JinjaNamespace*>()) {
    return AtPlace(
        target.place, Code::kInvalidArgument,
        Format("only a namespace's attributes can be set, not a {}'s", space.TypeName()));
  }
  space.as_namespace()->Set(target.attribute, std::move(value));
  return {};
}

Result<JinjaInterpreter::Flow> JinjaInterpreter::Run(const JinjaBlock& block) {
  for (const JinjaStatement& statement : block) {
    ASSIGN_OR_RETURN(const Flow flow, Run(statement));
    if (flow != Flow::kNext) return flow;
  }
  return Flow::kNext;
}

Result<JinjaInterpreter::Flow> JinjaInterpreter::Run(const JinjaStatement& statement) {
  if (!budget_.Step() || depth_ >= JinjaBudget::kMaxCallDepth) {
    return AtPlace(statement.place, Code::kOutOfRange, BudgetError().message);
  }
  ++depth_;
  auto flow =
      std::visit([&](const auto& node) { return RunNode(node, statement.place); }, statement.node);
  --depth_;
  return flow;
}

Result<JinjaInterpreter::Flow> JinjaInterpreter::RunNode(const JinjaText& node, JinjaPlace place) {
  RETURN_IF_ERROR(Write(node.text, place));
  return Flow::kNext;
}

Result<JinjaInterpreter::Flow> JinjaInterpreter::RunNode(const JinjaPrint& node, JinjaPlace place) {
  ASSIGN_OR_RETURN(const auto value, Evaluate(*node.value));
  const auto text = Printed(value, budget_);
  if (!text) return AtPlace(place, text.error().code, text.error().message);
  RETURN_IF_ERROR(Write(*text, place));
  return Flow::kNext;
}

Result<JinjaInterpreter::Flow> JinjaInterpreter::RunNode(const JinjaIf& node, JinjaPlace) {
  for (const auto& [condition, body] : node.branches) {
    ASSIGN_OR_RETURN(const auto value, Evaluate(*condition));
    if (value.Truth()) return Run(body);
  }
  return Run(node.otherwise);
}

Result<bool> JinjaInterpreter::Passes(const JinjaFor& node, const JinjaValue& item) {
  if (node.condition == nullptr) return true;
  scopes_.emplace_back();
  RETURN_IF_ERROR(Assign(node.target, item));
  ASSIGN_OR_RETURN(const auto value, Evaluate(*node.condition));
  scopes_.pop_back();
  return value.Truth();
}

Result<JinjaInterpreter::Flow> JinjaInterpreter::RunIteration(const JinjaFor& node,
                                                              const JinjaValue& item,
                                                              const JinjaValue* loop) {
  // Variables set in one iteration are gone in the next.
  scopes_.emplace_back();
  if (loop != nullptr) Assign("loop", *loop);
  RETURN_IF_ERROR(Assign(node.target, item));
  ASSIGN_OR_RETURN(const Flow flow, Run(node.body));
  scopes_.pop_back();
  return flow;
}

Result<JinjaInterpreter::Flow> JinjaInterpreter::RunNode(const JinjaFor& node, JinjaPlace) {
  ASSIGN_OR_RETURN(const auto value, Evaluate(*node.items));
  auto walked = Iterate(value, budget_);
  if (!walked) return AtPlace(node.items->place, walked.error().code, walked.error().message);
  std::shared_ptr<const JinjaSequence> items = *walked;
  // `loop` needs to know what comes, so the condition is then asked ahead; otherwise it is asked
  // item by item, since the body may change what it depends on.
  const bool ahead = node.condition != nullptr && node.uses_loop;
  if (ahead) {
    std::vector<JinjaValue> passing;
    for (const JinjaValue& item : items->items) {
      ASSIGN_OR_RETURN(const bool passes, Passes(node, item));
      if (passes) passing.push_back(item);
    }
    ASSIGN_OR_RETURN(const auto made,
                     MakeSequence(JinjaSequence::Kind::kIterator, std::move(passing), budget_));
    items = made.sequence();
  }
  bool any = false;
  for (size_t i = 0; i < items->items.size(); ++i) {
    const JinjaValue& item = items->items[i];
    if (!ahead) {
      ASSIGN_OR_RETURN(const bool passes, Passes(node, item));
      if (!passes) continue;
    }
    any = true;
    JinjaValue loop;
    if (node.uses_loop) {
      loop = std::make_shared<const JinjaLoop>(JinjaLoop{items, static_cast<int64_t>(i)});
    }
    ASSIGN_OR_RETURN(const Flow flow, RunIteration(node, item, node.uses_loop ? &loop : nullptr));
    if (flow == Flow::kBreak) break;
  }
  return any ? Flow::kNext : Run(node.otherwise);
}

Result<JinjaInterpreter::Flow> JinjaInterpreter::RunNode(const JinjaSet& node, JinjaPlace) {
  ASSIGN_OR_RETURN(auto value, Evaluate(*node.value));
  RETURN_IF_ERROR(Assign(node.target, std::move(value)));
  return Flow::kNext;
}

Result<JinjaValue> JinjaInterpreter::Capture(const JinjaBlock& body,
                                             const std::vector<JinjaExprPtr>& filters) {
  std::string outer = std::exchange(output_, {});
  scopes_.emplace_back();
  RETURN_IF_ERROR(Run(body));
  scopes_.pop_back();
  JinjaValue value(std::exchange(output_, std::move(outer)));
  for (const auto& filter : filters) {
    ASSIGN_OR_RETURN(value,
                     ApplyFilter(std::get<JinjaFilterCall>(filter->node), value, filter->place));
  }
  return value;
}

Result<JinjaInterpreter::Flow> JinjaInterpreter::RunNode(const JinjaSetBlock& node, JinjaPlace) {
  ASSIGN_OR_RETURN(auto value, Capture(node.body, node.filters));
  RETURN_IF_ERROR(Assign(node.target, std::move(value)));
  return Flow::kNext;
}

Result<JinjaInterpreter::Flow> JinjaInterpreter::RunNode(const JinjaFilterBlock& node,
                                                         JinjaPlace place) {
  ASSIGN_OR_RETURN(const auto value, Capture(node.body, node.filters));
  const auto text = Printed(value, budget_);
  if (!text) return AtPlace(place, text.error().code, text.error().message);
  RETURN_IF_ERROR(Write(*text, place));
  return Flow::kNext;
}

Result<JinjaInterpreter::Flow> JinjaInterpreter::RunNode(const JinjaScoped& node, JinjaPlace) {
  // The values see the variables outside, not each other.
  std::vector<JinjaValue> values;
  for (const auto& [target, expr] : node.assignments) {
    ASSIGN_OR_RETURN(auto value, Evaluate(*expr));
    values.push_back(std::move(value));
  }
  scopes_.emplace_back();
  for (size_t i = 0; i < values.size(); ++i) {
    RETURN_IF_ERROR(Assign(node.assignments[i].first, std::move(values[i])));
  }
  ASSIGN_OR_RETURN(const Flow flow, Run(node.body));
  scopes_.pop_back();
  return flow;
}

Result<JinjaInterpreter::Flow> JinjaInterpreter::RunNode(const JinjaMacro& node, JinjaPlace) {
  Assign(node.name, &node);
  return Flow::kNext;
}

Result<JinjaInterpreter::Flow> JinjaInterpreter::RunNode(const JinjaBreak&, JinjaPlace) {
  return Flow::kBreak;
}

Result<JinjaInterpreter::Flow> JinjaInterpreter::RunNode(const JinjaContinue&, JinjaPlace) {
  return Flow::kContinue;
}

}  // namespace divisi
