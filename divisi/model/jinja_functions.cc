// Functions that a chat template finds: Jinja's namespace, range and dict, and those that Hugging
// Face adds.
#include <array>
#include <cmath>

#include "divisi/model/jinja_builtins.h"

namespace divisi {
namespace {

using Context = JinjaCallContext;
using Value = JinjaValue;
using Arguments = JinjaArguments;

// Every template that raises says why; those words reach the user as they are.
Result<Value> RaiseException(Context&, const Arguments& arguments) {
  static constexpr const char* kNames[] = {"message"};
  ASSIGN_OR_RETURN(const auto bound, Bind(arguments, kNames, 1));
  ASSIGN_OR_RETURN(const auto message, AsString(*bound[0], "message"));
  return TypeError(std::string(message));
}

Result<Value> Namespace(Context& context, const Arguments& arguments) {
  static constexpr size_t kMaxNamespaces = 1000;
  if (context.namespaces.size() >= kMaxNamespaces || !context.budget.Make(sizeof(JinjaNamespace))) {
    return BudgetError();
  }
  JinjaNamespace made;
  if (arguments.positional.size() > 1) return TypeError("takes one mapping");
  for (const Value& initial : arguments.positional) {
    if (!initial.is_dict()) return TypeError("takes a mapping");
    for (const auto& [key, value] : initial.as_dict().entries) {
      ASSIGN_OR_RETURN(const auto name, AsString(key, "an attribute's name"));
      made.Set(name, value);
    }
  }
  for (const auto& [name, value] : arguments.named) made.Set(name, value);
  context.namespaces.push_back(std::move(made));
  return Value(&context.namespaces.back());
}

Result<Value> Range(Context& context, const Arguments& arguments) {
  const size_t count = arguments.positional.size();
  if (!arguments.named.empty() || count < 1 || count > 3) return TypeError("takes 1 to 3 integers");
  int64_t bounds[3] = {0, 0, 1};  // Start, stop, step.
  for (size_t i = 0; i < count; ++i) {
    ASSIGN_OR_RETURN(bounds[count == 1 ? 1 : i], AsInteger(arguments.positional[i], "a bound"));
  }
  const auto [start, stop, step] = bounds;
  if (step == 0) return TypeError("the step is zero");
  std::vector<Value> items;
  for (int64_t i = start; step > 0 ? i < stop : i > stop;) {
    if (static_cast<int64_t>(items.size()) >= JinjaBudget::kMaxRange || !context.budget.Step()) {
      return BudgetError();
    }
    items.emplace_back(i);
    if (__builtin_add_overflow(i, step, &i)) break;
  }
  return MakeSequence(JinjaSequence::Kind::kRange, std::move(items), context.budget);
}

Result<Value> Dict(Context& context, const Arguments& arguments) {
  std::vector<JinjaDict::Entry> entries;
  if (arguments.positional.size() > 1) return TypeError("takes one mapping");
  for (const Value& initial : arguments.positional) {
    if (!initial.is_dict()) {
      return Error{Code::kUnimplemented, "dict() of other than a mapping"};
    }
    entries = initial.as_dict().entries;
  }
  for (const auto& [name, value] : arguments.named) entries.emplace_back(name, value);
  return MakeDict(std::move(entries), context.budget);
}

struct CivilTime {
  int64_t year;
  int month, day, weekday, day_of_year, hour, minute, second;  // weekday: 0 is Sunday.
};

// UTC. Source: Howard Hinnant, "chrono-Compatible Low-Level Date Algorithms", civil_from_days.
CivilTime ToCivil(double unix_seconds) {
  const int64_t seconds = static_cast<int64_t>(std::floor(unix_seconds));
  const int64_t day_seconds = ((seconds % 86400) + 86400) % 86400;
  const int64_t days = (seconds - day_seconds) / 86400;
  const int64_t shifted = days + 719468;  // Days since 0000-03-01.
  const int64_t era = (shifted >= 0 ? shifted : shifted - 146096) / 146097;
  const int64_t day_of_era = shifted - era * 146097;
  const int64_t year_of_era =
      (day_of_era - day_of_era / 1460 + day_of_era / 36524 - day_of_era / 146096) / 365;
  const int64_t day_of_year =
      day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
  const int64_t month_index = (5 * day_of_year + 2) / 153;  // 0 is March.
  CivilTime time{};
  time.day = static_cast<int>(day_of_year - (153 * month_index + 2) / 5 + 1);
  time.month = static_cast<int>(month_index < 10 ? month_index + 3 : month_index - 9);
  time.year = year_of_era + era * 400 + (time.month <= 2);
  time.weekday = static_cast<int>(((days % 7) + 11) % 7);  // 1970-01-01 was a Thursday.
  const bool leap = (time.year % 4 == 0 && time.year % 100 != 0) || time.year % 400 == 0;
  constexpr int kDaysBefore[] = {0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334};
  time.day_of_year = kDaysBefore[time.month - 1] + time.day + (leap && time.month > 2);
  time.hour = static_cast<int>(day_seconds / 3600);
  time.minute = static_cast<int>(day_seconds / 60 % 60);
  time.second = static_cast<int>(day_seconds % 60);
  return time;
}

constexpr std::array<std::string_view, 12> kMonths = {
    "January", "February", "March",     "April",   "May",      "June",
    "July",    "August",   "September", "October", "November", "December"};
constexpr std::array<std::string_view, 7> kWeekdays = {"Sunday",   "Monday", "Tuesday", "Wednesday",
                                                       "Thursday", "Friday", "Saturday"};

// One conversion of strftime in the C locale. plain: without padding, as %-d asks.
Result<std::string> Conversion(char letter, bool plain, const CivilTime& time) {
  const auto two = [&](int value) { return plain ? Format("{}", value) : Format("{:02}", value); };
  const std::string_view month = kMonths[static_cast<size_t>(time.month - 1)];
  const std::string_view weekday = kWeekdays[static_cast<size_t>(time.weekday)];
  switch (letter) {
    case 'a':
      return std::string(weekday.substr(0, 3));
    case 'A':
      return std::string(weekday);
    case 'b':
      return std::string(month.substr(0, 3));
    case 'B':
      return std::string(month);
    case 'd':
      return two(time.day);
    case 'm':
      return two(time.month);
    case 'y':
      return two(static_cast<int>(time.year % 100));
    case 'Y':
      return Format("{}", time.year);
    case 'H':
      return two(time.hour);
    case 'I':
      return two((time.hour + 11) % 12 + 1);
    case 'M':
      return two(time.minute);
    case 'S':
      return two(time.second);
    case 'p':
      return std::string(time.hour < 12 ? "AM" : "PM");
    case 'j':
      return plain ? Format("{}", time.day_of_year) : Format("{:03}", time.day_of_year);
    case 'F':
      return Format("{}-{:02}-{:02}", time.year, time.month, time.day);
    case 'T':
      return Format("{:02}:{:02}:{:02}", time.hour, time.minute, time.second);
    case '%':
      return std::string("%");
    default:
      return Error{Code::kUnimplemented, Format("strftime conversion '%{}'", letter)};
  }
}

Result<Value> StrftimeNow(Context& context, const Arguments& arguments) {
  static constexpr const char* kNames[] = {"format"};
  ASSIGN_OR_RETURN(const auto bound, Bind(arguments, kNames, 1));
  ASSIGN_OR_RETURN(const auto format, AsString(*bound[0], "format"));
  const CivilTime time = ToCivil(context.now_unix_seconds);
  std::string out;
  for (size_t i = 0; i < format.size(); ++i) {
    if (!context.budget.Make(16)) return BudgetError();
    if (format[i] != '%') {
      out += format[i];
      continue;
    }
    const bool plain = i + 1 < format.size() && format[i + 1] == '-';
    i += plain ? 2 : 1;
    if (i >= format.size()) return TypeError("a '%' at the end of the format");
    ASSIGN_OR_RETURN(const auto text, Conversion(format[i], plain, time));
    out += text;
  }
  return Value(std::move(out));
}

constexpr JinjaFunction kFunctions[] = {{"raise_exception", RaiseException},
                                        {"namespace", Namespace},
                                        {"range", Range},
                                        {"dict", Dict},
                                        {"strftime_now", StrftimeNow}};

}  // namespace

const JinjaFunction* FindFunction(std::string_view name) {
  for (const JinjaFunction& function : kFunctions) {
    if (function.name == name) return &function;
  }
  return nullptr;
}

bool IsUnsupportedName(std::string_view name) {
  constexpr std::array<std::string_view, 7> kNames = {"lipsum", "cycler",  "joiner", "caller",
                                                      "self",   "varargs", "kwargs"};
  for (const std::string_view unsupported : kNames) {
    if (unsupported == name) return true;
  }
  return false;
}

}  // namespace divisi
