#include <algorithm>

#include "divisi/model/jinja_builtins.h"

namespace divisi {

Result<std::vector<const JinjaValue*>> Bind(const JinjaArguments& arguments,
                                            std::span<const char* const> names, size_t required) {
  std::vector<const JinjaValue*> bound(names.size(), nullptr);
  if (arguments.positional.size() > names.size()) {
    return TypeError(Format("takes {} arguments, got {}", names.size(),
                            arguments.positional.size() + arguments.named.size()));
  }
  for (size_t i = 0; i < arguments.positional.size(); ++i) bound[i] = &arguments.positional[i];
  for (const auto& [name, value] : arguments.named) {
    const auto found = std::find(names.begin(), names.end(), name);
    if (found == names.end()) return TypeError(Format("has no argument '{}'", name));
    const size_t place = static_cast<size_t>(found - names.begin());
    if (bound[place] != nullptr) return TypeError(Format("got argument '{}' twice", name));
    bound[place] = &value;
  }
  for (size_t i = 0; i < required; ++i) {
    if (bound[i] == nullptr) return TypeError(Format("needs argument '{}'", names[i]));
  }
  return bound;
}

Result<std::string_view> AsString(const JinjaValue& value, std::string_view what) {
  if (value.is_string()) return std::string_view(value.as_string());
  if (value.is_undefined()) return TypeError(value.undefined_what());
  return TypeError(Format("{} must be a str, not {}", what, value.TypeName()));
}

Result<int64_t> AsInteger(const JinjaValue& value, std::string_view what) {
  if (value.is_integer()) return value.as_integer();
  if (value.is_undefined()) return TypeError(value.undefined_what());
  return TypeError(Format("{} must be an int, not {}", what, value.TypeName()));
}

Result<JinjaValue> MakeString(std::string text, JinjaBudget& budget) {
  if (!budget.Make(text.size())) return BudgetError();
  return JinjaValue(std::move(text));
}

Result<JinjaValue> MakeStrings(const std::vector<std::string_view>& parts, JinjaBudget& budget) {
  std::vector<JinjaValue> items;
  items.reserve(parts.size());
  for (const std::string_view part : parts) {
    if (!budget.Make(part.size() + 64)) return BudgetError();
    items.emplace_back(part);
  }
  return MakeSequence(JinjaSequence::Kind::kList, std::move(items), budget);
}

}  // namespace divisi
