// What a chat template can call: Jinja's filters, tests and functions, the functions that Hugging
// Face adds, and methods of Python's str and dict. Tables of plain functions over values.
// Source: Jinja 3.1, "List of Builtin Filters", "List of Builtin Tests"; transformers' chat
// templates (tojson, raise_exception, strftime_now); Python 3, "Built-in Types".
#pragma once

#include <deque>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "divisi/model/jinja_value.h"

namespace divisi {

// What a builtin works with, besides its arguments. Borrowed for the call.
struct JinjaCallContext {
  JinjaBudget& budget;
  double now_unix_seconds;
  std::deque<JinjaNamespace>& namespaces;  // Owns those that namespace() makes.
};

struct JinjaArguments {
  std::vector<JinjaValue> positional;
  std::vector<std::pair<std::string, JinjaValue>> named;
};

// Errors of all builtins: kInvalidArgument for wrong arguments or types, kUnimplemented for a
// variant outside the subset, kOutOfRange when the budget ends. Messages carry no place; the
// interpreter adds it.
struct JinjaFilter {
  const char* name;
  Result<JinjaValue> (*apply)(JinjaCallContext&, const JinjaValue& subject, const JinjaArguments&);
};
struct JinjaTest {
  const char* name;
  Result<bool> (*holds)(JinjaCallContext&, const JinjaValue& subject, const JinjaArguments&);
};
struct JinjaFunction {
  const char* name;
  Result<JinjaValue> (*call)(JinjaCallContext&, const JinjaArguments&);
};
struct JinjaMethod {
  const char* name;
  Result<JinjaValue> (*call)(JinjaCallContext&, const JinjaValue& self, const JinjaArguments&);
};
// `text.strip`, not yet called.
struct JinjaBoundMethod {
  JinjaValue self;
  const JinjaMethod* method;
};

// nullptr when there is none of that name.
const JinjaFilter* FindFilter(std::string_view name);
const JinjaTest* FindTest(std::string_view name);
const JinjaFunction* FindFunction(std::string_view name);
const JinjaMethod* FindStringMethod(std::string_view name);
const JinjaMethod* FindDictMethod(std::string_view name);
// Names that mean something in Jinja and are not supported: lipsum, caller, varargs, ...
bool IsUnsupportedName(std::string_view name);
// Python methods of the value's type that exist and are not supported: reaching for one is an
// error, not an undefined attribute.
bool IsUnsupportedMethod(const JinjaValue& value, std::string_view name);

// `value.name` and `value[key]` as Jinja looks them up: undefined when there is nothing.
// Errors: kInvalidArgument for an attribute of undefined, kUnimplemented for a method outside the
// subset.
Result<JinjaValue> GetAttribute(const JinjaValue& value, std::string_view name,
                                JinjaBudget& budget);
Result<JinjaValue> GetItem(const JinjaValue& value, const JinjaValue& key, JinjaBudget& budget);

// Values of the parameters `names`, in that order; nullptr where none was given.
// Errors: kInvalidArgument for an unknown name, too many arguments, fewer than `required`.
Result<std::vector<const JinjaValue*>> Bind(const JinjaArguments& arguments,
                                            std::span<const char* const> names, size_t required);

// The argument as that type. Errors: kInvalidArgument.
Result<std::string_view> AsString(const JinjaValue& value, std::string_view what);
Result<int64_t> AsInteger(const JinjaValue& value, std::string_view what);

// A string value within the budget.
Result<JinjaValue> MakeString(std::string text, JinjaBudget& budget);
Result<JinjaValue> MakeStrings(const std::vector<std::string_view>& parts, JinjaBudget& budget);

}  // namespace divisi
