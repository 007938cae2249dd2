// CHECK: an invariant of our own that must hold. Always on; prints the condition, the message and
// the place, then aborts. Never for anything that a peer, a file or a user can cause.
//   CHECK(free_blocks >= 0, "free_blocks {}", free_blocks);
// DCHECK is the same in debug builds only, for the inner loops of kernels.
#pragma once

#include <string>

#include "divisi/core/format.h"

namespace divisi {

[[noreturn]] void CheckFailed(const char* file, int line, const char* condition,
                              const std::string& message);

}  // namespace divisi

#define CHECK(condition, ...)                                                                      \
  do {                                                                                             \
    if (!(condition)) [[unlikely]] {                                                               \
      ::divisi::CheckFailed(__FILE__, __LINE__, #condition, ::divisi::FormatOrEmpty(__VA_ARGS__)); \
    }                                                                                              \
  } while (false)

#ifdef NDEBUG
#define DCHECK(condition, ...) \
  do {                         \
  } while (false)
#else
#define DCHECK(condition, ...) CHECK(condition __VA_OPT__(, ) __VA_ARGS__)
#endif
