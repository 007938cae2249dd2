// The interpreter's half that evaluates expressions.
#include <utility>

#include "divisi/model/jinja_interpreter.h"
#include "divisi/model/jinja_operators.h"
#include "divisi/model/jinja_print.h"

namespace divisi {
namespace {

// The result, an error with its place.
template <typename T>
Result<T> Placed(Result<T> result, JinjaPlace place, std::string_view context = {}) {
  if (result.ok()) return result;
  const Error& error = result.error();
  if (context.empty()) return AtPlace(place, error.code, error.message);
  return AtPlace(place, error.code, Format("{}: {}", context, error.message));
}

}  // namespace

Result<JinjaValue> JinjaInterpreter::Evaluate(const JinjaExpr& expr) {
  if (!budget_.Step() || depth_ >= JinjaBudget::kMaxCallDepth) {
    return AtPlace(expr.place, Code::kOutOfRange, BudgetError().message);
  }
  ++depth_;
  auto value =
      std::visit([&](const auto& node) { return EvaluateNode(node, expr.place); }, expr.node);
  --depth_;
  return value;
}

Result<JinjaValue> JinjaInterpreter::EvaluateOptional(const JinjaExprPtr& expr) {
  return expr == nullptr ? JinjaValue() : Evaluate(*expr);
}

Result<JinjaValue> JinjaInterpreter::EvaluateNode(const JinjaLiteral& node, JinjaPlace) {
  return node.value;
}

Result<JinjaValue> JinjaInterpreter::EvaluateNode(const JinjaName& node, JinjaPlace) {
  return Look(node.name);
}

Result<JinjaValue> JinjaInterpreter::EvaluateNode(const JinjaSequenceExpr& node, JinjaPlace place) {
  std::vector<JinjaValue> items;
  items.reserve(node.items.size());
  for (const auto& expr : node.items) {
    ASSIGN_OR_RETURN(auto item, Evaluate(*expr));
    items.push_back(std::move(item));
  }
  return Placed(MakeSequence(node.kind, std::move(items), budget_), place);
}

Result<JinjaValue> JinjaInterpreter::EvaluateNode(const JinjaDictExpr& node, JinjaPlace place) {
  std::vector<JinjaDict::Entry> entries;
  entries.reserve(node.entries.size());
  for (const auto& [key_expr, value_expr] : node.entries) {
    ASSIGN_OR_RETURN(auto key, Evaluate(*key_expr));
    ASSIGN_OR_RETURN(auto value, Evaluate(*value_expr));
    entries.emplace_back(std::move(key), std::move(value));
  }
  return Placed(MakeDict(std::move(entries), budget_), place);
}

Result<JinjaValue> JinjaInterpreter::EvaluateNode(const JinjaUnary& node, JinjaPlace place) {
  ASSIGN_OR_RETURN(const auto operand, Evaluate(*node.operand));
  if (node.op == JinjaOperator::kNot) return JinjaValue(!operand.Truth());
  if (node.op == JinjaOperator::kNegate) return Placed(Negated(operand), place);
  // Unary plus: a number, as it is.
  return Placed(Arithmetic(JinjaOperator::kAdd, JinjaValue(int64_t{0}), operand, budget_), place);
}

Result<JinjaValue> JinjaInterpreter::EvaluateNode(const JinjaBinary& node, JinjaPlace place) {
  ASSIGN_OR_RETURN(auto left, Evaluate(*node.left));
  if (node.op == JinjaOperator::kAnd && !left.Truth()) return left;
  if (node.op == JinjaOperator::kOr && left.Truth()) return left;
  ASSIGN_OR_RETURN(auto right, Evaluate(*node.right));
  if (node.op == JinjaOperator::kAnd || node.op == JinjaOperator::kOr) return right;
  return Placed(Arithmetic(node.op, left, right, budget_), place);
}

Result<JinjaValue> JinjaInterpreter::EvaluateNode(const JinjaComparison& node, JinjaPlace place) {
  ASSIGN_OR_RETURN(auto left, Evaluate(*node.first));
  for (const auto& [op, expr] : node.rest) {
    ASSIGN_OR_RETURN(auto right, Evaluate(*expr));
    ASSIGN_OR_RETURN(const bool holds, Placed(Compare(op, left, right, budget_), place));
    if (!holds) return JinjaValue(false);
    left = std::move(right);
  }
  return JinjaValue(true);
}

Result<JinjaValue> JinjaInterpreter::EvaluateNode(const JinjaConcat& node, JinjaPlace place) {
  std::string text;
  for (const auto& part : node.parts) {
    ASSIGN_OR_RETURN(const auto value, Evaluate(*part));
    ASSIGN_OR_RETURN(const auto printed, Placed(Printed(value, budget_), place));
    text += printed;
  }
  return JinjaValue(std::move(text));
}

Result<JinjaValue> JinjaInterpreter::EvaluateNode(const JinjaConditional& node, JinjaPlace) {
  ASSIGN_OR_RETURN(const auto condition, Evaluate(*node.condition));
  if (condition.Truth()) return Evaluate(*node.then);
  if (node.otherwise != nullptr) return Evaluate(*node.otherwise);
  return JinjaValue::Undefined("the condition of an 'if' without 'else' is false");
}

Result<JinjaValue> JinjaInterpreter::EvaluateNode(const JinjaAttribute& node, JinjaPlace place) {
  ASSIGN_OR_RETURN(const auto object, Evaluate(*node.object));
  return Placed(GetAttribute(object, node.name, budget_), place);
}

Result<JinjaValue> JinjaInterpreter::EvaluateNode(const JinjaSubscript& node, JinjaPlace place) {
  ASSIGN_OR_RETURN(const auto object, Evaluate(*node.object));
  ASSIGN_OR_RETURN(const auto key, Evaluate(*node.key));
  return Placed(GetItem(object, key, budget_), place);
}

Result<JinjaValue> JinjaInterpreter::EvaluateNode(const JinjaSlice& node, JinjaPlace place) {
  ASSIGN_OR_RETURN(const auto object, Evaluate(*node.object));
  ASSIGN_OR_RETURN(const auto start, EvaluateOptional(node.start));
  ASSIGN_OR_RETURN(const auto stop, EvaluateOptional(node.stop));
  ASSIGN_OR_RETURN(const auto step, EvaluateOptional(node.step));
  return Placed(Sliced(object, start, stop, step, budget_), place);
}

Result<JinjaArguments> JinjaInterpreter::EvaluateArguments(const JinjaArgumentExprs& exprs) {
  JinjaArguments arguments;
  for (const auto& expr : exprs.positional) {
    ASSIGN_OR_RETURN(auto value, Evaluate(*expr));
    arguments.positional.push_back(std::move(value));
  }
  for (const auto& [name, expr] : exprs.named) {
    ASSIGN_OR_RETURN(auto value, Evaluate(*expr));
    arguments.named.emplace_back(name, std::move(value));
  }
  return arguments;
}

Result<JinjaValue> JinjaInterpreter::EvaluateNode(const JinjaCall& node, JinjaPlace place) {
  ASSIGN_OR_RETURN(const auto callee, Evaluate(*node.callee));
  ASSIGN_OR_RETURN(const auto arguments, EvaluateArguments(node.arguments));
  if (callee.Is<std::shared_ptr<const JinjaBoundMethod>>()) {
    const auto& [self, method] = callee.as_method();
    return Placed(method->call(context_, self, arguments), place, method->name);
  }
  if (callee.Is<const JinjaFunction*>()) {
    const JinjaFunction& function = *callee.as_function();
    auto result = function.call(context_, arguments);
    // The template's own words stay as they are.
    if (std::string_view(function.name) == "raise_exception") return result;
    return Placed(std::move(result), place, function.name);
  }
  if (callee.Is<const JinjaMacro*>()) return CallMacro(*callee.as_macro(), arguments, place);
  const std::string why = callee.is_undefined()
                              ? callee.undefined_what()
                              : Format("a value of type {} cannot be called", callee.TypeName());
  return AtPlace(place, Code::kInvalidArgument, why);
}

Result<JinjaValue> JinjaInterpreter::CallMacro(const JinjaMacro& macro,
                                               const JinjaArguments& arguments, JinjaPlace place) {
  std::vector<const char*> names;
  for (const std::string& name : macro.parameters) names.push_back(name.c_str());
  ASSIGN_OR_RETURN(const auto bound, Placed(Bind(arguments, names, 0), place, macro.name));
  std::string outer = std::exchange(output_, {});
  scopes_.emplace_back();
  scopes_.back().macro = true;
  for (size_t i = 0; i < names.size(); ++i) {
    JinjaValue value = JinjaValue::Undefined(Format("parameter '{}' was not given", names[i]));
    if (bound[i] != nullptr) {
      value = *bound[i];
    } else if (macro.defaults[i] != nullptr) {
      ASSIGN_OR_RETURN(value, Evaluate(*macro.defaults[i]));
    }
    Assign(macro.parameters[i], std::move(value));
  }
  RETURN_IF_ERROR(Run(macro.body));
  scopes_.pop_back();
  return JinjaValue(std::exchange(output_, std::move(outer)));
}

Result<JinjaValue> JinjaInterpreter::ApplyFilter(const JinjaFilterCall& node,
                                                 const JinjaValue& subject, JinjaPlace place) {
  ASSIGN_OR_RETURN(const auto arguments, EvaluateArguments(node.arguments));
  return Placed(node.filter->apply(context_, subject, arguments), place, node.filter->name);
}

Result<JinjaValue> JinjaInterpreter::EvaluateNode(const JinjaFilterCall& node, JinjaPlace place) {
  ASSIGN_OR_RETURN(const auto subject, Evaluate(*node.operand));
  return ApplyFilter(node, subject, place);
}

Result<JinjaValue> JinjaInterpreter::EvaluateNode(const JinjaTestCall& node, JinjaPlace place) {
  ASSIGN_OR_RETURN(const auto subject, Evaluate(*node.operand));
  ASSIGN_OR_RETURN(const auto arguments, EvaluateArguments(node.arguments));
  ASSIGN_OR_RETURN(const bool holds,
                   Placed(node.test->holds(context_, subject, arguments), place, node.test->name));
  return JinjaValue(holds);
}

}  // namespace divisi
