// Jinja's tests: `value is name`.
#include <algorithm>

#include "divisi/model/jinja_builtins.h"
#include "divisi/model/jinja_text.h"

namespace divisi {
namespace {

using Context = JinjaCallContext;
using Value = JinjaValue;
using Arguments = JinjaArguments;

template <bool (*holds)(const Value&)>
Result<bool> TypeTest(Context&, const Value& subject, const Arguments& arguments) {
  RETURN_IF_ERROR(Bind(arguments, {}, 0));
  return holds(subject);
}

bool IsDefined(const Value& value) { return !value.is_undefined(); }
bool IsUndefined(const Value& value) { return value.is_undefined(); }
bool IsNone(const Value& value) { return value.is_none(); }
bool IsBoolean(const Value& value) { return value.is_bool(); }
bool IsTrue(const Value& value) { return value.is_bool() && value.as_bool(); }
bool IsFalse(const Value& value) { return value.is_bool() && !value.as_bool(); }
bool IsInteger(const Value& value) { return value.is_integer() && !value.is_bool(); }
bool IsFloat(const Value& value) { return value.is_number() && !value.is_integer(); }
bool IsNumber(const Value& value) { return value.is_number(); }
bool IsString(const Value& value) { return value.is_string(); }
bool IsMapping(const Value& value) { return value.is_dict(); }
bool IsCallable(const Value& value) { return value.is_callable(); }
// Python asks for a length and an index, which dictionaries and Jinja's undefined have too.
bool IsSequence(const Value& value) {
  return value.is_string() || value.is_dict() || value.is_undefined() ||
         (value.is_sequence() && value.as_sequence().Indexable());
}
bool IsIterable(const Value& value) {
  return value.is_string() || value.is_dict() || value.is_undefined() || value.is_sequence();
}

template <bool want_odd>
Result<bool> Parity(Context&, const Value& subject, const Arguments& arguments) {
  RETURN_IF_ERROR(Bind(arguments, {}, 0));
  ASSIGN_OR_RETURN(const int64_t value, AsInteger(subject, "the value"));
  return (value % 2 != 0) == want_odd;
}

Result<bool> DivisibleBy(Context&, const Value& subject, const Arguments& arguments) {
  static constexpr const char* kNames[] = {"num"};
  ASSIGN_OR_RETURN(const auto bound, Bind(arguments, kNames, 1));
  ASSIGN_OR_RETURN(const int64_t value, AsInteger(subject, "the value"));
  ASSIGN_OR_RETURN(const int64_t by, AsInteger(*bound[0], "num"));
  if (by == 0) return TypeError("division by zero");
  return by == -1 || value % by == 0;  // The minimum over -1 would overflow.
}

template <bool upper>
Result<bool> Case(Context& context, const Value& subject, const Arguments& arguments) {
  RETURN_IF_ERROR(Bind(arguments, {}, 0));
  ASSIGN_OR_RETURN(const auto text, AsString(subject, "the value"));
  if (!context.budget.Map(2 * text.size())) return BudgetError();
  const std::string raised = ToUpper(text), lowered = ToLower(text);
  return raised != lowered && text == (upper ? raised : lowered);
}

template <bool want>
Result<bool> EqualTo(Context& context, const Value& subject, const Arguments& arguments) {
  static constexpr const char* kNames[] = {"other"};
  ASSIGN_OR_RETURN(const auto bound, Bind(arguments, kNames, 1));
  return Equal(subject, *bound[0], context.budget) == want;
}

// swap: tests other < value. negate: tests not that.
template <bool swap, bool negate>
Result<bool> Ordered(Context& context, const Value& subject, const Arguments& arguments) {
  static constexpr const char* kNames[] = {"other"};
  ASSIGN_OR_RETURN(const auto bound, Bind(arguments, kNames, 1));
  const Value& a = swap ? *bound[0] : subject;
  const Value& b = swap ? subject : *bound[0];
  ASSIGN_OR_RETURN(const bool less, Less(a, b, context.budget));
  return less != negate;
}

Result<bool> In(Context& context, const Value& subject, const Arguments& arguments) {
  static constexpr const char* kNames[] = {"seq"};
  ASSIGN_OR_RETURN(const auto bound, Bind(arguments, kNames, 1));
  return Contains(*bound[0], subject, context.budget);
}

Result<bool> SameAs(Context& context, const Value& subject, const Arguments& arguments) {
  static constexpr const char* kNames[] = {"other"};
  ASSIGN_OR_RETURN(const auto bound, Bind(arguments, kNames, 1));
  const bool single = [](const Value& value) {
    return value.is_none() || value.is_bool() || value.Is<JinjaNamespace*>();
  }(*bound[0]);
  if (!single) return Error{Code::kUnimplemented, "sameas with other than none, true or false"};
  return std::string_view(subject.TypeName()) == bound[0]->TypeName() &&
         Equal(subject, *bound[0], context.budget);
}

constexpr JinjaTest kTests[] = {
    {"defined", TypeTest<IsDefined>},
    {"undefined", TypeTest<IsUndefined>},
    {"none", TypeTest<IsNone>},
    {"boolean", TypeTest<IsBoolean>},
    {"true", TypeTest<IsTrue>},
    {"false", TypeTest<IsFalse>},
    {"integer", TypeTest<IsInteger>},
    {"float", TypeTest<IsFloat>},
    {"number", TypeTest<IsNumber>},
    {"string", TypeTest<IsString>},
    {"mapping", TypeTest<IsMapping>},
    {"sequence", TypeTest<IsSequence>},
    {"iterable", TypeTest<IsIterable>},
    {"callable", TypeTest<IsCallable>},
    {"odd", Parity<true>},
    {"even", Parity<false>},
    {"divisibleby", DivisibleBy},
    {"upper", Case<true>},
    {"lower", Case<false>},
    {"equalto", EqualTo<true>},
    {"eq", EqualTo<true>},
    {"==", EqualTo<true>},
    {"ne", EqualTo<false>},
    {"!=", EqualTo<false>},
    {"lt", Ordered<false, false>},
    {"lessthan", Ordered<false, false>},
    {"<", Ordered<false, false>},
    {"ge", Ordered<false, true>},
    {">=", Ordered<false, true>},
    {"gt", Ordered<true, false>},
    {"greaterthan", Ordered<true, false>},
    {">", Ordered<true, false>},
    {"le", Ordered<true, true>},
    {"<=", Ordered<true, true>},
    {"in", In},
    {"sameas", SameAs},
};

}  // namespace

const JinjaTest* FindTest(std::string_view name) {
  for (const JinjaTest& test : kTests) {
    if (test.name == name) return &test;
  }
  return nullptr;
}

}  // namespace divisi
