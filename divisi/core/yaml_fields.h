// Typed values out of a YAML map, with errors that name file, line, key, what was expected and what
// is there. A struct reads as a list of lines, without an error check on each: the first error is
// kept, and reading goes on with values of zero.
//
//   Result<Link> ReadLink(std::string_view text, std::string_view file) {
//     Link link;
//     RETURN_IF_ERROR(ReadYaml(text, file, [&](YamlFields& top) {
//       link.name = top.Get<std::string>("name");
//       link.kind = top.Get<std::string>("kind", {.fallback = "rdma", .one_of = {"rdma", "tcp"}});
//       link.bandwidth = top.Get<BytesPerSecond>("bandwidth", {.above_zero = true});
//       link.launch = top.Get<Seconds>("launch", {.fallback = Seconds(0)});
//       link.efficiency = top.Get<double>("efficiency", {.fallback = 1, .most = 1});
//       link.price = top.Find<double>("price");            // std::optional
//       link.ports = top.GetList<int64_t>("ports");
//       top.EachOf("routes", [&](YamlFields& route) {      // A list of maps
//         link.routes.push_back({.from = route.Get<std::string>("from")});
//       });
//     }));
//     return link;                                         // Only now are the values good.
//   }
//
// After each map its keys that nobody asked for are an error, with the nearest that was asked for:
// so a key that is read only sometimes (depending on another) must be read or Ignored always.
// An unknown key goes before a missing one, since a slip of the pen makes both.
// Do nothing with the values before ReadYaml has returned: they may be zeros.
#pragma once

#include <functional>
#include <initializer_list>
#include <limits>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "divisi/core/units.h"
#include "divisi/core/yaml.h"

namespace divisi {

// What may stand for a key. Numbers and quantities are never negative, infinite or NaN unless
// `least` allows negative ones; quantities carry their unit ("25 GB/s"), 0 may stand bare.
template <typename T>
struct YamlWant {
  std::optional<T> fallback;  // Where the key is absent or null; without it, that is an error.
  T least = T{};
  T most = std::numeric_limits<T>::max();
  bool above_zero = false;
};
template <typename Tag, typename Number>
struct YamlWant<Quantity<Tag, Number>> {
  std::optional<Quantity<Tag, Number>> fallback;
  Quantity<Tag, Number> least{};
  Quantity<Tag, Number> most{std::numeric_limits<Number>::max()};
  bool above_zero = false;
};
template <>
struct YamlWant<bool> {
  std::optional<bool> fallback;
};
template <>
struct YamlWant<std::string> {
  std::optional<std::string> fallback;
  std::vector<std::string> one_of;  // Empty: any text but an empty one.
};

// The value of a scalar, or what to say after its path: "expected ..., got ..."; "is missing; ..."
// for nullptr. Of the types that YamlFields::Get lists.
template <typename T>
Result<T> ReadYamlScalar(const YamlNode* node, const YamlWant<T>& want);

// A file being read: its name, and the first error found in it.
class YamlErrors {
 public:
  explicit YamlErrors(std::string file) : file_(std::move(file)) {}
  // Keeps "file:line: what" unless there is an error already.
  void Add(int line, std::string_view what);
  const std::optional<Error>& first() const { return first_; }

 private:
  std::string file_;
  std::optional<Error> first_;
};

// The fields of one map. Only lent to a callback: neither copied nor kept.
class YamlFields {
 public:
  using Reader = std::function<void(YamlFields& fields)>;
  using NamedReader = std::function<void(const std::string& name, YamlFields& fields)>;

  // Reads `node`, which is to be a map, and then reports its unknown and missing keys. `path` is
  // its own dotted key path, empty at the top.
  static void Read(const YamlNode& node, std::string path, YamlErrors& errors,
                   const Reader& reader);
  YamlFields(const YamlFields&) = delete;
  YamlFields& operator=(const YamlFields&) = delete;

  // T: double, int64_t, bool, std::string, Bytes, Seconds, BytesPerSecond, FlopsPerSecond, Tokens
  // (a bare whole number), PerSecond (a bare number).
  template <typename T>
  T Get(std::string_view key, const YamlWant<T>& want = {});
  // nullopt where the key is absent or null.
  template <typename T>
  std::optional<T> Find(std::string_view key, const YamlWant<T>& want = {});
  // A list of at least one value, or a single value that stands for a list of it. Empty where
  // absent.
  template <typename T>
  std::vector<T> GetList(std::string_view key, const YamlWant<T>& want = {});

  // The map under `key`; not called where absent. FindMap says whether it was there; GetMap takes
  // its absence for an error.
  bool FindMap(std::string_view key, const Reader& reader);
  void GetMap(std::string_view key, const Reader& reader);
  // Each map of the list under `key` ("groups[2].count" in messages); none where absent.
  void EachOf(std::string_view key, const Reader& reader);
  // Each value of the map under `key`, a map itself, with its own key; none where absent.
  void EachNamed(std::string_view key, const NamedReader& reader);

  // For what has another form: the value under `key`, which counts as read; nullptr where absent or
  // null. Its problems are told by Fail.
  const YamlNode* Node(std::string_view key);
  bool Has(std::string_view key) const;
  // Every key, in the order of the file; does not count as reading.
  std::vector<std::string> Keys() const;
  // Counts keys as read that do not matter here.
  void Ignore(std::initializer_list<std::string_view> keys);

  // An error at the value of `key`: "file:line: path.key: what". Where the key is absent, at the
  // map's own line.
  void Fail(std::string_view key, std::string_view what);
  // An error of the map as a whole.
  void FailHere(std::string_view what);
  // Whether no error has been found yet in the whole file.
  bool ok() const { return !errors_->first(); }

  const std::string& path() const { return path_; }
  int line() const { return node_->line; }

 private:
  YamlFields(const YamlNode& node, std::string path, YamlErrors& errors)
      : node_(&node), path_(std::move(path)), errors_(&errors) {}
  std::string PathOf(std::string_view key) const;
  void FailAt(const YamlNode& node, std::string_view key, std::string_view what);
  // Told at the end of the map, unless it has an unknown key.
  void Missing(std::string_view key, std::string_view what);
  void Finish();

  const YamlNode* node_;
  std::string path_;
  YamlErrors* errors_;
  std::set<std::string, std::less<>> asked_;  // Keys, there or not.
  std::optional<std::string> missing_;        // The first.
};

template <typename T>
std::optional<T> YamlFields::Find(std::string_view key, const YamlWant<T>& want) {
  const YamlNode* node = Node(key);
  if (node == nullptr) return std::nullopt;
  Result<T> value = ReadYamlScalar(node, want);
  if (value) return std::move(value).value();
  FailAt(*node, key, value.error().message);
  return T{};
}

template <typename T>
T YamlFields::Get(std::string_view key, const YamlWant<T>& want) {
  if (std::optional<T> value = Find(key, want)) return *std::move(value);
  if (want.fallback) return *want.fallback;
  Missing(key, ReadYamlScalar<T>(nullptr, want).error().message);
  return T{};
}

template <typename T>
std::vector<T> YamlFields::GetList(std::string_view key, const YamlWant<T>& want) {
  std::vector<T> values;
  const YamlNode* node = Node(key);
  if (node == nullptr) return values;
  if (node->is_list() && node->children.empty()) FailAt(*node, key, "the list is empty");
  const size_t count = node->is_list() ? node->children.size() : 1;
  for (size_t i = 0; i < count; ++i) {
    const YamlNode& item = node->is_list() ? node->children[i] : *node;
    Result<T> value = ReadYamlScalar(&item, want);
    if (!value) FailAt(item, key, value.error().message);
    values.push_back(value ? std::move(value).value() : T{});
  }
  return values;
}

// Parses a document whose top is a map and reads it. Errors: kInvalidArgument, the first found.
Result<void> ReadYaml(std::string_view text, std::string_view file,
                      const YamlFields::Reader& reader);

}  // namespace divisi
