#include "divisi/catalog/config_fields.h"

#include <cmath>

namespace divisi {
namespace {

// A field's value as a message may show it: short, whatever the file holds.
std::string Shown(std::string_view text) {
  constexpr size_t kMostShown = 60;
  const Json shown(text.substr(0, kMostShown));
  return shown.Dump() + (text.size() > kMostShown ? "..." : "");
}

}  // namespace

ConfigFields::ConfigFields(const Json& object, std::string prefix)
    : object_(&object), prefix_(std::move(prefix)) {
  CHECK(object.is_object());
}

const Json* ConfigFields::Find(std::string_view name) const {
  const Json* member = object_->Find(name);
  return member == nullptr || member->is_null() ? nullptr : member;
}

std::string ConfigFields::Name(std::string_view name) const {
  return Format("{}{}", prefix_, name);
}

Error ConfigFields::Invalid(std::string_view name, std::string_view what) const {
  return {Code::kInvalidArgument, Format("{} {}", Name(name), what)};
}

Error ConfigFields::Unimplemented(std::string_view name, std::string_view what) const {
  return {Code::kUnimplemented, Format("{} {}", Name(name), what)};
}

Error ConfigFields::WrongType(std::string_view name, std::string_view wanted,
                              const Json& got) const {
  const std::string shown = got.is_string() ? Format(" {}", Shown(got.as_string())) : "";
  return Invalid(name, Format("must be {}, not {}{}", wanted, got.TypeName(), shown));
}

Result<std::optional<int>> ConfigFields::OptionalInt(std::string_view name,
                                                     IntBounds bounds) const {
  const Json* member = Find(name);
  if (member == nullptr) return std::optional<int>();
  if (!member->is_int()) return WrongType(name, "an integer", *member);
  const int64_t value = member->as_int();
  if (value < bounds.least || value > bounds.most) {
    return Invalid(name, Format("is {}, outside {} to {}", value, bounds.least, bounds.most));
  }
  return std::optional(static_cast<int>(value));
}

Result<std::optional<double>> ConfigFields::OptionalNumber(std::string_view name,
                                                           NumberBounds bounds) const {
  const Json* member = Find(name);
  if (member == nullptr) return std::optional<double>();
  if (!member->is_number()) return WrongType(name, "a number", *member);
  const double value = member->as_double();
  if (!std::isfinite(value) || value < bounds.least || value > bounds.most) {
    return Invalid(name, Format("is {:g}, outside {:g} to {:g}", value, bounds.least, bounds.most));
  }
  return std::optional(value);
}

Result<std::optional<bool>> ConfigFields::OptionalBool(std::string_view name) const {
  const Json* member = Find(name);
  if (member == nullptr) return std::optional<bool>();
  if (!member->is_bool()) return WrongType(name, "true or false", *member);
  return std::optional(member->as_bool());
}

Result<double> ConfigFields::Number(std::string_view name, double fallback,
                                    NumberBounds bounds) const {
  ASSIGN_OR_RETURN(const auto value, OptionalNumber(name, bounds));
  return value.value_or(fallback);
}

Result<bool> ConfigFields::Bool(std::string_view name, bool fallback) const {
  ASSIGN_OR_RETURN(const auto value, OptionalBool(name));
  return value.value_or(fallback);
}

Result<std::string> ConfigFields::Text(std::string_view name, std::string_view fallback) const {
  const Json* member = Find(name);
  if (member == nullptr) return std::string(fallback);
  if (!member->is_string()) return WrongType(name, "a string", *member);
  return member->as_string();
}

Result<int> ConfigFields::RequiredInt(std::string_view name, IntBounds bounds) const {
  ASSIGN_OR_RETURN(const auto value, OptionalInt(name, bounds));
  if (!value) return Invalid(name, "is missing");
  return *value;
}

Result<double> ConfigFields::RequiredNumber(std::string_view name, NumberBounds bounds) const {
  ASSIGN_OR_RETURN(const auto value, OptionalNumber(name, bounds));
  if (!value) return Invalid(name, "is missing");
  return *value;
}

}  // namespace divisi
