#include "divisi/kv/tier_io.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <map>

#include "divisi/kv/host_store.h"
#include "divisi/kv/page_store_fixture.h"

namespace divisi {
namespace {

using testing::HasSubstr;

constexpr PageShape kShape{.layers = 6, .layer_bytes = 64};
constexpr size_t kPage = 6 * 64;

// A HostStore behind a disk's face: it may be slow, fail and hang. Keeps the order of its reads.
struct Disk {
  std::shared_ptr<HostStore> inner = HostStore::Create(kShape, Bytes(64 * kPage)).value();
  std::shared_ptr<Trouble> trouble = std::make_shared<Trouble>();
  std::shared_ptr<PageStore> store = std::make_shared<TroubledStore>(inner, trouble);
};

// Device memory: page i of it belongs to the test.
class TierIoTest : public testing::Test {
 protected:
  TierIoTest() { Start(); }
  ~TierIoTest() override {
    disk_.trouble->Resume();
    io_.reset();
  }

  void Start(std::function<void(TierIoOptions&)> change = [](auto&) {}) {
    TierIoOptions options;
    options.stores = {.host = host_, .disk = disk_.store};
    options.terms = {.shape = kShape, .model = NumberedPage(0, kShape).model, .run = Bytes(128)};
    options.wake = [this] {
      const std::lock_guard lock(mutex_);
      woken_ = true;
      changed_.notify_all();
    };
    change(options);
    io_.reset();
    io_ = std::make_unique<TierIo>(std::move(options));
  }

  void Fill(PageStore& store, int from, int to) {
    for (int i = from; i < to; ++i) {
      ASSERT_TRUE(store.Put(NumberedPage(i, kShape), NumberedPayload(i, kShape)).ok());
    }
  }

  Seconds In(double seconds) const { return clock_.Now() + Seconds(seconds); }
  std::span<std::byte> Device(size_t page) {
    return std::span(device_).subspan(page * kPage, kPage);
  }
  bool Holds(size_t page, int number) {
    return std::ranges::equal(Device(page), NumberedPayload(number, kShape));
  }
  // Pages [from, from + tiers.size()), each of its tier, into the device's pages from `from` on.
  PageLoad LoadOf(uint64_t id, int from, const std::vector<Tier>& tiers) {
    PageLoad load{.id = id,
                  .root = NumberedPage(0, kShape).root,
                  .position = int64_t{16} * from,
                  .deadline = In(30),
                  .gate = std::make_shared<LayerGate>()};
    for (size_t i = 0; i < tiers.size(); ++i) {
      const int number = from + static_cast<int>(i);
      load.pages.push_back(
          {NumberedPage(number, kShape).key, tiers[i], Device(static_cast<size_t>(number))});
    }
    return load;
  }

  // Waits for the wake callback, up to a bound that a sanitizer on a busy machine keeps, too.
  template <typename Take>
  auto Await(Take take) {
    const Seconds end = In(60);
    for (;;) {
      auto done = take();
      if (!done.empty()) return done;
      std::unique_lock lock(mutex_);
      CHECK(changed_.wait_for(lock, std::chrono::seconds(60), [&] { return woken_; }) &&
                clock_.Now() < end,
            "no result");
      woken_ = false;
    }
  }
  LoadDone AwaitLoad() {
    const auto done = Await([&] { return io_->TakeLoads(); });
    EXPECT_EQ(done.size(), 1u);
    return done[0];
  }
  SaveDone AwaitSave() {
    const auto done = Await([&] { return io_->TakeSaves(); });
    EXPECT_EQ(done.size(), 1u);
    return done[0];
  }
  void AwaitStanding() {
    Until([&] { return disk_.trouble->standing(); });
  }
  template <typename Holds>
  void Until(Holds holds) {
    for (const Seconds end = In(60); !holds(); std::this_thread::yield()) {
      CHECK(clock_.Now() < end, "nothing happened");
    }
  }

  SteadyClock clock_;
  std::shared_ptr<HostStore> host_ = HostStore::Create(kShape, Bytes(64 * kPage)).value();
  Disk disk_;
  std::vector<std::byte> device_ = std::vector<std::byte>(64 * kPage);
  std::mutex mutex_;
  std::condition_variable changed_;
  bool woken_ = false;
  std::unique_ptr<TierIo> io_;
};

TEST_F(TierIoTest, LoadsFromSeveralTiersAtOnce) {
  Fill(*host_, 0, 2);
  Fill(*disk_.inner, 2, 4);
  const auto load = LoadOf(7, 0, {Tier::kHost, Tier::kHost, Tier::kDisk, Tier::kDisk});
  ASSERT_TRUE(io_->Load(load).ok());
  const LoadDone done = AwaitLoad();
  EXPECT_EQ(done.id, 7u);
  EXPECT_EQ(done.end, LoadEnd::kDone);
  EXPECT_EQ(done.pages_ok, 4);
  EXPECT_TRUE(done.bad.empty());
  EXPECT_EQ(load.gate->opened(), 6);
  for (int i = 0; i < 4; ++i) EXPECT_TRUE(Holds(static_cast<size_t>(i), i));
  io_->CountUsed(3);
  const TierIoStats stats = io_->stats();
  EXPECT_EQ(stats.tiers[1].pages_read, 2);
  EXPECT_EQ(stats.tiers[2].pages_read, 2);
  EXPECT_EQ(stats.tiers[2].read, Bytes(2 * kPage));
  EXPECT_GT(stats.tiers[2].read_rate.value, 0);
  EXPECT_EQ(stats.pages_loaded, 4);
  EXPECT_EQ(stats.pages_used, 3);
}

TEST_F(TierIoTest, ComputingFollowsLayerByLayer) {
  Fill(*disk_.inner, 0, 3);
  disk_.trouble->read_seconds_micro = 30'000;
  const auto load = LoadOf(1, 0, {Tier::kDisk, Tier::kDisk, Tier::kDisk});
  ASSERT_TRUE(io_->Load(load).ok());
  for (int layer = 0; layer < 6; ++layer) {
    ASSERT_TRUE(load.gate->Wait(layer, Seconds(60)));
    for (size_t page = 0; page < 3; ++page) {  // Of all pages, as far as the gate says.
      const auto is = Device(page).subspan(static_cast<size_t>(layer) * 64, 64);
      const auto whole = NumberedPayload(static_cast<int>(page), kShape);
      ASSERT_TRUE(
          std::ranges::equal(is, std::span(whole).subspan(static_cast<size_t>(layer) * 64, 64)));
    }
    EXPECT_TRUE(layer > 0 || load.gate->opened() < 6);
  }
  EXPECT_EQ(AwaitLoad().pages_ok, 3);
}

TEST_F(TierIoTest, ABadPageEndsThePrefixBeforeIt) {
  for (const bool missing : {true, false}) {
    Fill(*host_, 0, 5);
    const BlockKey bad = NumberedPage(3, kShape).key;
    if (missing) {
      host_->Remove(bad);
    } else {
      host_->BytesOf(bad)[5 * 64] ^= std::byte{1};  // The last layer.
    }
    std::ranges::fill(device_, std::byte{0});
    const auto load = LoadOf(1, 0, std::vector(5, Tier::kHost));
    ASSERT_TRUE(io_->Load(load).ok());
    const LoadDone done = AwaitLoad();
    EXPECT_EQ(done.end, LoadEnd::kFailed);
    EXPECT_EQ(done.pages_ok, 3);
    ASSERT_EQ(done.bad.size(), 1u);
    EXPECT_EQ(done.bad[0].key, bad);
    EXPECT_EQ(done.bad[0].tier, Tier::kHost);
    EXPECT_EQ(done.bad[0].code, missing ? Code::kNotFound : Code::kDataLoss);
    EXPECT_TRUE(load.gate->failed());
    EXPECT_LT(load.gate->opened(), 6);
    for (int i = 0; i < 3; ++i) EXPECT_TRUE(Holds(static_cast<size_t>(i), i));
  }
}

TEST_F(TierIoTest, TakesNoPageButTheOneAskedFor) {
  Fill(*host_, 0, 2);
  const auto why = [&](auto change) {
    auto load = LoadOf(1, 0, {Tier::kHost});
    change(load);
    EXPECT_TRUE(io_->Load(load).ok());
    const LoadDone done = AwaitLoad();
    EXPECT_EQ(done.pages_ok, 0);
    return done.bad.empty() ? "" : done.bad[0].why;
  };
  EXPECT_THAT(why([](auto& load) { load.root.bytes[0] ^= 1; }), HasSubstr("root: "));
  EXPECT_THAT(why([](auto& load) { load.position = 16; }), HasSubstr("position: 0, asked for 16"));
  EXPECT_THAT(why([](auto& load) { load.pages[0].tier = Tier::kRemote; }), HasSubstr("no tier"));
  Start([](auto& options) { options.terms.model.bytes[0] ^= 1; });
  EXPECT_THAT(why([](auto&) {}), HasSubstr("model: "));
}

TEST_F(TierIoTest, PastItsDeadlineTheRestIsNotRead) {
  Fill(*disk_.inner, 0, 20);
  disk_.trouble->read_seconds_micro = 100'000;
  auto load = LoadOf(1, 0, std::vector(20, Tier::kDisk));  // 80 reads, 8 s.
  load.deadline = In(0.1);
  const Seconds start = clock_.Now();
  ASSERT_TRUE(io_->Load(load).ok());
  const LoadDone done = AwaitLoad();
  EXPECT_LT((clock_.Now() - start).value, 5.0);
  EXPECT_EQ(done.end, LoadEnd::kLate);
  EXPECT_EQ(done.pages_ok, 0);
  EXPECT_TRUE(load.gate->failed());
  EXPECT_EQ(io_->stats().loads_late, 1);
  EXPECT_LT(io_->stats().tiers[2].read, Bytes(20 * kPage));
}

TEST_F(TierIoTest, AHangingReadEndsAtItsDeadlineAndNothingLandsLater) {
  Fill(*disk_.inner, 0, 2);
  Fill(*host_, 2, 3);
  disk_.trouble->Hang();
  auto hanging = LoadOf(1, 0, {Tier::kDisk, Tier::kDisk});
  hanging.deadline = In(1);
  auto behind = LoadOf(2, 2, {Tier::kHost});
  behind.deadline = In(1.2);
  ASSERT_TRUE(io_->Load(hanging).ok());
  AwaitStanding();
  ASSERT_TRUE(io_->Load(behind).ok());
  for (size_t ended = 0; ended < 2;) {
    const auto done = Await([&] { return io_->TakeLoads(); });
    for (const LoadDone& one : done) EXPECT_EQ(one.end, LoadEnd::kLate);
    ended += done.size();
  }
  EXPECT_FALSE(hanging.gate->Wait(0, Seconds(0)));
  Until([&] { return io_->stats().hangs; });
  EXPECT_EQ(io_->Load(behind).error().code, Code::kUnavailable);

  std::ranges::fill(device_, std::byte{42});  // It is somebody else's now.
  disk_.trouble->Resume();
  Until([&] { return io_->stats().loads_waiting == 0; });
  EXPECT_TRUE(std::ranges::all_of(device_, [](auto b) { return b == std::byte{42}; }));
  EXPECT_TRUE(io_->TakeLoads().empty());
  behind.deadline = In(30);
  ASSERT_TRUE(io_->Load(behind).ok());  // It goes on.
  EXPECT_EQ(AwaitLoad().pages_ok, 1);
}

TEST_F(TierIoTest, StopsInBoundedTimeWhileAReadHangs) {
  Start([](auto& options) { options.stop = Seconds(0.1); });
  Fill(*disk_.inner, 0, 1);
  disk_.trouble->Hang();
  const auto load = LoadOf(1, 0, {Tier::kDisk});
  ASSERT_TRUE(io_->Load(load).ok());
  AwaitStanding();
  const Seconds start = clock_.Now();
  io_.reset();
  EXPECT_LT((clock_.Now() - start).value, 5.0);
  EXPECT_TRUE(load.gate->failed());
  std::ranges::fill(device_, std::byte{42});
  std::weak_ptr<PageStore> store = disk_.store;
  disk_.store.reset();
  EXPECT_FALSE(store.expired());  // The thread that was left behind has it.
  disk_.trouble->Resume();
  Until([&] { return store.expired(); });
  EXPECT_TRUE(std::ranges::all_of(device_, [](auto b) { return b == std::byte{42}; }));
}

TEST_F(TierIoTest, CancelsWhatRunsAndWhatWaits) {
  Fill(*disk_.inner, 0, 2);
  disk_.trouble->Hang();
  ASSERT_TRUE(io_->Load(LoadOf(1, 0, {Tier::kDisk})).ok());
  AwaitStanding();
  ASSERT_TRUE(io_->Load(LoadOf(2, 1, {Tier::kDisk})).ok());
  io_->Cancel(2);
  io_->Cancel(1);
  io_->Cancel(3);
  std::ranges::fill(device_, std::byte{42});
  const auto done = io_->TakeLoads();
  ASSERT_EQ(done.size(), 2u);
  for (const LoadDone& one : done) EXPECT_EQ(one.end, LoadEnd::kCancelled);
  disk_.trouble->Resume();
  Until([&] { return io_->stats().loads_waiting == 0; });
  EXPECT_TRUE(std::ranges::all_of(device_, [](auto b) { return b == std::byte{42}; }));
  EXPECT_TRUE(io_->TakeLoads().empty());
  EXPECT_EQ(io_->stats().loads_cancelled, 2);
}

TEST_F(TierIoTest, FullQueuesRefuseAndCountIt) {
  Start([](auto& options) { options.most_loads = 2, options.most_saves = 1; });
  Fill(*disk_.inner, 0, 3);
  disk_.trouble->Hang();
  ASSERT_TRUE(io_->Load(LoadOf(1, 0, {Tier::kDisk})).ok());
  AwaitStanding();
  ASSERT_TRUE(io_->Load(LoadOf(2, 1, {Tier::kDisk})).ok());
  EXPECT_EQ(io_->Load(LoadOf(3, 2, {Tier::kDisk})).error().code, Code::kResourceExhausted);
  const PageSave promote{
      .id = 1, .header = NumberedPage(0, kShape), .from = Tier::kDisk, .to = Tier::kHost};
  ASSERT_TRUE(io_->Save(promote).ok());
  EXPECT_EQ(io_->Save(promote).error().code, Code::kResourceExhausted);
  EXPECT_EQ(io_->stats().loads_refused, 1);
  EXPECT_EQ(io_->stats().saves_refused, 1);
  disk_.trouble->Resume();
  // What nobody has taken counts, too.
  Until([&] { return io_->stats().loads == 2; });
  EXPECT_FALSE(io_->Load(LoadOf(3, 2, {Tier::kDisk})).ok());
  EXPECT_EQ(io_->TakeLoads().size(), 2u);
  EXPECT_TRUE(io_->Load(LoadOf(3, 2, {Tier::kDisk})).ok());
}

TEST_F(TierIoTest, SavesDemotesPromotesAndRemoves) {
  const auto payload = NumberedPayload(1, kShape);
  const PageHeader header = NumberedPage(1, kShape);
  const auto save = [&](Tier from, Tier to) {
    PageSave page{.id = 5, .header = header, .from = from, .to = to};
    if (from == Tier::kDevice) page.payload = payload;
    EXPECT_TRUE(io_->Save(page).ok());
    const SaveDone done = AwaitSave();
    EXPECT_EQ(done.id, 5u);
    EXPECT_TRUE(done.ok) << done.why;
  };
  save(Tier::kDevice, Tier::kHost);
  save(Tier::kHost, Tier::kDisk);
  io_->Remove(Tier::kHost, header.key);
  EXPECT_FALSE(host_->Open(header.key).ok());
  save(Tier::kDisk, Tier::kHost);
  io_->Remove(Tier::kDisk, header.key);
  save(Tier::kDevice, Tier::kDisk);  // After the removal: it stays.
  EXPECT_EQ(disk_.inner->stats().puts, 2);
  EXPECT_TRUE(disk_.inner->Open(header.key).ok());
  ASSERT_TRUE(io_->Load(LoadOf(1, 1, {Tier::kHost})).ok());
  EXPECT_EQ(AwaitLoad().pages_ok, 1);
  EXPECT_TRUE(Holds(1, 1));
  const TierIoStats stats = io_->stats();
  EXPECT_EQ(stats.tiers[1].pages_written, 2);
  EXPECT_EQ(stats.tiers[2].pages_written, 2);
  EXPECT_EQ(stats.tiers[2].written, Bytes(2 * kPage));
  EXPECT_EQ(stats.saves, 4);
}

TEST_F(TierIoTest, SaysWhySaveFailed) {
  const auto fails = [&](PageSave page) {
    EXPECT_TRUE(io_->Save(std::move(page)).ok());
    const SaveDone done = AwaitSave();
    EXPECT_FALSE(done.ok);
    return done;
  };
  const PageHeader header = NumberedPage(1, kShape);
  const auto payload = NumberedPayload(1, kShape);
  SaveDone done = fails({.id = 1, .header = header, .from = Tier::kDisk, .to = Tier::kHost});
  EXPECT_TRUE(done.source_bad);
  EXPECT_EQ(done.key, header.key);
  disk_.trouble->fail_every_put = 1;
  done = fails({.id = 2, .header = header, .to = Tier::kDisk, .payload = payload});
  EXPECT_FALSE(done.source_bad);
  EXPECT_THAT(done.why, HasSubstr("failed on command"));
  done = fails({.id = 3, .header = header, .to = Tier::kRemote, .payload = payload});
  EXPECT_THAT(done.why, HasSubstr("no tier remote"));
  EXPECT_EQ(io_->stats().saves_failed, 3);
}

TEST_F(TierIoTest, AHangingWriteEndsAndLeavesThePayloadAlone) {
  Start([](auto& options) { options.save_time = Seconds(1); });
  disk_.trouble->Hang();
  auto payload = NumberedPayload(1, kShape);
  PageSave save{.id = 1, .header = NumberedPage(1, kShape), .to = Tier::kDisk, .payload = payload};
  ASSERT_TRUE(io_->Save(save).ok());
  save.id = 2;
  ASSERT_TRUE(io_->Save(save).ok());
  std::vector<SaveDone> done;
  while (done.size() < 2)
    for (auto& one : Await([&] { return io_->TakeSaves(); })) done.push_back(std::move(one));
  EXPECT_THAT(done[0].why, HasSubstr("not done within"));
  EXPECT_FALSE(io_->Save({.id = 3}).ok());
  payload.clear();
  payload.shrink_to_fit();  // A sanitizer sees whoever still reads it.
  disk_.trouble->Resume();
  Until([&] { return io_->stats().saves_waiting == 0; });
  EXPECT_TRUE(io_->TakeSaves().empty());
}

// Its page is wanted: a request may wait for it.
TEST_F(TierIoTest, WhatTheDeviceSavesDoesNotWaitBehindOneThatHangs) {
  Start([](auto& options) { options.device_wait = Seconds(1); });
  Fill(*host_, 1, 2);
  disk_.trouble->Hang();
  ASSERT_TRUE(
      io_->Save(
             {.id = 1, .header = NumberedPage(1, kShape), .from = Tier::kHost, .to = Tier::kDisk})
          .ok());
  AwaitStanding();
  const auto payload = NumberedPayload(2, kShape);
  ASSERT_TRUE(io_->Save({.id = 2, .header = NumberedPage(2, kShape), .payload = payload}).ok());
  const SaveDone done = AwaitSave();
  EXPECT_EQ(done.id, 2u);
  EXPECT_FALSE(done.ok);
  EXPECT_FALSE(io_->Save({.id = 3, .header = NumberedPage(3, kShape), .payload = payload}).ok());
  disk_.trouble->Resume();
  EXPECT_TRUE(AwaitSave().ok);
  EXPECT_TRUE(io_->Save({.id = 4, .header = NumberedPage(2, kShape), .payload = payload}).ok());
  EXPECT_TRUE(AwaitSave().ok);
}

TEST_F(TierIoTest, SavesToDiskStandBackBehindLoads) {
  Fill(*disk_.inner, 0, 1);
  disk_.trouble->Hang();
  ASSERT_TRUE(io_->Load(LoadOf(1, 0, {Tier::kDisk})).ok());
  AwaitStanding();
  const auto payload = NumberedPayload(9, kShape);
  const PageHeader header = NumberedPage(9, kShape);
  ASSERT_TRUE(io_->Save({.id = 1, .header = header, .to = Tier::kDisk, .payload = payload}).ok());
  ASSERT_TRUE(io_->Save({.id = 2, .header = header, .to = Tier::kHost, .payload = payload}).ok());
  EXPECT_EQ(AwaitSave().id, 2u);  // Of memory: at once.
  EXPECT_EQ(io_->stats().saves_waiting, 1);
  disk_.trouble->Resume();
  EXPECT_EQ(AwaitSave().id, 1u);
}

TEST_F(TierIoTest, ButNotForever) {
  Start([](auto& options) { options.patience = Seconds(0.02); });
  Fill(*disk_.inner, 0, 1);
  disk_.trouble->Hang();
  ASSERT_TRUE(io_->Load(LoadOf(1, 0, {Tier::kDisk})).ok());
  AwaitStanding();
  ASSERT_TRUE(
      io_->Save(
             {.id = 1, .header = NumberedPage(0, kShape), .from = Tier::kHost, .to = Tier::kDisk})
          .ok());
  EXPECT_EQ(AwaitSave().id, 1u);  // It began: there is no such page in host memory.
}

// Loads and saves at random over tiers that fail: what is said to be good is.
TEST_F(TierIoTest, UnderTroubleEveryGoodPageIsGood) {
  Start([](auto& options) { options.most_saves = 4; });
  disk_.trouble->fail_every_read = 7;
  disk_.trouble->fail_every_put = 5;
  Random random(11);
  std::map<uint64_t, std::pair<int, int>> open;  // First page and count.
  int64_t good = 0, asked = 0, ended = 0;
  for (uint64_t id = 1; id <= 600; ++id) {
    const int from = static_cast<int>(random.Between(0, 3));
    const auto payload = NumberedPayload(from, kShape);
    if (random.Chance(0.5) && open.size() < 1) {
      std::vector<Tier> tiers;
      for (int64_t i = random.Between(1, 5); i > 0; --i) {
        tiers.push_back(random.Chance(0.5) ? Tier::kHost : Tier::kDisk);
      }
      std::ranges::fill(device_, std::byte{0});
      ASSERT_TRUE(io_->Load(LoadOf(id, from, tiers)).ok());
      open[id] = {from, static_cast<int>(tiers.size())};
      ++asked;
      if (random.Chance(0.2)) io_->Cancel(id);
    } else if (random.Chance(0.1)) {
      io_->Remove(random.Chance(0.5) ? Tier::kHost : Tier::kDisk, NumberedPage(from, kShape).key);
    } else {
      const int number = static_cast<int>(random.Between(0, 8));
      const auto bytes = NumberedPayload(number, kShape);
      PageSave save{.id = id, .header = NumberedPage(number, kShape), .payload = bytes};
      save.to = random.Chance(0.5) ? Tier::kHost : Tier::kDisk;
      if (io_->Save(save).ok()) (void)AwaitSave();
    }
    for (const LoadDone& done : io_->TakeLoads()) {
      const auto [first, count] = open.at(done.id);
      open.erase(done.id);
      ++ended;
      good += done.pages_ok;
      ASSERT_LE(done.pages_ok, count);
      for (int i = first; i < first + done.pages_ok; ++i) {
        ASSERT_TRUE(Holds(static_cast<size_t>(i), i));
      }
    }
  }
  while (ended < asked)
    ended += static_cast<int64_t>(Await([&] { return io_->TakeLoads(); }).size());
  EXPECT_GT(good, 20);
  EXPECT_EQ(io_->stats().loads, asked);
}

}  // namespace
}  // namespace divisi
