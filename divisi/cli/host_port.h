// "HOST:PORT" as flags give it.
#pragma once

#include <string>
#include <utility>

#include "divisi/core/result.h"

namespace divisi {

// Errors: kInvalidArgument, with the flag and an example.
Result<std::pair<std::string, int>> ParseHostPort(const std::string& flag, const std::string& text);
// The same of a place to listen: port 0 is any free one.
Result<std::pair<std::string, int>> ParseListenAt(const std::string& flag, const std::string& text);

}  // namespace divisi
