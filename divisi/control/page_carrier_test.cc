#include "divisi/control/page_carrier.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <mutex>

#include "divisi/core/clock.h"
#include "divisi/net/ucx_transport.h"

namespace divisi {
namespace {

constexpr Bytes kPage(4096);
constexpr size_t kPages = 4;

// What Poll gives within some seconds, until `count` answers are there.
std::vector<PageCarrier::Done> Answers(PageCarrier& carrier, size_t count) {
  std::vector<PageCarrier::Done> all;
  for (int i = 0; i < 5000 && all.size() < count; ++i) {
    for (const PageCarrier::Done& done : carrier.Poll()) all.push_back(done);
    poll(nullptr, 0, 1);
  }
  return all;
}

// Asks until no write of the peer can land any more, for some seconds at most.
bool Fenced(PageCarrier& carrier, NodeId peer) {
  for (int i = 0; i < 5000; ++i) {
    if (carrier.RemovePeer(peer)) return true;
    poll(nullptr, 0, 1);
  }
  return false;
}

TEST(PageCarrierTest, CarriesPagesBetweenTwoMemories) {
  const SteadyClock clock;
  std::vector<std::byte> from(kPages * 4096), to(kPages * 4096);
  for (size_t i = 0; i < from.size(); ++i) from[i] = static_cast<std::byte>(i * 7 % 251);
  const auto open = [&](uint64_t id, std::span<std::byte> memory) {
    auto transport = OpenUcxTransport({.self = {id}}, clock).value();
    return MakePageCarrier(std::move(transport), memory, kPage, [] {}).value();
  };
  const auto sender = open(1, from);
  const auto receiver = open(2, to);
  sender->AddPeer({2}, receiver->address(), receiver->descriptor());
  for (BlockId page = 0; page < 3; ++page) {
    sender->Write({.id = 10u + static_cast<uint64_t>(page),
                   .to = {2},
                   .from_page = page,
                   .to_page = static_cast<BlockId>(page + 1)});
  }
  const auto done = Answers(*sender, 3);
  ASSERT_EQ(done.size(), 3);
  for (const PageCarrier::Done& one : done) EXPECT_TRUE(one.ok);
  EXPECT_TRUE(std::equal(from.begin(), from.begin() + 3 * 4096, to.begin() + 4096));
  EXPECT_TRUE(Fenced(*receiver, {1}));
  sender->Write({.id = 20, .to = {9}, .from_page = 0, .to_page = 0});  // Of nobody
  const auto none = Answers(*sender, 1);
  ASSERT_EQ(none.size(), 1);
  EXPECT_FALSE(none[0].ok);
}

// What the test and its transport tell each other.
struct Wire {
  std::atomic<int> connects = 0, asked = 0;  // asked: to refuse
  std::atomic<bool> lands = false;           // Writes of refused peers, still
  std::atomic<bool> dead = false;            // Whoever is connected to is lost at once.
  std::atomic<int> wakes = 0;
};

// A transport whose events the test gives.
class Script final : public Transport {
 public:
  explicit Script(Wire& wire) : wire_(wire) {}
  ~Script() override { close(bell_); }
  const std::string& address() const override { return address_; }
  Result<RegionDescriptor> Register(std::span<std::byte>) override { return RegionDescriptor{}; }
  Result<void> Connect(const RegionDescriptor& region, const std::string&) override {
    ++wire_.connects;
    if (wire_.dead) Give({.kind = TransportEvent::Kind::kLost, .peer = region.owner});
    return {};
  }
  Result<void> Write(const RemoteWrite&) override { return {}; }
  Result<void> Disconnect(NodeId) override { return {}; }
  Result<void> Refuse(NodeId) override {
    ++wire_.asked;
    if (wire_.lands) return Error{Code::kUnavailable, "not yet"};
    return {};
  }
  std::vector<TransportEvent> Poll() override {
    const std::lock_guard lock(mutex_);
    return std::exchange(events_, {});
  }
  bool Arm() override { return true; }
  int fd() const override { return bell_; }
  std::optional<Seconds> NextTimer() const override { return Seconds(0.001); }
  TransportStats stats() const override { return {}; }
  void Give(TransportEvent event) {
    const std::lock_guard lock(mutex_);
    events_.push_back(std::move(event));
  }

 private:
  std::string address_ = "script";
  Wire& wire_;
  int bell_ = eventfd(0, EFD_NONBLOCK);
  std::mutex mutex_;
  std::vector<TransportEvent> events_;
};

struct Scripted {
  Wire wire;
  Script* script = new Script(wire);
  std::vector<std::byte> memory = std::vector<std::byte>(kPages * 4096);
  std::unique_ptr<PageCarrier> carrier =
      MakePageCarrier(std::unique_ptr<Transport>(script), memory, kPage, [this] {
        ++wire.wakes;
      }).value();

  explicit Scripted(bool fails = true) {
    const std::string descriptor = EncodeRegion({{2}, 1, Bytes(kPages * 4096)});
    const auto* data = reinterpret_cast<const std::byte*>(descriptor.data());
    carrier->AddPeer({2}, "there", {data, descriptor.size()});
    carrier->Write({.id = 5, .to = {2}, .from_page = 0, .to_page = 1});
    if (fails) Fail();
  }
  void Fail() {
    script->Give({.kind = TransportEvent::Kind::kWritten, .peer = {2}, .token = 5, .ok = false});
    script->Give({.kind = TransportEvent::Kind::kLost, .peer = {2}});
  }
};

TEST(PageCarrierTest, AFailedWriteIsToldOnlyWhenItCanNoLongerLand) {
  Scripted s;
  for (int i = 0; i < 3000 && s.wire.connects < 2; ++i) poll(nullptr, 0, 1);
  EXPECT_GE(s.wire.connects, 2);  // It tries to reach the peer anew.
  EXPECT_TRUE(s.carrier->Poll().empty());
  s.script->Give({.kind = TransportEvent::Kind::kConnected, .peer = {2}});
  const auto done = Answers(*s.carrier, 1);
  ASSERT_EQ(done.size(), 1);
  EXPECT_EQ(done[0].write, 5u);
  EXPECT_FALSE(done[0].ok);
}

TEST(PageCarrierTest, ARemovedPeersWritesAreOver) {
  Scripted s;
  for (int i = 0; i < 3000 && s.wire.connects < 2; ++i) poll(nullptr, 0, 1);
  EXPECT_TRUE(Fenced(*s.carrier, {2}));
  const auto done = Answers(*s.carrier, 1);
  ASSERT_EQ(done.size(), 1);
  EXPECT_FALSE(done[0].ok);
}

// A peer that hangs is removed with writes under way, which fail only then.
TEST(PageCarrierTest, WritesThatFailWithTheirPeersRemovalAreOver) {
  Scripted s(false);
  EXPECT_TRUE(Fenced(*s.carrier, {2}));
  s.Fail();
  const auto done = Answers(*s.carrier, 1);
  ASSERT_EQ(done.size(), 1);
  EXPECT_EQ(done[0].write, 5u);
  EXPECT_FALSE(done[0].ok);
}

// The carrier asks by itself until the peer's writes cannot land, and tells by wake; whoever asks
// it has an answer at once, and none is true before.
TEST(PageCarrierTest, APeersRemovalIsWaitedForByTheCarrierAlone) {
  Scripted s(false);
  s.wire.lands = true;
  EXPECT_FALSE(s.carrier->RemovePeer({2}));
  for (int i = 0; i < 3000 && s.wire.asked < 5; ++i) poll(nullptr, 0, 1);
  EXPECT_GE(s.wire.asked, 5);
  EXPECT_EQ(s.wire.wakes, 0);
  EXPECT_FALSE(s.carrier->RemovePeer({2}));
  s.wire.lands = false;
  for (int i = 0; i < 3000 && s.wire.wakes == 0; ++i) poll(nullptr, 0, 1);
  EXPECT_TRUE(s.carrier->RemovePeer({2}));
  EXPECT_TRUE(s.carrier->RemovePeer({2}));  // For good
}

// One whose words were late comes not back.
TEST(PageCarrierTest, APeerThatWasRemovedIsNotAddedAgain) {
  Scripted s(false);
  EXPECT_TRUE(Fenced(*s.carrier, {2}));
  const std::string descriptor = EncodeRegion({{2}, 1, Bytes(kPages * 4096)});
  const auto* data = reinterpret_cast<const std::byte*>(descriptor.data());
  s.carrier->AddPeer({2}, "there", {data, descriptor.size()});
  s.carrier->Write({.id = 6, .to = {2}, .from_page = 0, .to_page = 1});
  const auto done = Answers(*s.carrier, 1);
  ASSERT_EQ(done.size(), 1);
  EXPECT_EQ(done[0].write, 6u);
  EXPECT_FALSE(done[0].ok);
  EXPECT_EQ(s.wire.connects, 1);  // Of the first write
}

TEST(PageCarrierTest, ADeadPeerIsConnectedToAgainAndAgainWithPauses) {
  Scripted s(false);
  s.wire.dead = true;
  const SteadyClock clock;
  const Seconds began = clock.Now();
  s.Fail();
  for (int i = 0; i < 20'000 && s.wire.connects < 6; ++i) poll(nullptr, 0, 1);
  EXPECT_GE(s.wire.connects, 6);
  // The write's own, one at once, and those after 10, 30, 70 and 150 ms at the earliest.
  EXPECT_GE(clock.Now() - began, Seconds(0.15));
  EXPECT_TRUE(s.carrier->Poll().empty());
  s.script->Give({.kind = TransportEvent::Kind::kConnected, .peer = {2}});
  EXPECT_EQ(Answers(*s.carrier, 1).size(), 1);
}

}  // namespace
}  // namespace divisi
