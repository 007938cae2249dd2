// Fields of a config file, read one by one with their bounds. Every error names its field.
// A null field counts as absent, as it does for the software that writes these files.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "divisi/core/json.h"

namespace divisi {

struct IntBounds {
  int64_t least = 1;
  int64_t most = 1;
};

// Exclusive of neither end.
struct NumberBounds {
  double least = 0;
  double most = 0;
};

// Reads members of one object. `prefix` stands before field names in messages ("rope_scaling.").
// object outlives this.
class ConfigFields {
 public:
  // Requires: object.is_object().
  explicit ConfigFields(const Json& object, std::string prefix = {});

  // The member, or nullptr when absent or null.
  const Json* Find(std::string_view name) const;
  bool Has(std::string_view name) const { return Find(name) != nullptr; }
  // The field's name as messages show it.
  std::string Name(std::string_view name) const;

  // Errors of all: kInvalidArgument for a member of another type or outside its bounds, by name.
  Result<std::optional<int>> OptionalInt(std::string_view name, IntBounds bounds) const;
  Result<std::optional<double>> OptionalNumber(std::string_view name, NumberBounds bounds) const;
  Result<std::optional<bool>> OptionalBool(std::string_view name) const;

  // As above, with a value for when the field is absent.
  Result<double> Number(std::string_view name, double fallback, NumberBounds bounds) const;
  Result<bool> Bool(std::string_view name, bool fallback) const;
  Result<std::string> Text(std::string_view name, std::string_view fallback) const;
  // Errors, besides: kInvalidArgument when absent.
  Result<int> RequiredInt(std::string_view name, IntBounds bounds) const;
  Result<double> RequiredNumber(std::string_view name, NumberBounds bounds) const;

  // kInvalidArgument: "<field> <what>".
  Error Invalid(std::string_view name, std::string_view what) const;
  // kUnimplemented: "<field> <what>".
  Error Unimplemented(std::string_view name, std::string_view what) const;

 private:
  Error WrongType(std::string_view name, std::string_view wanted, const Json& got) const;
  const Json* object_;
  std::string prefix_;
};

}  // namespace divisi
