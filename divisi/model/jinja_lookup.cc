// value.name and value[key]: Jinja tries Python's attributes and items in turn.
#include <memory>

#include "divisi/model/jinja_builtins.h"
#include "divisi/model/jinja_text.h"

namespace divisi {
namespace {

JinjaValue Missing(const JinjaValue& value, std::string_view name) {
  constexpr size_t kMaxShown = 64;  // A key may be a whole message.
  name = name.substr(0, kMaxShown);
  return JinjaValue::Undefined(Format("a value of type {} has no '{}'", value.TypeName(), name));
}

JinjaValue LoopAttribute(const JinjaLoop& loop, std::string_view name) {
  const int64_t length = static_cast<int64_t>(loop.items->items.size());
  const auto item = [&](int64_t index, const char* missing) {
    return index >= 0 && index < length ? loop.items->items[static_cast<size_t>(index)]
                                        : JinjaValue::Undefined(missing);
  };
  if (name == "index") return loop.index0 + 1;
  if (name == "index0") return loop.index0;
  if (name == "revindex") return length - loop.index0;
  if (name == "revindex0") return length - loop.index0 - 1;
  if (name == "first") return loop.index0 == 0;
  if (name == "last") return loop.index0 == length - 1;
  if (name == "length") return length;
  // Only recursive loops, which are not supported, go deeper.
  if (name == "depth") return int64_t{1};
  if (name == "depth0") return int64_t{0};
  if (name == "previtem") return item(loop.index0 - 1, "there is no previous item");
  if (name == "nextitem") return item(loop.index0 + 1, "there is no next item");
  return JinjaValue::Undefined(Format("loop has no '{}'", name));
}

// Python's attributes of the value; undefined when it has none of that name.
Result<JinjaValue> OwnAttribute(const JinjaValue& value, std::string_view name) {
  const JinjaMethod* method = nullptr;
  if (value.is_string()) method = FindStringMethod(name);
  if (value.is_dict()) method = FindDictMethod(name);
  if (method != nullptr) {
    return JinjaValue(std::make_shared<const JinjaBoundMethod>(JinjaBoundMethod{value, method}));
  }
  if (IsUnsupportedMethod(value, name)) {
    return Error{Code::kUnimplemented, Format("method '{}' of a {} is outside the supported part",
                                              name, value.TypeName())};
  }
  if (value.Is<std::shared_ptr<const JinjaLoop>>()) {
    if (name == "cycle" || name == "changed") {
      return Error{Code::kUnimplemented, Format("loop.{} is outside the supported part", name)};
    }
    return LoopAttribute(value.as_loop(), name);
  }
  if (value.Is<JinjaNamespace*>()) {
    if (const JinjaValue* found = value.as_namespace()->Find(name)) return *found;
  }
  return Missing(value, name);
}

Result<JinjaValue> OwnItem(const JinjaValue& value, const JinjaValue& key, JinjaBudget& budget) {
  if (value.is_dict()) {
    if (key.is_string()) {
      const JinjaValue* found = value.as_dict().Find(key.as_string());
      return found != nullptr ? *found : Missing(value, key.as_string());
    }
    for (const auto& [name, member] : value.as_dict().entries) {
      if (Equal(name, key, budget)) return member;
    }
    return Missing(value, "such key");
  }
  if (!key.is_integer()) return Missing(value, key.is_string() ? key.as_string() : "such item");
  if (value.is_string()) {
    ASSIGN_OR_RETURN(const int64_t length, Length(value, budget));
    const int64_t index = key.as_integer() < 0 ? key.as_integer() + length : key.as_integer();
    if (index < 0 || index >= length) return Missing(value, Format("{}", key.as_integer()));
    if (!budget.Scan(value.as_string().size() * sizeof(std::string_view))) return BudgetError();
    const auto parts = CodePoints(value.as_string());
    return JinjaValue(parts[static_cast<size_t>(index)]);
  }
  if (value.is_sequence() && value.as_sequence().Indexable()) {
    const auto& items = value.as_sequence().items;
    const int64_t length = static_cast<int64_t>(items.size());
    const int64_t index = key.as_integer() < 0 ? key.as_integer() + length : key.as_integer();
    if (index >= 0 && index < length) return items[static_cast<size_t>(index)];
  }
  return Missing(value, Format("{}", key.as_integer()));
}

}  // namespace

Result<JinjaValue> GetAttribute(const JinjaValue& value, std::string_view name,
                                JinjaBudget& budget) {
  if (!budget.Step()) return BudgetError();
  if (value.is_undefined()) return TypeError(value.undefined_what());
  ASSIGN_OR_RETURN(auto own, OwnAttribute(value, name));
  if (!own.is_undefined() || !value.is_dict()) return own;
  return OwnItem(value, JinjaValue(name), budget);
}

Result<JinjaValue> GetItem(const JinjaValue& value, const JinjaValue& key, JinjaBudget& budget) {
  if (!budget.Step()) return BudgetError();
  if (value.is_undefined()) return TypeError(value.undefined_what());
  ASSIGN_OR_RETURN(auto item, OwnItem(value, key, budget));
  if (!item.is_undefined() || !key.is_string()) return item;
  return OwnAttribute(value, key.as_string());
}

}  // namespace divisi
