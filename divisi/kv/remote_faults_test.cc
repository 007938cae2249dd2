// The remote pool as a tier over nodes and a network that fail in the middle of things: whatever is
// read is what was put, every call ends, and every buffer comes back. STORE_SEED=N runs one seed.
#include <gtest/gtest.h>

#include <condition_variable>
#include <cstdlib>
#include <map>
#include <mutex>
#include <thread>

#include "divisi/kv/page_loading.h"
#include "divisi/kv/page_store_fixture.h"
#include "divisi/kv/remote_store.h"
#include "divisi/kv/store_fixture.h"

namespace divisi {
namespace {

constexpr PageShape kShape{.layers = 2, .layer_bytes = 2048};
constexpr size_t kPage = 4096;
constexpr int64_t kBuffers = 6;
// So that something can happen while an object is under way: 8 ms each.
constexpr MemoryNetworkOptions kSlow{.latency = Seconds(1e-3), .bandwidth = BytesPerSecond(1e6)};

BlockKey Key(int number) { return NumberedPage(number, kShape).key; }

// A TestPool whose time runs on a thread of its own, as fast as it can.
class RunningPool final : public RemotePages {
 public:
  template <typename Fn>
  auto With(const Fn& fn) {
    const std::lock_guard lock(mutex_);
    return fn(*pool_);
  }

  RunningPool(TestPoolOptions options, bool parts, std::span<std::byte> memory,
              std::function<void()> wake)
      : wake_(std::move(wake)), parts_(parts) {
    options.memory = memory;
    options.told = [this](const RemoteDone& done) { done_.push_back(done); };
    pool_.emplace(options);
    thread_ = std::thread([this] { Loop(); });
  }
  ~RunningPool() override {
    With([this](TestPool&) { stop_ = true; });
    thread_.join();
  }

  // At a time of the pool.
  void In(Seconds wait, std::function<void(TestPool&)> fn) {
    With([&](TestPool& pool) { due_.emplace(pool.now().value + wait.value, std::move(fn)); });
  }

  uint64_t Get(const BlockKey& key, std::span<std::byte> to, Seconds deadline) override {
    return With([&](TestPool& pool) { return pool.Begin({.keys = {key}, .to = to}, deadline); });
  }
  uint64_t GetPart(const BlockKey& key, Bytes skip, std::span<std::byte> to,
                   Seconds deadline) override {
    return With([&](TestPool& pool) {
      return pool.Begin({.keys = {key}, .to = to, .skip = skip}, deadline);
    });
  }
  bool gets_parts() const override { return parts_; }
  uint64_t Put(const BlockKey& key, std::span<const std::byte> object, Seconds deadline) override {
    return With([&](TestPool& pool) {
      return pool.Begin({.kind = StoreCall::Kind::kPut, .keys = {key}, .object = object}, deadline);
    });
  }
  uint64_t Has(std::vector<BlockKey> keys, Seconds deadline) override {
    return With([&](TestPool& pool) { return pool.Ask(StoreCall::Kind::kHas, keys, deadline); });
  }
  uint64_t Remove(std::vector<BlockKey> keys, Seconds deadline) override {
    return With([&](TestPool& pool) { return pool.Ask(StoreCall::Kind::kRemove, keys, deadline); });
  }
  uint64_t Clear(Seconds deadline) override {
    return With([&](TestPool& pool) { return pool.Ask(StoreCall::Kind::kClear, {}, deadline); });
  }
  std::vector<RemoteDone> Poll() override {
    return With([this](TestPool&) { return std::exchange(done_, {}); });
  }
  std::vector<RemoteHealth> health() const override {
    const std::lock_guard lock(mutex_);
    return pool_->pool().health();
  }

 private:
  void Loop() {
    for (bool stop = false; !stop;) {
      const bool any = With([&](TestPool& pool) {
        for (int i = 0; i < 10; ++i) pool.Step();
        for (; !due_.empty() && due_.begin()->first <= pool.now().value;) {
          const auto fn = std::move(due_.begin()->second);
          due_.erase(due_.begin());
          fn(pool);
        }
        stop = stop_;
        return !done_.empty();
      });
      if (any) wake_();
      std::this_thread::yield();
    }
  }

  const std::function<void()> wake_;
  const bool parts_;
  mutable std::mutex mutex_;
  mutable std::optional<TestPool> pool_;
  std::vector<RemoteDone> done_;
  std::multimap<double, std::function<void(TestPool&)>> due_;
  bool stop_ = false;
  std::thread thread_;
};

class Tier {
 public:
  // parts: pages come layer by layer, not whole.
  Tier(bool parts, const TestPoolOptions& options) {
    hub_ =
        RemoteHub::Create(Bytes(kBuffers * static_cast<int64_t>(kStoreObject)),
                          [&](std::span<std::byte> memory, const Clock&,
                              std::function<void()> wake) -> Result<std::unique_ptr<RemotePages>> {
                            pool_ = new RunningPool(options, parts, memory, std::move(wake));
                            return std::unique_ptr<RemotePages>(pool_);
                          })
            .value();
    store_.emplace(hub_, RemoteStoreOptions{.shape = kShape,
                                            .model = NumberedPage(0, kShape).model,
                                            .get = Seconds(0.3),
                                            .put = Seconds(0.3),
                                            .run = Bytes(kShape.layer_bytes),
                                            .first_pause = Seconds(1e-3),
                                            .most_pause = Seconds(2e-3)});
  }

  bool Put(int number) {
    return store_->Put(NumberedPage(number, kShape), NumberedPayload(number, kShape)).ok();
  }
  void PutAll(int count) {
    for (int i = 0; i < count; ++i) {
      for (int tries = 0; !Put(i) && tries < 1000; ++tries) std::this_thread::yield();
    }
  }
  // How many of the pages [0, count) came; they are what was put.
  int64_t Load(int count, Seconds most = Seconds(20)) {
    std::vector<std::vector<std::byte>> pages(static_cast<size_t>(count));
    const SteadyClock clock;
    PageLoad load{.root = NumberedPage(0, kShape).root, .deadline = clock.Now() + most};
    for (int i = 0; i < count; ++i) {
      pages[static_cast<size_t>(i)].resize(kPage);
      load.pages.push_back({Key(i), divisi::Tier::kRemote, pages[static_cast<size_t>(i)]});
    }
    const TierStores stores{.remote = {std::shared_ptr<void>(), &*store_}};
    const LoadingTerms terms{
        .shape = kShape, .model = NumberedPage(0, kShape).model, .run = Bytes(kShape.layer_bytes)};
    Landing landing;
    const LoadDone done = PageLoading(load, stores, terms).Run(landing, clock);
    EXPECT_LT(done.took.value, most.value + 1);
    for (int i = 0; i < done.pages_ok; ++i) {
      EXPECT_EQ(pages[static_cast<size_t>(i)], NumberedPayload(i, kShape)) << i;
    }
    return done.pages_ok;
  }
  // Until the pool serves again all that is put into it.
  void PutAndLoadAll(int count) {
    for (int tries = 0; tries < 1000; ++tries) {
      PutAll(count);
      if (Load(count) == count) return;
      std::this_thread::yield();
    }
    ADD_FAILURE() << "the pool does not serve again";
  }
  // Nothing is under way: every buffer is back.
  void ExpectIdle() {
    const SteadyClock clock;
    const Seconds until = clock.Now() + Seconds(20);
    while (store_->stats().buffers_used > 0 && clock.Now() < until) std::this_thread::yield();
    EXPECT_EQ(store_->stats().buffers_used, 0);
  }
  RunningPool& pool() { return *pool_; }
  RemotePageStore& store() { return *store_; }

 private:
  RunningPool* pool_ = nullptr;  // The hub's
  std::shared_ptr<RemoteHub> hub_;
  std::optional<RemotePageStore> store_;
};

// Parts or not.
class RemoteFaultsTest : public testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(Pools, RemoteFaultsTest, testing::Bool());

TEST_P(RemoteFaultsTest, ANodeThatDiesInTheMiddleOfGetsAndPuts) {
  for (const double when : {0.001, 0.005, 0.011, 0.02, 0.05}) {
    SCOPED_TRACE(when);
    Tier tier(GetParam(), {.network = kSlow});
    tier.PutAll(12);
    tier.pool().In(Seconds(when), [](TestPool& pool) { pool.Kill(0); });
    EXPECT_LE(tier.Load(12), 12);
    tier.pool().With([](TestPool& pool) { pool.Start(0); });
    tier.pool().In(Seconds(when), [](TestPool& pool) { pool.Kill(0); });
    for (int i = 0; i < 12; ++i) (void)tier.Put(i);
    tier.pool().In(Seconds(when + 0.01), [](TestPool& pool) { pool.Start(0); });
    tier.PutAndLoadAll(12);
    tier.ExpectIdle();
  }
}

TEST_P(RemoteFaultsTest, ANodeThatHangsAndGoesOn) {
  Tier tier(GetParam(), {.network = kSlow});
  tier.PutAll(12);
  for (const double when : {0.0, 0.003, 0.02}) {
    tier.pool().In(Seconds(when), [](TestPool& pool) { pool.Stop(0, true); });
    tier.pool().In(Seconds(when + 0.6), [](TestPool& pool) { pool.Stop(0, false); });
    (void)tier.Load(12);
    for (int i = 0; i < 3; ++i) (void)tier.Load(12);  // Its late bytes disturb nobody.
    tier.PutAndLoadAll(12);
  }
  tier.ExpectIdle();
}

TEST_P(RemoteFaultsTest, ASlowNodeGivesWhatItCanInTime) {
  Tier tier(GetParam(),
            {.network = {.latency = Seconds(1e-3), .bandwidth = BytesPerSecond(2e5)}});  // 40 ms
  tier.PutAll(12);
  // Six at a time, of 0.3 s: the later ones are late.
  EXPECT_LE(tier.Load(12), 12);
  tier.ExpectIdle();
}

TEST_P(RemoteFaultsTest, OneOfTwoCopiesIsEnough) {
  Tier tier(GetParam(), {.nodes = 2, .copies = 2, .network = kSlow});
  tier.PutAll(12);
  tier.pool().In(Seconds(0.01), [](TestPool& pool) { pool.Kill(0); });
  EXPECT_EQ(tier.Load(12), 12);
  EXPECT_EQ(tier.Load(12), 12);
  EXPECT_TRUE(tier.store().TakeLostCopies().empty());
  tier.pool().With([](TestPool& pool) {
    pool.Start(0);
    EXPECT_TRUE(pool.Ready());
  });
  EXPECT_EQ(tier.Load(12), 12);
  EXPECT_FALSE(tier.store().TakeLostCopies().empty());
  tier.PutAll(12);
  EXPECT_EQ(tier.Load(12), 12);
  EXPECT_TRUE(tier.store().TakeLostCopies().empty());
  tier.ExpectIdle();
}

TEST_P(RemoteFaultsTest, AFullNodeGivesUpPagesAndALoadEndsThere) {
  Tier tier(GetParam(), {.node_memory = 5 * kStoreObject});
  tier.PutAll(12);
  EXPECT_EQ(tier.Load(12), 0);
  tier.PutAll(4);
  EXPECT_EQ(tier.Load(12), 4);
  tier.ExpectIdle();
}

void Fault(TestPool& pool, Random& random) {
  const auto node = static_cast<size_t>(random.Between(0, 1));
  switch (random.Between(0, 4)) {
    case 0:
      pool.Kill(node);
      break;
    case 1:
      pool.CutControl(node);
      break;
    case 2:
      pool.CutData(node, random.Chance(0.5));
      break;
    default:
      pool.Stop(node, random.Chance(0.5));
  }
}

void Repair(TestPool& pool) {
  for (size_t node = 0; node < 2; ++node) {
    pool.Kill(node);
    pool.CutData(node, false);
    pool.Start(node);
  }
}

TEST_P(RemoteFaultsTest, EverythingAtOnce) {
  const char* given = std::getenv("STORE_SEED");
  const uint64_t first = given != nullptr ? std::strtoull(given, nullptr, 10) : 1;
  const uint64_t last = given != nullptr ? first : 12;
  int64_t read = 0;
  for (uint64_t seed = first; seed <= last; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    Tier tier(GetParam(), {.nodes = 2,
                           .copies = random.Chance(0.5) ? size_t{2} : size_t{1},
                           .node_memory = 20 * kStoreObject,
                           .network = {.latency = Seconds(200e-6),
                                       .jitter = Seconds(100e-6),
                                       .bandwidth = BytesPerSecond(20e6),
                                       .linger = Seconds(1e-3),
                                       .break_chance = random.Chance(0.5) ? 0.01 : 0,
                                       .repeat_chance = 0.2,
                                       .seed = seed}});
    for (int round = 0; round < 12; ++round) {
      for (int i = 0; i < 2; ++i) {
        const auto drawn = random.Next64();
        tier.pool().In(Seconds(random.Uniform() * 0.02), [drawn](TestPool& pool) {
          Random own(drawn);
          Fault(pool, own);
        });
      }
      for (int i = 0; i < 10; ++i) (void)tier.Put(i);
      read += tier.Load(10, Seconds(2));
      if (random.Chance(0.6)) tier.pool().With(Repair);
      if (HasFailure()) return;
    }
    tier.pool().In(Seconds(0.03), Repair);
    tier.PutAndLoadAll(10);
    tier.ExpectIdle();
    if (HasFailure()) return;
  }
  EXPECT_GT(read, 0);
}

}  // namespace
}  // namespace divisi
