// Filters over text, numbers and single values. Those over sequences: jinja_sequence_filters.cc.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>

#include "divisi/model/jinja_builtins.h"
#include "divisi/model/jinja_print.h"
#include "divisi/model/jinja_sequence_filters.h"
#include "divisi/model/jinja_text.h"

namespace divisi {
namespace {

using Context = JinjaCallContext;
using Value = JinjaValue;
using Arguments = JinjaArguments;

// What Jinja's text filters work on: the value as it prints, its scan paid for.
Result<std::string> Soft(Context& context, const Value& subject) {
  return Printed(subject, context.budget);
}

template <std::string (*map)(std::string_view)>
Result<Value> MapText(Context& context, const Value& subject, const Arguments& arguments) {
  RETURN_IF_ERROR(Bind(arguments, {}, 0));
  ASSIGN_OR_RETURN(const auto text, Soft(context, subject));
  if (!context.budget.Map(text.size())) return BudgetError();
  return MakeString(map(text), context.budget);
}

// Jinja's title filter starts a word behind white space, '-' and opening brackets only.
std::string JinjaTitle(std::string_view text) {
  std::string out;
  bool inside = false;
  for (const std::string_view part : CodePoints(text)) {
    const bool separates = IsSpace(FirstCodePoint(part)) || part == "-" || part == "(" ||
                           part == "{" || part == "[" || part == "<";
    out += inside && !separates ? ToLower(part) : ToUpper(part);
    inside = !separates;
  }
  return out;
}

Result<Value> Trim(Context& context, const Value& subject, const Arguments& arguments) {
  ASSIGN_OR_RETURN(const auto text, Soft(context, subject));
  return FindStringMethod("strip")->call(context, Value(text), arguments);
}

Result<Value> ReplaceFilter(Context& context, const Value& subject, const Arguments& arguments) {
  static constexpr const char* kNames[] = {"old", "new", "count"};
  ASSIGN_OR_RETURN(const auto bound, Bind(arguments, kNames, 2));
  ASSIGN_OR_RETURN(const auto text, Soft(context, subject));
  ASSIGN_OR_RETURN(const auto from, AsString(*bound[0], "old"));
  ASSIGN_OR_RETURN(const auto to, AsString(*bound[1], "new"));
  int64_t limit = -1;
  if (bound[2] != nullptr && !bound[2]->is_none()) {
    ASSIGN_OR_RETURN(limit, AsInteger(*bound[2], "count"));
  }
  // Paid for before it is made: as many insertions as there can be.
  size_t most = text.size() + 1;
  if (!from.empty()) {
    most = 0;
    for (size_t at = text.find(from); at != text.npos; at = text.find(from, at + from.size())) {
      ++most;
    }
  }
  if (limit >= 0) most = std::min(most, static_cast<size_t>(limit));
  if (!context.budget.Scan(text.size()) || !context.budget.Make(text.size() + most * to.size())) {
    return BudgetError();
  }
  return Value(Replace(text, from, to, limit));
}

Result<Value> StringFilter(Context& context, const Value& subject, const Arguments& arguments) {
  RETURN_IF_ERROR(Bind(arguments, {}, 0));
  ASSIGN_OR_RETURN(auto text, Soft(context, subject));
  return Value(std::move(text));
}

Result<Value> Safe(Context&, const Value& subject, const Arguments& arguments) {
  RETURN_IF_ERROR(Bind(arguments, {}, 0));
  return subject;
}

// tojson of Hugging Face: json.dumps with ensure_ascii off.
Result<Value> ToJson(Context& context, const Value& subject, const Arguments& arguments) {
  static constexpr const char* kNames[] = {"ensure_ascii", "indent", "separators", "sort_keys"};
  ASSIGN_OR_RETURN(const auto bound, Bind(arguments, kNames, 0));
  JsonStyle style;
  if (bound[0] != nullptr) style.ascii = bound[0]->Truth();
  if (bound[1] != nullptr && !bound[1]->is_none()) {
    style.indented = true;
    style.item_separator = ",";
    if (bound[1]->is_string()) {
      style.indent = bound[1]->as_string();
    } else {
      constexpr int64_t kMaxIndent = 64;
      ASSIGN_OR_RETURN(const int64_t width, AsInteger(*bound[1], "indent"));
      if (width > kMaxIndent) return Error{Code::kOutOfRange, "an indent above 64"};
      style.indent.assign(static_cast<size_t>(std::max<int64_t>(width, 0)), ' ');
    }
  }
  if (bound[2] != nullptr && !bound[2]->is_none()) {
    if (!bound[2]->is_sequence() || bound[2]->as_sequence().items.size() != 2) {
      return TypeError("separators must be a pair");
    }
    const auto& pair = bound[2]->as_sequence().items;
    ASSIGN_OR_RETURN(style.item_separator, AsString(pair[0], "a separator"));
    ASSIGN_OR_RETURN(style.key_separator, AsString(pair[1], "a separator"));
  }
  if (bound[3] != nullptr) style.sort_keys = bound[3]->Truth();
  ASSIGN_OR_RETURN(auto text, ToJsonText(subject, style, context.budget));
  return Value(std::move(text));
}

Result<Value> Default(Context&, const Value& subject, const Arguments& arguments) {
  static constexpr const char* kNames[] = {"default_value", "boolean"};
  ASSIGN_OR_RETURN(const auto bound, Bind(arguments, kNames, 0));
  const bool falsy = bound[1] != nullptr && bound[1]->Truth() && !subject.Truth();
  if (!subject.is_undefined() && !falsy) return subject;
  return bound[0] == nullptr ? Value("") : *bound[0];
}

// Python's int(text) and float(text), for decimal text within 64 bits.
template <typename Number>
std::optional<Number> ParseNumber(std::string_view text) {
  text = Strip(text, StripSides::kBoth);
  if (text.starts_with('+')) text.remove_prefix(1);
  Number value{};
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), value);
  if (parsed.ec != std::errc() || parsed.ptr != text.data() + text.size()) return std::nullopt;
  return value;
}

Result<Value> ToInteger(Context& context, const Value& subject, const Arguments& arguments) {
  static constexpr const char* kNames[] = {"default"};
  ASSIGN_OR_RETURN(const auto bound, Bind(arguments, kNames, 0));
  const Value fallback = bound[0] == nullptr ? Value(int64_t{0}) : *bound[0];
  if (subject.is_integer()) return Value(subject.as_integer());
  std::optional<double> number;
  if (subject.is_number()) number = subject.as_double();
  if (subject.is_string()) {
    if (!context.budget.Scan(subject.as_string().size())) return BudgetError();
    if (const auto whole = ParseNumber<int64_t>(subject.as_string())) return Value(*whole);
    number = ParseNumber<double>(subject.as_string());
  }
  constexpr double kLimit = 9.2e18;  // Below 2^63.
  if (!number || !(std::fabs(*number) < kLimit)) return fallback;
  return Value(static_cast<int64_t>(*number));
}

Result<Value> ToFloat(Context& context, const Value& subject, const Arguments& arguments) {
  static constexpr const char* kNames[] = {"default"};
  ASSIGN_OR_RETURN(const auto bound, Bind(arguments, kNames, 0));
  if (subject.is_number()) return Value(subject.as_double());
  if (subject.is_string()) {
    if (!context.budget.Scan(subject.as_string().size())) return BudgetError();
    if (const auto number = ParseNumber<double>(subject.as_string())) return Value(*number);
  }
  return bound[0] == nullptr ? Value(0.0) : *bound[0];
}

Result<Value> Absolute(Context&, const Value& subject, const Arguments& arguments) {
  RETURN_IF_ERROR(Bind(arguments, {}, 0));
  if (subject.is_integer()) {
    const int64_t value = subject.as_integer();
    if (value == INT64_MIN) return Error{Code::kOutOfRange, "an integer beyond 64 bits"};
    return Value(value < 0 ? -value : value);
  }
  if (subject.is_number()) return Value(std::fabs(subject.as_double()));
  return TypeError(Format("abs of a {}", subject.TypeName()));
}

Result<Value> Round(Context&, const Value& subject, const Arguments& arguments) {
  static constexpr const char* kNames[] = {"precision", "method"};
  ASSIGN_OR_RETURN(const auto bound, Bind(arguments, kNames, 0));
  if (!subject.is_number()) return TypeError(Format("round of a {}", subject.TypeName()));
  int64_t precision = 0;
  if (bound[0] != nullptr) {
    ASSIGN_OR_RETURN(precision, AsInteger(*bound[0], "precision"));
  }
  constexpr int64_t kMaxPrecision = 20;
  if (precision < 0 || precision > kMaxPrecision) {
    return Error{Code::kUnimplemented, "round with a precision outside 0 to 20"};
  }
  std::string_view method = "common";
  if (bound[1] != nullptr) {
    ASSIGN_OR_RETURN(method, AsString(*bound[1], "method"));
  }
  const double value = subject.as_double();
  if (method == "common") {
    // By decimal digits, ties to even, as Python rounds.
    if (!std::isfinite(value)) return Value(value);
    return Value(*ParseNumber<double>(Format("{:.{}f}", value, precision)));
  }
  const double scale = std::pow(10.0, static_cast<double>(precision));
  if (method == "ceil") return Value(std::ceil(value * scale) / scale);
  if (method == "floor") return Value(std::floor(value * scale) / scale);
  return TypeError("round's method is common, ceil or floor");
}

Result<Value> Indent(Context& context, const Value& subject, const Arguments& arguments) {
  static constexpr const char* kNames[] = {"width", "first", "blank"};
  ASSIGN_OR_RETURN(const auto bound, Bind(arguments, kNames, 0));
  ASSIGN_OR_RETURN(const auto text, Soft(context, subject));
  std::string indent(4, ' ');
  if (bound[0] != nullptr && bound[0]->is_string()) {
    indent = bound[0]->as_string();
  } else if (bound[0] != nullptr) {
    ASSIGN_OR_RETURN(const int64_t width, AsInteger(*bound[0], "width"));
    if (width > (1 << 20)) return BudgetError();
    indent.assign(static_cast<size_t>(std::max<int64_t>(width, 0)), ' ');
  }
  const bool first = bound[1] != nullptr && bound[1]->Truth();
  const bool blank = bound[2] != nullptr && bound[2]->Truth();
  std::string out;
  bool at_first = true;
  const std::string ended = text + "\n";  // As Jinja does, so that a last empty line counts.
  for (const std::string_view line : SplitLines(ended)) {
    if (!context.budget.Make(line.size() + indent.size() + 1)) return BudgetError();
    if (!at_first) out += '\n';
    if (at_first ? first : blank || !line.empty()) out += indent;
    out += line;
    at_first = false;
  }
  return Value(std::move(out));
}

constexpr JinjaFilter kFilters[] = {
    {"trim", Trim},
    {"upper", MapText<ToUpper>},
    {"lower", MapText<ToLower>},
    {"capitalize", MapText<Capitalized>},
    {"title", MapText<JinjaTitle>},
    {"replace", ReplaceFilter},
    {"string", StringFilter},
    {"safe", Safe},
    {"tojson", ToJson},
    {"default", Default},
    {"d", Default},
    {"int", ToInteger},
    {"float", ToFloat},
    {"abs", Absolute},
    {"round", Round},
    {"indent", Indent},
};

}  // namespace

const JinjaFilter* FindFilter(std::string_view name) {
  for (const JinjaFilter& filter : kFilters) {
    if (filter.name == name) return &filter;
  }
  return FindSequenceFilter(name);
}

}  // namespace divisi
