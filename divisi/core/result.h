// Errors that the world can cause, as values.
//
// A function that reads a file, a peer's bytes or a user's parameters returns Result<T>. Our own
// bugs are not errors: they are CHECKs (core/check.h). A message says what failed, which thing, and
// the remedy.
#pragma once

#include <string>
#include <utility>
#include <variant>

#include "divisi/core/check.h"

namespace divisi {

// A new code is added only if some caller would act on it.
enum class Code {
  kInvalidArgument,    // The request or file is wrong; retrying the same cannot help.
  kNotFound,           // The named thing does not exist.
  kOutOfRange,         // Well-formed, but beyond a limit of the model or of the server.
  kResourceExhausted,  // A bound is reached now; retry later.
  kUnavailable,        // Not able to serve now (starting, draining, peer gone); retry elsewhere.
  kUnauthenticated,    // Missing or wrong credentials.
  kUnimplemented,      // Understood, and not supported; the message names what is.
  kDataLoss,           // Bytes contradict their own description: truncated, corrupt.
  kDeadlineExceeded,   // A bounded wait ended.
  kCancelled,          // The asker went away.
  kInternal,           // A third-party library or the system failed in an unforeseen way.
};

// "invalid_argument" and so on: stable, for logs and metrics.
const char* CodeName(Code code);

struct Error {
  Code code = Code::kInternal;
  std::string message;
};

// The same error with "context: " before its message.
Error WithContext(Error error, std::string_view context);

// Either a T or an Error. Result<void> is success or an Error.
template <typename T>
class [[nodiscard]] Result {
 public:
  using Value = T;
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}      // NOLINT
  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}  // NOLINT

  bool ok() const { return state_.index() == 0; }
  explicit operator bool() const { return ok(); }

  // Requires: ok().
  T& value() & {
    CHECK(ok(), "value() of a failed Result: {}", std::get<1>(state_).message);
    return std::get<0>(state_);
  }
  const T& value() const& {
    CHECK(ok(), "value() of a failed Result: {}", std::get<1>(state_).message);
    return std::get<0>(state_);
  }
  // By value: a reference into a Result that ends with the statement would dangle in a loop's head.
  T value() && {
    CHECK(ok(), "value() of a failed Result: {}", std::get<1>(state_).message);
    return std::get<0>(std::move(state_));
  }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T operator*() && { return std::move(*this).value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

  // Requires: !ok().
  const Error& error() const {
    CHECK(!ok(), "error() of a good Result");
    return std::get<1>(state_);
  }

 private:
  std::variant<T, Error> state_;
};

template <>
class [[nodiscard]] Result<void> {
 public:
  Result() = default;
  Result(Error error) : state_(std::move(error)) {}  // NOLINT

  bool ok() const { return state_.index() == 0; }
  explicit operator bool() const { return ok(); }
  const Error& error() const {
    CHECK(!ok(), "error() of a good Result");
    return std::get<1>(state_);
  }

 private:
  std::variant<std::monostate, Error> state_;
};

// RETURN_IF_ERROR(F()): leaves the enclosing function with F's error, if it has one.
#define RETURN_IF_ERROR(expression)                          \
  do {                                                       \
    if (auto divisi_result = (expression); !divisi_result) { \
      return divisi_result.error();                          \
    }                                                        \
  } while (false)

// ASSIGN_OR_RETURN(auto x, F()): x = F()'s value, or leaves with F's error.
#define ASSIGN_OR_RETURN(target, expression) \
  DIVISI_ASSIGN_OR_RETURN_AT(__LINE__, target, expression)
#define DIVISI_ASSIGN_OR_RETURN_AT(line, target, expression) \
  DIVISI_ASSIGN_OR_RETURN_NAMED(line, target, expression)
#define DIVISI_ASSIGN_OR_RETURN_NAMED(line, target, expression)   \
  auto divisi_result_##line = (expression);                       \
  if (!divisi_result_##line) return divisi_result_##line.error(); \
  target = std::move(divisi_result_##line).value()

}  // namespace divisi
