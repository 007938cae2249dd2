// "10.0.0.2:7001", "[::1]:7001" or "worker-3:7001" as the system's socket address.
#pragma once

#include <sys/socket.h>

#include <string>

#include "divisi/core/result.h"

namespace divisi {

struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t length = 0;

  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
  bool IsWildcard() const;  // 0.0.0.0 or [::]: every interface of a host, and no place to go.
  bool IsLoopback() const;  // 127.x or [::1]: reached from this host alone.
  int port() const;
  std::string Text() const;  // As numbers.
};

// Names are looked up, which may block for the resolver's time.
// Errors: kInvalidArgument with the text, the fault and an example.
Result<SocketAddress> ParseSocketAddress(const std::string& text);

// "host:port", with brackets around an IPv6 host.
std::string HostAndPort(const std::string& host, int port);

}  // namespace divisi
