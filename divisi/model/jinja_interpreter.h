// Walks a chat template's syntax tree over values and collects the text.
#pragma once

#include <deque>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "divisi/model/jinja_ast.h"
#include "divisi/model/jinja_builtins.h"

namespace divisi {

// One rendering; used once. Borrows the tree, which must live as long.
class JinjaInterpreter {
 public:
  JinjaInterpreter(const JinjaBlock& root, double now_unix_seconds)
      : root_(root), context_{budget_, now_unix_seconds, namespaces_} {}

  // variables: an object. Errors: as ChatTemplate::Render.
  Result<std::string> Render(const Json& variables);

 private:
  enum class Flow { kNext, kBreak, kContinue };
  // Variables of one block. A macro's scope ends the look outward: behind it lie only the
  // template's own variables.
  struct Scope {
    bool macro = false;
    std::vector<std::pair<std::string_view, JinjaValue>> variables;
  };

  Result<Flow> Run(const JinjaBlock& block);
  Result<Flow> Run(const JinjaStatement& statement);
  Result<Flow> RunNode(const JinjaText& node, JinjaPlace place);
  Result<Flow> RunNode(const JinjaPrint& node, JinjaPlace place);
  Result<Flow> RunNode(const JinjaIf& node, JinjaPlace place);
  Result<Flow> RunNode(const JinjaFor& node, JinjaPlace place);
  Result<Flow> RunNode(const JinjaSet& node, JinjaPlace place);
  Result<Flow> RunNode(const JinjaSetBlock& node, JinjaPlace place);
  Result<Flow> RunNode(const JinjaFilterBlock& node, JinjaPlace place);
  Result<Flow> RunNode(const JinjaScoped& node, JinjaPlace place);
  Result<Flow> RunNode(const JinjaMacro& node, JinjaPlace place);
  Result<Flow> RunNode(const JinjaBreak& node, JinjaPlace place);
  Result<Flow> RunNode(const JinjaContinue& node, JinjaPlace place);
  // Whether the item passes the loop's condition.
  Result<bool> Passes(const JinjaFor& node, const JinjaValue& item);
  Result<Flow> RunIteration(const JinjaFor& node, const JinjaValue& item, const JinjaValue* loop);
  // What the block writes, in a scope of its own, through the filters.
  Result<JinjaValue> Capture(const JinjaBlock& body, const std::vector<JinjaExprPtr>& filters);

  Result<JinjaValue> Evaluate(const JinjaExpr& expr);
  // An absent expression is None.
  Result<JinjaValue> EvaluateOptional(const JinjaExprPtr& expr);
  Result<JinjaValue> EvaluateNode(const JinjaLiteral& node, JinjaPlace place);
  Result<JinjaValue> EvaluateNode(const JinjaName& node, JinjaPlace place);
  Result<JinjaValue> EvaluateNode(const JinjaSequenceExpr& node, JinjaPlace place);
  Result<JinjaValue> EvaluateNode(const JinjaDictExpr& node, JinjaPlace place);
  Result<JinjaValue> EvaluateNode(const JinjaUnary& node, JinjaPlace place);
  Result<JinjaValue> EvaluateNode(const JinjaBinary& node, JinjaPlace place);
  Result<JinjaValue> EvaluateNode(const JinjaComparison& node, JinjaPlace place);
  Result<JinjaValue> EvaluateNode(const JinjaConcat& node, JinjaPlace place);
  Result<JinjaValue> EvaluateNode(const JinjaConditional& node, JinjaPlace place);
  Result<JinjaValue> EvaluateNode(const JinjaAttribute& node, JinjaPlace place);
  Result<JinjaValue> EvaluateNode(const JinjaSubscript& node, JinjaPlace place);
  Result<JinjaValue> EvaluateNode(const JinjaSlice& node, JinjaPlace place);
  Result<JinjaValue> EvaluateNode(const JinjaCall& node, JinjaPlace place);
  Result<JinjaValue> EvaluateNode(const JinjaFilterCall& node, JinjaPlace place);
  Result<JinjaValue> EvaluateNode(const JinjaTestCall& node, JinjaPlace place);
  Result<JinjaArguments> EvaluateArguments(const JinjaArgumentExprs& exprs);
  Result<JinjaValue> ApplyFilter(const JinjaFilterCall& node, const JinjaValue& subject,
                                 JinjaPlace place);
  Result<JinjaValue> CallMacro(const JinjaMacro& macro, const JinjaArguments& arguments,
                               JinjaPlace place);

  JinjaValue Look(std::string_view name);
  void Assign(std::string_view name, JinjaValue value);
  Result<void> Assign(const JinjaTarget& target, JinjaValue value);
  Result<void> Write(std::string_view text, JinjaPlace place);

  const JinjaBlock& root_;
  JinjaBudget budget_;
  std::deque<JinjaNamespace> namespaces_;
  JinjaCallContext context_;
  JinjaValue variables_;
  std::vector<Scope> scopes_;  // The first holds the template's own variables.
  std::string output_;         // Of the innermost capture.
  int depth_ = 0;              // Evaluate, Run and CallMacro around this point.
};

}  // namespace divisi
