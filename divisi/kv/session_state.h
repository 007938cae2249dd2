// What a client says of the conversation that a request is a turn of: whether another turn is to be
// expected. A hint: it moves the odds that pages are used again, and nothing else.
#pragma once

#include <cstdint>

namespace divisi {

enum class SessionState : uint8_t { kUnknown, kOpen, kClosed };
inline constexpr int kSessionStates = 3;

}  // namespace divisi
