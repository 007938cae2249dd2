#include "divisi/model/jinja_value.h"

#include <algorithm>
#include <cmath>

#include "divisi/core/utf8.h"
#include "divisi/model/jinja_text.h"

namespace divisi {
namespace {

// A dictionary of a message has a handful of keys; beyond this many, hashing wins over looking.
constexpr size_t kMaxLinearKeys = 16;

bool EqualSequences(const JinjaSequence& a, const JinjaSequence& b, JinjaBudget& budget) {
  if (a.kind != b.kind || a.items.size() != b.items.size()) return false;
  for (size_t i = 0; i < a.items.size(); ++i) {
    if (!Equal(a.items[i], b.items[i], budget)) return false;
  }
  return true;
}

const JinjaValue* FindKey(const JinjaDict& dict, const JinjaValue& key, JinjaBudget& budget) {
  if (key.is_string()) return dict.Find(key.as_string());
  for (const auto& [name, value] : dict.entries) {
    if (Equal(name, key, budget)) return &value;
  }
  return nullptr;
}

bool EqualDicts(const JinjaDict& a, const JinjaDict& b, JinjaBudget& budget) {
  if (a.entries.size() != b.entries.size()) return false;
  for (const auto& [key, value] : a.entries) {
    const JinjaValue* other = FindKey(b, key, budget);
    if (other == nullptr || !Equal(value, *other, budget)) return false;
  }
  return true;
}

bool EqualNumbers(const JinjaValue& a, const JinjaValue& b) {
  if (a.is_integer() && b.is_integer()) return a.as_integer() == b.as_integer();
  return a.as_double() == b.as_double();
}

void BuildIndex(JinjaDict& dict) {
  if (dict.entries.size() <= kMaxLinearKeys) return;
  for (size_t i = 0; i < dict.entries.size(); ++i) {
    const JinjaValue& key = dict.entries[i].first;
    if (key.is_string()) dict.index.emplace(key.as_string(), i);
  }
}

// Keeps the place of a key's first entry and the value of its last, as Python does.
std::vector<JinjaDict::Entry> WithoutRepeats(std::vector<JinjaDict::Entry> entries,
                                             JinjaBudget& budget) {
  std::vector<JinjaDict::Entry> kept;
  std::unordered_map<std::string_view, size_t> strings;
  kept.reserve(entries.size());
  for (JinjaDict::Entry& entry : entries) {
    const JinjaValue& key = entry.first;
    size_t place = kept.size();
    if (key.is_string()) {
      place = strings.emplace(key.as_string(), place).first->second;
    } else {
      const auto same = [&](const JinjaDict::Entry& other) {
        return Equal(other.first, key, budget);
      };
      place = static_cast<size_t>(std::find_if(kept.begin(), kept.end(), same) - kept.begin());
    }
    if (place == kept.size()) {
      kept.push_back(std::move(entry));
    } else {
      kept[place].second = std::move(entry.second);
    }
  }
  return kept;
}

bool Hashable(const JinjaValue& key) { return key.is_none() || key.is_number() || key.is_string(); }

}  // namespace

Error BudgetError() {
  return {Code::kOutOfRange, "the template does more work or makes more text than is allowed"};
}

Error TypeError(std::string message) { return {Code::kInvalidArgument, std::move(message)}; }

const char* JinjaValue::TypeName() const {
  constexpr const char* kNames[] = {"NoneType",  "undefined", "bool",    "int",         "float",
                                    "str",       "list",      "dict",    "LoopContext", "method",
                                    "Namespace", "Macro",     "function"};
  if (is_sequence()) {
    constexpr const char* kKinds[] = {"list", "tuple", "range", "dict view", "generator"};
    return kKinds[static_cast<int>(as_sequence().kind)];
  }
  return kNames[value_.index()];
}

bool JinjaValue::Truth() const {
  if (is_none() || is_undefined()) return false;
  if (is_number()) return as_double() != 0;
  if (is_string()) return !as_string().empty();
  if (is_dict()) return !as_dict().entries.empty();
  if (is_sequence()) return !as_sequence().HasLength() || !as_sequence().items.empty();
  return true;
}

int JinjaValue::Depth() const {
  if (is_sequence()) return as_sequence().depth;
  if (is_dict()) return as_dict().depth;
  return 0;
}

const JinjaValue* JinjaDict::Find(std::string_view key) const {
  if (!index.empty()) {
    const auto found = index.find(key);
    return found == index.end() ? nullptr : &entries[found->second].second;
  }
  for (const auto& [name, value] : entries) {
    if (name.is_string() && name.as_string() == key) return &value;
  }
  return nullptr;
}

const JinjaValue* JinjaNamespace::Find(std::string_view name) const {
  for (const auto& [key, value] : attributes) {
    if (key == name) return &value;
  }
  return nullptr;
}

void JinjaNamespace::Set(std::string_view name, JinjaValue value) {
  for (auto& [key, old] : attributes) {
    if (key == name) {
      old = std::move(value);
      return;
    }
  }
  attributes.emplace_back(std::string(name), std::move(value));
}

Result<JinjaValue> MakeSequence(JinjaSequence::Kind kind, std::vector<JinjaValue> items,
                                JinjaBudget& budget) {
  if (!budget.Make((items.size() + 2) * sizeof(JinjaValue))) return BudgetError();
  auto sequence = std::make_shared<JinjaSequence>();
  for (const JinjaValue& item : items) {
    sequence->depth = std::max(sequence->depth, item.Depth() + 1);
  }
  if (sequence->depth > JinjaBudget::kMaxValueDepth) return BudgetError();
  sequence->kind = kind;
  sequence->items = std::move(items);
  return JinjaValue(std::shared_ptr<const JinjaSequence>(std::move(sequence)));
}

Result<JinjaValue> MakeDict(std::vector<JinjaDict::Entry> entries, JinjaBudget& budget) {
  if (!budget.Make((entries.size() + 1) * 2 * sizeof(JinjaDict::Entry))) return BudgetError();
  auto dict = std::make_shared<JinjaDict>();
  for (const auto& [key, value] : entries) {
    if (!Hashable(key)) return TypeError(Format("unhashable type as a key: {}", key.TypeName()));
    dict->depth = std::max(dict->depth, value.Depth() + 1);
  }
  if (dict->depth > JinjaBudget::kMaxValueDepth) return BudgetError();
  dict->entries = WithoutRepeats(std::move(entries), budget);
  BuildIndex(*dict);
  return JinjaValue(std::shared_ptr<const JinjaDict>(std::move(dict)));
}

Result<JinjaValue> FromJson(const Json& json, JinjaBudget& budget) {
  if (json.is_bool()) return JinjaValue(json.as_bool());
  if (json.is_int()) return JinjaValue(json.as_int());
  if (json.is_number()) return JinjaValue(json.as_double());
  if (json.is_string()) {
    if (!budget.Make(json.as_string().size())) return BudgetError();
    return JinjaValue(json.as_string());
  }
  if (json.is_array()) {
    std::vector<JinjaValue> items;
    items.reserve(json.as_array().size());
    for (const Json& child : json.as_array()) {
      ASSIGN_OR_RETURN(auto item, FromJson(child, budget));
      items.push_back(std::move(item));
    }
    return MakeSequence(JinjaSequence::Kind::kList, std::move(items), budget);
  }
  if (json.is_object()) {
    std::vector<JinjaDict::Entry> entries;
    entries.reserve(json.as_object().size());
    for (const auto& [key, child] : json.as_object()) {
      ASSIGN_OR_RETURN(auto value, FromJson(child, budget));
      entries.emplace_back(key, std::move(value));
    }
    return MakeDict(std::move(entries), budget);
  }
  return JinjaValue();
}

bool Equal(const JinjaValue& a, const JinjaValue& b, JinjaBudget& budget) {
  if (!budget.Step()) return false;
  if (a.is_number() && b.is_number()) return EqualNumbers(a, b);
  if (a.is_string() && b.is_string()) {
    return a.as_string().size() == b.as_string().size() && budget.Scan(a.as_string().size()) &&
           a.as_string() == b.as_string();
  }
  if (a.is_sequence() && b.is_sequence()) {
    if (&a.as_sequence() == &b.as_sequence()) return true;
    return EqualSequences(a.as_sequence(), b.as_sequence(), budget);
  }
  if (a.is_dict() && b.is_dict()) {
    return &a.as_dict() == &b.as_dict() || EqualDicts(a.as_dict(), b.as_dict(), budget);
  }
  if (a.Is<JinjaNamespace*>() && b.Is<JinjaNamespace*>()) {
    return a.as_namespace() == b.as_namespace();
  }
  return (a.is_none() && b.is_none()) || (a.is_undefined() && b.is_undefined());
}

Result<bool> Less(const JinjaValue& a, const JinjaValue& b, JinjaBudget& budget) {
  for (const JinjaValue* side : {&a, &b}) {
    if (side->is_undefined()) return TypeError(side->undefined_what());
  }
  if (!budget.Step()) return BudgetError();
  if (a.is_integer() && b.is_integer()) return a.as_integer() < b.as_integer();
  if (a.is_number() && b.is_number()) return a.as_double() < b.as_double();
  // UTF-8 orders as its code points do.
  if (a.is_string() && b.is_string()) {
    if (!budget.Scan(std::min(a.as_string().size(), b.as_string().size()))) return BudgetError();
    return a.as_string() < b.as_string();
  }
  if (a.is_sequence() && b.is_sequence() && a.as_sequence().kind == b.as_sequence().kind &&
      a.as_sequence().kind <= JinjaSequence::Kind::kTuple) {
    const auto& left = a.as_sequence().items;
    const auto& right = b.as_sequence().items;
    for (size_t i = 0; i < left.size() && i < right.size(); ++i) {
      if (!Equal(left[i], right[i], budget)) return Less(left[i], right[i], budget);
    }
    return left.size() < right.size();
  }
  return TypeError(Format("'<' is not defined between {} and {}", a.TypeName(), b.TypeName()));
}

Result<bool> Contains(const JinjaValue& container, const JinjaValue& item, JinjaBudget& budget) {
  if (container.is_string()) {
    if (!item.is_string()) {
      return TypeError(Format("'in' a str needs a str on its left, not {}", item.TypeName()));
    }
    if (!budget.Scan(container.as_string().size())) return BudgetError();
    return container.as_string().find(item.as_string()) != std::string::npos;
  }
  if (container.is_dict()) {
    if (!Hashable(item)) return TypeError(Format("unhashable type: {}", item.TypeName()));
    return FindKey(container.as_dict(), item, budget) != nullptr;
  }
  if (container.is_sequence()) {
    for (const JinjaValue& candidate : container.as_sequence().items) {
      if (Equal(candidate, item, budget)) return true;
    }
    return false;
  }
  if (container.is_undefined()) return false;
  return TypeError(Format("a value of type {} contains nothing", container.TypeName()));
}

Result<std::shared_ptr<const JinjaSequence>> Iterate(const JinjaValue& value, JinjaBudget& budget) {
  std::vector<JinjaValue> items;
  if (value.is_sequence()) {
    // Shares what the value holds.
    return std::shared_ptr<const JinjaSequence>(value.sequence());
  }
  if (value.is_dict()) {
    for (const auto& entry : value.as_dict().entries) items.push_back(entry.first);
  } else if (value.is_string()) {
    if (!budget.Make(value.as_string().size() * sizeof(JinjaValue))) return BudgetError();
    for (const std::string_view c : CodePoints(value.as_string())) items.emplace_back(c);
  } else if (!value.is_undefined()) {
    return TypeError(Format("a value of type {} cannot be iterated", value.TypeName()));
  }
  ASSIGN_OR_RETURN(const JinjaValue made,
                   MakeSequence(JinjaSequence::Kind::kIterator, std::move(items), budget));
  return std::shared_ptr<const JinjaSequence>(made.sequence());
}

Result<int64_t> Length(const JinjaValue& value, JinjaBudget& budget) {
  if (value.is_string()) {
    if (!budget.Scan(value.as_string().size())) return BudgetError();
    return CountCodePoints(value.as_string());
  }
  if (value.is_dict()) return static_cast<int64_t>(value.as_dict().entries.size());
  if (value.is_sequence() && value.as_sequence().HasLength()) {
    return static_cast<int64_t>(value.as_sequence().items.size());
  }
  if (value.is_undefined()) return int64_t{0};
  return TypeError(Format("a value of type {} has no length", value.TypeName()));
}

}  // namespace divisi
