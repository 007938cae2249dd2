#include "divisi/model/jinja_sequence_filters.h"

#include <algorithm>
#include <charconv>
#include <optional>

#include "divisi/model/jinja_print.h"
#include "divisi/model/jinja_text.h"

namespace divisi {
namespace {

using Context = JinjaCallContext;
using Value = JinjaValue;
using Arguments = JinjaArguments;
using Kind = JinjaSequence::Kind;

// The argument `index` without a name, or `name`; nullptr if neither is there.
const Value* Find(const Arguments& arguments, size_t index, std::string_view name) {
  if (index < arguments.positional.size()) return &arguments.positional[index];
  for (const auto& [key, value] : arguments.named) {
    if (key == name) return &value;
  }
  return nullptr;
}

// The value at a path as Jinja's attribute= takes it: "function.name", "pairs.0", 1.
Result<Value> AtPath(Context& context, Value value, const Value& path) {
  if (path.is_integer()) return GetItem(value, path, context.budget);
  ASSIGN_OR_RETURN(const auto text, AsString(path, "attribute"));
  for (const std::string_view part : Split(text, ".", -1)) {
    int64_t index = 0;
    const char* end = part.data() + part.size();
    const bool number = std::from_chars(part.data(), end, index).ptr == end && !part.empty();
    ASSIGN_OR_RETURN(value, GetItem(value, number ? Value(index) : Value(part), context.budget));
  }
  return value;
}

Result<Value> LengthFilter(Context& context, const Value& subject, const Arguments& arguments) {
  RETURN_IF_ERROR(Bind(arguments, {}, 0));
  ASSIGN_OR_RETURN(const int64_t length, Length(subject, context.budget));
  return Value(length);
}

Result<Value> Join(Context& context, const Value& subject, const Arguments& arguments) {
  static constexpr const char* kNames[] = {"d", "attribute"};
  ASSIGN_OR_RETURN(const auto bound, Bind(arguments, kNames, 0));
  ASSIGN_OR_RETURN(const auto items, Iterate(subject, context.budget));
  std::string separator;
  if (bound[0] != nullptr) {
    ASSIGN_OR_RETURN(separator, Printed(*bound[0], context.budget));
  }
  std::string joined;
  for (size_t i = 0; i < items->items.size(); ++i) {
    Value item = items->items[i];
    if (bound[1] != nullptr) {
      ASSIGN_OR_RETURN(item, AtPath(context, std::move(item), *bound[1]));
    }
    ASSIGN_OR_RETURN(const auto text, Printed(item, context.budget));
    if (!context.budget.Make(separator.size())) return BudgetError();
    if (i > 0) joined += separator;
    joined += text;
  }
  return Value(std::move(joined));
}

template <bool last>
Result<Value> End(Context& context, const Value& subject, const Arguments& arguments) {
  RETURN_IF_ERROR(Bind(arguments, {}, 0));
  ASSIGN_OR_RETURN(const auto items, Iterate(subject, context.budget));
  if (items->items.empty()) return Value::Undefined("an empty sequence has no first or last item");
  return last ? items->items.back() : items->items.front();
}

Result<Value> List(Context& context, const Value& subject, const Arguments& arguments) {
  RETURN_IF_ERROR(Bind(arguments, {}, 0));
  ASSIGN_OR_RETURN(const auto items, Iterate(subject, context.budget));
  return MakeSequence(Kind::kList, items->items, context.budget);
}

Result<Value> Reverse(Context& context, const Value& subject, const Arguments& arguments) {
  RETURN_IF_ERROR(Bind(arguments, {}, 0));
  ASSIGN_OR_RETURN(const auto items, Iterate(subject, context.budget));
  if (!subject.is_string()) {
    return MakeSequence(Kind::kIterator, {items->items.rbegin(), items->items.rend()},
                        context.budget);
  }
  std::string reversed;
  for (auto it = items->items.rbegin(); it != items->items.rend(); ++it) {
    reversed += it->as_string();
  }
  return MakeString(std::move(reversed), context.budget);
}

Result<Value> Items(Context& context, const Value& subject, const Arguments& arguments) {
  RETURN_IF_ERROR(Bind(arguments, {}, 0));
  if (subject.is_undefined()) return MakeSequence(Kind::kIterator, {}, context.budget);
  if (!subject.is_dict()) return TypeError("items needs a mapping");
  return FindDictMethod("items")->call(context, subject, {});
}

// map(attribute=..., default=...) or map('filter', arguments...).
Result<Value> Map(Context& context, const Value& subject, const Arguments& arguments) {
  ASSIGN_OR_RETURN(const auto items, Iterate(subject, context.budget));
  const Value* path = Find(arguments, SIZE_MAX, "attribute");
  const Value* fallback = Find(arguments, SIZE_MAX, "default");
  const JinjaFilter* filter = nullptr;
  Arguments rest = arguments;
  if (path == nullptr) {
    if (arguments.positional.empty()) return TypeError("map needs a filter or attribute=");
    ASSIGN_OR_RETURN(const auto name, AsString(arguments.positional[0], "map's filter"));
    filter = FindFilter(name);
    if (filter == nullptr) {
      return Error{Code::kUnimplemented, Format("filter '{}' in map", name)};
    }
    rest.positional.erase(rest.positional.begin());
  }
  std::vector<Value> mapped;
  mapped.reserve(items->items.size());
  for (const Value& item : items->items) {
    if (!context.budget.Step()) return BudgetError();
    auto result =
        filter != nullptr ? filter->apply(context, item, rest) : AtPath(context, item, *path);
    if (!result) return result;
    if (result->is_undefined() && fallback != nullptr) result = *fallback;
    mapped.push_back(*std::move(result));
  }
  return MakeSequence(Kind::kIterator, std::move(mapped), context.budget);
}

// select, reject ('test', arguments...), selectattr, rejectattr ('path', 'test', arguments...).
template <bool keep, bool by_attribute>
Result<Value> Select(Context& context, const Value& subject, const Arguments& arguments) {
  ASSIGN_OR_RETURN(const auto items, Iterate(subject, context.budget));
  Arguments rest = arguments;
  if (by_attribute && rest.positional.empty()) return TypeError("needs an attribute");
  const Value path = by_attribute ? rest.positional.front() : Value();
  if (by_attribute) rest.positional.erase(rest.positional.begin());
  const JinjaTest* test = nullptr;
  if (!rest.positional.empty()) {
    ASSIGN_OR_RETURN(const auto name, AsString(rest.positional[0], "the test"));
    test = FindTest(name);
    if (test == nullptr) return Error{Code::kUnimplemented, Format("test '{}' in select", name)};
    rest.positional.erase(rest.positional.begin());
  }
  std::vector<Value> selected;
  for (const Value& item : items->items) {
    if (!context.budget.Step()) return BudgetError();
    Value tested = item;
    if (by_attribute) {
      ASSIGN_OR_RETURN(tested, AtPath(context, std::move(tested), path));
    }
    bool holds = tested.Truth();
    if (test != nullptr) {
      ASSIGN_OR_RETURN(holds, test->holds(context, tested, rest));
    }
    if (holds == keep) selected.push_back(item);
  }
  return MakeSequence(Kind::kIterator, std::move(selected), context.budget);
}

// What items are ordered and compared by: the item or its attribute, in lower case unless case
// counts.
Result<Value> SortKey(Context& context, const Value& item, const Value* path, bool case_counts) {
  Value key = item;
  if (path != nullptr && !path->is_none()) {
    ASSIGN_OR_RETURN(key, AtPath(context, std::move(key), *path));
  }
  if (!key.is_string() || case_counts) return key;
  if (!context.budget.Map(key.as_string().size())) return BudgetError();
  return MakeString(ToLower(key.as_string()), context.budget);
}

// Items in the order of their keys, stable.
Result<std::vector<Value>> Sorted(Context& context, std::vector<std::pair<Value, Value>> keyed,
                                  bool reverse) {
  std::optional<Error> error;
  const auto before = [&](const auto& a, const auto& b) {
    auto less =
        reverse ? Less(b.first, a.first, context.budget) : Less(a.first, b.first, context.budget);
    // The first error decides; what the order is then no longer matters.
    if (!less && !error) error = less.error();
    return !error && *less;
  };
  // Insertion by binary search needs no strict weak order, which a stranger's values may not have.
  std::vector<std::pair<Value, Value>> sorted;
  for (auto& item : keyed) {
    const auto place = std::upper_bound(sorted.begin(), sorted.end(), item, before);
    if (!context.budget.Step(1 + (sorted.end() - place) / 16)) return BudgetError();
    sorted.insert(place, std::move(item));
  }
  if (error) return *error;
  std::vector<Value> items;
  for (auto& [key, item] : sorted) items.push_back(std::move(item));
  return items;
}

Result<Value> Sort(Context& context, const Value& subject, const Arguments& arguments) {
  static constexpr const char* kNames[] = {"reverse", "case_sensitive", "attribute"};
  ASSIGN_OR_RETURN(const auto bound, Bind(arguments, kNames, 0));
  ASSIGN_OR_RETURN(const auto items, Iterate(subject, context.budget));
  std::vector<std::pair<Value, Value>> keyed;
  for (const Value& item : items->items) {
    ASSIGN_OR_RETURN(auto key,
                     SortKey(context, item, bound[2], bound[1] != nullptr && bound[1]->Truth()));
    keyed.emplace_back(std::move(key), item);
  }
  ASSIGN_OR_RETURN(auto sorted,
                   Sorted(context, std::move(keyed), bound[0] != nullptr && bound[0]->Truth()));
  return MakeSequence(Kind::kList, std::move(sorted), context.budget);
}

Result<Value> DictSort(Context& context, const Value& subject, const Arguments& arguments) {
  static constexpr const char* kNames[] = {"case_sensitive", "by", "reverse"};
  ASSIGN_OR_RETURN(const auto bound, Bind(arguments, kNames, 0));
  ASSIGN_OR_RETURN(const auto items, Items(context, subject, {}));
  int64_t by = 0;
  if (bound[1] != nullptr) {
    ASSIGN_OR_RETURN(const auto name, AsString(*bound[1], "by"));
    if (name != "key" && name != "value") return TypeError("by is 'key' or 'value'");
    by = name == "value";
  }
  Arguments sort;
  sort.named.emplace_back("attribute", Value(by));
  if (bound[0] != nullptr) sort.named.emplace_back("case_sensitive", *bound[0]);
  if (bound[2] != nullptr) sort.named.emplace_back("reverse", *bound[2]);
  return Sort(context, items, sort);
}

Result<Value> Unique(Context& context, const Value& subject, const Arguments& arguments) {
  static constexpr const char* kNames[] = {"case_sensitive", "attribute"};
  ASSIGN_OR_RETURN(const auto bound, Bind(arguments, kNames, 0));
  ASSIGN_OR_RETURN(const auto items, Iterate(subject, context.budget));
  std::vector<Value> keys, kept;
  for (const Value& item : items->items) {
    ASSIGN_OR_RETURN(auto key,
                     SortKey(context, item, bound[1], bound[0] != nullptr && bound[0]->Truth()));
    const auto same = [&](const Value& seen) { return Equal(seen, key, context.budget); };
    if (std::any_of(keys.begin(), keys.end(), same)) continue;
    if (context.budget.exhausted()) return BudgetError();
    keys.push_back(std::move(key));
    kept.push_back(item);
  }
  return MakeSequence(Kind::kIterator, std::move(kept), context.budget);
}

constexpr JinjaFilter kFilters[] = {
    {"length", LengthFilter},
    {"count", LengthFilter},
    {"join", Join},
    {"first", End<false>},
    {"last", End<true>},
    {"list", List},
    {"reverse", Reverse},
    {"items", Items},
    {"map", Map},
    {"select", Select<true, false>},
    {"reject", Select<false, false>},
    {"selectattr", Select<true, true>},
    {"rejectattr", Select<false, true>},
    {"sort", Sort},
    {"dictsort", DictSort},
    {"unique", Unique},
};

}  // namespace

const JinjaFilter* FindSequenceFilter(std::string_view name) {
  for (const JinjaFilter& filter : kFilters) {
    if (filter.name == name) return &filter;
  }
  return nullptr;
}

}  // namespace divisi
