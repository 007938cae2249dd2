#include "divisi/core/yaml_fields.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "divisi/core/nearest.h"

namespace divisi {
namespace {

// A plain number that is the whole text. inf and nan, which from_chars knows, are none.
std::optional<double> PlainNumber(std::string_view text) {
  if (text.find_first_not_of("0123456789+-.eE") != std::string_view::npos) return std::nullopt;
  if (text.starts_with('+')) text.remove_prefix(1);
  double number = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (status != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

// How each type is read from a scalar's text, and what it is called; kExample where it carries a
// unit.
template <typename T>
struct Scalar;

template <>
struct Scalar<double> {
  static constexpr const char* kWhat = "a number";
  static std::optional<double> Read(std::string_view text) { return PlainNumber(text); }
  static std::string Show(double value) { return Format("{:g}", value); }
};
template <>
struct Scalar<int64_t> {
  static constexpr const char* kWhat = "a whole number";
  // 1e9 and 4.0 are whole too. Beyond 2^53 a double would not tell neighbours apart.
  static std::optional<int64_t> Read(std::string_view text) {
    const auto number = PlainNumber(text);
    if (!number || *number != std::floor(*number) || std::abs(*number) > 0x1p53) {
      return std::nullopt;
    }
    return static_cast<int64_t>(*number);
  }
  static std::string Show(int64_t value) { return Format("{}", value); }
};
template <>
struct Scalar<Tokens> {
  static constexpr const char* kWhat = "a whole number of tokens";
  static std::optional<Tokens> Read(std::string_view text) {
    const auto count = Scalar<int64_t>::Read(text);
    return count ? std::optional(Tokens(*count)) : std::nullopt;
  }
  static std::string Show(Tokens value) { return Format("{}", value.value); }
};
template <>
struct Scalar<PerSecond> {
  static constexpr const char* kWhat = "a number per second";
  static std::optional<PerSecond> Read(std::string_view text) {
    const auto number = PlainNumber(text);
    return number ? std::optional(PerSecond(*number)) : std::nullopt;
  }
  static std::string Show(PerSecond value) { return Format("{:g}", value.value); }
};

// With a unit, by the parsers of units.h. A bare 0 needs none.
template <typename T>
std::optional<T> ReadQuantity(std::string_view text, Result<T> (*parse)(std::string_view)) {
  if (const auto bare = PlainNumber(text)) return *bare == 0 ? std::optional(T{}) : std::nullopt;
  const auto value = parse(text);
  return value ? std::optional(*value) : std::nullopt;
}
template <>
struct Scalar<Bytes> {
  static constexpr const char* kWhat = "an amount of memory";
  static constexpr const char* kExample = "80 GB or 1.125 GiB";
  static std::optional<Bytes> Read(std::string_view text) { return ReadQuantity(text, ParseBytes); }
  static std::string Show(Bytes value) { return HumanBytes(value); }
};
template <>
struct Scalar<Seconds> {
  static constexpr const char* kWhat = "a time";
  static constexpr const char* kExample = "10 s, 5 us or 1.5 h";
  static std::optional<Seconds> Read(std::string_view text) {
    return ReadQuantity(text, ParseSeconds);
  }
  static std::string Show(Seconds value) { return HumanSeconds(value); }
};
template <>
struct Scalar<BytesPerSecond> {
  static constexpr const char* kWhat = "a bandwidth";
  static constexpr const char* kExample = "25 GB/s or 200 Gbit/s";
  static std::optional<BytesPerSecond> Read(std::string_view text) {
    return ReadQuantity(text, ParseBytesPerSecond);
  }
  static std::string Show(BytesPerSecond value) { return HumanRate(value); }
};
template <>
struct Scalar<FlopsPerSecond> {
  static constexpr const char* kWhat = "a computing rate";
  static constexpr const char* kExample = "312 TFLOP/s";
  static std::optional<FlopsPerSecond> Read(std::string_view text) {
    return ReadQuantity(text, ParseFlopsPerSecond);
  }
  static std::string Show(FlopsPerSecond value) { return HumanRate(value); }
};

template <typename T>
concept HasUnit = requires {
  Scalar<T>::kExample;
};

// "a time with its unit, such as 10 s"
template <typename T>
std::string Expected(const YamlWant<T>& want) {
  std::string text = Scalar<T>::kWhat;
  if constexpr (HasUnit<T>) text += Format(" with its unit, such as {}", Scalar<T>::kExample);
  const YamlWant<T> open;
  if (want.above_zero) text += ", above 0";
  if (want.least != open.least) text += Format(", at least {}", Scalar<T>::Show(want.least));
  if (want.most != open.most) text += Format(", at most {}", Scalar<T>::Show(want.most));
  return text;
}
std::string Expected(const YamlWant<bool>&) { return "true or false"; }
std::string Expected(const YamlWant<std::string>& want) {
  if (want.one_of.empty()) return "a text";
  std::string text;
  for (const std::string& name : want.one_of) text += (text.empty() ? "" : ", ") + name;
  return want.one_of.size() == 1 ? text : "one of " + text;
}

// What a node is not.
template <typename T>
Error NotWanted(const YamlNode* node, const YamlWant<T>& want) {
  std::string what = node == nullptr
                         ? Format("is missing; expected {}", Expected(want))
                         : Format("expected {}, got {}", Expected(want), node->Described());
  return {Code::kInvalidArgument, std::move(what)};
}

}  // namespace

template <typename T>
Result<T> ReadYamlScalar(const YamlNode* node, const YamlWant<T>& want) {
  if (node == nullptr || !node->is_scalar()) return NotWanted(node, want);
  const auto value = Scalar<T>::Read(node->text);
  if constexpr (HasUnit<T>) {
    if (!value && PlainNumber(node->text)) {
      return Error{Code::kInvalidArgument,
                   Format("{} has no unit; expected {}", node->Described(), Expected(want))};
    }
  }
  if (!value || *value < want.least || *value > want.most) return NotWanted(node, want);
  if (want.above_zero && !(*value > T{})) return NotWanted(node, want);
  return *value;
}
template Result<double> ReadYamlScalar(const YamlNode*, const YamlWant<double>&);
template Result<int64_t> ReadYamlScalar(const YamlNode*, const YamlWant<int64_t>&);
template Result<Bytes> ReadYamlScalar(const YamlNode*, const YamlWant<Bytes>&);
template Result<Seconds> ReadYamlScalar(const YamlNode*, const YamlWant<Seconds>&);
template Result<BytesPerSecond> ReadYamlScalar(const YamlNode*, const YamlWant<BytesPerSecond>&);
template Result<FlopsPerSecond> ReadYamlScalar(const YamlNode*, const YamlWant<FlopsPerSecond>&);
template Result<Tokens> ReadYamlScalar(const YamlNode*, const YamlWant<Tokens>&);
template Result<PerSecond> ReadYamlScalar(const YamlNode*, const YamlWant<PerSecond>&);

template <>
Result<bool> ReadYamlScalar(const YamlNode* node, const YamlWant<bool>& want) {
  if (node == nullptr || !node->is_scalar()) return NotWanted(node, want);
  if (node->text != "true" && node->text != "false") return NotWanted(node, want);
  return node->text == "true";
}

template <>
Result<std::string> ReadYamlScalar(const YamlNode* node, const YamlWant<std::string>& want) {
  if (node == nullptr || !node->is_scalar() || node->text.empty()) return NotWanted(node, want);
  if (!want.one_of.empty() && std::ranges::find(want.one_of, node->text) == want.one_of.end()) {
    Error error = NotWanted(node, want);
    // All of them are listed already; only a near one is worth a hint.
    const std::string hint = DidYouMean(node->text, want.one_of);
    if (hint.ends_with('?')) error.message += hint;
    return error;
  }
  return node->text;
}

void YamlErrors::Add(int line, std::string_view what) {
  if (first_) return;
  first_ = Error{Code::kInvalidArgument, Format("{}:{}: {}", file_, std::max(line, 1), what)};
}

void YamlFields::Read(const YamlNode& node, std::string path, YamlErrors& errors,
                      const Reader& reader) {
  if (!node.is_map()) {
    errors.Add(node.line, Format("{}expected a map of keys and values, got {}",
                                 path.empty() ? "" : path + ": ", node.Described()));
    return;
  }
  YamlFields fields(node, std::move(path), errors);
  reader(fields);
  fields.Finish();
}

bool YamlFields::FindMap(std::string_view key, const Reader& reader) {
  const YamlNode* node = Node(key);
  if (node == nullptr) return false;
  Read(*node, PathOf(key), *errors_, reader);
  return true;
}

void YamlFields::GetMap(std::string_view key, const Reader& reader) {
  if (!FindMap(key, reader)) Missing(key, "is missing; expected a map of keys and values");
}

void YamlFields::EachOf(std::string_view key, const Reader& reader) {
  const YamlNode* node = Node(key);
  if (node == nullptr) return;
  if (!node->is_list()) {
    Fail(key, Format("expected a list, got {}", node->Described()));
    return;
  }
  size_t index = 0;
  for (const YamlNode& item : node->children) {
    Read(item, Format("{}[{}]", PathOf(key), index++), *errors_, reader);
  }
}

void YamlFields::EachNamed(std::string_view key, const NamedReader& reader) {
  FindMap(key, [&](YamlFields& map) {
    for (const YamlNode& entry : map.node_->children) {
      map.asked_.insert(entry.key);
      Read(entry, map.PathOf(entry.key), *errors_,
           [&](YamlFields& fields) { reader(entry.key, fields); });
    }
  });
}

const YamlNode* YamlFields::Node(std::string_view key) {
  asked_.emplace(key);
  const YamlNode* node = node_->Find(key);
  return node == nullptr || node->is_null() ? nullptr : node;
}

bool YamlFields::Has(std::string_view key) const {
  const YamlNode* node = node_->Find(key);
  return node != nullptr && !node->is_null();
}

std::vector<std::string> YamlFields::Keys() const {
  std::vector<std::string> keys;
  for (const YamlNode& child : node_->children) keys.push_back(child.key);
  return keys;
}

void YamlFields::Ignore(std::initializer_list<std::string_view> keys) {
  for (const std::string_view key : keys) asked_.emplace(key);
}

void YamlFields::Fail(std::string_view key, std::string_view what) {
  const YamlNode* node = node_->Find(key);
  FailAt(node == nullptr ? *node_ : *node, key, what);
}

void YamlFields::FailAt(const YamlNode& node, std::string_view key, std::string_view what) {
  errors_->Add(node.line, Format("{}: {}", PathOf(key), what));
}

void YamlFields::FailHere(std::string_view what) {
  errors_->Add(node_->line, path_.empty() ? std::string(what) : Format("{}: {}", path_, what));
}

std::string YamlFields::PathOf(std::string_view key) const {
  return path_.empty() ? std::string(key) : Format("{}.{}", path_, key);
}

void YamlFields::Missing(std::string_view key, std::string_view what) {
  if (!missing_) missing_ = Format("{}: {}", PathOf(key), what);
}

void YamlFields::Finish() {
  for (const YamlNode& child : node_->children) {
    if (asked_.contains(child.key)) continue;
    const std::vector<std::string> known(asked_.begin(), asked_.end());
    errors_->Add(child.key_line,
                 Format("{}: unknown key{}", PathOf(child.key), DidYouMean(child.key, known)));
  }
  if (missing_) errors_->Add(node_->line, *missing_);
}

Result<void> ReadYaml(std::string_view text, std::string_view file,
                      const YamlFields::Reader& reader) {
  ASSIGN_OR_RETURN(const YamlNode root, ParseYaml(text, file));
  YamlErrors errors{std::string(file)};
  YamlFields::Read(root, "", errors, reader);
  if (errors.first()) return *errors.first();
  return {};
}

}  // namespace divisi
