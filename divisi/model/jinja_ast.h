// The syntax tree of a chat template: what jinja_parser.h makes and jinja_interpreter.h walks.
// Plain values; nothing here runs. Every node knows its place, for messages.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "divisi/model/jinja_lexer.h"
#include "divisi/model/jinja_value.h"

namespace divisi {

struct JinjaFilter;
struct JinjaTest;
struct JinjaExpr;
using JinjaExprPtr = std::unique_ptr<JinjaExpr>;

struct JinjaArgumentExprs {
  std::vector<JinjaExprPtr> positional;
  std::vector<std::pair<std::string, JinjaExprPtr>> named;
};

enum class JinjaOperator {
  kAdd,
  kSubtract,
  kMultiply,
  kDivide,
  kFloorDivide,
  kModulo,
  kPower,
  kAnd,
  kOr,
  kNot,
  kNegate,
  kPlus,
  kEqual,
  kNotEqual,
  kLess,
  kLessEqual,
  kGreater,
  kGreaterEqual,
  kIn,
  kNotIn,
};

struct JinjaLiteral {
  JinjaValue value;
};
struct JinjaName {
  std::string name;
};
struct JinjaSequenceExpr {
  JinjaSequence::Kind kind;
  std::vector<JinjaExprPtr> items;
};
struct JinjaDictExpr {
  std::vector<std::pair<JinjaExprPtr, JinjaExprPtr>> entries;
};
struct JinjaUnary {
  JinjaOperator op;
  JinjaExprPtr operand;
};
struct JinjaBinary {
  JinjaOperator op;
  JinjaExprPtr left, right;
};
// first op[0] rest[0] op[1] rest[1] ...: all must hold, as in Python.
struct JinjaComparison {
  JinjaExprPtr first;
  std::vector<std::pair<JinjaOperator, JinjaExprPtr>> rest;
};
struct JinjaConcat {
  std::vector<JinjaExprPtr> parts;
};
struct JinjaConditional {
  JinjaExprPtr condition, then, otherwise;
};  // otherwise may be absent.
struct JinjaAttribute {
  JinjaExprPtr object;
  std::string name;
};
struct JinjaSubscript {
  JinjaExprPtr object, key;
};
struct JinjaSlice {
  JinjaExprPtr object, start, stop, step;
};  // The bounds may be absent.
struct JinjaCall {
  JinjaExprPtr callee;
  JinjaArgumentExprs arguments;
};
// operand is absent in {% filter %} and {% set x | ... %}, whose operand is the block's text.
struct JinjaFilterCall {
  JinjaExprPtr operand;
  const JinjaFilter* filter;
  JinjaArgumentExprs arguments;
};
struct JinjaTestCall {
  JinjaExprPtr operand;
  const JinjaTest* test;
  JinjaArgumentExprs arguments;
};

struct JinjaExpr {
  // Deepest path below; bounded by the parser, so that recursion over a tree is.
  static constexpr int kMaxDepth = 100;

  JinjaPlace place;
  int depth = 1;
  std::variant<JinjaLiteral, JinjaName, JinjaSequenceExpr, JinjaDictExpr, JinjaUnary, JinjaBinary,
               JinjaComparison, JinjaConcat, JinjaConditional, JinjaAttribute, JinjaSubscript,
               JinjaSlice, JinjaCall, JinjaFilterCall, JinjaTestCall>
      node;
};

// What an assignment fills: a name, an attribute of a namespace, or several of them.
struct JinjaTarget {
  JinjaPlace place;
  std::string name;
  std::string attribute;           // Not empty: name.attribute.
  std::vector<JinjaTarget> items;  // Not empty: unpacks a sequence; name is empty.
};

struct JinjaStatement;
using JinjaBlock = std::vector<JinjaStatement>;

struct JinjaText {
  std::string text;
};
struct JinjaPrint {
  JinjaExprPtr value;
};
struct JinjaIf {
  std::vector<std::pair<JinjaExprPtr, JinjaBlock>> branches;
  JinjaBlock otherwise;
};
struct JinjaFor {
  JinjaTarget target;
  JinjaExprPtr items;
  JinjaExprPtr condition;  // May be absent.
  JinjaBlock body;
  JinjaBlock otherwise;
  bool uses_loop = false;  // Whether the body names `loop`.
};
struct JinjaSet {
  JinjaTarget target;
  JinjaExprPtr value;
};
// The block's text, through the filters in order, becomes the target's value.
struct JinjaSetBlock {
  JinjaTarget target;
  std::vector<JinjaExprPtr> filters;
  JinjaBlock body;
};
// The same, printed: {% filter %}.
struct JinjaFilterBlock {
  std::vector<JinjaExprPtr> filters;
  JinjaBlock body;
};
// Runs the body with its own variables: {% with %}, {% generation %}.
struct JinjaScoped {
  std::vector<std::pair<JinjaTarget, JinjaExprPtr>> assignments;
  JinjaBlock body;
};
struct JinjaMacro {
  std::string name;
  std::vector<std::string> parameters;
  std::vector<JinjaExprPtr> defaults;  // One per parameter; null where it has none.
  JinjaBlock body;
};
struct JinjaBreak {};
struct JinjaContinue {};

struct JinjaStatement {
  JinjaPlace place;
  std::variant<JinjaText, JinjaPrint, JinjaIf, JinjaFor, JinjaSet, JinjaSetBlock, JinjaFilterBlock,
               JinjaScoped, JinjaMacro, JinjaBreak, JinjaContinue>
      node;
};

}  // namespace divisi
