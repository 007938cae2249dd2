// A plain blocking HTTP client for tests, which may also misbehave.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "divisi/core/check.h"

namespace divisi {

class HttpTestClient {
 public:
  explicit HttpTestClient(int port, int receive_buffer_bytes = 0) {
    fd_ = ::socket(AF_INET, SOCK_STREAM, 0);
    CHECK(fd_ >= 0, "socket");
    // Long enough for a sanitizer's build on a busy machine; a test that hangs fails by it.
    const timeval timeout{.tv_sec = 60, .tv_usec = 0};
    ::setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof timeout);
    if (receive_buffer_bytes > 0) {
      ::setsockopt(fd_, SOL_SOCKET, SO_RCVBUF, &receive_buffer_bytes, sizeof receive_buffer_bytes);
    }
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    connected_ = ::connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
  }
  HttpTestClient(HttpTestClient&& other) noexcept
      : fd_(std::exchange(other.fd_, -1)),
        connected_(other.connected_),
        input_(std::move(other.input_)) {}
  HttpTestClient(const HttpTestClient&) = delete;
  ~HttpTestClient() { Close(); }

  bool connected() const { return connected_; }
  void Close() {
    if (fd_ >= 0) ::close(std::exchange(fd_, -1));
  }
  void CloseSending() { ::shutdown(fd_, SHUT_WR); }

  void Send(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t count = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (count <= 0) return;  // The server closed: what it said before is still to be read.
      bytes.remove_prefix(static_cast<size_t>(count));
    }
  }
  static std::string Post(std::string_view path, std::string_view body) {
    return "POST " + std::string(path) +
           " HTTP/1.1\r\nHost: t\r\nContent-Type: application/json\r\n" +
           "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n" + std::string(body);
  }

  struct Response {
    int status = 0;
    std::string head;
    std::string body;
  };
  // nullopt when the server closes before a whole response has come.
  std::optional<Response> Read() {
    Response response;
    const auto head = ReadThrough("\r\n\r\n");
    if (!head) return std::nullopt;
    response.head = *head;
    response.status = std::atoi(head->c_str() + 9);
    if (response.status == 100 || response.status == 204) return response;
    if (const size_t at = head->find("Content-Length: "); at != std::string::npos) {
      const auto body = ReadBytes(std::strtoul(head->c_str() + at + 16, nullptr, 10));
      if (!body) return std::nullopt;
      response.body = *body;
    } else if (head->find("Transfer-Encoding: chunked") != std::string::npos) {
      if (!ReadChunks(response.body)) return std::nullopt;
    } else {
      while (Receive()) {
      }
      response.body = std::exchange(input_, {});
    }
    return response;
  }
  // Everything up to and including `end`.
  std::optional<std::string> ReadThrough(std::string_view end) {
    size_t at;
    while ((at = input_.find(end)) == std::string::npos) {
      if (!Receive()) return std::nullopt;
    }
    return Take(at + end.size());
  }
  // Whether the server closes without saying more.
  bool IsClosedByServer() { return input_.empty() && !Receive(); }

 private:
  std::string Take(size_t count) {
    std::string taken = input_.substr(0, count);
    input_.erase(0, count);
    return taken;
  }
  std::optional<std::string> ReadBytes(size_t count) {
    while (input_.size() < count) {
      if (!Receive()) return std::nullopt;
    }
    return Take(count);
  }
  bool ReadChunks(std::string& body) {
    while (true) {
      const auto size_line = ReadThrough("\r\n");
      if (!size_line) return false;
      const size_t size = std::strtoul(size_line->c_str(), nullptr, 16);
      const auto chunk = ReadBytes(size + 2);
      if (!chunk) return false;
      if (size == 0) return true;
      body += chunk->substr(0, size);
    }
  }
  bool Receive() {
    char buffer[16384];
    const ssize_t count = ::recv(fd_, buffer, sizeof buffer, 0);
    if (count <= 0) return false;
    input_.append(buffer, static_cast<size_t>(count));
    return true;
  }

  int fd_ = -1;
  bool connected_ = false;
  std::string input_;
};

}  // namespace divisi
