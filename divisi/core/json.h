// A JSON value: parsed whole (UTF-8 checked, depth bounded), kept in member order, written back.
// Parsing is simdjson's, which json.cc alone includes.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "divisi/core/result.h"

namespace divisi {

class Json {
 public:
  using Array = std::vector<Json>;
  using Member = std::pair<std::string, Json>;
  using Object = std::vector<Member>;  // In the order of the text.

  Json() = default;                                             // null
  Json(std::nullptr_t) {}                                       // NOLINT
  Json(bool value) : value_(value) {}                           // NOLINT
  Json(int value) : value_(static_cast<int64_t>(value)) {}      // NOLINT
  Json(int64_t value) : value_(value) {}                        // NOLINT
  Json(uint64_t value);                                         // NOLINT: beyond int64_t, a double
  Json(double value) : value_(value) {}                         // NOLINT
  Json(std::string value) : value_(std::move(value)) {}         // NOLINT
  Json(std::string_view value) : value_(std::string(value)) {}  // NOLINT
  Json(const char* value) : value_(std::string(value)) {}       // NOLINT
  Json(Array value) : value_(std::move(value)) {}               // NOLINT
  Json(Object value) : value_(std::move(value)) {}              // NOLINT
  static Json MakeObject() { return Json(Object{}); }
  static Json MakeArray() { return Json(Array{}); }

  // Errors: kInvalidArgument, with what is wrong, for text that is not one JSON value, nests deeper
  // than kMaxDepth, or is not UTF-8. An integer beyond int64_t is a double. A repeated key keeps
  // every member; Find gives the last.
  static Result<Json> Parse(std::string_view text);
  static constexpr int kMaxDepth = 128;

  bool is_null() const { return std::holds_alternative<std::monostate>(value_); }
  bool is_bool() const { return std::holds_alternative<bool>(value_); }
  bool is_int() const { return std::holds_alternative<int64_t>(value_); }
  bool is_number() const { return is_int() || std::holds_alternative<double>(value_); }
  bool is_string() const { return std::holds_alternative<std::string>(value_); }
  bool is_array() const { return std::holds_alternative<Array>(value_); }
  bool is_object() const { return std::holds_alternative<Object>(value_); }
  // "null", "boolean", "integer", "number", "string", "array", "object".
  const char* TypeName() const;

  // Requires: the value is of that type.
  bool as_bool() const { return std::get<bool>(value_); }
  int64_t as_int() const { return std::get<int64_t>(value_); }
  double as_double() const;  // Of an integer too.
  const std::string& as_string() const { return std::get<std::string>(value_); }
  const Array& as_array() const { return std::get<Array>(value_); }
  Array& as_array() { return std::get<Array>(value_); }
  const Object& as_object() const { return std::get<Object>(value_); }
  Object& as_object() { return std::get<Object>(value_); }

  // The member's value; nullptr when absent or when this is not an object. Linear in the members.
  const Json* Find(std::string_view key) const;
  // Sets or replaces a member; of repeated ones the first stays. Requires: an object, or null,
  // which becomes one.
  Json& Set(std::string_view key, Json value);
  // Requires: an array, or null, which becomes one.
  void Append(Json value);

  // Compact (indent < 0) or indented text. Doubles keep their value (shortest round trip);
  // not-a-number and infinities, which JSON lacks, become null. Broken UTF-8 is
  // written as RepairUtf8 repairs it.
  std::string Dump(int indent = -1) const;

  friend bool operator==(const Json&, const Json&) = default;

 private:
  std::variant<std::monostate, bool, int64_t, double, std::string, Array, Object> value_;
};

// Appends `text` as a JSON string, quotes included, escaped as Dump does: for writers that build
// their text without a tree.
void AppendJsonString(std::string_view text, std::string& out);

}  // namespace divisi
