// A pool that gives parts of objects: loads come layer by layer, so that computing can follow.
#include <gtest/gtest.h>

#include "divisi/kv/page_loading.h"
#include "divisi/kv/page_store_fixture.h"
#include "divisi/kv/remote_pages_fixture.h"
#include "divisi/kv/remote_store.h"

namespace divisi {
namespace {

constexpr PageShape kShape{.layers = 4, .layer_bytes = 4096};
constexpr size_t kPage = 4 * 4096;
constexpr PageOpening kByLayers{.within = Seconds(20), .use = PageUse::kLayers};

// Of a get: so long that another thread acts before the next ones end, on a busy machine too.
constexpr int kSlow = 20'000;  // Microseconds

BlockKey Key(int number) { return NumberedPage(number, kShape).key; }

struct Worker {
  explicit Worker(int64_t buffers = 8, RemoteStoreOptions options = {}) {
    pool->parts = true;
    hub = ScriptedHub(pool, Bytes(buffers * static_cast<int64_t>(kPageHeadBytes + kPage)));
    options.shape = kShape;
    options.model = NumberedPage(0, kShape).model;
    options.run = Bytes(kShape.layer_bytes);
    store = std::make_shared<RemotePageStore>(hub, options);
  }
  void Fill(int count) {
    for (int i = 0; i < count; ++i) {
      pool->Set(Key(i), EncodePageObject(NumberedPage(i, kShape), NumberedPayload(i, kShape)));
    }
  }
  void Damage(int number, size_t at) {
    auto object = *pool->Of(Key(number));
    object[at] ^= std::byte{4};
    pool->Set(Key(number), std::move(object));
  }
  PageLoad LoadOf(int count, Seconds most = Seconds(20)) {
    pages.assign(static_cast<size_t>(count), std::vector<std::byte>(kPage));
    PageLoad load{.root = NumberedPage(0, kShape).root, .deadline = clock.Now() + most};
    load.gate = std::make_shared<LayerGate>();
    for (int i = 0; i < count; ++i) {
      load.pages.push_back({Key(i), Tier::kRemote, pages[static_cast<size_t>(i)]});
    }
    return load;
  }
  LoadDone Run(const PageLoad& load, Landing& landing) {
    const TierStores stores{.remote = store};
    const LoadingTerms terms{
        .shape = kShape, .model = NumberedPage(0, kShape).model, .run = Bytes(kShape.layer_bytes)};
    return PageLoading(load, stores, terms).Run(landing, clock);
  }
  LoadDone Load(int count) {
    Landing landing;
    LoadDone done = Run(LoadOf(count), landing);
    for (int i = 0; i < done.pages_ok; ++i) {
      EXPECT_EQ(pages[static_cast<size_t>(i)], NumberedPayload(i, kShape)) << i;
    }
    return done;
  }
  void ExpectIdle() {
    const Seconds until = clock.Now() + Seconds(20);
    while (store->stats().buffers_used > 0 && clock.Now() < until) std::this_thread::yield();
    EXPECT_EQ(store->stats().buffers_used, 0);
  }

  const std::shared_ptr<ScriptedPool> pool = std::make_shared<ScriptedPool>();
  const SteadyClock clock;
  std::shared_ptr<RemoteHub> hub;
  std::shared_ptr<RemotePageStore> store;
  std::vector<std::vector<std::byte>> pages;
};

TEST(RemotePartsTest, ComputingFollowsWhileLaterLayersAreStillToCome) {
  Worker worker(8, {.get = Seconds(5)});
  worker.Fill(10);
  worker.pool->micros = kSlow;
  Landing landing;
  const PageLoad load = worker.LoadOf(10);
  std::thread computing([&] {
    for (int layer = 0; layer < kShape.layers; ++layer) {
      ASSERT_TRUE(load.gate->Wait(layer, Seconds(20)));
      for (int page = 0; page < 10; ++page) {
        const auto at = static_cast<std::ptrdiff_t>(layer * kShape.layer_bytes);
        const auto& there = worker.pages[static_cast<size_t>(page)];
        const auto payload = NumberedPayload(page, kShape);
        EXPECT_TRUE(std::equal(there.begin() + at, there.begin() + at + kShape.layer_bytes,
                               payload.begin() + at));
      }
    }
  });
  const LoadDone done = worker.Run(load, landing);
  computing.join();
  EXPECT_EQ(done.pages_ok, 10);
  EXPECT_GE(load.gate->waiting().waits, kShape.layers);  // None had to wait for all.
  EXPECT_GT(worker.pool->most_under_way, 4);
  worker.ExpectIdle();
}

TEST(RemotePartsTest, WhereNobodyFollowsPagesComeWhole) {
  Worker worker;
  worker.Fill(10);
  Landing landing;
  PageLoad load = worker.LoadOf(10);
  load.by_layers = false;
  EXPECT_EQ(worker.Run(load, landing).pages_ok, 10);
  EXPECT_EQ(worker.pages[9], NumberedPayload(9, kShape));
  EXPECT_EQ(load.gate->opened(), kShape.layers);
  EXPECT_EQ(worker.pool->gets, 10);
  // And as many as can be are there in the end.
  worker.Damage(6, kPageHeadBytes);
  EXPECT_EQ(worker.Run(load, landing).pages_ok, 6);
  worker.ExpectIdle();
}

TEST(RemotePartsTest, TwoBuffersAreEnough) {
  Worker worker(2);
  worker.Fill(40);
  EXPECT_EQ(worker.Load(40).pages_ok, 40);
  worker.ExpectIdle();
  EXPECT_EQ(worker.pool->gets - worker.store->stats().unwanted, 40 * (1 + kShape.layers));
}

// What is hinted is what is read next, so that with few buffers nothing is got twice.
TEST(RemotePartsTest, WithFewBuffersNothingIsGotTwice) {
  Worker worker(5);
  worker.Fill(40);
  worker.pool->micros = 20;
  EXPECT_EQ(worker.Load(40).pages_ok, 40);
  EXPECT_EQ(worker.pool->gets, 40 * (1 + kShape.layers));
  EXPECT_EQ(worker.store->stats().unwanted, 0);
}

TEST(RemotePartsTest, AReaderTakesAllLayersAtOnceToo) {
  Worker worker(2);
  worker.Fill(1);
  const auto reader = worker.store->OpenWithin(Key(0), kByLayers);
  ASSERT_TRUE(reader.ok());
  (*reader)->WillRead(0, kShape.layers);
  std::vector<std::byte> got(kPage);
  EXPECT_TRUE((*reader)->ReadLayers(0, kShape.layers, got).ok());
  EXPECT_EQ(got, NumberedPayload(0, kShape));
}

// In its head or in one of its layers.
TEST(RemotePartsTest, ADamagedPageEndsTheLoadBeforeItAndIsRemoved) {
  for (const size_t at :
       {size_t{0}, size_t{30}, size_t{150}, kPageHeadBytes + 5, kPageHeadBytes + kPage - 1}) {
    SCOPED_TRACE(at);
    Worker worker;
    worker.Fill(10);
    worker.Damage(6, at);
    const LoadDone done = worker.Load(10);
    EXPECT_EQ(done.end, LoadEnd::kFailed);
    EXPECT_EQ(done.pages_ok, 6);
    ASSERT_EQ(done.bad.size(), 1);
    EXPECT_EQ(done.bad[0].code, Code::kDataLoss);
    worker.ExpectIdle();
    const Seconds until = worker.clock.Now() + Seconds(20);
    while (worker.pool->Of(Key(6)) && worker.clock.Now() < until) std::this_thread::yield();
    EXPECT_FALSE(worker.pool->Of(Key(6)));
    EXPECT_EQ(worker.Load(10).pages_ok, 6);
    EXPECT_EQ(worker.store->stats().bad, 1);
  }
}

TEST(RemotePartsTest, ObjectsOfAnotherLengthAreBad) {
  const auto good = EncodePageObject(NumberedPage(1, kShape), NumberedPayload(1, kShape));
  for (const size_t length :
       {size_t{0}, size_t{4095}, kPageHeadBytes, good.size() - 1, good.size() + 1}) {
    SCOPED_TRACE(length);
    Worker worker;
    auto bad = good;
    bad.resize(length);
    worker.pool->Set(Key(1), bad);
    const auto reader = worker.store->OpenWithin(Key(1), kByLayers);
    ASSERT_FALSE(reader.ok());
    EXPECT_EQ(reader.error().code, Code::kDataLoss);
  }
}

TEST(RemotePartsTest, APageThatGivesWayWhileItIsReadEndsTheLoadBeforeIt) {
  Worker worker(8, {.get = Seconds(5)});
  worker.Fill(10);
  worker.pool->micros = kSlow;
  Landing landing;
  const PageLoad load = worker.LoadOf(10);
  std::thread evicting([&] {
    EXPECT_TRUE(load.gate->Wait(0, Seconds(20)));
    worker.pool->Erase(Key(4));
  });
  const LoadDone done = worker.Run(load, landing);
  evicting.join();
  EXPECT_EQ(done.end, LoadEnd::kFailed);
  EXPECT_EQ(done.pages_ok, 4);
  EXPECT_EQ(done.bad.at(0).code, Code::kNotFound);
  worker.ExpectIdle();
}

// The pool hangs in the middle: the load ends in its time, and nothing lands after it was given up,
// although the pool's late bytes come.
TEST(RemotePartsTest, NothingLandsInWhatWasGivenUp) {
  Worker worker(8, {.get = Seconds(1)});
  worker.Fill(10);
  worker.pool->micros = kSlow;
  Landing landing;
  const PageLoad load = worker.LoadOf(10, Seconds(10));
  std::vector<std::vector<std::byte>> then;
  std::thread hanging([&] {
    EXPECT_TRUE(load.gate->Wait(0, Seconds(20)));
    worker.pool->hold = worker.pool->silent = true;
    landing.GiveUp();
    then = worker.pages;
  });
  const Seconds start = worker.clock.Now();
  const LoadDone done = worker.Run(load, landing);
  EXPECT_LT((worker.clock.Now() - start).value, 8);
  hanging.join();
  EXPECT_EQ(done.pages_ok, 0);
  EXPECT_TRUE(load.gate->failed());
  worker.pool->hold = worker.pool->silent = false;
  worker.ExpectIdle();
  EXPECT_EQ(worker.pages, then);
}

}  // namespace
}  // namespace divisi
