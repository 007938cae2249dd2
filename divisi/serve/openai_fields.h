// Reads the members of a JSON request one by one, with type and range checks, and keeps the first
// complaint: callers read everything in a row and look at error() once.
//
// null means absent, as in OpenAI's API. A repeated member counts by its last value.
#pragma once

#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>

#include "divisi/core/json.h"
#include "divisi/serve/openai_error.h"

namespace divisi {

class RequestFields {
 public:
  // object outlives this. A value that is not an object is an error.
  explicit RequestFields(const Json& object);

  // The member; nullptr when absent or null.
  const Json* Find(std::string_view name) const;

  // The member's value, nullopt when absent; values of another type or outside [low, high] are
  // errors that name the field, the bounds and what was given.
  std::optional<bool> Bool(std::string_view name);
  std::optional<int64_t> Int(std::string_view name, int64_t low, int64_t high);
  std::optional<double> Number(std::string_view name, double low, double high);
  // As Number, for the range above 0.
  std::optional<double> PositiveNumber(std::string_view name, double high);
  std::optional<std::string> String(std::string_view name, size_t max_bytes);

  // Refuses the member when it is present and asks for anything (not null, false, 0, "", [] or {}).
  void Refuse(std::string_view name, std::string_view remedy);

  // Records an error, unless one was recorded before.
  void Fail(std::string_view name, std::string message);
  const std::optional<ApiError>& error() const { return error_; }

 private:
  const Json& object_;
  std::optional<ApiError> error_;
};

}  // namespace divisi
