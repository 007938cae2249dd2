#include "divisi/serve/openai_error.h"

#include "divisi/core/json.h"

namespace divisi {
namespace {

// Long enough for a step or two to end, short enough that a client does not lose its place.
constexpr int kRetryAfterSeconds = 1;

struct Meaning {
  int status;
  const char* type;
};

Meaning MeaningOf(Code code) {
  switch (code) {
    case Code::kInvalidArgument:
    case Code::kOutOfRange:
    case Code::kUnimplemented: return {400, "invalid_request_error"};
    case Code::kUnauthenticated: return {401, "invalid_request_error"};
    case Code::kNotFound: return {404, "invalid_request_error"};
    case Code::kResourceExhausted: return {429, "rate_limit_error"};
    case Code::kUnavailable: return {503, "service_unavailable"};
    case Code::kDeadlineExceeded: return {504, "timeout"};
    case Code::kDataLoss:
    case Code::kCancelled:
    case Code::kInternal: break;
  }
  return {500, "internal_error"};
}

Json OrNull(const std::optional<std::string>& text) { return text ? Json(*text) : Json(); }

}  // namespace

ApiError InvalidField(std::string param, std::string message) {
  return {.message = std::move(message), .param = std::move(param)};
}

ApiError FromError(const Error& error) {
  const auto [status, type] = MeaningOf(error.code);
  ApiError api{.status = status, .type = type, .message = error.message};
  if (status == 429) api.code = "rate_limit_exceeded";
  if (status == 429 || status == 503) api.retry_after_seconds = kRetryAfterSeconds;
  return api;
}

std::string ErrorBody(const ApiError& error) {
  return Json(Json::Object{{"error", Json::Object{{"message", error.message},
                                                  {"type", error.type},
                                                  {"param", OrNull(error.param)},
                                                  {"code", OrNull(error.code)}}}})
      .Dump();
}

}  // namespace divisi
