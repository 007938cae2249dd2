// The remote pool between processes, over UCX and TCP. The node, or a client that is to be killed,
// is this program again, started with its duty as argument.
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <map>
#include <set>

#include "divisi/control/cluster_message.h"
#include "divisi/control/store_client.h"
#include "divisi/control/store_server.h"
#include "divisi/core/clock.h"
#include "divisi/core/format.h"
#include "divisi/core/random.h"
#include "divisi/kv/page_object.h"
#include "divisi/net/ucx_transport.h"

namespace divisi {
namespace {

constexpr int64_t kLayer = 256 << 10;
constexpr size_t kObject = kPageHeadBytes + 4 * kLayer;
constexpr size_t kPlaces = 16;
constexpr Seconds kSoon{5};

const SteadyClock& TheClock() {
  static const SteadyClock clock;
  return clock;
}

BlockKey KeyOf(int64_t number) {
  BlockKey key;
  std::memcpy(key.bytes.data(), &number, sizeof number);
  return key;
}

std::vector<std::byte> ObjectOf(int64_t number) {
  PageHeader header;
  header.shape.layers = 4;
  header.shape.layer_bytes = kLayer;
  header.key = KeyOf(number);
  std::vector<std::byte> payload(4 * kLayer);
  for (size_t i = 0; i < payload.size(); ++i) {
    payload[i] = static_cast<std::byte>(static_cast<size_t>(number) * 31 + i * i % 253);
  }
  return EncodePageObject(header, payload);
}

std::unique_ptr<Transport> OpenAs(NodeId self, bool network = false) {
  return OpenUcxTransport({.self = self, .read_peers = !network, .silence = Seconds(2)}, TheClock())
      .value();
}

// A certificate of its own authority, made once with OpenSSL's command.
TlsFiles Certificate() {
  static const std::string kAt = [] {
    const std::string at = testing::TempDir() + Format("store-certificate-{}", getpid());
    const std::string command = Format(
        "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 "
        "-subj /CN=store -keyout {0}.key -out {0}.pem 2>/dev/null",
        at);
    EXPECT_EQ(std::system(command.c_str()), 0) << command;
    return at;
  }();
  return {kAt + ".pem", kAt + ".key", kAt + ".pem"};
}

// certificate: of TLS; empty: none.
[[noreturn]] void RunNode(int port, const std::string& certificate) {
  std::vector<std::byte> memory(32 * kObject);
  Logger logger({.least = LogLevel::kError});
  const NodeId self{SystemRandom() | 1};
  StoreServerOptions options{.self = self, .port = port};
  if (!certificate.empty()) {
    options.tls = TlsFiles{certificate + ".pem", certificate + ".key", certificate + ".pem"};
  }
  auto server = MakeStoreServer(options, OpenAs(self), memory, TheClock(), logger);
  CHECK(server.ok(), "{}", server.error().message);
  std::printf("%d\n", (*server)->port());
  std::fflush(stdout);
  static std::atomic<bool> never{false};
  (*server)->Run(never);
  _exit(0);
}

// A client of the node at 127.0.0.1:port.
struct Client {
  std::vector<std::byte> memory = std::vector<std::byte>(kPlaces * kObject);
  std::unique_ptr<RemotePages> pages;
  std::map<uint64_t, RemoteDone> ended;
  std::set<uint64_t> released;

  explicit Client(std::vector<int> ports, bool network = false,
                  std::optional<TlsFiles> tls = std::nullopt) {
    const NodeId self{SystemRandom() | 1};
    StoreClientOptions options{.self = self};
    options.tls = std::move(tls);
    for (const int port : ports) options.nodes.push_back({"127.0.0.1", port});
    pages = MakeStoreClient(options, OpenAs(self, network), memory, TheClock()).value();
  }
  std::span<std::byte> Place(size_t index) {
    return std::span(memory).subspan(index * kObject, kObject);
  }
  uint64_t Get(int64_t number, size_t place, Seconds deadline = kSoon) {
    return pages->Get(KeyOf(number), Place(place), deadline);
  }
  void Step() {
    for (RemoteDone& done : pages->Poll()) {
      if (done.released) released.insert(done.call);
      if (done.ended) ended[done.call] = std::move(done);
    }
    poll(nullptr, 0, 1);
  }
  // Until it ended and its memory is free.
  std::optional<Code> Wait(uint64_t call) {
    const Seconds end = TheClock().Now() + Seconds(20);
    while (!ended.contains(call) || !released.contains(call)) {
      CHECK(TheClock().Now() < end, "a call never ends");
      Step();
    }
    const auto& error = ended.at(call).error;
    return error ? std::optional(error->code) : std::nullopt;
  }
  std::optional<Code> Put(int64_t number, Seconds deadline = kSoon) {
    const auto object = ObjectOf(number);
    return Wait(pages->Put(KeyOf(number), object, deadline));
  }
  bool Ready() {
    for (int i = 0; i < 10000; ++i, Step()) {
      const auto health = pages->health();
      if (!health.empty() && health[0].ready) return true;
    }
    return false;
  }
};

// Puts objects for ever.
[[noreturn]] void RunWriter(int port) {
  Client client({port});
  for (int64_t i = 1000;; ++i) {
    (void)client.Put(i);
    if (i == 1002) {
      std::printf("writing\n");
      std::fflush(stdout);
    }
  }
}

struct Child {
  pid_t pid = 0;
  std::string said;

  explicit Child(const std::string& duty, int port = 0, const std::string& certificate = "") {
    int ends[2];
    CHECK(pipe(ends) == 0);
    const std::string number = std::to_string(port);
    pid = fork();
    if (pid == 0) {
      dup2(ends[1], STDOUT_FILENO);
      close(ends[0]);
      close(ends[1]);
      execl("/proc/self/exe", "store", duty.c_str(), number.c_str(), certificate.c_str(), nullptr);
      _exit(127);
    }
    close(ends[1]);
    for (char c = 0; read(ends[0], &c, 1) == 1 && c != '\n';) said.push_back(c);
    close(ends[0]);
  }
  ~Child() { Kill(); }
  int port() const { return std::stoi(said); }
  void Signal(int number) const { kill(pid, number); }
  void Kill() {
    if (pid == 0) return;
    kill(pid, SIGKILL);
    waitpid(pid, nullptr, 0);
    pid = 0;
  }
};

TEST(StoreProcessTest, CarriesObjectsBetweenProcesses) {
  for (const bool network : {false, true}) {
    Child node("node");
    Client client({node.port()}, network);
    for (int64_t i = 0; i < 8; ++i) EXPECT_EQ(client.Put(i), std::nullopt);
    std::vector<uint64_t> gets;
    for (int64_t i = 0; i < 8; ++i) gets.push_back(client.Get(i, static_cast<size_t>(i)));
    for (const auto get : gets) EXPECT_EQ(client.Wait(get), std::nullopt);
    for (int64_t i = 0; i < 8; ++i) {
      EXPECT_TRUE(std::ranges::equal(client.Place(static_cast<size_t>(i)), ObjectOf(i)));
    }
    EXPECT_EQ(client.Wait(client.Get(99, 0)), Code::kNotFound);
    const auto has = client.pages->Has({KeyOf(3), KeyOf(99)}, kSoon);
    EXPECT_EQ(client.Wait(has), std::nullopt);
    EXPECT_EQ(client.ended.at(has).have, (std::vector{true, false}));
    const auto counters = AskStore({"127.0.0.1", node.port()}, std::nullopt, kSoon);
    ASSERT_TRUE(counters.ok()) << counters.error().message;
    EXPECT_EQ(counters->objects, 8);
    EXPECT_EQ(counters->hits, 8);
    EXPECT_EQ(counters->sessions, 1);
  }
}

// Not a stranger's bounds: of a frame, and of time.
TEST(StoreProcessTest, AClientThatWasWelcomedStays) {
  Child node("node");
  Client client({node.port()});
  ASSERT_TRUE(client.Ready());
  std::vector<BlockKey> many(kMaxStoreKeys);
  for (size_t i = 0; i < many.size(); ++i) many[i] = KeyOf(static_cast<int64_t>(i));
  EXPECT_EQ(client.Wait(client.pages->Has(many, kSoon)), std::nullopt);
  for (const Seconds end = TheClock().Now() + kHelloTime + Seconds(1); TheClock().Now() < end;) {
    client.Step();
  }
  const auto health = client.pages->health();
  EXPECT_TRUE(health[0].ready) << health[0].reason;
  EXPECT_EQ(health[0].failures, 0);
}

// Killed at some moment of many puts and gets: each call ends, and soon.
TEST(StoreProcessTest, ANodeKilledDuringPutAndGet) {
  for (const int wait_ms : {0, 1, 3}) {
    Child node("node");
    Client client({node.port()});
    EXPECT_EQ(client.Put(0), std::nullopt);
    std::vector<std::vector<std::byte>> objects;
    for (int64_t i = 1; i < 8; ++i) objects.push_back(ObjectOf(i));
    std::vector<uint64_t> calls;
    for (size_t i = 0; i < objects.size(); ++i) {
      calls.push_back(client.pages->Put(KeyOf(static_cast<int64_t>(i) + 1), objects[i], kSoon));
      calls.push_back(client.Get(0, i));
    }
    poll(nullptr, 0, wait_ms);
    const int port = node.port();
    node.Kill();
    const Seconds killed = TheClock().Now();
    for (const auto call : calls) {
      const auto code = client.Wait(call);
      EXPECT_TRUE(!code || *code == Code::kUnavailable) << static_cast<int>(*code);
    }
    EXPECT_LT((TheClock().Now() - killed).value, 4);
    // Another life at the same port is found by itself, empty.
    Child again("node", port);
    ASSERT_TRUE(client.Ready());
    EXPECT_EQ(client.Wait(client.Get(0, 0)), Code::kNotFound);
    EXPECT_EQ(client.Put(0), std::nullopt);
    EXPECT_EQ(client.Wait(client.Get(0, 0)), std::nullopt);
  }
}

TEST(StoreProcessTest, ANodeThatHangsIsWaitedForUntilTheDeadlineOnly) {
  Child node("node");
  Client client({node.port()});
  EXPECT_EQ(client.Put(1), std::nullopt);
  node.Signal(SIGSTOP);
  const Seconds start = TheClock().Now();
  const auto get = client.Get(1, 0, Seconds(0.2));
  while (!client.ended.contains(get)) client.Step();
  EXPECT_LT((TheClock().Now() - start).value, 1.5);
  EXPECT_EQ(client.Wait(get), Code::kDeadlineExceeded);
  EXPECT_LT((TheClock().Now() - start).value, 8);
  std::ranges::fill(client.Place(0), std::byte{0xee});
  node.Signal(SIGCONT);
  ASSERT_TRUE(client.Ready());
  EXPECT_TRUE(std::ranges::all_of(client.Place(0), [](auto b) { return b == std::byte{0xee}; }));
  EXPECT_EQ(client.Wait(client.Get(1, 0)), std::nullopt);
}

TEST(StoreProcessTest, AWriterThatIsKilledLeavesNothingHalfWritten) {
  Child node("node");
  for (int round = 0; round < 3; ++round) {
    Child writer("writer", node.port());
    poll(nullptr, 0, 3 * round);
    writer.Kill();
  }
  Client client({node.port()});
  StoreCounters counters;
  for (int i = 0; i < 500; ++i) {
    counters = AskStore({"127.0.0.1", node.port()}, std::nullopt, kSoon).value();
    if (counters.writing == 0 && counters.sessions <= 1) break;
    poll(nullptr, 0, 10);
  }
  EXPECT_EQ(counters.writing, 0);
  for (int64_t i = 1000; i < 1040; ++i) {
    if (client.Wait(client.Get(i, 0)).has_value()) continue;
    EXPECT_TRUE(std::ranges::equal(client.Place(0), ObjectOf(i))) << i;
  }
}

// What `bytes` are answered with, over plain TCP, until the other side ends.
std::string Say(int port, const std::string& bytes) {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in to{.sin_family = AF_INET, .sin_port = htons(static_cast<uint16_t>(port))};
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  CHECK(connect(fd, reinterpret_cast<const sockaddr*>(&to), sizeof to) == 0);
  const timeval patience{.tv_sec = 5};
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  (void)!send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
  std::string answer;
  char piece[4096];
  for (ssize_t got; (got = recv(fd, piece, sizeof piece, 0)) > 0;) {
    answer.append(piece, static_cast<size_t>(got));
  }
  close(fd);
  return answer;
}

TEST(StoreProcessTest, GarbageAtThePortChangesNothing) {
  Child node("node");
  Client client({node.port()});
  EXPECT_EQ(client.Put(1), std::nullopt);
  Random random(9);
  for (int i = 0; i < 50; ++i) {
    std::string body;
    for (int64_t n = random.Between(1, 80); n > 0; --n) {
      body.push_back(static_cast<char>(random.Between(0, 255)));
    }
    std::string length{static_cast<char>(body.size()), '\0', '\0', '\0'};
    const std::string answer = Say(node.port(), length + body);
    EXPECT_NE(answer.find("no message of the store's protocol"), std::string::npos);
  }
  EXPECT_EQ(client.Wait(client.Get(1, 0)), std::nullopt);
}

TEST(StoreProcessTest, AnotherVersionIsToldWhichRuns) {
  Child node("node");
  const std::string hello("\x09\0\0\0\0DVST\x07\0\0\0", 13);
  const std::string answer = Say(node.port(), hello);
  EXPECT_NE(answer.find("speaks version 7 of the store's protocol, this process version 2"),
            std::string::npos)
      << answer;
}

// A gateway's port, say, that the client was told by mistake.
TEST(StoreProcessTest, WhatIsNoNodeIsCalledSo) {
  FrameLoop loop;
  const auto port = loop.Listen("127.0.0.1", 0, [](auto connection) {
    if (!connection) return;
    auto one = *connection;
    one->Start([one](std::vector<std::byte>) { one->Send(EncodeClusterMessage(PingMessage{})); },
               [](const std::string&) {});
  });
  Client client({port.value()});
  EXPECT_EQ(client.Wait(client.Get(1, 0)), Code::kUnavailable);
  EXPECT_NE(client.pages->health()[0].reason.find("no node of `divisi store`"), std::string::npos);
}

TEST(StoreProcessTest, WithCertificatesControlIsTls) {
  const TlsFiles files = Certificate();
  Child node("node", 0, files.key.substr(0, files.key.size() - 4));
  Client client({node.port()}, false, files);
  EXPECT_EQ(client.Put(1), std::nullopt);
  EXPECT_EQ(client.Wait(client.Get(1, 0)), std::nullopt);
  Client plain({node.port()});
  EXPECT_EQ(plain.Wait(plain.Get(1, 0)), Code::kUnavailable);
  EXPECT_NE(plain.pages->health()[0].reason.find("--control-cert"), std::string::npos)
      << plain.pages->health()[0].reason;
}

TEST(StoreProcessTest, ANodeNamedTwiceIsAMistake) {
  std::vector<std::byte> memory(4096);
  const auto client = MakeStoreClient({.self = {7}, .nodes = {{"a", 1}, {"a", 1}}}, OpenAs({7}),
                                      memory, TheClock());
  ASSERT_FALSE(client.ok());
  EXPECT_EQ(client.error().code, Code::kInvalidArgument);
}

}  // namespace
}  // namespace divisi

int main(int argc, char** argv) {
  if (argc == 4 && std::strcmp(argv[1], "node") == 0) divisi::RunNode(std::atoi(argv[2]), argv[3]);
  if (argc == 4 && std::strcmp(argv[1], "writer") == 0) divisi::RunWriter(std::atoi(argv[2]));
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
