// What a transport holds does not grow with what it has done, nor with time: sockets, memory, and
// the connections themselves, after tens of thousands of writes and after hours without one.
#include <gtest/gtest.h>
#include <poll.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>

#include "divisi/core/clock.h"
#include "divisi/net/memory_network.h"
#include "divisi/net/ucx_transport.h"

namespace divisi {
namespace {

constexpr size_t kPage = 4096;
constexpr size_t kPages = 64;

// Open descriptors of this process.
int64_t Descriptors() {
  return std::distance(std::filesystem::directory_iterator("/proc/self/fd"),
                       std::filesystem::directory_iterator());
}

// Sockets of this host that wait for their ports to be free again.
int64_t TimeWaits() {
  std::ifstream lines("/proc/self/net/sockstat");
  std::string word;
  while (lines >> word && word != "tw") continue;
  int64_t count = 0;
  lines >> count;
  return count;
}

Bytes ResidentMemory() {
  std::ifstream file("/proc/self/statm");
  int64_t all = 0, resident = 0;
  file >> all >> resident;
  return Bytes(resident * 4096);
}

// A writer and an owner of one process.
struct Pair {
  std::unique_ptr<Transport> writer, owner;
  std::vector<std::byte> page = std::vector<std::byte>(kPage, std::byte{7});
  std::vector<std::byte> memory = std::vector<std::byte>(kPage * kPages);
  RegionDescriptor region;
  uint64_t begun = 0, good = 0, bad = 0;

  void Connect() {
    region = owner->Register(memory).value();
    ASSERT_TRUE(writer->Connect(region, owner->address()).ok());
  }
  void Poll() {
    for (const TransportEvent& event : writer->Poll()) {
      if (event.kind == TransportEvent::Kind::kWritten) ++(event.ok ? good : bad);
    }
    (void)owner->Poll();
  }
  // `count` writes, some of them under way at a time. `pass`: between polls.
  void Write(
      uint64_t count, const std::function<void()>& pass = [] {}) {
    constexpr uint64_t kUnderWay = 32;
    const uint64_t end = begun + count;
    for (int idle = 0; good + bad < end && idle < 1'000'000; ++idle) {
      while (begun < end && begun - good - bad < kUnderWay) {
        const Bytes offset(static_cast<int64_t>(begun % kPages * kPage));
        ASSERT_TRUE(writer->Write({region.owner, page, offset, begun}).ok());
        ++begun;
      }
      Poll();
      pass();
    }
    ASSERT_EQ(good, end);
  }
};

// AddressSanitizer keeps what was freed, up to this.
#ifdef __SANITIZE_ADDRESS__
constexpr int64_t kQuarantine = 256 << 20;
#else
constexpr int64_t kQuarantine = 0;
#endif

class UcxLifeTest : public testing::TestWithParam<bool> {
 protected:
  void Open(Pair& pair) {
    const auto open = [&](uint64_t id) {
      return OpenUcxTransport({.self = {id},
                               .read_peers = GetParam(),
                               .connect = Seconds(60),
                               .silence = Seconds(60)},
                              clock_)
          .value();
    };
    pair.writer = open(1);
    pair.owner = open(2);
    pair.Connect();
  }
  SteadyClock clock_;
};

TEST_P(UcxLifeTest, FiftyThousandWritesNeedNoMoreSocketsOrMemory) {
  Pair pair;
  Open(pair);
  pair.Write(2000);
  const int64_t descriptors = Descriptors(), waits = TimeWaits();
  const Bytes memory = ResidentMemory();
  pair.Write(50'000);
  EXPECT_EQ(Descriptors(), descriptors);
  EXPECT_LE(TimeWaits(), waits + 100);  // Other programs of the host count too.
  EXPECT_LT((ResidentMemory() - memory).value, kQuarantine + (16 << 20));
  EXPECT_EQ(pair.writer->stats().connections, 1);
  EXPECT_EQ(pair.owner->stats().connections, 1);
}

// Idle for thirty times what UCX waits before it looks whether the peer is there.
TEST_P(UcxLifeTest, AnIdleConnectionLasts) {
  setenv("UCX_KEEPALIVE_INTERVAL", "50ms", 1);
  Pair pair;
  Open(pair);
  unsetenv("UCX_KEEPALIVE_INTERVAL");
  pair.Write(10);
  const int64_t descriptors = Descriptors();
  for (int i = 0; i < 150; ++i) {
    pair.Poll();
    poll(nullptr, 0, 10);
  }
  pair.Write(10);
  EXPECT_EQ(Descriptors(), descriptors);
  EXPECT_EQ(pair.writer->stats().connections, 1);
}

INSTANTIATE_TEST_SUITE_P(Each, UcxLifeTest, testing::Bool(), [](const auto& info) {
  return std::string(info.param ? "memory" : "network");
});

TEST(MemoryLifeTest, AfterTwelveHoursNothingHasTimedOut) {
  ManualClock clock;
  MemoryNetwork network({}, clock);
  Pair pair{.writer = network.Open({.self = {1}, .listen = "a"}).value(),
            .owner = network.Open({.self = {2}, .listen = "b"}).value()};
  pair.Connect();
  const auto pass = [&clock] { clock.Advance(Seconds(20e-6)); };
  pair.Write(10, pass);
  EXPECT_FALSE(pair.writer->NextTimer() || pair.owner->NextTimer());
  for (int i = 0; i < 12 * 60; ++i) {
    clock.Advance(Seconds(60));
    pair.Poll();
  }
  pair.Write(10, pass);
  EXPECT_EQ(pair.writer->stats().connections, 1);
}

}  // namespace
}  // namespace divisi
