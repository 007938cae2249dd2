// The JSON of etcd's gateway: requests as it wants them, answers read without trusting them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "divisi/core/json.h"

namespace divisi {

std::string Base64(std::string_view bytes);
// Nothing for text that is none.
std::optional<std::string> FromBase64(std::string_view text);

// The first key behind all that begin with `prefix`. Requires: not empty, not all bytes 255.
std::string RangeEnd(std::string prefix);

// A number that is one, or text of one; 0 where there is none.
int64_t EtcdNumber(const Json& object, std::string_view member);
// A member's base64; empty where there is none.
std::string EtcdBytes(const Json& object, std::string_view member);

Json EtcdLeaseCall(int64_t lease);
Json EtcdPut(const std::string& key, const std::string& value, int64_t lease);
// Of all keys that begin with it.
Json EtcdRange(const std::string& prefix);
Json EtcdWatchFrom(const std::string& prefix, int64_t revision);
// True in a transaction while the key, or with `prefix` every key that begins with it, is absent.
Json EtcdAbsent(const std::string& key, bool prefix);

}  // namespace divisi
