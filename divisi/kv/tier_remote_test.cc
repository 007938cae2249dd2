// Loads from the pool or a peer that are given up: others go on at once, and what was found out of
// their pages is told.
#include <gtest/gtest.h>

#include <thread>

#include "divisi/kv/host_store.h"
#include "divisi/kv/page_store_fixture.h"
#include "divisi/kv/remote_pages_fixture.h"
#include "divisi/kv/remote_store.h"
#include "divisi/kv/tier_io.h"

namespace divisi {
namespace {

constexpr PageShape kShape{.layers = 2, .layer_bytes = 2048};
constexpr size_t kPage = 4096;
constexpr Seconds kLong{30};

BlockKey Key(int number) { return NumberedPage(number, kShape).key; }

class TierRemoteTest : public testing::Test {
 protected:
  void Start(int64_t buffers = 4) {
    hub_ = ScriptedHub(pool_, Bytes(buffers * static_cast<int64_t>(2 * kPage)));
    const BlockKey model = NumberedPage(0, kShape).model;
    store_ = std::make_shared<RemotePageStore>(
        hub_, RemoteStoreOptions{
                  .shape = kShape, .model = model, .get = kLong, .run = Bytes(kShape.layer_bytes)});
    TierIoOptions options;
    options.stores = {.host = host_, .disk = disk_, .remote = store_};
    options.terms = {.shape = kShape, .model = model, .run = Bytes(kShape.layer_bytes)};
    io_ = std::make_unique<TierIo>(std::move(options));
    for (int i = 0; i < 4; ++i) {
      const auto payload = NumberedPayload(i, kShape);
      ASSERT_TRUE(host_->Put(NumberedPage(i, kShape), payload).ok());
      ASSERT_TRUE(inner_->Put(NumberedPage(i, kShape), payload).ok());
      pool_->Set(Key(i), EncodePageObject(NumberedPage(i, kShape), payload));
    }
  }
  ~TierRemoteTest() override { trouble_->Resume(); }

  PageLoad LoadOf(uint64_t id, const std::vector<Tier>& tiers) {
    PageLoad load{
        .id = id, .root = NumberedPage(0, kShape).root, .deadline = clock_.Now() + kLong * 2.0};
    for (size_t i = 0; i < tiers.size(); ++i) {
      load.pages.push_back(
          {Key(static_cast<int>(i)), tiers[i], std::span(device_).subspan(i * kPage, kPage)});
    }
    return load;
  }
  template <typename Condition>
  bool Soon(const Condition& condition) {
    for (const Seconds end = clock_.Now() + kLong * 0.5; clock_.Now() < end;) {
      if (condition()) return true;
      std::this_thread::yield();
    }
    return false;
  }
  std::optional<LoadDone> Await() {
    std::vector<LoadDone> done;
    EXPECT_TRUE(Soon([&] {
      if (done.empty()) done = io_->TakeLoads();
      return !done.empty();
    }));
    return done.empty() ? std::nullopt : std::optional(done[0]);
  }
  // A load of the pool that waits is cancelled, and one of host memory is read at once.
  void ExpectOthersGoOn() {
    io_->Cancel(1);
    EXPECT_EQ(Await()->end, LoadEnd::kCancelled);
    EXPECT_TRUE(Soon([&] { return io_->stats().loads_waiting == 0; }));
    EXPECT_FALSE(io_->stats().hangs);
    ASSERT_TRUE(io_->Load(LoadOf(2, {Tier::kHost})).ok());
    const auto done = Await();
    ASSERT_TRUE(done.has_value());
    EXPECT_EQ(done->end, LoadEnd::kDone);
    EXPECT_TRUE(done->bad.empty());  // Giving up is nothing that a page has done.
  }

  SteadyClock clock_;
  const std::shared_ptr<ScriptedPool> pool_ = std::make_shared<ScriptedPool>();
  const std::shared_ptr<Trouble> trouble_ = std::make_shared<Trouble>();
  std::shared_ptr<HostStore> host_ = HostStore::Create(kShape, Bytes(8 * kPage)).value();
  std::shared_ptr<HostStore> inner_ = HostStore::Create(kShape, Bytes(8 * kPage)).value();
  std::shared_ptr<PageStore> disk_ = std::make_shared<TroubledStore>(inner_, trouble_);
  std::vector<std::byte> device_ = std::vector<std::byte>(4 * kPage);
  std::shared_ptr<RemoteHub> hub_;
  std::shared_ptr<RemotePageStore> store_;
  std::unique_ptr<TierIo> io_;
};

// The first of several pages, or the last.
TEST_F(TierRemoteTest, ALoadThatWaitsForAPageEndsWhenItIsCancelled) {
  for (const bool by_layers : {false, true}) {
    for (const size_t pages : {1, 2}) {
      SCOPED_TRACE(pages + 10 * by_layers);
      io_.reset();
      pool_->parts = by_layers;
      pool_->silent = false;
      Start();
      pool_->silent = true;
      pool_->gets = 0;
      ASSERT_TRUE(io_->Load(LoadOf(1, std::vector(pages, Tier::kRemote))).ok());
      ASSERT_TRUE(Soon([&] { return pool_->gets > 0; }));
      ExpectOthersGoOn();
    }
  }
}

TEST_F(TierRemoteTest, ALoadThatWaitsForLayersEndsWhenItIsCancelled) {
  pool_->parts = pool_->silent_layers = true;
  Start();
  ASSERT_TRUE(io_->Load(LoadOf(1, {Tier::kRemote})).ok());
  ASSERT_TRUE(Soon([&] { return pool_->gets > 1; }));
  const Seconds then = clock_.Now() + Seconds(0.1);  // It waits for what it asked for.
  ASSERT_TRUE(Soon([&] { return clock_.Now() > then; }));
  ExpectOthersGoOn();
}

TEST_F(TierRemoteTest, ALoadThatWaitsForABufferEndsWhenItIsCancelled) {
  Start(1);
  const auto reader = store_->Open(Key(3));
  ASSERT_TRUE(reader.ok());
  ASSERT_TRUE(io_->Load(LoadOf(1, {Tier::kRemote})).ok());
  ASSERT_TRUE(Soon([&] { return io_->stats().loads_waiting == 1; }));
  ExpectOthersGoOn();
}

TEST_F(TierRemoteTest, WhatALoadFindsAfterItWasGivenUpTheNextTells) {
  Start();
  inner_->Remove(Key(1));
  trouble_->Hang();
  ASSERT_TRUE(io_->Load(LoadOf(1, {Tier::kDisk, Tier::kDisk})).ok());
  ASSERT_TRUE(Soon([&] { return trouble_->standing(); }));
  io_->Cancel(1);
  EXPECT_TRUE(Await()->bad.empty());
  trouble_->Resume();
  ASSERT_TRUE(Soon([&] { return io_->stats().loads_waiting == 0; }));
  for (uint64_t id = 2; id < 4; ++id) {
    ASSERT_TRUE(io_->Load(LoadOf(id, {Tier::kHost})).ok());
    const auto done = Await();
    EXPECT_EQ(done->end, LoadEnd::kDone);
    ASSERT_EQ(done->bad.size(), id == 2 ? 1 : 0);
  }
  EXPECT_EQ(io_->stats().tiers[static_cast<size_t>(Tier::kDisk)].pages_bad, 1);
}

TEST_F(TierRemoteTest, OnlyWhatSaysSomethingOfAPageCountsAsBad) {
  Start();
  const auto bad = [&](Code code) {
    pool_->error = static_cast<int>(code);
    EXPECT_TRUE(io_->Load(LoadOf(1, {Tier::kRemote})).ok());
    const auto done = Await();
    EXPECT_EQ(done->end, LoadEnd::kFailed);
    return io_->stats().tiers[static_cast<size_t>(Tier::kRemote)].pages_bad;
  };
  EXPECT_EQ(bad(Code::kUnavailable), 0);
  EXPECT_EQ(bad(Code::kResourceExhausted), 0);
  EXPECT_EQ(bad(Code::kNotFound), 1);
  EXPECT_EQ(bad(Code::kDataLoss), 2);
  EXPECT_FALSE(SaysOfPage(Tier::kDisk, Code::kResourceExhausted));
  EXPECT_TRUE(SaysOfPage(Tier::kDisk, Code::kUnavailable));  // It could not be read.
}

}  // namespace
}  // namespace divisi
