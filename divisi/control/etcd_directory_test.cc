#include "divisi/control/etcd_directory.h"

#include <arpa/inet.h>
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cstring>

#include "divisi/core/format.h"

namespace {

std::atomic<int> lookups{0};
std::atomic<bool> names_answer{false};

}  // namespace

// In the place of the C library's: "slow.test" has no answer until the test is over.
extern "C" int getaddrinfo(const char* node, const char* service, const addrinfo* hints,
                           addrinfo** result) {
  if (node != nullptr && std::strcmp(node, "slow.test") == 0) {
    ++lookups;
    while (!names_answer) poll(nullptr, 0, 1);
    return EAI_AGAIN;
  }
  static const auto real =
      reinterpret_cast<decltype(&getaddrinfo)>(dlsym(RTLD_NEXT, "getaddrinfo"));
  return real(node, service, hints, result);
}

namespace divisi {
namespace {

// A port that takes connections.
class Port {
 public:
  Port() {
    sockaddr_in address{.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t size = sizeof address;
    EXPECT_EQ(bind(fd_, reinterpret_cast<sockaddr*>(&address), size), 0);
    EXPECT_EQ(listen(fd_, 16), 0);
    EXPECT_EQ(getsockname(fd_, reinterpret_cast<sockaddr*>(&address), &size), 0);
    number_ = ntohs(address.sin_port);
  }
  ~Port() { close(fd_); }
  int number() const { return number_; }
  bool WaitForConnection(int milliseconds) const {
    pollfd wait{.fd = fd_, .events = POLLIN};
    return poll(&wait, 1, milliseconds) == 1;
  }
  // Answers the calls of a session, and ends its watches.
  void AnswerButNoWatch() const {
    const int peer = accept(fd_, nullptr, nullptr);
    std::string request(1 << 16, '\0');
    const ssize_t got = read(peer, request.data(), request.size());
    request.resize(got < 0 ? 0 : static_cast<size_t>(got));
    const std::string body = R"({"ID":"5","header":{"revision":"7"},"result":{"TTL":"1"}})";
    const std::string answer =
        Format("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{}", body.size(), body);
    if (request.find("/v3/watch") == request.npos) {
      EXPECT_EQ(write(peer, answer.data(), answer.size()), static_cast<ssize_t>(answer.size()));
    }
    close(peer);
  }

 private:
  const int fd_ = socket(AF_INET, SOCK_STREAM, 0);
  int number_ = 0;
};

TEST(EtcdDirectoryTest, AnEndpointWhoseNameHasNoAnswerIsLeftForTheNext) {
  const SteadyClock clock;
  Logger logger({.least = LogLevel::kError});
  const Port port;
  auto directory = EtcdDirectory::Open(
      {.endpoints = {"http://slow.test:2379", Format("http://127.0.0.1:{}", port.number())},
       .lease = Seconds(0.6)},
      "", clock, logger);
  ASSERT_TRUE(directory.ok());
  (*directory)->Start([](const DirectoryEvent&) {});
  EXPECT_TRUE(port.WaitForConnection(10'000));
  EXPECT_GE(lookups, 1);
  names_answer = true;
}

TEST(EtcdDirectoryTest, AnEndpointThatAnswersAndEndsWatchesIsLeftForTheNext) {
  const SteadyClock clock;
  Logger logger({.least = LogLevel::kError});
  const Port first, second;
  auto directory =
      EtcdDirectory::Open({.endpoints = {Format("http://127.0.0.1:{}", first.number()),
                                         Format("http://127.0.0.1:{}", second.number())},
                           .lease = Seconds(5)},
                          "", clock, logger);
  ASSERT_TRUE(directory.ok());
  (*directory)->Start([](const DirectoryEvent&) {});
  bool left = false;
  for (int i = 0; i < 100 && !left; ++i) {
    if (first.WaitForConnection(50)) first.AnswerButNoWatch();
    left = second.WaitForConnection(0);
  }
  EXPECT_TRUE(left);
}

}  // namespace
}  // namespace divisi
