// Jinja expressions: tokens to syntax tree, with Jinja's own precedence, from loosest:
//   x if c else y; or; and; not; comparisons, in; + -; ~; * / // %; **; unary + -; postfix, | and
//   is
#pragma once

#include <span>
#include <vector>

#include "divisi/model/jinja_ast.h"
#include "divisi/model/jinja_token_stream.h"

namespace divisi {

class JinjaExpressionParser {
 public:
  explicit JinjaExpressionParser(JinjaTokenStream& tokens) : tokens_(tokens) {}

  // One expression. Errors (all): kInvalidArgument for broken syntax, kUnimplemented for what is
  // outside the subset, kOutOfRange for nesting beyond JinjaExpr::kMaxDepth.
  Result<JinjaExprPtr> ParseExpression();
  // One expression, or a tuple without parentheses. allow_conditional: whether `x if c` may stand
  // here, which it may not where `if` follows the expression.
  Result<JinjaExprPtr> ParseTuple(bool allow_conditional);
  // filter | filter(...) ..., each without operand. Requires: at a filter's name.
  Result<std::vector<JinjaExprPtr>> ParseFilters();
  // How often `loop` was named so far.
  int loop_mentions() const { return loop_mentions_; }

 private:
  using Operand = Result<JinjaExprPtr> (JinjaExpressionParser::*)();

  Result<JinjaExprPtr> ParseOr();
  Result<JinjaExprPtr> ParseAnd();
  Result<JinjaExprPtr> ParseNot();
  Result<JinjaExprPtr> ParseComparison();
  Result<JinjaExprPtr> ParseSum();
  Result<JinjaExprPtr> ParseConcat();
  Result<JinjaExprPtr> ParseProduct();
  Result<JinjaExprPtr> ParsePower();
  Result<JinjaExprPtr> ParseUnary(bool with_filters);
  Result<JinjaExprPtr> ParseUnaryWithFilters() { return ParseUnary(true); }
  Result<JinjaExprPtr> ParsePrimary();
  Result<JinjaExprPtr> ParseNumber();
  Result<JinjaExprPtr> ParseParentheses();
  Result<JinjaExprPtr> ParseList();
  Result<JinjaExprPtr> ParseDict();
  Result<JinjaExprPtr> ParsePostfix(JinjaExprPtr expr);
  Result<JinjaExprPtr> ParseSubscript(JinjaExprPtr object);
  Result<JinjaExprPtr> ParseAttribute(JinjaExprPtr object);
  Result<JinjaExprPtr> ParseFiltersAndTests(JinjaExprPtr expr);
  Result<JinjaExprPtr> ParseFilter(JinjaExprPtr operand);
  Result<JinjaExprPtr> ParseTest(JinjaExprPtr operand);
  Result<JinjaArgumentExprs> ParseArguments();

  // Left-associative operators of one level.
  struct Level {
    const char* text;
    JinjaOperator op;
  };
  Result<JinjaExprPtr> ParseBinary(std::span<const Level> level, bool names, Operand operand);

  JinjaTokenStream& tokens_;
  int nesting_ = 0;
  int loop_mentions_ = 0;
};

}  // namespace divisi
