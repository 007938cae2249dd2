// What the header of Transport promises, on every implementation: between processes over UCX (here
// two transports of one process, over its loopback), and over the modelled network.
#include "divisi/net/transport.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <sstream>

#include "divisi/core/clock.h"
#include "divisi/core/random.h"
#include "divisi/net/memory_network.h"
#include "divisi/net/ucx_transport.h"
#include "divisi/net/wire.h"

namespace divisi {
namespace {

using Kind = TransportEvent::Kind;

// Where transports meet.
class Fabric {
 public:
  virtual ~Fabric() = default;
  virtual Result<std::unique_ptr<Transport>> Open(const TransportOptions& options) = 0;
  virtual std::string AnyAddress() = 0;
  virtual Seconds Now() const = 0;
  virtual void Pass() = 0;  // A little time.
};

class UcxFabric final : public Fabric {
 public:
  explicit UcxFabric(bool read_peers) : read_peers_(read_peers) {}
  Result<std::unique_ptr<Transport>> Open(const TransportOptions& options) override {
    TransportOptions own = options;
    own.read_peers = read_peers_;
    return OpenUcxTransport(own, clock_);
  }
  std::string AnyAddress() override { return "127.0.0.1:0"; }
  Seconds Now() const override { return clock_.Now(); }
  void Pass() override {}

 private:
  SteadyClock clock_;
  const bool read_peers_;
};

class MemoryFabricOfTest final : public Fabric {
 public:
  MemoryFabricOfTest() : network_({.jitter = Seconds(50e-6), .repeat_chance = 0.3}, clock_) {}
  Result<std::unique_ptr<Transport>> Open(const TransportOptions& options) override {
    return network_.Open(options);
  }
  std::string AnyAddress() override { return Format("node-{}", ++nodes_); }
  Seconds Now() const override { return clock_.Now(); }
  void Pass() override { clock_.Advance(Seconds(10e-6)); }

 private:
  ManualClock clock_;
  MemoryNetwork network_;
  int nodes_ = 0;
};

// A process: its transport, the memory that others write to, and what it was told.
struct Process {
  NodeId id;
  std::unique_ptr<Transport> transport;
  std::vector<std::byte> memory;
  RegionDescriptor region;
  int connected = 0, lost = 0;
  std::map<uint64_t, TransportEvent> written;  // By token.

  void Poll() {
    for (TransportEvent& event : transport->Poll()) {
      if (event.kind == Kind::kConnected) ++connected;
      if (event.kind == Kind::kLost) ++lost;
      if (event.kind == Kind::kWritten) {
        EXPECT_TRUE(written.emplace(event.token, event).second) << "ended twice: " << event.token;
      }
    }
  }
  bool AllOk() const {
    return std::all_of(written.begin(), written.end(),
                       [](const auto& entry) { return entry.second.ok; });
  }
};

std::vector<std::byte> Noise(size_t size, uint64_t seed) {
  Random random(seed);
  std::vector<std::byte> bytes(size);
  for (size_t i = 0; i < size; i += 8) {
    const uint64_t word = random.Next64();
    std::memcpy(bytes.data() + i, &word, std::min<size_t>(8, size - i));
  }
  return bytes;
}

uint64_t Digest(std::span<const std::byte> bytes) {
  return Fnv1a({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
}

class TransportTest : public testing::TestWithParam<const char*> {
 protected:
  TransportTest() {
    const std::string name = GetParam();
    if (name == "memory") {
      fabric_ = std::make_unique<MemoryFabricOfTest>();
    } else {
      fabric_ = std::make_unique<UcxFabric>(name == "ucx_same_host");
    }
  }

  std::unique_ptr<Process> Start(uint64_t id, size_t bytes, const std::string& listen = "") {
    auto process = std::make_unique<Process>();
    process->id = {id};
    auto transport = fabric_->Open({.self = {id},
                                    .listen = listen.empty() ? fabric_->AnyAddress() : listen,
                                    .connect = patience_,
                                    .silence = patience_});
    CHECK(transport.ok(), "{}", transport.error().message);
    process->transport = std::move(*transport);
    process->memory.resize(bytes);
    process->region = process->transport->Register(process->memory).value();
    return process;
  }

  // Polls all until `done`; false after a minute of the fabric's time.
  bool Run(std::initializer_list<Process*> processes, const std::function<bool()>& done) {
    const Seconds end = fabric_->Now() + Seconds(60);
    while (!done()) {
      if (fabric_->Now() > end) return false;
      for (Process* process : processes) process->Poll();
      fabric_->Pass();
    }
    return true;
  }

  // Ends all between the two as `end` does, which is asked until it says so.
  bool End(Process& process, const std::function<Result<void>()>& end) {
    return Run({&process}, [&] { return end().ok(); });
  }

  static void Connect(Process& from, const Process& to) {
    const auto result = from.transport->Connect(to.region, to.transport->address());
    EXPECT_TRUE(result.ok()) << result.error().message;
  }

  std::unique_ptr<Fabric> fabric_;
  Seconds patience_{2};
};

TEST_P(TransportTest, WritesPagesOfEverySizeWhole) {
  patience_ = Seconds(60);  // By the real clock, on a loaded machine, under sanitizers.
  const std::vector<size_t> sizes = {0,     1,     7,       4096,    32768,      32768 + 1,
                                     65535, 65536, 1 << 20, 1835008, 9 * 262144, 5000001};
  size_t total = 0;
  for (const size_t size : sizes) total += size + 64;
  auto p = Start(1, 0), d = Start(2, total);
  Connect(*p, *d);
  std::vector<std::vector<std::byte>> pages;
  size_t at = 0;
  for (size_t i = 0; i < sizes.size(); ++i) {
    pages.push_back(Noise(sizes[i], i + 1));
    ASSERT_TRUE(
        p->transport->Write({d->id, pages[i], Bytes(static_cast<int64_t>(at)), 100 + i}).ok());
    at += sizes[i] + 64;
  }
  ASSERT_TRUE(Run({p.get(), d.get()}, [&] { return p->written.size() == sizes.size(); }));
  EXPECT_TRUE(p->AllOk());
  EXPECT_EQ(p->connected, 1);
  at = 0;
  for (size_t i = 0; i < sizes.size(); ++i) {
    const std::span<const std::byte> there(d->memory);
    EXPECT_EQ(Digest(there.subspan(at, sizes[i])), Digest(pages[i])) << sizes[i];
    for (size_t j = 0; j < 64; ++j) ASSERT_EQ(there[at + sizes[i] + j], std::byte{0}) << sizes[i];
    at += sizes[i] + 64;
  }
  EXPECT_EQ(p->transport->stats().bytes_written, d->transport->stats().bytes_received);
}

TEST_P(TransportTest, ManyInFlightBothWays) {
  patience_ = Seconds(60);  // By the real clock, on a loaded machine, under sanitizers.
  constexpr size_t kPage = 65536 + 512;
  constexpr size_t kPages = 400;
  auto a = Start(1, kPage * kPages), b = Start(2, kPage * kPages);
  Connect(*a, *b);
  Connect(*b, *a);
  const auto from_a = Noise(kPage * kPages, 1), from_b = Noise(kPage * kPages, 2);
  for (size_t i = 0; i < kPages; ++i) {
    const size_t to = (i * 37) % kPages;
    const Bytes offset(static_cast<int64_t>(to * kPage));
    const auto page = [&](const auto& all) { return std::span(all).subspan(to * kPage, kPage); };
    ASSERT_TRUE(a->transport->Write({b->id, page(from_a), offset, i}).ok());
    ASSERT_TRUE(b->transport->Write({a->id, page(from_b), offset, i}).ok());
  }
  ASSERT_TRUE(Run({a.get(), b.get()},
                  [&] { return a->written.size() == kPages && b->written.size() == kPages; }));
  EXPECT_TRUE(a->AllOk() && b->AllOk());
  EXPECT_EQ(Digest(b->memory), Digest(from_a));
  EXPECT_EQ(Digest(a->memory), Digest(from_b));
}

TEST_P(TransportTest, RefusesWhatIsOutOfRangeOrNotConnected) {
  auto p = Start(1, 0), d = Start(2, 1000);
  const auto page = Noise(100, 1);
  EXPECT_EQ(p->transport->Write({d->id, page, Bytes(0), 1}).error().code, Code::kUnavailable);
  Connect(*p, *d);
  EXPECT_EQ(p->transport->Write({d->id, page, Bytes(901), 1}).error().code, Code::kOutOfRange);
  EXPECT_EQ(p->transport->Write({d->id, page, Bytes(-1), 1}).error().code, Code::kOutOfRange);
  EXPECT_TRUE(p->transport->Write({d->id, page, Bytes(900), 2}).ok());
  ASSERT_TRUE(Run({p.get(), d.get()}, [&] { return p->written.size() == 1; }));
  EXPECT_TRUE(p->AllOk());
}

TEST_P(TransportTest, BoundsWritesThatHaveNotEnded) {
  auto p = Start(1, 0), d = Start(2, 8);
  Connect(*p, *d);
  const auto page = Noise(8, 1);
  for (int64_t i = 0; i < kMaxPendingWrites; ++i) {
    ASSERT_TRUE(p->transport->Write({d->id, page, Bytes(0), static_cast<uint64_t>(i)}).ok());
  }
  const auto more = p->transport->Write({d->id, page, Bytes(0), 1u << 20});
  ASSERT_FALSE(more.ok());
  EXPECT_EQ(more.error().code, Code::kResourceExhausted);
  ASSERT_TRUE(Run({p.get(), d.get()},
                  [&] { return static_cast<int64_t>(p->written.size()) == kMaxPendingWrites; }));
  EXPECT_TRUE(p->AllOk());
}

TEST_P(TransportTest, RefusesTheDescriptorOfAnotherLifeOrRegion) {
  auto p = Start(1, 0), d = Start(2, 100);
  const auto page = Noise(100, 1);
  RegionDescriptor other_life = d->region;
  other_life.owner = {3};
  RegionDescriptor other_key = d->region;
  other_key.key ^= 1;
  uint64_t token = 0;
  for (const RegionDescriptor& wrong : {other_life, other_key}) {
    ASSERT_TRUE(p->transport->Connect(wrong, d->transport->address()).ok());
    ASSERT_TRUE(p->transport->Write({wrong.owner, page, Bytes(0), ++token}).ok());
    const int lost = p->lost;
    ASSERT_TRUE(Run({p.get(), d.get()}, [&] { return p->lost == lost + 1; }));
    ASSERT_TRUE(p->written.contains(token));
    EXPECT_FALSE(p->written[token].ok);
    EXPECT_FALSE(p->written[token].reason.empty());
  }
  EXPECT_EQ(p->connected, 0);
  EXPECT_EQ(Digest(d->memory), Digest(std::vector<std::byte>(100)));
}

// A descriptor that says more than the region holds: the owner looks for itself.
TEST_P(TransportTest, OwnerChecksTheRange) {
  auto p = Start(1, 0), d = Start(2, 100000);
  RegionDescriptor wide = d->region;
  wide.size = Bytes(1 << 30);
  ASSERT_TRUE(p->transport->Connect(wide, d->transport->address()).ok());
  const auto page = Noise(60000, 1);
  ASSERT_TRUE(p->transport->Write({d->id, page, Bytes(40001), 1}).ok());
  ASSERT_TRUE(p->transport->Write({d->id, page, Bytes(40000), 2}).ok());
  ASSERT_TRUE(p->transport->Write({d->id, {}, Bytes(100001), 3}).ok());
  ASSERT_TRUE(Run({p.get(), d.get()}, [&] { return p->written.size() == 3; }));
  EXPECT_FALSE(p->written[1].ok);
  EXPECT_TRUE(p->written[2].ok) << p->written[2].reason;
  EXPECT_FALSE(p->written[3].ok);
}

TEST_P(TransportTest, DisconnectEndsEveryWriteAndConnectsAnew) {
  constexpr size_t kPage = 1 << 20;
  auto p = Start(1, 0), d = Start(2, kPage * 40);
  Connect(*p, *d);
  const auto page = Noise(kPage, 1);
  for (uint64_t i = 0; i < 40; ++i) {
    ASSERT_TRUE(p->transport->Write({d->id, page, Bytes(static_cast<int64_t>(i * kPage)), i}).ok());
  }
  ASSERT_TRUE(Run({p.get(), d.get()}, [&] { return p->written.size() >= 2; }));
  EXPECT_TRUE(End(*p, [&] { return p->transport->Disconnect(d->id); }));
  ASSERT_TRUE(Run({p.get(), d.get()}, [&] { return p->written.size() == 40 && p->lost == 1; }));
  EXPECT_TRUE(p->transport->Disconnect(d->id).ok());

  Connect(*p, *d);
  ASSERT_TRUE(Run({p.get(), d.get()}, [&] { return p->connected == 2; }));
  // From here on nothing of before may land.
  std::fill(d->memory.begin(), d->memory.end(), std::byte{0});
  ASSERT_TRUE(p->transport->Write({d->id, page, Bytes(0), 100}).ok());
  ASSERT_TRUE(Run({p.get(), d.get()}, [&] { return p->written.contains(100); }));
  EXPECT_TRUE(p->written[100].ok);
  const std::span<const std::byte> rest = std::span(d->memory).subspan(kPage);
  EXPECT_EQ(Digest(rest), Digest(std::vector<std::byte>(rest.size())));
}

TEST_P(TransportTest, RefuseFencesALifeForGood) {
  constexpr size_t kPage = 1 << 20;
  auto p = Start(1, 0), d = Start(2, kPage * 40);
  Connect(*p, *d);
  const auto page = Noise(kPage, 1);
  for (uint64_t i = 0; i < 40; ++i) {
    ASSERT_TRUE(p->transport->Write({d->id, page, Bytes(static_cast<int64_t>(i * kPage)), i}).ok());
  }
  ASSERT_TRUE(Run({p.get(), d.get()}, [&] { return p->written.size() >= 2; }));
  EXPECT_TRUE(End(*d, [&] { return d->transport->Refuse(p->id); }));
  std::fill(d->memory.begin(), d->memory.end(), std::byte{0});
  ASSERT_TRUE(Run({p.get(), d.get()}, [&] { return p->lost == 1; }));
  EXPECT_EQ(p->written.size(), 40u);
  Connect(*p, *d);
  ASSERT_TRUE(Run({p.get(), d.get()}, [&] { return p->lost == 2; }));
  EXPECT_EQ(p->connected, 1);
  EXPECT_EQ(Digest(d->memory), Digest(std::vector<std::byte>(d->memory.size())));
  EXPECT_FALSE(d->transport->Connect(p->region, p->transport->address()).ok());

  // It comes back as another.
  const std::string address = p->transport->address();
  p.reset();
  p = Start(3, 0, address);
  Connect(*p, *d);
  ASSERT_TRUE(p->transport->Write({d->id, page, Bytes(0), 1}).ok());
  ASSERT_TRUE(Run({p.get(), d.get()}, [&] { return p->written.contains(1); }));
  EXPECT_TRUE(p->written[1].ok) << p->written[1].reason;
}

TEST_P(TransportTest, AnOwnerThatReturnsIsAnother) {
  auto p = Start(1, 0), d = Start(2, 1000);
  Connect(*p, *d);
  ASSERT_TRUE(Run({p.get(), d.get()}, [&] { return p->connected == 1; }));
  const RegionDescriptor old = d->region;
  const std::string address = d->transport->address();
  d.reset();
  ASSERT_TRUE(Run({p.get()}, [&] { return p->lost == 1; }));
  d = Start(3, 1000, address);
  // With the old descriptor: refused. With the new: taken.
  ASSERT_TRUE(p->transport->Connect(old, address).ok());
  ASSERT_TRUE(Run({p.get(), d.get()}, [&] { return p->lost == 2; }));
  Connect(*p, *d);
  ASSERT_TRUE(Run({p.get(), d.get()}, [&] { return p->connected == 2; }));
}

TEST_P(TransportTest, NobodyThereOrNobodyAnswering) {
  auto p = Start(1, 0), d = Start(2, 1000);
  const auto page = Noise(10, 1);
  const std::string address = d->transport->address();
  // Nobody polls d.
  Connect(*p, *d);
  ASSERT_TRUE(p->transport->Write({d->id, page, Bytes(0), 1}).ok());
  ASSERT_TRUE(Run({p.get()}, [&] { return p->lost == 1; }));
  EXPECT_FALSE(p->written[1].ok);
  const RegionDescriptor region = d->region;
  d.reset();
  ASSERT_TRUE(p->transport->Connect(region, address).ok());
  ASSERT_TRUE(Run({p.get()}, [&] { return p->lost == 2; }));
}

TEST_P(TransportTest, SilenceOfAConnectedPeerFailsWrites) {
  auto p = Start(1, 0), d = Start(2, 1 << 20);
  Connect(*p, *d);
  ASSERT_TRUE(Run({p.get(), d.get()}, [&] { return p->connected == 1; }));
  const auto page = Noise(1 << 20, 1);
  const Seconds start = fabric_->Now();
  ASSERT_TRUE(p->transport->Write({d->id, page, Bytes(0), 1}).ok());
  ASSERT_TRUE(Run({p.get()}, [&] { return p->lost == 1; }));
  EXPECT_FALSE(p->written[1].ok);
  EXPECT_LT(fabric_->Now() - start, Seconds(3));
}

TEST_P(TransportTest, TakenAddressIsNamed) {
  auto d = Start(2, 8);
  const auto other = fabric_->Open({.self = {5}, .listen = d->transport->address()});
  ASSERT_FALSE(other.ok());
  EXPECT_EQ(other.error().code, Code::kUnavailable) << other.error().message;
  EXPECT_NE(other.error().message.find(d->transport->address()), std::string::npos)
      << other.error().message;
}

INSTANTIATE_TEST_SUITE_P(Each, TransportTest, testing::Values("ucx", "ucx_same_host", "memory"),
                         [](const auto& info) { return std::string(info.param); });

TEST(UcxTransportTest, RefusesToAdvertiseAWildcard) {
  SteadyClock clock;
  for (const char* listen : {"0.0.0.0:0", "[::]:0"}) {
    const auto transport = OpenUcxTransport({.self = {1}, .listen = listen}, clock);
    ASSERT_FALSE(transport.ok());
    EXPECT_EQ(transport.error().code, Code::kInvalidArgument) << transport.error().message;
  }
  const auto both =
      OpenUcxTransport({.self = {1}, .listen = "0.0.0.0:0", .advertise = "0.0.0.0"}, clock);
  EXPECT_FALSE(both.ok());
  const auto good =
      OpenUcxTransport({.self = {1}, .listen = "0.0.0.0:0", .advertise = "127.0.0.1"}, clock);
  ASSERT_TRUE(good.ok()) << good.error().message;
  EXPECT_TRUE((*good)->address().starts_with("127.0.0.1:")) << (*good)->address();
}

// The hosts, in hexadecimal, on whose ports this process listens.
std::set<std::string> ListeningHosts() {
  std::set<std::string> own;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code error;
    const std::string target = std::filesystem::read_symlink(entry.path(), error).string();
    if (target.starts_with("socket:[")) own.insert(target.substr(8, target.size() - 9));
  }
  std::set<std::string> hosts;
  for (const char* table : {"/proc/self/net/tcp", "/proc/self/net/tcp6"}) {
    std::ifstream lines(table);
    for (std::string line; std::getline(lines, line);) {
      std::istringstream words(line);
      std::string skip, address, state, inode;
      words >> skip >> address >> skip >> state;
      for (int i = 0; i < 6 && words >> inode; ++i) continue;
      if (state == "0A" && own.contains(inode)) hosts.insert(address.substr(0, address.find(':')));
    }
  }
  return hosts;
}

// UCX would open ports on every device, and they know no rights.
TEST(UcxTransportTest, OnLoopbackNoOtherHostReachesAnyPort) {
  SteadyClock clock;
  const auto d = OpenUcxTransport({.self = {1}}, clock).value();
  const auto p = OpenUcxTransport({.self = {2}}, clock).value();
  std::vector<std::byte> memory(8);
  ASSERT_TRUE(p->Connect(d->Register(memory).value(), d->address()).ok());
  for (int i = 0; i < 100; ++i) {
    (void)p->Poll();
    (void)d->Poll();
  }
  EXPECT_EQ(ListeningHosts(), std::set<std::string>{"0100007F"});
}

TEST(UcxTransportTest, NamesAnAddressThatIsNotOurs) {
  SteadyClock clock;
  const auto transport = OpenUcxTransport({.self = {1}, .listen = "192.0.2.1:0"}, clock);
  ASSERT_FALSE(transport.ok());
  EXPECT_NE(transport.error().message.find("192.0.2.1"), std::string::npos);
}

}  // namespace
}  // namespace divisi
