// A node that gives what it has from elsewhere, of memory for few objects, to several who ask.
#include "divisi/kv/store_source.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "divisi/kv/store_fixture.h"

namespace divisi {
namespace {

constexpr int kObjects = 12;  // That each reader asks for, all at once
constexpr MemoryNetworkOptions kSlow{.latency = Seconds(1e-3), .bandwidth = BytesPerSecond(1e6)};

class Numbered final : public StoreSource {
 public:
  explicit Numbered(int64_t count) {
    for (int64_t i = 0; i < count; ++i) objects_[StoreKey(i)] = StoreObject(i);
  }
  Bytes object_size() const override { return Bytes(static_cast<int64_t>(kStoreObject)); }
  bool Has(const BlockKey& key) const override { return objects_.contains(key); }
  Result<void> Read(const BlockKey& key, std::span<std::byte> to) override {
    std::ranges::copy(objects_.at(key), to.begin());
    return {};
  }

 private:
  std::map<BlockKey, std::vector<std::byte>> objects_;
};

struct Reader {
  std::vector<std::byte> memory = std::vector<std::byte>(kObjects * kStoreObject);
  std::unique_ptr<Transport> transport;
  std::optional<StorePool> pool;
  int64_t got = 0;
};

// The node is session i's with reader i.
class Giving {
 public:
  Giving(size_t readers, size_t places)
      : network_(kSlow, clock_),
        source_(static_cast<int64_t>(readers) * kObjects),
        memory_(places * kStoreObject),
        readers_(readers) {
    transport_ = Open({1}, "node");
    const auto region = transport_->Register(memory_).value();
    node_.emplace(StoreNodeOptions{.self = {1}, .source = &source_}, *transport_, memory_, region);
    for (size_t i = 0; i < readers; ++i) {
      Reader& reader = readers_[i];
      const NodeId id{100 + i};
      reader.transport = Open(id, Format("reader-{}", i));
      StorePoolOptions options{.directed = true};
      options.link.self = id;
      options.link.on_demand = Seconds(60);
      reader.pool.emplace(options, *reader.transport, reader.memory,
                          reader.transport->Register(reader.memory).value());
      CHECK(reader.pool->NodeFor("node") == size_t{0});
    }
  }

  // Objects of its own.
  void AskAll(size_t index) {
    Reader& reader = readers_[index];
    for (size_t i = 0; i < kObjects; ++i) {
      reader.pool->Begin({.number = i,
                          .keys = {StoreKey(static_cast<int64_t>(index * kObjects + i))},
                          .to = std::span(reader.memory).subspan(i * kStoreObject, kStoreObject),
                          .deadline = Seconds(100),
                          .node = 0},
                         clock_.Now());
    }
  }
  void Step() {
    clock_.Advance(Seconds(50e-6));
    const Seconds now = clock_.Now();
    node_->Step(now);
    for (const StoreNode::Output& output : node_->TakeOutputs(now)) {
      readers_[output.session].pool->Receive(0, output.frame, now);
    }
    for (size_t i = 0; i < readers_.size(); ++i) {
      StorePool& pool = *readers_[i].pool;
      pool.Step(now);
      for (const StorePool::Output& output : pool.TakeOutputs()) {
        if (output.what.kind == StoreLink::Output::Kind::kDial) pool.Dialed(0, {}, now);
        if (output.what.kind == StoreLink::Output::Kind::kSend) {
          node_->Receive(i, output.what.frame, now);
        }
      }
      for (const RemoteDone& done : pool.TakeDone()) {
        EXPECT_FALSE(done.error.has_value()) << done.error->message;
        readers_[i].got += done.ended;
      }
    }
  }
  int64_t got(size_t reader) const { return readers_[reader].got; }
  bool IsWhole(size_t index) const {
    for (size_t i = 0; i < kObjects; ++i) {
      const auto object = StoreObject(static_cast<int64_t>(index * kObjects + i));
      const auto there = std::span(readers_[index].memory).subspan(i * kStoreObject, kStoreObject);
      if (!std::ranges::equal(object, there)) return false;
    }
    return true;
  }

 private:
  std::unique_ptr<Transport> Open(NodeId id, const std::string& listen) {
    return network_.Open({.self = id, .listen = listen}).value();
  }

  ManualClock clock_;
  MemoryNetwork network_;
  Numbered source_;
  std::vector<std::byte> memory_;
  std::unique_ptr<Transport> transport_;
  std::optional<StoreNode> node_;
  std::vector<Reader> readers_;
};

TEST(StoreSourceTest, ReadersTakeTurns) {
  for (const size_t places : {1, 2, 3, 5}) {
    SCOPED_TRACE(places);
    constexpr size_t kReaders = 4;
    Giving giving(kReaders, places);
    for (size_t i = 0; i < kReaders; ++i) giving.AskAll(i);
    int64_t all = 0;
    for (int step = 0; step < 100000 && all < int64_t{kReaders} * kObjects; ++step) {
      giving.Step();
      int64_t least = kObjects, most = 0;
      all = 0;
      for (size_t i = 0; i < kReaders; ++i) {
        least = std::min(least, giving.got(i));
        most = std::max(most, giving.got(i));
        all += giving.got(i);
      }
      // Who came first has had the memory once before others were there.
      ASSERT_LE(most - least, static_cast<int64_t>(places) + 2);
    }
    EXPECT_EQ(all, int64_t{kReaders} * kObjects);
    for (size_t i = 0; i < kReaders; ++i) EXPECT_TRUE(giving.IsWhole(i));
  }
}

}  // namespace
}  // namespace divisi
