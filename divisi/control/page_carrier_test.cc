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
  EXPECT_TRUE(receiver->RemovePeer({1}));
  sender->Write({.id = 20, .to = {9}, .from_page = 0, .to_page = 0});  // Of nobody
  const auto none = Answers(*sender, 1);
  ASSERT_EQ(none.size(), 1);
  EXPECT_FALSE(none[0].ok);
}

// A transport whose events the test gives.
class Script final : public Transport {
 public:
  explicit Script(std::atomic<int>& connects) : connects_(connects) {}
  ~Script() override { close(bell_); }
  const std::string& address() const override { return address_; }
  Result<RegionDescriptor> Register(std::span<std::byte>) override { return RegionDescriptor{}; }
  Result<void> Connect(const RegionDescriptor&, const std::string&) override {
    ++connects_;
    return {};
  }
  Result<void> Write(const RemoteWrite&) override { return {}; }
  Result<void> Disconnect(NodeId) override { return {}; }
  Result<void> Refuse(NodeId) override { return {}; }
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
  std::atomic<int>& connects_;
  int bell_ = eventfd(0, EFD_NONBLOCK);
  std::mutex mutex_;
  std::vector<TransportEvent> events_;
};

struct Scripted {
  std::atomic<int> connects{0};
  Script* script = new Script(connects);
  std::vector<std::byte> memory = std::vector<std::byte>(kPages * 4096);
  std::unique_ptr<PageCarrier> carrier =
      MakePageCarrier(std::unique_ptr<Transport>(script), memory, kPage, [] {}).value();

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
  for (int i = 0; i < 3000 && s.connects < 2; ++i) poll(nullptr, 0, 1);
  EXPECT_GE(s.connects, 2);  // It tries to reach the peer anew.
  EXPECT_TRUE(s.carrier->Poll().empty());
  s.script->Give({.kind = TransportEvent::Kind::kConnected, .peer = {2}});
  const auto done = Answers(*s.carrier, 1);
  ASSERT_EQ(done.size(), 1);
  EXPECT_EQ(done[0].write, 5u);
  EXPECT_FALSE(done[0].ok);
}

TEST(PageCarrierTest, ARemovedPeersWritesAreOver) {
  Scripted s;
  for (int i = 0; i < 3000 && s.connects < 2; ++i) poll(nullptr, 0, 1);
  EXPECT_TRUE(s.carrier->RemovePeer({2}));
  const auto done = Answers(*s.carrier, 1);
  ASSERT_EQ(done.size(), 1);
  EXPECT_FALSE(done[0].ok);
}

// A peer that hangs is removed with writes under way, which fail only then.
TEST(PageCarrierTest, WritesThatFailWithTheirPeersRemovalAreOver) {
  Scripted s(false);
  EXPECT_TRUE(s.carrier->RemovePeer({2}));
  s.Fail();
  const auto done = Answers(*s.carrier, 1);
  ASSERT_EQ(done.size(), 1);
  EXPECT_EQ(done[0].write, 5u);
  EXPECT_FALSE(done[0].ok);
}

}  // namespace
}  // namespace divisi
