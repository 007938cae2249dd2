// Saves to a store that takes several at a time: they are under way together, and hold up nothing.
#include <gtest/gtest.h>

#include <deque>
#include <mutex>
#include <set>
#include <thread>

#include "divisi/kv/host_store.h"
#include "divisi/kv/page_store_fixture.h"
#include "divisi/kv/tier_io.h"

namespace divisi {
namespace {

constexpr PageShape kShape{.layers = 2, .layer_bytes = 64};
constexpr Seconds kLong{20};

// Puts end when they are told to.
class WaitingStore final : public PageStore {
 public:
  Result<std::unique_ptr<PageReader>> Open(const BlockKey&) override {
    return Error{Code::kNotFound, "nothing is read here"};
  }
  Result<void> Put(const PageHeader&, std::span<const std::byte>) override {
    return Error{Code::kInternal, "it takes several"};
  }
  void BeginPut(const PageHeader&, std::span<const std::byte>, PutDone done) override {
    const std::lock_guard lock(mutex_);
    puts_.push_back(std::move(done));
    ++begun_;
  }
  size_t most_puts() const override { return 3; }
  void Remove(const BlockKey&) override {}

  int begun() const {
    const std::lock_guard lock(mutex_);
    return begun_;
  }
  // False: none is under way.
  bool EndOne(const Result<void>& end) {
    PutDone done;
    {
      const std::lock_guard lock(mutex_);
      if (puts_.empty()) return false;
      done = std::move(puts_.front());
      puts_.pop_front();
    }
    done(end);
    return true;
  }

 private:
  mutable std::mutex mutex_;
  std::deque<PutDone> puts_;
  int begun_ = 0;
};

class TierPutsTest : public testing::Test {
 protected:
  void Start(Seconds save_time = Seconds(30)) {
    TierIoOptions options;
    options.stores = {.host = host_, .disk = disk_, .remote = pool_};
    options.terms = {.shape = kShape, .model = NumberedPage(0, kShape).model};
    options.save_time = save_time;
    io_ = std::make_unique<TierIo>(std::move(options));
    for (int i = 0; i < 8; ++i) {
      ASSERT_TRUE(host_->Put(NumberedPage(i, kShape), NumberedPayload(i, kShape)).ok());
    }
  }
  void Save(int number, Tier to) {
    ASSERT_TRUE(io_->Save({.id = static_cast<uint64_t>(number) + 100 * (to == Tier::kDisk),
                           .header = NumberedPage(number, kShape),
                           .from = Tier::kHost,
                           .to = to})
                    .ok());
  }
  template <typename Condition>
  bool Soon(const Condition& condition) {
    for (const Seconds end = clock_.Now() + kLong; clock_.Now() < end;) {
      for (SaveDone& done : io_->TakeSaves()) done_[done.id] = std::move(done);
      if (condition()) return true;
      std::this_thread::yield();
    }
    return false;
  }

  const SteadyClock clock_;
  std::shared_ptr<HostStore> host_ = HostStore::Create(kShape, Bytes(8 * 128)).value();
  std::shared_ptr<HostStore> disk_ = HostStore::Create(kShape, Bytes(8 * 128)).value();
  std::shared_ptr<WaitingStore> pool_ = std::make_shared<WaitingStore>();
  std::unique_ptr<TierIo> io_;
  std::map<uint64_t, SaveDone> done_;
};

TEST_F(TierPutsTest, SeveralAreUnderWayAndOthersPass) {
  Start();
  for (int i = 0; i < 5; ++i) Save(i, Tier::kRemote);
  Save(7, Tier::kDisk);
  ASSERT_TRUE(Soon([&] { return done_.contains(107); }));  // Behind two that wait for their turn
  EXPECT_TRUE(done_.at(107).ok);
  EXPECT_EQ(pool_->begun(), 3);
  EXPECT_EQ(io_->stats().saves_waiting, 5);
  EXPECT_TRUE(pool_->EndOne({}));
  ASSERT_TRUE(Soon([&] { return pool_->begun() == 4 && done_.contains(0); }));
  EXPECT_TRUE(pool_->EndOne(Error{Code::kUnavailable, "gone"}));
  ASSERT_TRUE(Soon([&] { return pool_->begun() == 5 && done_.contains(1); }));
  EXPECT_TRUE(done_.at(0).ok);
  EXPECT_FALSE(done_.at(1).ok);
  EXPECT_FALSE(done_.at(1).source_bad);
  EXPECT_EQ(done_.at(1).why, "gone");
  while (pool_->EndOne({})) {
  }
  ASSERT_TRUE(Soon([&] { return done_.size() == 6; }));
  // The last may end before the thread that began it is back.
  EXPECT_TRUE(Soon([&] { return io_->stats().saves_waiting == 0; }));
  const TierIoStats stats = io_->stats();
  EXPECT_EQ(stats.tiers[static_cast<size_t>(Tier::kRemote)].pages_written, 4);
  EXPECT_EQ(stats.tiers[static_cast<size_t>(Tier::kRemote)].written, Bytes(4 * 128));
}

TEST_F(TierPutsTest, OneThatNeverEndsIsGivenUp) {
  Start(Seconds(0.05));
  Save(1, Tier::kRemote);
  ASSERT_TRUE(Soon([&] { return done_.contains(1); }));
  EXPECT_FALSE(done_.at(1).ok);
  EXPECT_NE(done_.at(1).why.find("not done within"), std::string::npos);
  EXPECT_FALSE(io_->stats().hangs);
  EXPECT_TRUE(pool_->EndOne({}));  // Too late
  Save(2, Tier::kDisk);
  ASSERT_TRUE(Soon([&] { return done_.contains(102); }));
  EXPECT_EQ(done_.size(), 2);
}

TEST_F(TierPutsTest, APageThatIsGoneIsNoPut) {
  Start();
  host_->Remove(NumberedPage(3, kShape).key);
  Save(3, Tier::kRemote);
  ASSERT_TRUE(Soon([&] { return done_.contains(3); }));
  EXPECT_TRUE(done_.at(3).source_bad);
  EXPECT_EQ(pool_->begun(), 0);
  EXPECT_TRUE(Soon([&] { return io_->stats().saves_waiting == 0; }));
}

TEST_F(TierPutsTest, APutMayOutliveWhoBeganIt) {
  Start();
  Save(1, Tier::kRemote);
  ASSERT_TRUE(Soon([&] { return pool_->begun() == 1; }));
  io_.reset();
  EXPECT_EQ(pool_.use_count(), 1);  // Whoever ends the put owns no store.
  EXPECT_TRUE(pool_->EndOne({}));
}

}  // namespace
}  // namespace divisi
