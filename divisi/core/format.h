// Text formatting: Format("{} of {}", a, b). The one place that includes fmt, because g++ 12 lacks
// std::format; when it has it, this header changes and nothing else.
#pragma once

#include <fmt/format.h>

#include <string>
#include <utility>

namespace divisi {

template <typename... Args>
std::string Format(fmt::format_string<Args...> text, Args&&... args) {
  return fmt::format(text, std::forward<Args>(args)...);
}

// For CHECK, whose message may be absent.
inline std::string FormatOrEmpty() { return {}; }
template <typename... Args>
std::string FormatOrEmpty(fmt::format_string<Args...> text, Args&&... args) {
  return fmt::format(text, std::forward<Args>(args)...);
}

}  // namespace divisi
