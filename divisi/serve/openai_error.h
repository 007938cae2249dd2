// Errors in the shape that OpenAI's clients understand, with the HTTP status they travel under.
#pragma once

#include <optional>
#include <string>
#include <variant>

#include "divisi/core/result.h"

namespace divisi {

struct ApiError {
  int status = 400;
  std::string type = "invalid_request_error";
  std::string message;               // What is wrong and the remedy.
  std::optional<std::string> param;  // The request's field at fault.
  std::optional<std::string>
      code;  // Stable name: "context_length_exceeded", "model_not_found", ...
  int retry_after_seconds = 0;       // With 429 and 503: when to come back; 0 elsewhere.
};

// A T, or why there is none.
template <typename T>
using OrApiError = std::variant<T, ApiError>;

// 400 about one field.
ApiError InvalidField(std::string param, std::string message);

// What an Error of the engine or of the text side means to a client: kResourceExhausted 429 and
// kUnavailable 503, both with Retry-After; kInvalidArgument, kOutOfRange and kUnimplemented 400;
// kNotFound 404; kUnauthenticated 401; kDeadlineExceeded 504; else 500.
ApiError FromError(const Error& error);

// {"error":{"message":...,"type":...,"param":...,"code":...}}
std::string ErrorBody(const ApiError& error);

}  // namespace divisi
