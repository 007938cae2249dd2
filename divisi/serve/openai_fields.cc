#include "divisi/serve/openai_fields.h"

#include "divisi/core/format.h"

namespace divisi {
namespace {

bool AsksForNothing(const Json& value) {
  if (value.is_null()) return true;
  if (value.is_bool()) return !value.as_bool();
  if (value.is_number()) return value.as_double() == 0;
  if (value.is_string()) return value.as_string().empty();
  return value.is_array() ? value.as_array().empty() : value.as_object().empty();
}

}  // namespace

RequestFields::RequestFields(const Json& object) : object_(object) {
  if (!object.is_object()) {
    error_ = ApiError{
        .message = Format("the request body must be a JSON object, not {}", object.TypeName())};
  }
}

const Json* RequestFields::Find(std::string_view name) const {
  const Json* value = object_.Find(name);
  return value == nullptr || value->is_null() ? nullptr : value;
}

void RequestFields::Fail(std::string_view name, std::string message) {
  if (!error_) error_ = InvalidField(std::string(name), std::move(message));
}

std::optional<bool> RequestFields::Bool(std::string_view name) {
  const Json* value = Find(name);
  if (value == nullptr) return std::nullopt;
  if (value->is_bool()) return value->as_bool();
  Fail(name, Format("'{}' must be true or false, not {}", name, value->TypeName()));
  return std::nullopt;
}

std::optional<int64_t> RequestFields::Int(std::string_view name, int64_t low, int64_t high) {
  const Json* value = Find(name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_int()) {
    Fail(name, Format("'{}' must be an integer between {} and {}, not {}", name, low, high,
                      value->is_number() ? value->Dump() : std::string(value->TypeName())));
    return std::nullopt;
  }
  const int64_t number = value->as_int();
  if (number >= low && number <= high) return number;
  Fail(name, Format("'{}' must be between {} and {}, not {}", name, low, high, number));
  return std::nullopt;
}

std::optional<double> RequestFields::Number(std::string_view name, double low, double high) {
  const Json* value = Find(name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_number()) {
    Fail(name, Format("'{}' must be a number between {} and {}, not {}", name, low, high,
                      value->TypeName()));
    return std::nullopt;
  }
  const double number = value->as_double();
  if (number >= low && number <= high) return number;
  Fail(name, Format("'{}' must be between {} and {}, not {}", name, low, high, number));
  return std::nullopt;
}

std::optional<double> RequestFields::PositiveNumber(std::string_view name, double high) {
  const Json* value = Find(name);
  if (value == nullptr) return std::nullopt;
  if (value->is_number() && value->as_double() > 0 && value->as_double() <= high) {
    return value->as_double();
  }
  Fail(name, Format("'{}' must be a number above 0 and at most {}, not {}", name, high,
                    value->is_number() ? value->Dump() : std::string(value->TypeName())));
  return std::nullopt;
}

std::optional<std::string> RequestFields::String(std::string_view name, size_t max_bytes) {
  const Json* value = Find(name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_string()) {
    Fail(name, Format("'{}' must be a string, not {}", name, value->TypeName()));
    return std::nullopt;
  }
  if (value->as_string().size() <= max_bytes) return value->as_string();
  Fail(name, Format("'{}' is {} bytes long; at most {} are taken", name,
                    value->as_string().size(), max_bytes));
  return std::nullopt;
}

void RequestFields::Refuse(std::string_view name, std::string_view remedy) {
  const Json* value = Find(name);
  if (value == nullptr || AsksForNothing(*value)) return;
  Fail(name, Format("'{}' is not supported; {}", name, remedy));
}

}  // namespace divisi
