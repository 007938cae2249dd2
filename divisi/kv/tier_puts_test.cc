// Saves to a store that takes several at a time: they are under way together, and hold up nothing.
#include <gtest/gtest.h>

#include <atomic>
#include <deque>
#include <map>
#include <mutex>
#include <set>
#include <thread>

#include "divisi/kv/host_store.h"
#include "divisi/kv/page_store_fixture.h"
#include "divisi/kv/remote_pages_fixture.h"
#include "divisi/kv/remote_store.h"
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
  PutTurn TurnOf(const BlockKey& key) const override {
    const std::lock_guard lock(mutex_);
    return paused_.contains(key) ? PutTurn::kPaused : PutTurn::kNow;
  }
  void Pause(int first, int last) {
    const std::lock_guard lock(mutex_);
    for (int i = first; i <= last; ++i) paused_.insert(NumberedPage(i, kShape).key);
  }
  void Resume() {
    const std::lock_guard lock(mutex_);
    paused_.clear();
  }
  void Remove(const BlockKey&) override { ++removed_; }
  int removed() const { return removed_; }

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
  std::atomic<int> removed_ = 0;
  std::set<BlockKey> paused_;
};

class TierPutsTest : public testing::Test {
 protected:
  void Start(Seconds save_time = Seconds(30), size_t most_paused = 16) {
    TierIoOptions options;
    options.stores = {.host = host_, .disk = disk_, .remote = pool_};
    if (remote_) options.stores.remote = remote_;
    options.terms = {.shape = kShape, .model = NumberedPage(0, kShape).model};
    options.save_time = save_time;
    options.device_wait = save_time;
    options.most_paused = most_paused;
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

  SteadyClock clock_;
  std::shared_ptr<HostStore> host_ = HostStore::Create(kShape, Bytes(8 * 128)).value();
  std::shared_ptr<HostStore> disk_ = HostStore::Create(kShape, Bytes(8 * 128)).value();
  std::shared_ptr<WaitingStore> pool_ = std::make_shared<WaitingStore>();
  std::shared_ptr<PageStore> remote_;  // In its place
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

TEST_F(TierPutsTest, WhatIsNotTakenNowWaitsAndOthersPass) {
  Start();
  pool_->Pause(0, 5);
  for (int i = 0; i < 7; ++i) Save(i, Tier::kRemote);
  Save(7, Tier::kDisk);
  io_->Remove(Tier::kRemote, NumberedPage(0, kShape).key);
  ASSERT_TRUE(Soon([&] { return pool_->begun() == 1 && done_.contains(107); }));
  EXPECT_TRUE(pool_->EndOne({}));
  ASSERT_TRUE(Soon([&] { return done_.contains(6); }));
  EXPECT_EQ(done_.size(), 2);
  EXPECT_EQ(pool_->removed(), 0);  // What comes behind a page's put stays there.
  pool_->Resume();
  ASSERT_TRUE(Soon([&] {
    pool_->EndOne({});
    return done_.size() == 8;
  }));
  for (const auto& [id, done] : done_) EXPECT_TRUE(done.ok) << id;
  EXPECT_TRUE(Soon([&] { return pool_->removed() == 1; }));
}

TEST_F(TierPutsTest, WhatNobodyTakesInTheTimeOfASaveEnds) {
  Start(Seconds(0.05));
  pool_->Pause(0, 1);
  Save(0, Tier::kRemote);
  const auto payload = NumberedPayload(1, kShape);
  ASSERT_TRUE(
      io_->Save(
             {.id = 1, .header = NumberedPage(1, kShape), .to = Tier::kRemote, .payload = payload})
          .ok());
  ASSERT_TRUE(Soon([&] { return done_.size() == 2; }));
  for (const auto& [id, done] : done_)
    EXPECT_NE(done.why.find("takes no pages now"), done.why.npos);
  EXPECT_EQ(pool_->begun(), 0);
}

// Of a node that is away, while another takes what comes.
TEST_F(TierPutsTest, MoreThanMayStandInOthersWayFailInTheirOrder) {
  Start(Seconds(30), 2);
  pool_->Pause(0, 3);
  for (int i = 0; i < 4; ++i) Save(i, Tier::kRemote);
  Save(7, Tier::kDisk);
  ASSERT_TRUE(Soon([&] { return done_.contains(107); }));
  const Seconds then = clock_.Now() + Seconds(0.1);
  ASSERT_TRUE(Soon([&] { return clock_.Now() > then; }));
  EXPECT_EQ(done_.size(), 1);  // Nobody else comes by.
  Save(4, Tier::kRemote);
  ASSERT_TRUE(Soon([&] { return pool_->EndOne({}); }));
  ASSERT_TRUE(Soon([&] { return done_.size() == 4; }));
  EXPECT_TRUE(done_.at(4).ok);
  EXPECT_FALSE(done_.at(0).ok || done_.at(1).ok);
  pool_->Resume();
  ASSERT_TRUE(Soon([&] {
    pool_->EndOne({});
    return done_.size() == 6;
  }));
  EXPECT_TRUE(done_.at(2).ok && done_.at(3).ok);
}

// What waits behind a page that failed is there when the pool is.
TEST_F(TierPutsTest, APoolThatIsAwayForAWhileGetsWhatWaited) {
  for (const Code code : {Code::kUnavailable, Code::kDeadlineExceeded}) {
    io_.reset();
    done_.clear();
    const auto scripted = std::make_shared<ScriptedPool>();
    const auto hub = ScriptedHub(scripted, Bytes(2 * 8192));
    const BlockKey model = NumberedPage(0, kShape).model;
    remote_ = std::make_shared<RemotePageStore>(
        hub, RemoteStoreOptions{
                 .shape = kShape, .model = model, .most_puts = 2, .first_pause = Seconds(2)});
    Start();
    scripted->error = static_cast<int>(code);
    for (int i = 0; i < 8; ++i) Save(i, Tier::kRemote);
    ASSERT_TRUE(Soon([&] { return !done_.empty(); }));
    scripted->error = 0;
    ASSERT_TRUE(Soon([&] { return done_.size() == 8; }));
    EXPECT_GE(scripted->size(), 5);  // All but those that were tried meanwhile.
  }
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
