#include "divisi/core/result.h"

namespace divisi {

const char* CodeName(Code code) {
  switch (code) {
    case Code::kInvalidArgument:
      return "invalid_argument";
    case Code::kNotFound:
      return "not_found";
    case Code::kOutOfRange:
      return "out_of_range";
    case Code::kResourceExhausted:
      return "resource_exhausted";
    case Code::kUnavailable:
      return "unavailable";
    case Code::kUnauthenticated:
      return "unauthenticated";
    case Code::kUnimplemented:
      return "unimplemented";
    case Code::kDataLoss:
      return "data_loss";
    case Code::kDeadlineExceeded:
      return "deadline_exceeded";
    case Code::kCancelled:
      return "cancelled";
    case Code::kInternal:
      return "internal";
  }
  return "unknown";
}

Error WithContext(Error error, std::string_view context) {
  error.message = std::string(context) + ": " + error.message;
  return error;
}

}  // namespace divisi
