#include "divisi/model/jinja_operators.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "divisi/model/jinja_builtins.h"
#include "divisi/model/jinja_text.h"

namespace divisi {
namespace {

const char* Symbol(JinjaOperator op) {
  switch (op) {
    case JinjaOperator::kAdd:
      return "+";
    case JinjaOperator::kSubtract:
      return "-";
    case JinjaOperator::kMultiply:
      return "*";
    case JinjaOperator::kDivide:
      return "/";
    case JinjaOperator::kFloorDivide:
      return "//";
    case JinjaOperator::kModulo:
      return "%";
    case JinjaOperator::kPower:
      return "**";
    default:
      return "?";
  }
}

Error Overflow() { return {Code::kOutOfRange, "an integer beyond 64 bits"}; }

Result<JinjaValue> IntegerPower(int64_t base, int64_t exponent) {
  if (exponent < 0) {
    if (base == 0) return TypeError("division by zero");
    return JinjaValue(std::pow(static_cast<double>(base), static_cast<double>(exponent)));
  }
  int64_t result = 1;
  // 0, 1 and -1 never overflow; anything else does within 63 steps.
  if (base >= -1 && base <= 1) exponent = exponent == 0 ? 0 : 2 - exponent % 2;
  for (int64_t i = 0; i < exponent; ++i) {
    if (__builtin_mul_overflow(result, base, &result)) return Overflow();
  }
  return JinjaValue(result);
}

Result<JinjaValue> OnIntegers(JinjaOperator op, int64_t a, int64_t b) {
  int64_t result = 0;
  bool overflow = false;
  switch (op) {
    case JinjaOperator::kAdd:
      overflow = __builtin_add_overflow(a, b, &result);
      break;
    case JinjaOperator::kSubtract:
      overflow = __builtin_sub_overflow(a, b, &result);
      break;
    case JinjaOperator::kMultiply:
      overflow = __builtin_mul_overflow(a, b, &result);
      break;
    case JinjaOperator::kPower:
      return IntegerPower(a, b);
    case JinjaOperator::kDivide:
      if (b == 0) return TypeError("division by zero");
      return JinjaValue(static_cast<double>(a) / static_cast<double>(b));
    default:
      if (b == 0) return TypeError("division by zero");
      if (b == -1)
        return OnIntegers(JinjaOperator::kMultiply, op == JinjaOperator::kModulo ? 0 : a, -1);
      // Python's quotient goes down, its remainder has the divisor's sign.
      const bool down = a % b != 0 && (a < 0) != (b < 0);
      return JinjaValue(op == JinjaOperator::kModulo ? a % b + (down ? b : 0)
                                                     : a / b - (down ? 1 : 0));
  }
  if (overflow) return Overflow();
  return JinjaValue(result);
}

Result<JinjaValue> OnDoubles(JinjaOperator op, double a, double b) {
  switch (op) {
    case JinjaOperator::kAdd:
      return JinjaValue(a + b);
    case JinjaOperator::kSubtract:
      return JinjaValue(a - b);
    case JinjaOperator::kMultiply:
      return JinjaValue(a * b);
    case JinjaOperator::kPower:
      return JinjaValue(std::pow(a, b));
    default:
      break;
  }
  if (b == 0) return TypeError("division by zero");
  if (op == JinjaOperator::kDivide) return JinjaValue(a / b);
  double remainder = std::fmod(a, b);
  if (remainder != 0 && (remainder < 0) != (b < 0)) remainder += b;
  if (op == JinjaOperator::kModulo) return JinjaValue(remainder);
  return JinjaValue(std::floor((a - remainder) / b + 0.5));
}

Result<JinjaValue> Repeated(const JinjaValue& value, int64_t count, JinjaBudget& budget) {
  const size_t times = static_cast<size_t>(std::max<int64_t>(count, 0));
  const size_t size = value.is_string() ? value.as_string().size()
                                        : value.as_sequence().items.size() * sizeof(JinjaValue);
  if (size != 0 && times > static_cast<size_t>(JinjaBudget::kMaxBytes) / size) {
    return BudgetError();
  }
  if (!budget.Make(size * times)) return BudgetError();
  if (value.is_string()) {
    std::string text;
    for (size_t i = 0; size != 0 && i < times; ++i) text += value.as_string();
    return JinjaValue(std::move(text));
  }
  std::vector<JinjaValue> items;
  const auto& source = value.as_sequence().items;
  for (size_t i = 0; size != 0 && i < times; ++i) {
    items.insert(items.end(), source.begin(), source.end());
  }
  return MakeSequence(value.as_sequence().kind, std::move(items), budget);
}

bool IsPlainSequence(const JinjaValue& value) {
  return value.is_sequence() && value.as_sequence().kind <= JinjaSequence::Kind::kTuple;
}

// text + text, list + list, and repetition; nullopt-like undefined when the types do not fit.
Result<std::optional<JinjaValue>> OnSequences(JinjaOperator op, const JinjaValue& a,
                                              const JinjaValue& b, JinjaBudget& budget) {
  if (op == JinjaOperator::kAdd && a.is_string() && b.is_string()) {
    if (!budget.Make(a.as_string().size() + b.as_string().size())) return BudgetError();
    return std::optional(JinjaValue(a.as_string() + b.as_string()));
  }
  if (op == JinjaOperator::kAdd && IsPlainSequence(a) && IsPlainSequence(b) &&
      a.as_sequence().kind == b.as_sequence().kind) {
    const size_t count = a.as_sequence().items.size() + b.as_sequence().items.size();
    if (!budget.Scan(count * sizeof(JinjaValue))) return BudgetError();
    std::vector<JinjaValue> items = a.as_sequence().items;
    items.insert(items.end(), b.as_sequence().items.begin(), b.as_sequence().items.end());
    ASSIGN_OR_RETURN(auto sum, MakeSequence(a.as_sequence().kind, std::move(items), budget));
    return std::optional(std::move(sum));
  }
  if (op == JinjaOperator::kMultiply) {
    for (const auto& [sequence, count] : {std::pair(&a, &b), std::pair(&b, &a)}) {
      if ((!sequence->is_string() && !IsPlainSequence(*sequence)) || !count->is_integer()) continue;
      ASSIGN_OR_RETURN(auto product, Repeated(*sequence, count->as_integer(), budget));
      return std::optional(std::move(product));
    }
  }
  return std::optional<JinjaValue>();
}

// A bound of a slice; nullopt for None.
Result<std::optional<int64_t>> SliceBound(const JinjaValue& value) {
  if (value.is_none()) return std::optional<int64_t>();
  ASSIGN_OR_RETURN(const int64_t bound, AsInteger(value, "a bound of a slice"));
  return std::optional(bound);
}

// Positions that a slice takes from `length` items (Python's slice.indices).
Result<std::vector<size_t>> SlicePositions(int64_t length, std::optional<int64_t> start,
                                           std::optional<int64_t> stop, int64_t step,
                                           JinjaBudget& budget) {
  const int64_t low = step > 0 ? 0 : -1;
  const int64_t high = step > 0 ? length : length - 1;
  const auto place = [&](std::optional<int64_t> bound, int64_t missing) {
    if (!bound) return missing;
    return std::clamp(*bound < 0 ? *bound + length : *bound, low, high);
  };
  const int64_t first = place(start, step > 0 ? low : high);
  const int64_t end = place(stop, step > 0 ? high : low);
  std::vector<size_t> positions;
  for (int64_t i = first; step > 0 ? i < end : i > end;) {
    if (!budget.Step()) return BudgetError();
    positions.push_back(static_cast<size_t>(i));
    if (__builtin_add_overflow(i, step, &i)) break;
  }
  return positions;
}

}  // namespace

Result<JinjaValue> Arithmetic(JinjaOperator op, const JinjaValue& a, const JinjaValue& b,
                              JinjaBudget& budget) {
  for (const JinjaValue* side : {&a, &b}) {
    if (side->is_undefined()) return TypeError(side->undefined_what());
  }
  if (a.is_integer() && b.is_integer()) return OnIntegers(op, a.as_integer(), b.as_integer());
  if (a.is_number() && b.is_number()) return OnDoubles(op, a.as_double(), b.as_double());
  if (op == JinjaOperator::kModulo && a.is_string()) {
    return Error{Code::kUnimplemented, "'%' on text is outside the supported part of Jinja"};
  }
  ASSIGN_OR_RETURN(auto result, OnSequences(op, a, b, budget));
  if (result) return *std::move(result);
  return TypeError(
      Format("'{}' is not defined between {} and {}", Symbol(op), a.TypeName(), b.TypeName()));
}

Result<JinjaValue> Negated(const JinjaValue& value) {
  if (value.is_integer()) return OnIntegers(JinjaOperator::kSubtract, 0, value.as_integer());
  if (value.is_number()) return JinjaValue(-value.as_double());
  if (value.is_undefined()) return TypeError(value.undefined_what());
  return TypeError(Format("'-' is not defined for {}", value.TypeName()));
}

Result<bool> Compare(JinjaOperator op, const JinjaValue& a, const JinjaValue& b,
                     JinjaBudget& budget) {
  const auto not_of = [](Result<bool> result) -> Result<bool> {
    if (!result) return result;
    return !*result;
  };
  switch (op) {
    case JinjaOperator::kEqual:
      return Equal(a, b, budget);
    case JinjaOperator::kNotEqual:
      return !Equal(a, b, budget);
    case JinjaOperator::kLess:
      return Less(a, b, budget);
    case JinjaOperator::kGreater:
      return Less(b, a, budget);
    case JinjaOperator::kLessEqual:
      return not_of(Less(b, a, budget));
    case JinjaOperator::kGreaterEqual:
      return not_of(Less(a, b, budget));
    case JinjaOperator::kIn:
      return Contains(b, a, budget);
    case JinjaOperator::kNotIn:
      return not_of(Contains(b, a, budget));
    default:
      break;
  }
  CHECK(false, "operator {} compares nothing", static_cast<int>(op));
  return false;
}

Result<JinjaValue> Sliced(const JinjaValue& value, const JinjaValue& start, const JinjaValue& stop,
                          const JinjaValue& step, JinjaBudget& budget) {
  if (value.is_undefined()) return TypeError(value.undefined_what());
  if (!value.is_string() && !(value.is_sequence() && value.as_sequence().Indexable())) {
    return JinjaValue::Undefined(Format("a value of type {} has no slices", value.TypeName()));
  }
  ASSIGN_OR_RETURN(const auto first, SliceBound(start));
  ASSIGN_OR_RETURN(const auto end, SliceBound(stop));
  ASSIGN_OR_RETURN(const auto stride, SliceBound(step));
  if (stride == 0) return TypeError("the step of a slice is zero");
  ASSIGN_OR_RETURN(const int64_t length, Length(value, budget));
  ASSIGN_OR_RETURN(const auto positions,
                   SlicePositions(length, first, end, stride.value_or(1), budget));
  if (!value.is_string()) {
    std::vector<JinjaValue> items;
    items.reserve(positions.size());
    for (const size_t i : positions) items.push_back(value.as_sequence().items[i]);
    return MakeSequence(value.as_sequence().kind, std::move(items), budget);
  }
  if (!budget.Make(value.as_string().size() * sizeof(std::string_view))) return BudgetError();
  const auto parts = CodePoints(value.as_string());
  std::string text;
  for (const size_t i : positions) text += parts[i];
  return MakeString(std::move(text), budget);
}

}  // namespace divisi
