#include "divisi/net/socket_address.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>

#include <algorithm>
#include <cstring>

namespace divisi {
namespace {

// The two addresses of IP; others never leave ParseSocketAddress.
const sockaddr_in& V4(const SocketAddress& address) {
  return reinterpret_cast<const sockaddr_in&>(address.storage);
}
const sockaddr_in6& V6(const SocketAddress& address) {
  return reinterpret_cast<const sockaddr_in6&>(address.storage);
}

Error BadAddress(const std::string& text, const std::string& fault) {
  return {Code::kInvalidArgument,
          Format("address '{}': {}; expected HOST:PORT such as 10.0.0.2:7001 or [::1]:7001",
                 text.substr(0, 200), fault)};
}

}  // namespace

bool SocketAddress::IsWildcard() const {
  if (storage.ss_family == AF_INET) return V4(*this).sin_addr.s_addr == htonl(INADDR_ANY);
  return std::memcmp(&V6(*this).sin6_addr, &in6addr_any, sizeof(in6addr_any)) == 0;
}

bool SocketAddress::IsLoopback() const {
  if (storage.ss_family == AF_INET) {
    return ntohl(V4(*this).sin_addr.s_addr) >> IN_CLASSA_NSHIFT == IN_LOOPBACKNET;
  }
  return IN6_IS_ADDR_LOOPBACK(&V6(*this).sin6_addr);
}

int SocketAddress::port() const {
  return ntohs(storage.ss_family == AF_INET ? V4(*this).sin_port : V6(*this).sin6_port);
}

std::string SocketAddress::Text() const {
  char host[INET6_ADDRSTRLEN] = "";
  const bool v4 = storage.ss_family == AF_INET;
  const void* bytes = v4 ? static_cast<const void*>(&V4(*this).sin_addr) : &V6(*this).sin6_addr;
  inet_ntop(storage.ss_family, bytes, host, sizeof(host));
  return HostAndPort(host, port());
}

std::string HostAndPort(const std::string& host, int port) {
  const bool v6 = host.find(':') != host.npos && !host.starts_with('[');
  return v6 ? Format("[{}]:{}", host, port) : Format("{}:{}", host, port);
}

Result<SocketAddress> ParseSocketAddress(const std::string& text) {
  const size_t colon = text.rfind(':');
  if (colon == text.npos || colon == 0) return BadAddress(text, "no host and port");
  std::string host = text.substr(0, colon);
  const std::string port = text.substr(colon + 1);
  const bool bracketed = host.size() > 2 && host.starts_with('[') && host.ends_with(']');
  if (bracketed) host = host.substr(1, host.size() - 2);
  if (!bracketed && host.find(':') != host.npos) return BadAddress(text, "IPv6 wants brackets");
  const bool number = !port.empty() && port.size() <= 5 &&
                      std::ranges::all_of(port, [](char c) { return c >= '0' && c <= '9'; });
  if (!number || std::stoi(port) > 65535) return BadAddress(text, "no port of 0 to 65535");

  addrinfo hints{.ai_flags = AI_NUMERICSERV, .ai_socktype = SOCK_STREAM};
  addrinfo* found = nullptr;
  const int fault = getaddrinfo(host.c_str(), port.c_str(), &hints, &found);
  if (fault != 0) return BadAddress(text, gai_strerror(fault));
  SocketAddress address;
  for (const addrinfo* info = found; info != nullptr && address.length == 0; info = info->ai_next) {
    if (info->ai_family != AF_INET && info->ai_family != AF_INET6) continue;
    std::memcpy(&address.storage, info->ai_addr, info->ai_addrlen);
    address.length = info->ai_addrlen;
  }
  freeaddrinfo(found);
  if (address.length == 0) return BadAddress(text, "no IP address");
  return address;
}

}  // namespace divisi
