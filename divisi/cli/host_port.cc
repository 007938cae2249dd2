#include "divisi/cli/host_port.h"

#include <charconv>

#include "divisi/core/format.h"

namespace divisi {
namespace {

Result<std::pair<std::string, int>> Parse(const std::string& flag, const std::string& text,
                                          int least_port) {
  const size_t colon = text.rfind(':');
  int port = 0;
  const char* end = text.data() + text.size();
  if (colon != std::string::npos && colon > 0) {
    const auto [stop, status] = std::from_chars(text.data() + colon + 1, end, port);
    if (status == std::errc() && stop == end && port >= least_port && port < 65536) {
      return std::pair{text.substr(0, colon), port};
    }
  }
  return Error{Code::kInvalidArgument,
               Format("{} {}: expected HOST:PORT, as in 127.0.0.1:8001", flag, text)};
}

}  // namespace

Result<std::pair<std::string, int>> ParseHostPort(const std::string& flag,
                                                  const std::string& text) {
  return Parse(flag, text, 1);
}

Result<std::pair<std::string, int>> ParseListenAt(const std::string& flag,
                                                  const std::string& text) {
  return Parse(flag, text, 0);
}

}  // namespace divisi
