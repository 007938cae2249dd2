// Values of a chat template at run time, with Python's meaning, since Jinja's values are Python's.
//
// A value is small and copied freely. Strings, sequences and dictionaries are immutable once made
// and shared by reference: hence shared_ptr, for a message's content is reached from its message,
// from slices of the list and from variables at once. Only a namespace changes after it was made;
// it belongs to the interpreter, so that a cycle through one cannot leak.
// Source: Jinja 3.1, "Template Designer Documentation"; Python 3, "Built-in Types".
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "divisi/core/json.h"

namespace divisi {

// What one rendering may use. A template is a stranger's program, so its work ends by count.
class JinjaBudget {
 public:
  // One step is a node evaluated, 16 bytes scanned, or one byte of text whose characters are looked
  // up in Unicode's tables: ten million end within about two seconds on one core. A conversation of
  // 1,000 messages takes about 100,000.
  static constexpr int64_t kMaxSteps = 10'000'000;
  // Bytes of all values ever made, so also a bound of the memory held at once. Templates copy a
  // message's content about ten times; this leaves room for 25 MB of messages.
  static constexpr int64_t kMaxBytes = 256 << 20;
  // Bytes of the result: at four bytes per token 16 million tokens, beyond any model's context.
  static constexpr size_t kMaxOutputBytes = 64 << 20;
  // Nesting of a value, and of calls and blocks while rendering. Kept low enough that recursion
  // fits a thread's stack with sanitizers on, and far above what people write.
  static constexpr int kMaxValueDepth = 160;
  static constexpr int kMaxCallDepth = 400;
  // Jinja's own bound for range() in its sandbox.
  static constexpr int64_t kMaxRange = 100'000;

  // Each returns false once a bound was passed, and from then on.
  bool Step(int64_t count = 1) { return exhausted() ? false : (steps_ -= count, !exhausted()); }
  bool Scan(size_t bytes) { return Step(1 + static_cast<int64_t>(bytes / 16)); }
  bool Map(size_t bytes) { return Step(1 + static_cast<int64_t>(bytes)); }
  bool Make(size_t bytes) {
    if (bytes > static_cast<size_t>(kMaxBytes)) bytes_ = -1;
    if (!exhausted()) bytes_ -= static_cast<int64_t>(bytes);
    return Scan(bytes);
  }
  bool exhausted() const { return steps_ < 0 || bytes_ < 0; }

 private:
  int64_t steps_ = kMaxSteps;
  int64_t bytes_ = kMaxBytes;
};

class JinjaValue;
struct JinjaSequence;
struct JinjaDict;
struct JinjaNamespace;
struct JinjaMacro;
struct JinjaLoop;
struct JinjaFunction;
struct JinjaBoundMethod;

// The absence of a value; says what was looked for.
struct JinjaUndefined {
  std::shared_ptr<const std::string> what;
};

class JinjaValue {
 public:
  JinjaValue() = default;                       // None
  JinjaValue(bool value) : value_(value) {}     // NOLINT
  JinjaValue(int64_t value) : value_(value) {}  // NOLINT
  JinjaValue(double value) : value_(value) {}   // NOLINT
  JinjaValue(std::string value)                 // NOLINT
      : value_(std::make_shared<const std::string>(std::move(value))) {}
  JinjaValue(std::string_view value) : JinjaValue(std::string(value)) {}                // NOLINT
  JinjaValue(const char* value) : JinjaValue(std::string(value)) {}                     // NOLINT
  JinjaValue(std::shared_ptr<const JinjaSequence> value) : value_(std::move(value)) {}  // NOLINT
  JinjaValue(std::shared_ptr<const JinjaDict> value) : value_(std::move(value)) {}      // NOLINT
  JinjaValue(std::shared_ptr<const JinjaLoop> value) : value_(std::move(value)) {}      // NOLINT
  JinjaValue(std::shared_ptr<const JinjaBoundMethod> value)                             // NOLINT
      : value_(std::move(value)) {}
  JinjaValue(JinjaNamespace* value) : value_(value) {}            // NOLINT
  JinjaValue(const JinjaMacro* value) : value_(value) {}          // NOLINT
  JinjaValue(const JinjaFunction* value) : value_(value) {}       // NOLINT
  JinjaValue(JinjaUndefined value) : value_(std::move(value)) {}  // NOLINT
  static JinjaValue Undefined(std::string what) {
    return JinjaUndefined{std::make_shared<const std::string>(std::move(what))};
  }

  template <typename T>
  bool Is() const {
    return std::holds_alternative<T>(value_);
  }
  bool is_none() const { return Is<std::monostate>(); }
  bool is_undefined() const { return Is<JinjaUndefined>(); }
  bool is_bool() const { return Is<bool>(); }
  bool is_integer() const { return Is<int64_t>() || is_bool(); }  // True is 1 in arithmetic.
  bool is_number() const { return is_integer() || Is<double>(); }
  bool is_string() const { return Is<std::shared_ptr<const std::string>>(); }
  bool is_sequence() const { return Is<std::shared_ptr<const JinjaSequence>>(); }
  bool is_dict() const { return Is<std::shared_ptr<const JinjaDict>>(); }
  bool is_callable() const {
    return Is<const JinjaMacro*>() || Is<const JinjaFunction*>() ||
           Is<std::shared_ptr<const JinjaBoundMethod>>();
  }

  // Requires: the value is of that type.
  bool as_bool() const { return std::get<bool>(value_); }
  int64_t as_integer() const { return is_bool() ? as_bool() : std::get<int64_t>(value_); }
  double as_double() const {
    return is_integer() ? static_cast<double>(as_integer()) : std::get<double>(value_);
  }
  const std::string& as_string() const {
    return *std::get<std::shared_ptr<const std::string>>(value_);
  }
  const JinjaSequence& as_sequence() const {
    return *std::get<std::shared_ptr<const JinjaSequence>>(value_);
  }
  const std::shared_ptr<const JinjaSequence>& sequence() const {
    return std::get<std::shared_ptr<const JinjaSequence>>(value_);
  }
  const JinjaDict& as_dict() const { return *std::get<std::shared_ptr<const JinjaDict>>(value_); }
  const JinjaLoop& as_loop() const { return *std::get<std::shared_ptr<const JinjaLoop>>(value_); }
  const JinjaBoundMethod& as_method() const {
    return *std::get<std::shared_ptr<const JinjaBoundMethod>>(value_);
  }
  JinjaNamespace* as_namespace() const { return std::get<JinjaNamespace*>(value_); }
  const JinjaMacro* as_macro() const { return std::get<const JinjaMacro*>(value_); }
  const JinjaFunction* as_function() const { return std::get<const JinjaFunction*>(value_); }
  const std::string& undefined_what() const { return *std::get<JinjaUndefined>(value_).what; }

  // Python's name of the type: "str", "int", "NoneType", ...
  const char* TypeName() const;
  // Python's bool(value).
  bool Truth() const;
  // Nesting: 0 for a scalar.
  int Depth() const;

 private:
  std::variant<std::monostate, JinjaUndefined, bool, int64_t, double,
               std::shared_ptr<const std::string>, std::shared_ptr<const JinjaSequence>,
               std::shared_ptr<const JinjaDict>, std::shared_ptr<const JinjaLoop>,
               std::shared_ptr<const JinjaBoundMethod>, JinjaNamespace*, const JinjaMacro*,
               const JinjaFunction*>
      value_;
};

struct JinjaSequence {
  // How Python would hold it; decides printing, and what has a length or an index.
  enum class Kind { kList, kTuple, kRange, kView, kIterator };
  Kind kind = Kind::kList;
  std::vector<JinjaValue> items;
  int depth = 1;

  bool Indexable() const { return kind <= Kind::kRange; }
  bool HasLength() const { return kind != Kind::kIterator; }
};

// Members in the order of insertion.
struct JinjaDict {
  using Entry = std::pair<JinjaValue, JinjaValue>;
  std::vector<Entry> entries;
  int depth = 1;
  // Of string keys, into `entries`; built only when a linear look would be slow.
  std::unordered_map<std::string_view, size_t> index;

  const JinjaValue* Find(std::string_view key) const;
};

struct JinjaNamespace {
  std::vector<std::pair<std::string, JinjaValue>> attributes;

  const JinjaValue* Find(std::string_view name) const;
  void Set(std::string_view name, JinjaValue value);
};

// `loop` inside {% for %}; one per iteration.
struct JinjaLoop {
  std::shared_ptr<const JinjaSequence> items;
  int64_t index0 = 0;
};

// Errors: kOutOfRange when nested beyond the bound or when the budget ends.
Result<JinjaValue> MakeSequence(JinjaSequence::Kind kind, std::vector<JinjaValue> items,
                                JinjaBudget& budget);
// A later entry with an equal key replaces the earlier one's value. Errors: also kInvalidArgument
// for a key that cannot be one.
Result<JinjaValue> MakeDict(std::vector<JinjaDict::Entry> entries, JinjaBudget& budget);
// Errors: kOutOfRange as above.
Result<JinjaValue> FromJson(const Json& json, JinjaBudget& budget);

// Python's ==. When the budget ends, the answer is false and means nothing.
bool Equal(const JinjaValue& a, const JinjaValue& b, JinjaBudget& budget);
// Python's <. Errors: kInvalidArgument for types that have no order.
Result<bool> Less(const JinjaValue& a, const JinjaValue& b, JinjaBudget& budget);
// Python's `item in container`. Errors: kInvalidArgument for types that contain nothing.
Result<bool> Contains(const JinjaValue& container, const JinjaValue& item, JinjaBudget& budget);
// What `for` walks: the items, a dictionary's keys, a string's characters, nothing for undefined.
// Errors: kInvalidArgument for what cannot be walked.
Result<std::shared_ptr<const JinjaSequence>> Iterate(const JinjaValue& value, JinjaBudget& budget);
// Python's len(). Errors: kInvalidArgument for what has none.
Result<int64_t> Length(const JinjaValue& value, JinjaBudget& budget);

// The error that an ended budget gives.
Error BudgetError();
Error TypeError(std::string message);

}  // namespace divisi
