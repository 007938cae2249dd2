// Methods of Python's str and dict, and the attributes that values have.
#include <algorithm>
#include <array>
#include <optional>

#include "divisi/core/utf8.h"
#include "divisi/model/jinja_builtins.h"
#include "divisi/model/jinja_print.h"
#include "divisi/model/jinja_text.h"

namespace divisi {
namespace {

using Context = JinjaCallContext;
using Value = JinjaValue;
using Arguments = JinjaArguments;

// The text of `self`, its scan paid for.
Result<std::string_view> Text(Context& context, const Value& self) {
  if (!context.budget.Scan(self.as_string().size())) return BudgetError();
  return std::string_view(self.as_string());
}

template <StripSides sides>
Result<Value> StripMethod(Context& context, const Value& self, const Arguments& arguments) {
  static constexpr const char* kNames[] = {"chars"};
  ASSIGN_OR_RETURN(const auto bound, Bind(arguments, kNames, 0));
  ASSIGN_OR_RETURN(const auto text, Text(context, self));
  std::optional<std::string_view> chars;
  if (bound[0] != nullptr && !bound[0]->is_none()) {
    ASSIGN_OR_RETURN(chars, AsString(*bound[0], "chars"));
    // Each character of the text may be looked for in all of `chars`.
    if (!context.budget.Scan(chars->size() * std::min<size_t>(text.size(), 1 << 20))) {
      return BudgetError();
    }
  }
  return MakeString(std::string(Strip(text, sides, chars)), context.budget);
}

template <bool from_right>
Result<Value> SplitMethod(Context& context, const Value& self, const Arguments& arguments) {
  static constexpr const char* kNames[] = {"sep", "maxsplit"};
  ASSIGN_OR_RETURN(const auto bound, Bind(arguments, kNames, 0));
  ASSIGN_OR_RETURN(const auto text, Text(context, self));
  int64_t limit = -1;
  if (bound[1] != nullptr) {
    ASSIGN_OR_RETURN(limit, AsInteger(*bound[1], "maxsplit"));
  }
  // The views of the parts, before there are values: at most one per byte and one more.
  if (!context.budget.Make(text.size())) return BudgetError();
  if (bound[0] == nullptr || bound[0]->is_none()) {
    if (from_right && limit >= 0) {
      return Error{Code::kUnimplemented, "rsplit() by white space with a limit"};
    }
    return MakeStrings(SplitSpace(text, limit), context.budget);
  }
  ASSIGN_OR_RETURN(const auto separator, AsString(*bound[0], "sep"));
  if (separator.empty()) return TypeError("an empty separator");
  return MakeStrings(
      from_right ? SplitFromRight(text, separator, limit) : Split(text, separator, limit),
      context.budget);
}

Result<Value> SplitLinesMethod(Context& context, const Value& self, const Arguments& arguments) {
  RETURN_IF_ERROR(Bind(arguments, {}, 0));
  ASSIGN_OR_RETURN(const auto text, Text(context, self));
  return MakeStrings(SplitLines(text), context.budget);
}

template <bool at_start>
Result<Value> AffixMethod(Context& context, const Value& self, const Arguments& arguments) {
  static constexpr const char* kNames[] = {"affix"};
  ASSIGN_OR_RETURN(const auto bound, Bind(arguments, kNames, 1));
  const std::string_view text = self.as_string();
  const auto matches = [&](const Value& affix) -> Result<bool> {
    ASSIGN_OR_RETURN(const auto wanted, AsString(affix, "the argument"));
    if (!context.budget.Scan(wanted.size())) return BudgetError();
    return at_start ? text.starts_with(wanted) : text.ends_with(wanted);
  };
  if (!bound[0]->is_sequence()) {
    ASSIGN_OR_RETURN(const bool match, matches(*bound[0]));
    return Value(match);
  }
  for (const Value& affix : bound[0]->as_sequence().items) {
    ASSIGN_OR_RETURN(const bool match, matches(affix));
    if (match) return Value(true);
  }
  return Value(false);
}

template <bool at_start>
Result<Value> RemoveAffixMethod(Context& context, const Value& self, const Arguments& arguments) {
  static constexpr const char* kNames[] = {"affix"};
  ASSIGN_OR_RETURN(const auto bound, Bind(arguments, kNames, 1));
  ASSIGN_OR_RETURN(const auto affix, AsString(*bound[0], "the argument"));
  ASSIGN_OR_RETURN(auto text, Text(context, self));
  if (at_start && text.starts_with(affix)) text.remove_prefix(affix.size());
  if (!at_start && text.ends_with(affix)) text.remove_suffix(affix.size());
  return MakeString(std::string(text), context.budget);
}

template <std::string (*map)(std::string_view)>
Result<Value> MapMethod(Context& context, const Value& self, const Arguments& arguments) {
  RETURN_IF_ERROR(Bind(arguments, {}, 0));
  ASSIGN_OR_RETURN(const auto text, Text(context, self));
  if (!context.budget.Map(text.size())) return BudgetError();
  return MakeString(map(text), context.budget);
}

Result<Value> ReplaceMethod(Context& context, const Value& self, const Arguments& arguments) {
  return FindFilter("replace")->apply(context, self, arguments);
}

Result<Value> JoinMethod(Context& context, const Value& self, const Arguments& arguments) {
  static constexpr const char* kNames[] = {"iterable"};
  ASSIGN_OR_RETURN(const auto bound, Bind(arguments, kNames, 1));
  ASSIGN_OR_RETURN(const auto items, Iterate(*bound[0], context.budget));
  std::string joined;
  for (size_t i = 0; i < items->items.size(); ++i) {
    ASSIGN_OR_RETURN(const auto text, AsString(items->items[i], "each item"));
    if (!context.budget.Make(text.size() + self.as_string().size())) return BudgetError();
    if (i > 0) joined += self.as_string();
    joined += text;
  }
  return Value(std::move(joined));
}

template <bool from_right>
Result<Value> FindMethod(Context& context, const Value& self, const Arguments& arguments) {
  static constexpr const char* kNames[] = {"sub"};
  ASSIGN_OR_RETURN(const auto bound, Bind(arguments, kNames, 1));
  ASSIGN_OR_RETURN(const auto wanted, AsString(*bound[0], "sub"));
  ASSIGN_OR_RETURN(const auto text, Text(context, self));
  const size_t at = from_right ? text.rfind(wanted) : text.find(wanted);
  return Value(at == text.npos ? int64_t{-1} : CountCodePoints(text.substr(0, at)));
}

Result<Value> CountMethod(Context& context, const Value& self, const Arguments& arguments) {
  static constexpr const char* kNames[] = {"sub"};
  ASSIGN_OR_RETURN(const auto bound, Bind(arguments, kNames, 1));
  ASSIGN_OR_RETURN(const auto wanted, AsString(*bound[0], "sub"));
  ASSIGN_OR_RETURN(const auto text, Text(context, self));
  if (wanted.empty()) return Value(CountCodePoints(text) + 1);
  int64_t count = 0;
  for (size_t at = text.find(wanted); at != text.npos; at = text.find(wanted, at + wanted.size())) {
    ++count;
  }
  return Value(count);
}

template <bool (*holds)(char)>
Result<Value> AsciiClassMethod(Context& context, const Value& self, const Arguments& arguments) {
  RETURN_IF_ERROR(Bind(arguments, {}, 0));
  ASSIGN_OR_RETURN(const auto text, Text(context, self));
  const auto ascii = [](char c) { return static_cast<unsigned char>(c) < 0x80; };
  if (!std::all_of(text.begin(), text.end(), ascii)) {
    return Error{Code::kUnimplemented, "a character class of text beyond ASCII"};
  }
  return Value(!text.empty() && std::all_of(text.begin(), text.end(), holds));
}

bool AsciiDigit(char c) { return c >= '0' && c <= '9'; }
bool AsciiAlpha(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
bool AsciiAlnum(char c) { return AsciiDigit(c) || AsciiAlpha(c); }

Result<Value> IsSpaceMethod(Context& context, const Value& self, const Arguments& arguments) {
  RETURN_IF_ERROR(Bind(arguments, {}, 0));
  ASSIGN_OR_RETURN(const auto text, Text(context, self));
  return Value(!text.empty() && Strip(text, StripSides::kBoth).empty());
}

// '{} {0} {name}' without conversions and format specifications.
Result<Value> FormatMethod(Context& context, const Value& self, const Arguments& arguments) {
  const std::string_view text = self.as_string();
  std::string out;
  size_t next = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    if (!context.budget.Make(1)) return BudgetError();
    const char c = text[i];
    if ((c == '{' || c == '}') && i + 1 < text.size() && text[i + 1] == c)
      ++i;
    else if (c == '}')
      return TypeError("a '}' alone in a format string");
    else if (c == '{') {
      const size_t end = text.find('}', i);
      if (end == text.npos) return TypeError("a '{' alone in a format string");
      const std::string field(text.substr(i + 1, end - i - 1));
      const Value* value = nullptr;
      if (field.empty() || (field.size() == 1 && AsciiDigit(field[0]))) {
        const size_t index = field.empty() ? next++ : static_cast<size_t>(field[0] - '0');
        if (index < arguments.positional.size()) value = &arguments.positional[index];
      }
      for (const auto& [name, named] : arguments.named) {
        if (name == field) value = &named;
      }
      if (value == nullptr) {
        return Error{Code::kUnimplemented, Format("a format field '{{{}}}' of this kind", field)};
      }
      ASSIGN_OR_RETURN(const auto printed, Printed(*value, context.budget));
      out += printed;
      i = end;
      continue;
    }
    out += c;
  }
  return Value(std::move(out));
}

constexpr JinjaMethod kStringMethods[] = {
    {"strip", StripMethod<StripSides::kBoth>},
    {"lstrip", StripMethod<StripSides::kLeft>},
    {"rstrip", StripMethod<StripSides::kRight>},
    {"split", SplitMethod<false>},
    {"rsplit", SplitMethod<true>},
    {"splitlines", SplitLinesMethod},
    {"startswith", AffixMethod<true>},
    {"endswith", AffixMethod<false>},
    {"removeprefix", RemoveAffixMethod<true>},
    {"removesuffix", RemoveAffixMethod<false>},
    {"upper", MapMethod<ToUpper>},
    {"lower", MapMethod<ToLower>},
    {"title", MapMethod<Titled>},
    {"capitalize", MapMethod<Capitalized>},
    {"replace", ReplaceMethod},
    {"join", JoinMethod},
    {"find", FindMethod<false>},
    {"rfind", FindMethod<true>},
    {"count", CountMethod},
    {"isdigit", AsciiClassMethod<AsciiDigit>},
    {"isalpha", AsciiClassMethod<AsciiAlpha>},
    {"isalnum", AsciiClassMethod<AsciiAlnum>},
    {"isspace", IsSpaceMethod},
    {"format", FormatMethod},
};

Result<Value> ItemsMethod(Context& context, const Value& self, const Arguments& arguments) {
  RETURN_IF_ERROR(Bind(arguments, {}, 0));
  std::vector<Value> pairs;
  for (const auto& [key, value] : self.as_dict().entries) {
    ASSIGN_OR_RETURN(auto pair,
                     MakeSequence(JinjaSequence::Kind::kTuple, {key, value}, context.budget));
    pairs.push_back(std::move(pair));
  }
  return MakeSequence(JinjaSequence::Kind::kView, std::move(pairs), context.budget);
}

template <bool keys>
Result<Value> HalfMethod(Context& context, const Value& self, const Arguments& arguments) {
  RETURN_IF_ERROR(Bind(arguments, {}, 0));
  std::vector<Value> items;
  for (const auto& [key, value] : self.as_dict().entries) items.push_back(keys ? key : value);
  return MakeSequence(JinjaSequence::Kind::kView, std::move(items), context.budget);
}

Result<Value> GetMethod(Context& context, const Value& self, const Arguments& arguments) {
  static constexpr const char* kNames[] = {"key", "default"};
  ASSIGN_OR_RETURN(const auto bound, Bind(arguments, kNames, 1));
  for (const auto& [key, value] : self.as_dict().entries) {
    if (Equal(key, *bound[0], context.budget)) return value;
  }
  return bound[1] == nullptr ? Value() : *bound[1];
}

Result<Value> CopyMethod(Context&, const Value& self, const Arguments& arguments) {
  RETURN_IF_ERROR(Bind(arguments, {}, 0));
  return self;  // Immutable: the same is as good.
}

constexpr JinjaMethod kDictMethods[] = {{"items", ItemsMethod},
                                        {"keys", HalfMethod<true>},
                                        {"values", HalfMethod<false>},
                                        {"get", GetMethod},
                                        {"copy", CopyMethod}};

const JinjaMethod* Find(std::span<const JinjaMethod> methods, std::string_view name) {
  const auto found = std::find_if(methods.begin(), methods.end(),
                                  [&](const JinjaMethod& method) { return method.name == name; });
  return found == methods.end() ? nullptr : &*found;
}

template <size_t N>
bool IsAmong(const std::array<std::string_view, N>& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

}  // namespace

const JinjaMethod* FindStringMethod(std::string_view name) { return Find(kStringMethods, name); }
const JinjaMethod* FindDictMethod(std::string_view name) { return Find(kDictMethods, name); }

bool IsUnsupportedMethod(const JinjaValue& value, std::string_view name) {
  constexpr std::array<std::string_view, 22> kString = {
      "casefold", "center",    "encode",    "expandtabs",  "format_map",  "index",
      "isascii",  "isdecimal", "islower",   "isnumeric",   "isprintable", "istitle",
      "isupper",  "ljust",     "partition", "rindex",      "rjust",       "rpartition",
      "swapcase", "translate", "zfill",     "isidentifier"};
  // Jinja's sandbox, which Hugging Face uses, refuses those that change their object.
  constexpr std::array<std::string_view, 6> kDict = {"clear",   "fromkeys",   "pop",
                                                     "popitem", "setdefault", "update"};
  constexpr std::array<std::string_view, 11> kList = {"append", "clear",   "copy",   "count",
                                                      "extend", "index",   "insert", "pop",
                                                      "remove", "reverse", "sort"};
  if (value.is_string()) return IsAmong(kString, name);
  if (value.is_dict()) return IsAmong(kDict, name);
  return value.is_sequence() && IsAmong(kList, name);
}

}  // namespace divisi
