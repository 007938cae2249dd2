#include "divisi/control/frame_connection.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <deque>
#include <filesystem>
#include <mutex>
#include <thread>
#include <utility>

#include "divisi/control/cluster_message.h"
#include "divisi/core/format.h"

namespace divisi {
namespace {

using Connection = std::shared_ptr<FrameConnection>;

// What the callbacks of one side left, for the test's thread to wait for.
class Side {
 public:
  void Take(Result<Connection> given) {
    Connection opened;
    {
      const std::lock_guard lock(mutex_);
      if (given) {
        connection_ = opened = *given;
      } else {
        refusal_ = given.error().message;
      }
      told_.notify_all();
    }
    if (!opened) return;
    opened->Start(
        [this](std::vector<std::byte> frame) {
          const std::lock_guard lock(mutex_);
          frames_.push_back(std::move(frame));
          told_.notify_all();
        },
        [this](const std::string& why) {
          const std::lock_guard lock(mutex_);
          end_ = why;
          told_.notify_all();
        });
  }

  Connection WaitForConnection() {
    const auto lock = Wait([this] { return connection_ || !refusal_.empty(); });
    return connection_;
  }
  std::vector<std::byte> WaitForFrame() {
    const auto lock = Wait([this] { return !frames_.empty() || !end_.empty(); });
    if (frames_.empty()) return {};
    auto frame = std::move(frames_.front());
    frames_.pop_front();
    return frame;
  }
  // Why there is no connection, or no longer.
  std::string WaitForEnd() {
    const auto lock = Wait([this] { return !refusal_.empty() || !end_.empty(); });
    return refusal_.empty() ? end_ : refusal_;
  }

 private:
  // Until it holds. What told of it is read under the lock that this returns.
  template <typename Condition>
  std::unique_lock<std::mutex> Wait(Condition condition) {
    std::unique_lock lock(mutex_);
    EXPECT_TRUE(told_.wait_for(lock, std::chrono::seconds(20), condition)) << "nothing happened";
    return lock;
  }

  std::mutex mutex_;
  std::condition_variable told_;
  Connection connection_;
  std::string refusal_, end_;
  std::deque<std::vector<std::byte>> frames_;
};

// Two loops, one of which listens.
struct Pair {
  void Meet() {
    const auto port =
        server_loop.Listen("127.0.0.1", 0, [this](auto given) { server.Take(given); });
    ASSERT_TRUE(port.ok());
    client_loop.Connect("127.0.0.1", *port, Seconds(5), [this](auto given) { client.Take(given); });
  }

  Side server, client;  // Before the loops that tell them.
  FrameLoop server_loop, client_loop;
};

// Two authorities and a certificate of each, made once with OpenSSL's command.
const std::string& Certificates() {
  static const std::string kFolder = [] {
    const std::string folder = testing::TempDir() + Format("frame-certificates-{}", getpid());
    std::filesystem::create_directories(folder);
    for (const std::string name : {"ours", "other"}) {
      const std::string at = folder + "/" + name;
      const std::string command = Format(
          "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 "
          "-subj /CN={1} -keyout {0}-ca.key -out {0}-ca.pem 2>/dev/null && "
          "openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN={1}-member "
          "-keyout {0}.key -out {0}.csr 2>/dev/null && "
          "openssl x509 -req -in {0}.csr -CA {0}-ca.pem -CAkey {0}-ca.key -CAcreateserial -days 2 "
          "-out {0}.pem 2>/dev/null",
          at, name);
      EXPECT_EQ(std::system(command.c_str()), 0) << command;
    }
    return folder;
  }();
  return kFolder;
}

TlsFiles Of(const std::string& name) {
  const std::string at = Certificates() + "/" + name;
  return {at + ".pem", at + ".key", at + "-ca.pem"};
}

std::vector<std::byte> Frame(size_t size) { return std::vector<std::byte>(size, std::byte{42}); }

void ExpectFramesBothWays(Pair& pair) {
  const Connection client = pair.client.WaitForConnection();
  ASSERT_TRUE(client);
  client->Send(Frame(7));  // Who connects speaks first.
  const Connection server = pair.server.WaitForConnection();
  ASSERT_TRUE(server);
  EXPECT_EQ(pair.server.WaitForFrame().size(), 7u);
  EXPECT_TRUE(server->peer_is_loopback());
  server->Welcome();
  for (const size_t size : {size_t{0}, size_t{1}, size_t{100'000}, size_t{5'000'000}}) {
    client->Send(Frame(size));
    server->Send(Frame(size + 1));
    EXPECT_EQ(pair.server.WaitForFrame().size(), size);
    EXPECT_EQ(pair.client.WaitForFrame().size(), size + 1);
  }
  client->Close("enough");
  EXPECT_EQ(pair.client.WaitForEnd(), "enough");
  EXPECT_FALSE(pair.server.WaitForEnd().empty());
}

TEST(FrameConnectionTest, CarriesFramesBothWays) {
  Pair pair;
  pair.Meet();
  ExpectFramesBothWays(pair);
}

TEST(FrameConnectionTest, CarriesFramesBothWaysOverTls) {
  Pair pair;
  ASSERT_TRUE(pair.server_loop.UseTls(Of("ours")).ok());
  ASSERT_TRUE(pair.client_loop.UseTls(Of("ours")).ok());
  pair.Meet();
  ExpectFramesBothWays(pair);
}

TEST(FrameConnectionTest, WhatWasSentBeforeACloseArrives) {
  Pair pair;
  pair.Meet();
  const Connection client = pair.client.WaitForConnection();
  client->Send(Frame(1));
  const Connection server = pair.server.WaitForConnection();
  ASSERT_TRUE(server);
  server->Welcome();
  EXPECT_EQ(pair.server.WaitForFrame().size(), 1u);
  client->Send(Frame(3'000'000));
  client->Close("enough");
  EXPECT_EQ(pair.server.WaitForFrame().size(), 3'000'000u);
}

TEST(FrameConnectionTest, BothSidesRefuseACertificateOfAnotherAuthority) {
  Pair pair;
  ASSERT_TRUE(pair.server_loop.UseTls(Of("ours")).ok());
  ASSERT_TRUE(pair.client_loop.UseTls(Of("other")).ok());
  pair.Meet();
  EXPECT_NE(pair.client.WaitForEnd().find("certificate verify failed"), std::string::npos);
  EXPECT_NE(pair.server.WaitForEnd().find("handshake failed"), std::string::npos);
}

TEST(FrameConnectionTest, TheServerRefusesACertificateThatOnlyItDoesNotKnow) {
  Pair pair;
  TlsFiles stranger = Of("other");
  stranger.authority = Of("ours").authority;
  ASSERT_TRUE(pair.server_loop.UseTls(Of("ours")).ok());
  ASSERT_TRUE(pair.client_loop.UseTls(stranger).ok());
  pair.Meet();
  EXPECT_NE(pair.server.WaitForEnd().find("certificate verify failed"), std::string::npos);
  EXPECT_FALSE(pair.client.WaitForEnd().empty());
}

TEST(FrameConnectionTest, APlainPeerIsToldThatThePortWantsTls) {
  Pair pair;
  ASSERT_TRUE(pair.server_loop.UseTls(Of("ours")).ok());
  pair.Meet();
  pair.client.WaitForConnection()->Send(EncodeClusterMessage(QueryMessage{{"status"}}));
  EXPECT_NE(pair.server.WaitForEnd().find("does not speak TLS"), std::string::npos);
  const auto told = DecodeClusterMessage(pair.client.WaitForFrame());
  ASSERT_TRUE(told.ok());
  EXPECT_NE(std::get<RejectMessage>(*told).reason.find("--control-cert"), std::string::npos);
}

TEST(FrameConnectionTest, ATlsPeerOfAPlainPortIsRefusedAtOnce) {
  Pair pair;
  ASSERT_TRUE(pair.client_loop.UseTls(Of("ours")).ok());
  pair.Meet();
  EXPECT_NE(pair.server.WaitForEnd().find("it speaks TLS"), std::string::npos);
  const std::string told = pair.client.WaitForEnd();
  EXPECT_NE(told.find("the other side does not speak TLS"), std::string::npos) << told;
}

TEST(FrameConnectionTest, NamesTheFileThatIsNoCertificate) {
  FrameLoop loop;
  TlsFiles files = Of("ours");
  files.certificate = "/nowhere.pem";
  const auto used = loop.UseTls(files);
  ASSERT_FALSE(used.ok());
  EXPECT_NE(used.error().message.find("/nowhere.pem"), std::string::npos);
}

TEST(FrameConnectionTest, APortThatIsTakenIsAnError) {
  FrameLoop loop;
  const auto port = loop.Listen("127.0.0.1", 0, [](auto) {});
  ASSERT_TRUE(port.ok());
  const auto again = loop.Listen("127.0.0.1", *port, [](auto) {});
  ASSERT_FALSE(again.ok());
  EXPECT_EQ(again.error().code, Code::kUnavailable);
}

TEST(FrameConnectionTest, ALoopEndsWhateverItIsDoing) {
  for (int i = 0; i < 2000; ++i) {
    FrameLoop loop;
    loop.Every(Seconds(0), [] {});
    loop.Every(Seconds(0.0001), [] {});
    const auto port = loop.Listen("127.0.0.1", 0, [](auto) {});
    ASSERT_TRUE(port.ok());
    for (int c = 0; c < 3; ++c) loop.Connect("127.0.0.1", *port, Seconds(5), [](auto) {});
  }
}

// A number of connections that a test keeps, and those of the listening side.
struct Crowd {
  Result<int> Listen() {
    return server_loop.Listen("127.0.0.1", 0, [this](Result<Connection> given) {
      if (!given) return;
      const std::lock_guard lock(mutex);
      accepted.push_back(*given);
      (*given)->Start([](const std::vector<std::byte>&) {},
                      [this](const std::string& why) { Ended(why); });
      if (welcomes) (*given)->Welcome();
    });
  }
  void Come(int port, size_t count) {
    for (size_t i = 0; i < count; ++i) {
      client_loop.Connect("127.0.0.1", port, Seconds(20), [this](Result<Connection> given) {
        ASSERT_TRUE(given.ok());
        const std::lock_guard lock(mutex);
        (*given)->Start([](const std::vector<std::byte>&) {},
                        [this](const std::string&) {
                          const std::lock_guard inner(mutex);
                          ++clients_ended;
                          told.notify_all();
                        });
        clients.push_back(*given);
        (*given)->Send(EncodeClusterMessage(PingMessage{}));
      });
    }
  }
  void Ended(const std::string& why) {
    const std::lock_guard lock(mutex);
    ends.push_back(why);
    told.notify_all();
  }
  // A copy, for connections also end while the loops are taken down.
  std::vector<std::string> Ends() {
    const std::lock_guard lock(mutex);
    return ends;
  }
  // Both sides of every connection say that they are there, for so long, or until it holds.
  void Ping(
      Seconds time, const std::function<bool()>& until = [] { return false; }) {
    for (Seconds past; past < time; past += kHeartbeat) {
      std::unique_lock lock(mutex);
      for (const auto* side : {&clients, &accepted}) {
        for (const Connection& one : *side) one->Send(EncodeClusterMessage(PingMessage{}));
      }
      if (told.wait_for(lock, std::chrono::duration<double>(kHeartbeat.value), until)) return;
    }
  }

  std::mutex mutex;
  std::condition_variable told;
  bool welcomes = false;
  std::vector<Connection> accepted, clients;
  size_t clients_ended = 0;
  std::vector<std::string> ends;
  FrameLoop server_loop, client_loop;
};

TEST(FrameConnectionTest, AStrangerThatOnlyPingsEnds) {
  Crowd strangers, welcome;
  welcome.welcomes = true;
  strangers.Come(*strangers.Listen(), 1);
  welcome.Come(*welcome.Listen(), 1);
  std::atomic<bool> over = false;
  std::thread other([&] {
    welcome.Ping(kHelloTime * 1.3);
    welcome.Ping(kHelloTime * 2, [&] { return over.load(); });
  });
  strangers.Ping(kHelloTime * 0.3);
  EXPECT_TRUE(strangers.Ends().empty());
  strangers.Ping(kHelloTime * 2, [&] { return !strangers.ends.empty(); });
  over = true;
  other.join();
  const auto ends = strangers.Ends();
  ASSERT_EQ(ends.size(), 1);
  EXPECT_NE(ends[0].find("no hello"), std::string::npos) << ends[0];
  EXPECT_TRUE(welcome.Ends().empty());
}

TEST(FrameConnectionTest, OfTooManyStrangersTheOldestEnds) {
  Crowd crowd;
  const int port = *crowd.Listen();
  crowd.Come(port, kMostStrangers + 50);
  crowd.Ping(kHelloTime * 0.8, [&] { return crowd.clients_ended >= 50; });
  crowd.Ping(Seconds(0.5));
  {
    const std::lock_guard lock(crowd.mutex);
    EXPECT_EQ(crowd.clients.size(), kMostStrangers + 50);
    EXPECT_EQ(crowd.clients_ended, 50);
    // Those that are welcome make way.
    for (const Connection& one : crowd.accepted) one->Welcome();
  }
  crowd.Come(port, 50);
  crowd.Ping(kHelloTime * 0.7, [&] { return crowd.accepted.size() == kMostStrangers + 100; });
  crowd.Ping(Seconds(0.5));
  const std::lock_guard lock(crowd.mutex);
  EXPECT_EQ(crowd.clients.size(), kMostStrangers + 100);
  EXPECT_EQ(crowd.clients_ended, 50);
}

TEST(FrameConnectionTest, AStrangersFrameIsShort) {
  Pair pair;
  pair.Meet();
  const Connection client = pair.client.WaitForConnection();
  client->Send(Frame(kMostStrangerBytes));
  EXPECT_EQ(pair.server.WaitForFrame().size(), kMostStrangerBytes);
  client->Send(Frame(kMostStrangerBytes + 1));
  EXPECT_NE(pair.server.WaitForEnd().find("beyond the bound"), std::string::npos);
}

// More than a machine's own buffers hold, and far less than a member may have waiting.
constexpr size_t kManyFrames = 40;

TEST(FrameConnectionTest, AStrangerThatDoesNotReadItsAnswersEnds) {
  Pair pair;
  pair.Meet();
  const Connection client = pair.client.WaitForConnection();
  client->Pause();
  client->Send(Frame(8));
  pair.server.WaitForFrame();
  const Connection server = pair.server.WaitForConnection();
  for (size_t i = 0; i < kManyFrames; ++i) server->Send(Frame(kMostStrangerQueuedBytes));
  EXPECT_NE(pair.server.WaitForEnd().find("does not read"), std::string::npos);
}

TEST(FrameConnectionTest, OneLongAnswerToAStrangerArrivesAndOnceWelcomeAll) {
  Pair pair;
  pair.Meet();
  const Connection client = pair.client.WaitForConnection();
  client->Send(Frame(8));
  pair.server.WaitForFrame();
  const Connection server = pair.server.WaitForConnection();
  constexpr size_t kLong = 16 * kMostStrangerQueuedBytes;
  server->Send(Frame(kLong));
  // The server ends who says nothing for long.
  pair.client_loop.Every(kHeartbeat, [client] { client->Send(Frame(1)); });
  EXPECT_EQ(pair.client.WaitForFrame().size(), kLong);
  server->Welcome();
  for (size_t i = 0; i < kManyFrames; ++i) server->Send(Frame(kMostStrangerQueuedBytes));
  for (size_t i = 0; i < kManyFrames; ++i) {
    ASSERT_EQ(pair.client.WaitForFrame().size(), kMostStrangerQueuedBytes)
        << pair.client.WaitForEnd() << ", " << pair.server.WaitForEnd();
  }
}

// Its machine was asleep, or it was held in a debugger: what came meanwhile was said in time.
TEST(FrameConnectionTest, WhoStandsStillForLongDoesNotTakeItForSilence) {
  Pair pair;
  pair.Meet();
  const Connection client = pair.client.WaitForConnection();
  client->Send(Frame(8));
  pair.server.WaitForFrame();
  const Connection server = pair.server.WaitForConnection();
  server->Welcome();
  client->Pause();  // It waits for the other one without end.
  server->Send(Frame(1));
  pair.client.WaitForFrame();
  const auto hold = std::chrono::duration<double>((kSilence + kHeartbeat).value);
  pair.server_loop.Every(Seconds(0), [hold, held = false]() mutable {
    if (!std::exchange(held, true)) std::this_thread::sleep_for(hold);
  });
  constexpr int kFrames = 10;
  for (int i = 0; i < kFrames; ++i) {
    client->Send(Frame(2));
    std::this_thread::sleep_for(hold / kFrames);
  }
  for (int i = 0; i < kFrames; ++i) EXPECT_EQ(pair.server.WaitForFrame().size(), 2u) << i;
}

TEST(FrameConnectionTest, NobodyThereIsAnErrorWithTheAddress) {
  Pair pair;
  pair.client_loop.Connect("127.0.0.1", 1, Seconds(5),
                           [&](auto given) { pair.client.Take(given); });
  EXPECT_NE(pair.client.WaitForEnd().find("cannot reach 127.0.0.1:1"), std::string::npos);
}

}  // namespace
}  // namespace divisi
