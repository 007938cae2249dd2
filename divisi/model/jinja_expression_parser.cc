#include "divisi/model/jinja_expression_parser.h"

#include <algorithm>
#include <charconv>
#include <optional>

#include "divisi/model/jinja_builtins.h"

namespace divisi {
namespace {

using Kind = JinjaToken::Kind;

int DepthOf(const JinjaExprPtr& expr) { return expr == nullptr ? 0 : expr->depth; }

int DepthOf(const std::vector<JinjaExprPtr>& exprs) {
  int depth = 0;
  for (const auto& expr : exprs) depth = std::max(depth, DepthOf(expr));
  return depth;
}

int DepthOf(const JinjaArgumentExprs& arguments) {
  int depth = DepthOf(arguments.positional);
  for (const auto& [name, expr] : arguments.named) depth = std::max(depth, DepthOf(expr));
  return depth;
}

// A node over children of the given depths.
template <typename Node>
Result<JinjaExprPtr> Make(JinjaPlace place, Node node, std::initializer_list<int> depths = {0}) {
  auto expr = std::make_unique<JinjaExpr>();
  expr->place = place;
  expr->depth = 1 + std::max(depths);
  expr->node = std::move(node);
  if (expr->depth > JinjaExpr::kMaxDepth) {
    return AtPlace(place, Code::kOutOfRange,
                   Format("an expression nests deeper than {}", JinjaExpr::kMaxDepth));
  }
  return expr;
}

std::optional<JinjaOperator> ComparisonAt(const JinjaTokenStream& tokens) {
  constexpr std::pair<const char*, JinjaOperator> kComparisons[] = {
      {"==", JinjaOperator::kEqual},     {"!=", JinjaOperator::kNotEqual},
      {"<=", JinjaOperator::kLessEqual}, {">=", JinjaOperator::kGreaterEqual},
      {"<", JinjaOperator::kLess},       {">", JinjaOperator::kGreater}};
  for (const auto& [text, op] : kComparisons) {
    if (tokens.AtOperator(text)) return op;
  }
  if (tokens.AtName("in")) return JinjaOperator::kIn;
  const JinjaToken& next = tokens.Peek(1);
  if (tokens.AtName("not") && next.kind == Kind::kName && next.text == "in") {
    return JinjaOperator::kNotIn;
  }
  return std::nullopt;
}

}  // namespace

Result<JinjaExprPtr> JinjaExpressionParser::ParseExpression() {
  if (++nesting_ > JinjaExpr::kMaxDepth) {
    return AtPlace(tokens_.Peek().place, Code::kOutOfRange, "an expression nests too deep");
  }
  ASSIGN_OR_RETURN(auto expr, ParseOr());
  while (tokens_.AtName("if")) {
    const JinjaPlace place = tokens_.Take().place;
    JinjaConditional node;
    ASSIGN_OR_RETURN(node.condition, ParseOr());
    node.then = std::move(expr);
    if (tokens_.TakeName("else")) {
      ASSIGN_OR_RETURN(node.otherwise, ParseExpression());
    }
    const int depth =
        std::max({DepthOf(node.condition), DepthOf(node.then), DepthOf(node.otherwise)});
    ASSIGN_OR_RETURN(expr, Make(place, std::move(node), {depth}));
  }
  --nesting_;
  return expr;
}

Result<JinjaExprPtr> JinjaExpressionParser::ParseTuple(bool allow_conditional) {
  const JinjaPlace place = tokens_.Peek().place;
  JinjaSequenceExpr tuple{JinjaSequence::Kind::kTuple, {}};
  bool comma = false;
  const auto at_end = [&] {
    return tokens_.At(Kind::kBlockEnd) || tokens_.At(Kind::kVariableEnd) || tokens_.AtOperator(")");
  };
  do {
    if (comma && at_end()) break;
    ASSIGN_OR_RETURN(auto item, allow_conditional ? ParseExpression() : ParseOr());
    tuple.items.push_back(std::move(item));
  } while (tokens_.TakeOperator(",") && (comma = true));
  if (!comma) return std::move(tuple.items.front());
  const int depth = DepthOf(tuple.items);
  return Make(place, std::move(tuple), {depth});
}

Result<JinjaExprPtr> JinjaExpressionParser::ParseBinary(std::span<const Level> level, bool names,
                                                        Operand operand) {
  ASSIGN_OR_RETURN(auto left, (this->*operand)());
  while (true) {
    const auto found = std::find_if(level.begin(), level.end(), [&](const Level& candidate) {
      return names ? tokens_.AtName(candidate.text) : tokens_.AtOperator(candidate.text);
    });
    if (found == level.end()) return left;
    const JinjaPlace place = tokens_.Take().place;
    ASSIGN_OR_RETURN(auto right, (this->*operand)());
    const int left_depth = DepthOf(left), right_depth = DepthOf(right);
    ASSIGN_OR_RETURN(left, Make(place, JinjaBinary{found->op, std::move(left), std::move(right)},
                                {left_depth, right_depth}));
  }
}

Result<JinjaExprPtr> JinjaExpressionParser::ParseOr() {
  static constexpr Level kLevel[] = {{"or", JinjaOperator::kOr}};
  return ParseBinary(kLevel, true, &JinjaExpressionParser::ParseAnd);
}

Result<JinjaExprPtr> JinjaExpressionParser::ParseAnd() {
  static constexpr Level kLevel[] = {{"and", JinjaOperator::kAnd}};
  return ParseBinary(kLevel, true, &JinjaExpressionParser::ParseNot);
}

Result<JinjaExprPtr> JinjaExpressionParser::ParseNot() {
  if (!tokens_.AtName("not")) return ParseComparison();
  int count = 0;
  const JinjaPlace place = tokens_.Peek().place;
  while (tokens_.TakeName("not")) ++count;
  ASSIGN_OR_RETURN(auto expr, ParseComparison());
  // Of many, one or two mean the same.
  for (int i = count % 2 == 0 ? 2 : 1; i > 0; --i) {
    const int depth = DepthOf(expr);
    ASSIGN_OR_RETURN(expr, Make(place, JinjaUnary{JinjaOperator::kNot, std::move(expr)}, {depth}));
  }
  return expr;
}

Result<JinjaExprPtr> JinjaExpressionParser::ParseComparison() {
  const JinjaPlace place = tokens_.Peek().place;
  ASSIGN_OR_RETURN(auto first, ParseSum());
  JinjaComparison node;
  int depth = DepthOf(first);
  while (const auto op = ComparisonAt(tokens_)) {
    tokens_.Take();
    if (*op == JinjaOperator::kNotIn) tokens_.Take();
    ASSIGN_OR_RETURN(auto operand, ParseSum());
    depth = std::max(depth, DepthOf(operand));
    node.rest.emplace_back(*op, std::move(operand));
  }
  if (node.rest.empty()) return first;
  node.first = std::move(first);
  return Make(place, std::move(node), {depth});
}

Result<JinjaExprPtr> JinjaExpressionParser::ParseSum() {
  static constexpr Level kLevel[] = {{"+", JinjaOperator::kAdd}, {"-", JinjaOperator::kSubtract}};
  return ParseBinary(kLevel, false, &JinjaExpressionParser::ParseConcat);
}

Result<JinjaExprPtr> JinjaExpressionParser::ParseConcat() {
  const JinjaPlace place = tokens_.Peek().place;
  JinjaConcat node;
  do {
    ASSIGN_OR_RETURN(auto part, ParseProduct());
    node.parts.push_back(std::move(part));
  } while (tokens_.TakeOperator("~"));
  if (node.parts.size() == 1) return std::move(node.parts.front());
  const int depth = DepthOf(node.parts);
  return Make(place, std::move(node), {depth});
}

Result<JinjaExprPtr> JinjaExpressionParser::ParseProduct() {
  static constexpr Level kLevel[] = {{"*", JinjaOperator::kMultiply},
                                     {"/", JinjaOperator::kDivide},
                                     {"//", JinjaOperator::kFloorDivide},
                                     {"%", JinjaOperator::kModulo}};
  return ParseBinary(kLevel, false, &JinjaExpressionParser::ParsePower);
}

Result<JinjaExprPtr> JinjaExpressionParser::ParsePower() {
  static constexpr Level kLevel[] = {{"**", JinjaOperator::kPower}};
  return ParseBinary(kLevel, false, &JinjaExpressionParser::ParseUnaryWithFilters);
}

Result<JinjaExprPtr> JinjaExpressionParser::ParseUnary(bool with_filters) {
  if (++nesting_ > JinjaExpr::kMaxDepth) {
    return AtPlace(tokens_.Peek().place, Code::kOutOfRange, "an expression nests too deep");
  }
  const JinjaPlace place = tokens_.Peek().place;
  JinjaExprPtr expr;
  if (tokens_.AtOperator("-") || tokens_.AtOperator("+")) {
    const auto op = tokens_.Take().text == "-" ? JinjaOperator::kNegate : JinjaOperator::kPlus;
    ASSIGN_OR_RETURN(auto operand, ParseUnary(false));
    const int depth = DepthOf(operand);
    ASSIGN_OR_RETURN(expr, Make(place, JinjaUnary{op, std::move(operand)}, {depth}));
  } else {
    ASSIGN_OR_RETURN(expr, ParsePrimary());
  }
  ASSIGN_OR_RETURN(expr, ParsePostfix(std::move(expr)));
  if (with_filters) {
    ASSIGN_OR_RETURN(expr, ParseFiltersAndTests(std::move(expr)));
  }
  --nesting_;
  return expr;
}

Result<JinjaExprPtr> JinjaExpressionParser::ParseNumber() {
  const JinjaToken token = tokens_.Take();
  const char* begin = token.text.data();
  const char* end = begin + token.text.size();
  if (token.kind == Kind::kFloat) {
    double value = 0;
    const auto parsed = std::from_chars(begin, end, value);
    if (parsed.ec == std::errc() && parsed.ptr == end) {
      return Make(token.place, JinjaLiteral{value});
    }
  } else {
    int64_t value = 0;
    const auto parsed = std::from_chars(begin, end, value);
    if (parsed.ec == std::errc() && parsed.ptr == end) {
      return Make(token.place, JinjaLiteral{value});
    }
  }
  return AtPlace(token.place, Code::kOutOfRange, "a number that does not fit 64 bits");
}

Result<JinjaExprPtr> JinjaExpressionParser::ParsePrimary() {
  const JinjaToken& token = tokens_.Peek();
  const JinjaPlace place = token.place;
  switch (token.kind) {
    case Kind::kName: {
      const std::string name = tokens_.Take().text;
      if (name == "true" || name == "True") return Make(place, JinjaLiteral{true});
      if (name == "false" || name == "False") return Make(place, JinjaLiteral{false});
      if (name == "none" || name == "None") return Make(place, JinjaLiteral{});
      if (IsUnsupportedName(name)) {
        return AtPlace(place, Code::kUnimplemented,
                       Format("'{}' is outside the supported part of Jinja", name));
      }
      loop_mentions_ += name == "loop";
      return Make(place, JinjaName{name});
    }
    case Kind::kString: {
      std::string text;
      while (tokens_.At(Kind::kString)) text += tokens_.Take().text;
      return Make(place, JinjaLiteral{std::move(text)});
    }
    case Kind::kInteger:
    case Kind::kFloat:
      return ParseNumber();
    default:
      break;
  }
  if (tokens_.AtOperator("(")) return ParseParentheses();
  if (tokens_.AtOperator("[")) return ParseList();
  if (tokens_.AtOperator("{")) return ParseDict();
  return tokens_.Fail(Format("expected an expression, found {}", tokens_.Found()));
}

Result<JinjaExprPtr> JinjaExpressionParser::ParseParentheses() {
  const JinjaPlace place = tokens_.Take().place;
  if (tokens_.TakeOperator(")")) {
    return Make(place, JinjaSequenceExpr{JinjaSequence::Kind::kTuple, {}});
  }
  ASSIGN_OR_RETURN(auto expr, ParseTuple(true));
  RETURN_IF_ERROR(tokens_.ExpectOperator(")"));
  return expr;
}

Result<JinjaExprPtr> JinjaExpressionParser::ParseList() {
  const JinjaPlace place = tokens_.Take().place;
  JinjaSequenceExpr node{JinjaSequence::Kind::kList, {}};
  while (!tokens_.AtOperator("]")) {
    ASSIGN_OR_RETURN(auto item, ParseExpression());
    node.items.push_back(std::move(item));
    if (!tokens_.TakeOperator(",")) break;
  }
  RETURN_IF_ERROR(tokens_.ExpectOperator("]"));
  const int depth = DepthOf(node.items);
  return Make(place, std::move(node), {depth});
}

Result<JinjaExprPtr> JinjaExpressionParser::ParseDict() {
  const JinjaPlace place = tokens_.Take().place;
  JinjaDictExpr node;
  int depth = 0;
  while (!tokens_.AtOperator("}")) {
    ASSIGN_OR_RETURN(auto key, ParseExpression());
    RETURN_IF_ERROR(tokens_.ExpectOperator(":"));
    ASSIGN_OR_RETURN(auto value, ParseExpression());
    depth = std::max({depth, DepthOf(key), DepthOf(value)});
    node.entries.emplace_back(std::move(key), std::move(value));
    if (!tokens_.TakeOperator(",")) break;
  }
  RETURN_IF_ERROR(tokens_.ExpectOperator("}"));
  return Make(place, std::move(node), {depth});
}

Result<JinjaExprPtr> JinjaExpressionParser::ParsePostfix(JinjaExprPtr expr) {
  while (true) {
    const JinjaPlace place = tokens_.Peek().place;
    if (tokens_.TakeOperator(".")) {
      ASSIGN_OR_RETURN(expr, ParseAttribute(std::move(expr)));
    } else if (tokens_.TakeOperator("[")) {
      ASSIGN_OR_RETURN(expr, ParseSubscript(std::move(expr)));
    } else if (tokens_.AtOperator("(")) {
      JinjaCall call;
      ASSIGN_OR_RETURN(call.arguments, ParseArguments());
      const int depth = std::max(DepthOf(expr), DepthOf(call.arguments));
      call.callee = std::move(expr);
      ASSIGN_OR_RETURN(expr, Make(place, std::move(call), {depth}));
    } else {
      return expr;
    }
  }
}

// Behind the dot: a name, or an index as in `pair.0`.
Result<JinjaExprPtr> JinjaExpressionParser::ParseAttribute(JinjaExprPtr object) {
  const JinjaPlace place = tokens_.Peek().place;
  const int depth = DepthOf(object);
  if (tokens_.At(Kind::kInteger)) {
    ASSIGN_OR_RETURN(auto index, ParseNumber());
    return Make(place, JinjaSubscript{std::move(object), std::move(index)}, {depth});
  }
  ASSIGN_OR_RETURN(auto name, tokens_.ExpectName());
  return Make(place, JinjaAttribute{std::move(object), std::move(name)}, {depth});
}

// Behind the bracket: an index, a key, or a slice.
Result<JinjaExprPtr> JinjaExpressionParser::ParseSubscript(JinjaExprPtr object) {
  const JinjaPlace place = tokens_.Peek().place;
  const int object_depth = DepthOf(object);
  JinjaExprPtr parts[3];
  size_t count = 0;
  bool slice = false;
  while (!tokens_.AtOperator("]")) {
    if (tokens_.AtOperator(":") && count < 2) {
      tokens_.Take();
      slice = true;
      ++count;
      continue;
    }
    if (parts[count] != nullptr) break;
    ASSIGN_OR_RETURN(parts[count], ParseExpression());
  }
  if (tokens_.AtOperator(",")) return tokens_.Unsupported("a tuple as a subscript");
  RETURN_IF_ERROR(tokens_.ExpectOperator("]"));
  const int depth =
      std::max({object_depth, DepthOf(parts[0]), DepthOf(parts[1]), DepthOf(parts[2])});
  if (slice) {
    return Make(place,
                JinjaSlice{std::move(object), std::move(parts[0]), std::move(parts[1]),
                           std::move(parts[2])},
                {depth});
  }
  if (parts[0] == nullptr) return AtPlace(place, Code::kInvalidArgument, "an empty subscript");
  return Make(place, JinjaSubscript{std::move(object), std::move(parts[0])}, {depth});
}

Result<JinjaArgumentExprs> JinjaExpressionParser::ParseArguments() {
  RETURN_IF_ERROR(tokens_.ExpectOperator("("));
  JinjaArgumentExprs arguments;
  while (!tokens_.AtOperator(")")) {
    if (tokens_.AtOperator("*") || tokens_.AtOperator("**")) {
      return tokens_.Unsupported("an argument list that unpacks a value");
    }
    const JinjaToken& next = tokens_.Peek(1);
    if (tokens_.At(Kind::kName) && next.kind == Kind::kOperator && next.text == "=") {
      std::string name = tokens_.Take().text;
      tokens_.Take();
      ASSIGN_OR_RETURN(auto value, ParseExpression());
      arguments.named.emplace_back(std::move(name), std::move(value));
    } else if (!arguments.named.empty()) {
      return tokens_.Fail("an argument without name behind one with a name");
    } else {
      ASSIGN_OR_RETURN(auto value, ParseExpression());
      arguments.positional.push_back(std::move(value));
    }
    if (!tokens_.TakeOperator(",")) break;
  }
  RETURN_IF_ERROR(tokens_.ExpectOperator(")"));
  return arguments;
}

Result<JinjaExprPtr> JinjaExpressionParser::ParseFiltersAndTests(JinjaExprPtr expr) {
  while (true) {
    const JinjaPlace place = tokens_.Peek().place;
    if (tokens_.TakeOperator("|")) {
      ASSIGN_OR_RETURN(expr, ParseFilter(std::move(expr)));
    } else if (tokens_.TakeName("is")) {
      ASSIGN_OR_RETURN(expr, ParseTest(std::move(expr)));
    } else if (tokens_.AtOperator("(")) {
      JinjaCall call;
      ASSIGN_OR_RETURN(call.arguments, ParseArguments());
      const int depth = std::max(DepthOf(expr), DepthOf(call.arguments));
      call.callee = std::move(expr);
      ASSIGN_OR_RETURN(expr, Make(place, std::move(call), {depth}));
    } else {
      return expr;
    }
  }
}

// At the filter's name. operand may be null.
Result<JinjaExprPtr> JinjaExpressionParser::ParseFilter(JinjaExprPtr operand) {
  const JinjaPlace place = tokens_.Peek().place;
  ASSIGN_OR_RETURN(const auto name, tokens_.ExpectName());
  JinjaFilterCall node{nullptr, FindFilter(name), {}};
  if (node.filter == nullptr) {
    return AtPlace(place, Code::kUnimplemented,
                   Format("filter '{}' is outside the supported part of Jinja", name));
  }
  if (tokens_.AtOperator("(")) {
    ASSIGN_OR_RETURN(node.arguments, ParseArguments());
  }
  const int depth = std::max(DepthOf(operand), DepthOf(node.arguments));
  node.operand = std::move(operand);
  return Make(place, std::move(node), {depth});
}

Result<std::vector<JinjaExprPtr>> JinjaExpressionParser::ParseFilters() {
  std::vector<JinjaExprPtr> filters;
  do {
    ASSIGN_OR_RETURN(auto filter, ParseFilter(nullptr));
    filters.push_back(std::move(filter));
  } while (tokens_.TakeOperator("|"));
  return filters;
}

// Behind `is`: [not] name, name(arguments), or name and one operand.
Result<JinjaExprPtr> JinjaExpressionParser::ParseTest(JinjaExprPtr operand) {
  const bool negated = tokens_.TakeName("not");
  const JinjaPlace place = tokens_.Peek().place;
  ASSIGN_OR_RETURN(const auto name, tokens_.ExpectName());
  JinjaTestCall node{nullptr, FindTest(name), {}};
  if (node.test == nullptr) {
    return AtPlace(place, Code::kUnimplemented,
                   Format("test '{}' is outside the supported part of Jinja", name));
  }
  const bool at_operand = tokens_.At(Kind::kString) || tokens_.At(Kind::kInteger) ||
                          tokens_.At(Kind::kFloat) || tokens_.AtOperator("[") ||
                          tokens_.AtOperator("{") ||
                          (tokens_.At(Kind::kName) && !tokens_.AtName("else") &&
                           !tokens_.AtName("or") && !tokens_.AtName("and"));
  if (tokens_.AtOperator("(")) {
    ASSIGN_OR_RETURN(node.arguments, ParseArguments());
  } else if (tokens_.AtName("is")) {
    return tokens_.Fail("a test of a test; put the first in parentheses");
  } else if (at_operand) {
    ASSIGN_OR_RETURN(auto argument, ParsePrimary());
    ASSIGN_OR_RETURN(argument, ParsePostfix(std::move(argument)));
    node.arguments.positional.push_back(std::move(argument));
  }
  int depth = std::max(DepthOf(operand), DepthOf(node.arguments));
  node.operand = std::move(operand);
  ASSIGN_OR_RETURN(auto expr, Make(place, std::move(node), {depth}));
  if (!negated) return expr;
  depth = DepthOf(expr);
  return Make(place, JinjaUnary{JinjaOperator::kNot, std::move(expr)}, {depth});
}

}  // namespace divisi
