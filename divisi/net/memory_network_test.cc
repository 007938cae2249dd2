// Transport's promises under faults that the seed draws: broken, cut and stopped connections,
// killed owners. MEMORY_NETWORK_SEED=N runs one seed.
#include "divisi/net/memory_network.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <set>

#include "divisi/core/random.h"

namespace divisi {
namespace {

constexpr size_t kSlot = 20000;
constexpr size_t kSlots = 12;
constexpr NodeId kWriter{1};

struct Counts {
  int64_t good = 0, failed = 0, lost = 0, connected = 0, killed = 0, fenced = 0;
};

// One writer, one owner at a time. Each slot of the owner is written by one write at a time, and
// again only when the last is known to be over: after ok, or after a fence by either side.
class Chaos {
 public:
  explicit Chaos(uint64_t seed)
      : random_(seed),
        network_({.jitter = Seconds(30e-6),
                  .bandwidth = BytesPerSecond(1e9),
                  .linger = Seconds(1e-3),
                  .break_chance = random_.Chance(0.5) ? 0.01 : 0,
                  .repeat_chance = 0.2,
                  .seed = seed},
                 clock_),
        writer_(Open(kWriter)) {
    StartOwner();
  }

  Counts Run(int steps) {
    for (int i = 0; i < steps; ++i) {
      if (i < steps / 2 && random_.Chance(0.01)) Fault();
      Step();
    }
    network_.Stop(owner_id_, false);
    network_.Cut(kWriter, owner_id_, false);
    for (int i = 0; i < 20000 && !open_.empty(); ++i) Poll();
    EXPECT_TRUE(open_.empty()) << open_.size() << " writes never ended";
    return counts_;
  }

 private:
  std::unique_ptr<Transport> Open(NodeId id) {
    return network_
        .Open({.self = id,
               .listen = Format("node-{}", id.value),
               .connect = Seconds(2e-3),
               .silence = Seconds(3e-3)})
        .value();
  }

  void StartOwner() {
    owner_id_ = {owner_id_.value + 1};
    memory_.assign(kSlot * kSlots, std::byte{0});
    owner_ = Open(owner_id_);
    region_ = owner_->Register(memory_).value();
    unsure_.clear();
    last_.clear();
    connected_ = stopped_ = false;
  }

  void Fault() {
    switch (random_.Between(0, 4)) {
      case 0:
        network_.Kill(owner_id_);
        ++counts_.killed;
        for (int i = 0; i < 2000 && !open_.empty(); ++i) Poll();
        EXPECT_TRUE(open_.empty()) << "a dead owner's writes did not end";
        owner_.reset();
        return StartOwner();
      case 1:
        return network_.Cut(kWriter, owner_id_, true);
      case 2:
        stopped_ = true;
        return network_.Stop(owner_id_, true);
      case 3:
        if (stopped_) return;  // It can't call.
        ++counts_.fenced;
        EXPECT_TRUE(Ended());
        for (const size_t slot : unsure_) Remember(slot);
        return unsure_.clear();
      default:
        stopped_ = false;
        network_.Stop(owner_id_, false);
        return network_.Cut(kWriter, owner_id_, false);
    }
  }

  bool Ended() {
    for (int i = 0; i < 2000; ++i) {
      if (owner_->Disconnect(kWriter).ok()) return true;
      Poll();
    }
    return false;
  }

  std::span<std::byte> Slot(size_t slot) { return std::span(memory_).subspan(slot * kSlot, kSlot); }

  void Step() {
    const auto slot = static_cast<size_t>(random_.Between(0, kSlots - 1));
    const bool busy =
        std::ranges::any_of(open_, [slot](const auto& entry) { return entry.second.slot == slot; });
    if (!busy && !unsure_.contains(slot)) {
      CheckQuiet(slot);
      Write(slot);
    }
    if (!connected_) (void)writer_->Connect(region_, Format("node-{}", owner_id_.value));
    Poll();
  }

  void Write(size_t slot) {
    Pending write{slot, std::vector<std::byte>(kSlot)};
    const uint64_t token = ++tokens_;
    for (size_t i = 0; i < kSlot; ++i) write.bytes[i] = static_cast<std::byte>(token * 31 + i % 97);
    const Bytes offset(static_cast<int64_t>(slot * kSlot));
    const auto& kept = open_.emplace(token, std::move(write)).first->second;
    if (!writer_->Write({owner_id_, kept.bytes, offset, token})) {
      open_.erase(token);
    }
  }

  // Nothing touches a slot that no write is on its way to.
  void CheckQuiet(size_t slot) {
    const auto there = Slot(slot);
    const auto last = last_.find(slot);
    if (last == last_.end()) return;
    EXPECT_TRUE(std::ranges::equal(there, last->second)) << "slot " << slot << " changed by itself";
  }

  void Poll() {
    clock_.Advance(Seconds(10e-6));
    if (owner_ != nullptr) (void)owner_->Poll();
    for (const TransportEvent& event : writer_->Poll()) Handle(event);
  }

  void Handle(const TransportEvent& event) {
    if (event.kind == TransportEvent::Kind::kLost) {
      ++counts_.lost;
      connected_ = false;
    } else if (event.kind == TransportEvent::Kind::kConnected) {
      ++counts_.connected;
      connected_ = true;
      // Promise 4: nothing of before lands any more.
      for (const size_t slot : unsure_) Remember(slot);
      unsure_.clear();
    } else {
      End(event);
    }
  }

  void End(const TransportEvent& event) {
    const auto found = open_.find(event.token);
    ASSERT_NE(found, open_.end()) << "write " << event.token << " ended twice";
    const size_t slot = found->second.slot;
    if (event.ok) {
      EXPECT_TRUE(std::ranges::equal(Slot(slot), found->second.bytes)) << "ok, but not there";
      Remember(slot);
    } else {
      last_.erase(slot);
      unsure_.insert(slot);
    }
    ++(event.ok ? counts_.good : counts_.failed);
    open_.erase(found);
  }

  void Remember(size_t slot) { last_[slot] = {Slot(slot).begin(), Slot(slot).end()}; }

  struct Pending {
    size_t slot = 0;
    std::vector<std::byte> bytes;
  };

  Random random_;
  ManualClock clock_;
  MemoryNetwork network_;
  std::unique_ptr<Transport> writer_;
  NodeId owner_id_{1};
  std::vector<std::byte> memory_;
  std::unique_ptr<Transport> owner_;
  RegionDescriptor region_;
  bool connected_ = false;
  bool stopped_ = false;
  uint64_t tokens_ = 0;
  std::map<uint64_t, Pending> open_;
  std::set<size_t> unsure_;  // Slots in which a failed write may still land.
  std::map<size_t, std::vector<std::byte>> last_;
  Counts counts_;
};

TEST(MemoryNetworkTest, KeepsItsPromisesUnderFaults) {
  const char* one = std::getenv("MEMORY_NETWORK_SEED");
  const uint64_t first = one == nullptr ? 1 : std::strtoull(one, nullptr, 10);
  Counts all;
  for (uint64_t seed = first; seed < first + (one == nullptr ? 150 : 1); ++seed) {
    const Counts counts = Chaos(seed).Run(3000);
    ASSERT_FALSE(HasFailure()) << "rerun with MEMORY_NETWORK_SEED=" << seed;
    all.good += counts.good;
    all.failed += counts.failed;
    all.lost += counts.lost;
    all.connected += counts.connected;
    all.killed += counts.killed;
    all.fenced += counts.fenced;
  }
  if (one != nullptr) return;
  // What the seeds are for has happened.
  for (const int64_t count :
       {all.good, all.failed, all.lost, all.connected, all.killed, all.fenced}) {
    EXPECT_GT(count, 50);
  }
}

TEST(MemoryNetworkTest, SameSeedSameRun) {
  for (const uint64_t seed : {3, 4}) {
    const Counts a = Chaos(seed).Run(2000), b = Chaos(seed).Run(2000);
    EXPECT_EQ(std::tie(a.good, a.failed, a.lost, a.connected),
              std::tie(b.good, b.failed, b.lost, b.connected));
  }
}

}  // namespace
}  // namespace divisi
