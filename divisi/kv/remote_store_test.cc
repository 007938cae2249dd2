#include "divisi/kv/remote_store.h"

#include <gtest/gtest.h>

#include "divisi/kv/page_loading.h"
#include "divisi/kv/page_quarantine.h"
#include "divisi/kv/remote_index.h"
#include "divisi/kv/remote_worker_fixture.h"

namespace divisi {
namespace {

TEST(RemoteStoreTest, WhatOneWorkerPutsAnotherReads) {
  const auto pool = std::make_shared<ScriptedPool>();
  Worker a(pool), b(pool);
  EXPECT_EQ(b.CodeOf(1), Code::kNotFound);
  EXPECT_TRUE(a.Put(1).ok());
  EXPECT_TRUE(b.Put(1).ok());  // It is there already.
  EXPECT_TRUE(b.Read(1).ok());
  EXPECT_TRUE(b.Read(1).ok());
  const RemoteStoreStats stats = b.store->stats();
  EXPECT_EQ(stats.gets, 3);
  EXPECT_EQ(stats.hits, 2);
  EXPECT_EQ(stats.misses, 1);
  EXPECT_EQ(stats.buffers, 8);
  EXPECT_EQ(stats.buffers_used, 0);
  EXPECT_TRUE(stats.health.at(0).ready);
  b.store->Remove(Key(1));
  b.Settle();
  EXPECT_EQ(a.CodeOf(1), Code::kNotFound);
}

TEST(RemoteStoreTest, APageOfAnotherShapeOrModelIsNotPut) {
  Worker worker(std::make_shared<ScriptedPool>());
  PageHeader other = NumberedPage(1, kShape);
  other.model.bytes[0] ^= 1;
  const auto payload = NumberedPayload(1, kShape);
  EXPECT_EQ(worker.store->Put(other, payload).error().code, Code::kInvalidArgument);
  EXPECT_EQ(worker.pool->size(), 0);
}

// A bit of each byte of the head, and one of each layer.
TEST(RemoteStoreTest, ADamagedObjectIsRemovedAndNotReadAgainUntilPutAnew) {
  const auto pool = std::make_shared<ScriptedPool>();
  const auto good = EncodePageObject(NumberedPage(1, kShape), NumberedPayload(1, kShape));
  std::vector<size_t> places;
  for (size_t i = 0; i < 200; ++i) places.push_back(i);
  for (size_t i = kPageHeadBytes - 64; i < kPageHeadBytes; ++i) places.push_back(i);
  for (const size_t layer : {0, 1, 2}) places.push_back(kPageHeadBytes + layer * 1024 + 77);
  places.push_back(good.size() - 1);
  for (const size_t place : places) {
    SCOPED_TRACE(place);
    Worker worker(pool, 2);
    auto bad = good;
    bad[place] ^= std::byte{0x10};
    pool->Set(Key(1), bad);
    EXPECT_EQ(worker.CodeOf(1), Code::kDataLoss);
    worker.Settle();
    EXPECT_FALSE(pool->Of(Key(1)).has_value());
    EXPECT_EQ(worker.store->stats().bad, 1);
    // Even if another brings it back: this one does not ask.
    pool->Set(Key(1), good);
    const int gets = pool->gets;
    EXPECT_TRUE(worker.store->WillOpen(Key(1), PageUse::kWhole));
    EXPECT_EQ(worker.CodeOf(1), Code::kNotFound);
    EXPECT_EQ(pool->gets, gets);
    EXPECT_TRUE(worker.Put(1).ok());
    EXPECT_TRUE(worker.Read(1).ok());
    EXPECT_EQ(worker.store->stats().buffers_used, 0);
  }
}

TEST(RemoteStoreTest, ObjectsOfAnotherLengthAreBad) {
  const auto pool = std::make_shared<ScriptedPool>();
  const auto good = EncodePageObject(NumberedPage(1, kShape), NumberedPayload(1, kShape));
  for (const size_t length : {size_t{0}, size_t{7}, size_t{4095}, kPageHeadBytes,
                              good.size() - 1024, good.size() - 1, good.size() + 1}) {
    SCOPED_TRACE(length);
    Worker worker(pool);
    auto bad = good;
    bad.resize(length);
    pool->Set(Key(1), bad);
    EXPECT_EQ(worker.CodeOf(1), Code::kDataLoss);
    worker.Settle();
    EXPECT_EQ(pool->size(), 0);
  }
}

// Whole and sound, but of another page, model or shape than its name says.
TEST(RemoteStoreTest, AnotherPagesObjectIsNotTaken) {
  const auto pool = std::make_shared<ScriptedPool>();
  Worker worker(pool);
  const auto put = [&](int name, const PageHeader& header) {
    std::vector<std::byte> payload(static_cast<size_t>(header.shape.PayloadBytes()));
    pool->Set(Key(name), EncodePageObject(header, payload));
  };
  put(1, NumberedPage(2, kShape));
  EXPECT_EQ(worker.CodeOf(1), Code::kDataLoss);
  PageHeader other = NumberedPage(3, kShape);
  other.model.bytes[3] ^= 1;
  put(3, other);
  EXPECT_EQ(worker.CodeOf(3), Code::kDataLoss);
  put(4, NumberedPage(4, {.type = ElementType::kF32, .layers = 3, .layer_bytes = 1024}));
  EXPECT_EQ(worker.CodeOf(4), Code::kDataLoss);
  put(5, NumberedPage(5, {.layers = 1, .layer_bytes = 3072}));
  EXPECT_EQ(worker.CodeOf(5), Code::kDataLoss);
  worker.Settle();
  EXPECT_EQ(pool->size(), 0);
}

TEST(RemoteStoreTest, WhatNeverComesOutWholeIsNotPutForEver) {
  const auto pool = std::make_shared<ScriptedPool>();
  Worker worker(pool);
  int puts = 0;
  for (int i = 0; i < 6; ++i) {
    puts += worker.Put(1).ok();
    if (!pool->Of(Key(1))) break;
    auto bad = *pool->Of(Key(1));
    bad[500] ^= std::byte{1};
    pool->Set(Key(1), bad);
    EXPECT_EQ(worker.CodeOf(1), Code::kDataLoss);
    worker.Settle();
  }
  EXPECT_EQ(puts, 1 + PageQuarantine::kMostRewrites);
}

// ---- Time

TEST(RemoteStoreTest, ASilentPoolIsLeftAloneForAWhile) {
  const auto pool = std::make_shared<ScriptedPool>();
  Worker worker(pool, 8, {.get = Seconds(0.5), .put = Seconds(0.5), .first_pause = Seconds(2)});
  EXPECT_TRUE(worker.Put(1).ok());
  pool->silent = true;
  const Seconds start = worker.hub->clock().Now();
  EXPECT_EQ(worker.CodeOf(1), Code::kUnavailable);
  EXPECT_FALSE(worker.Put(2).ok());
  const int gets = pool->gets, puts = pool->puts;
  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ(worker.CodeOf(1), Code::kUnavailable);
    EXPECT_TRUE(worker.store->WillOpen(Key(1), PageUse::kWhole));
    EXPECT_FALSE(worker.Put(3).ok());
  }
  EXPECT_LT((worker.hub->clock().Now() - start).value, 5);
  EXPECT_LE(pool->gets - gets, 3);  // Three at most, with their pauses, while this ran.
  EXPECT_LE(pool->puts - puts, 3);
  pool->silent = false;
  EXPECT_TRUE(Comes([&] { return !worker.CodeOf(1); }));
  EXPECT_TRUE(Comes([&] { return worker.Put(2).ok(); }));
  EXPECT_TRUE(worker.Read(2).ok());
}

TEST(RemoteStoreTest, WhoWaitsLessThanAGetTakesLetsItEndAlone) {
  const auto pool = std::make_shared<ScriptedPool>();
  Worker worker(pool, 1);
  EXPECT_TRUE(worker.Put(1).ok());
  pool->micros = 300'000;
  EXPECT_EQ(worker.store->OpenWithin(Key(1), {.within = Seconds(0.01)}).error().code,
            Code::kUnavailable);
  EXPECT_EQ(worker.store->stats().buffers_used, 1);
  EXPECT_TRUE(worker.Read(1).ok());  // With the buffer that came back
  const RemoteStoreStats stats = worker.store->stats();
  EXPECT_EQ(stats.unwanted, 1);
  EXPECT_EQ(stats.buffers_used, 0);
}

// Its bytes come when the get was given up long ago: into its own buffer, which nobody has
// meanwhile.
TEST(RemoteStoreTest, ABufferIsNotUsedWhileLateBytesMayCome) {
  const auto pool = std::make_shared<ScriptedPool>();
  Worker worker(pool, 2,
                {.get = Seconds(1), .first_pause = Seconds(1e-3), .most_pause = Seconds(1e-3)});
  for (int i = 1; i <= 3; ++i) EXPECT_TRUE(worker.Put(i).ok());
  pool->silent = pool->hold = true;
  EXPECT_EQ(worker.CodeOf(1), Code::kUnavailable);
  EXPECT_EQ(worker.store->stats().buffers_used, 1);
  pool->silent = false;
  ASSERT_TRUE(Comes([&] { return !worker.CodeOf(2); }));
  const auto reader = worker.store->Open(Key(2));
  ASSERT_TRUE(reader.ok());
  EXPECT_EQ(worker.store->OpenWithin(Key(3), {.within = Seconds(0.01)}).error().code,
            Code::kResourceExhausted);
  pool->hold = false;  // The late bytes land, and the buffer comes back.
  EXPECT_TRUE(Comes([&] { return !worker.CodeOf(3); }));
  std::vector<std::byte> got(static_cast<size_t>(kShape.PayloadBytes()));
  EXPECT_TRUE((*reader)->ReadLayers(0, kShape.layers, got).ok());
  EXPECT_EQ(got, NumberedPayload(2, kShape));
}

TEST(RemoteStoreTest, PutsThatThePoolStillReadsAreBounded) {
  const auto pool = std::make_shared<ScriptedPool>();
  Worker worker(pool, 2,
                {.put = Seconds(0.01),
                 .most_puts = 3,
                 .first_pause = Seconds(1e-4),
                 .most_pause = Seconds(1e-4)});
  pool->silent = pool->hold = true;
  for (int i = 0; i < 20; ++i) EXPECT_FALSE(worker.Put(i).ok());
  EXPECT_LE(pool->puts, 3);
  pool->silent = pool->hold = false;
  EXPECT_TRUE(Comes([&] { return worker.Put(30).ok(); }));
  EXPECT_TRUE(worker.Read(30).ok());
}

TEST(RemoteStoreTest, PutsThatAreBegunAreUnderWayTogether) {
  const auto pool = std::make_shared<ScriptedPool>();
  Worker worker(pool, 2, {.put = Seconds(20), .most_puts = 4});
  pool->silent = true;
  std::mutex mutex;
  std::map<int, bool> ended;
  const auto begin = [&](int number) {
    const auto payload = NumberedPayload(number, kShape);  // Not needed afterwards
    worker.store->BeginPut(NumberedPage(number, kShape), payload, [&, number](Result<void> put) {
      const std::lock_guard lock(mutex);
      EXPECT_TRUE(ended.emplace(number, put.ok()).second);
    });
  };
  for (int i = 0; i < 5; ++i) begin(i);
  {
    const std::lock_guard lock(mutex);
    EXPECT_EQ(ended, (std::map<int, bool>{{4, false}}));  // One too many
  }
  EXPECT_EQ(pool->under_way, 4);
  pool->silent = false;
  worker.Settle();
  const std::lock_guard lock(mutex);
  EXPECT_EQ(ended.size(), 5);
  EXPECT_EQ(std::ranges::count(ended, true, &std::pair<const int, bool>::second), 4);
  EXPECT_EQ(worker.store->stats().puts, 4);
  for (int i = 0; i < 4; ++i) EXPECT_TRUE(worker.Read(i).ok());
}

TEST(RemoteStoreTest, AFullPoolIsNotAskedForEachPage) {
  const auto pool = std::make_shared<ScriptedPool>();
  Worker worker(pool, 2, {.first_pause = Seconds(10), .most_pause = Seconds(10)});
  EXPECT_TRUE(worker.Put(1).ok());
  pool->error = static_cast<int>(Code::kResourceExhausted);
  for (int i = 2; i < 50; ++i) EXPECT_FALSE(worker.Put(i).ok());
  EXPECT_EQ(pool->puts, 2);
  pool->error = 0;
  EXPECT_TRUE(worker.Read(1).ok());  // Gets go on.
}

// ---- Hints

TEST(RemoteStoreTest, HintsKeepSeveralGetsUnderWayAndNoneIsLost) {
  const auto pool = std::make_shared<ScriptedPool>();
  Worker worker(pool, 4);
  std::vector<std::vector<std::byte>> pages(40);
  PageLoad load{.id = 1, .root = NumberedPage(0, kShape).root, .deadline = Seconds(1e9)};
  load.gate = std::make_shared<LayerGate>();
  for (int i = 0; i < 40; ++i) {
    EXPECT_TRUE(worker.Put(i).ok());
    pages[static_cast<size_t>(i)].resize(static_cast<size_t>(kShape.PayloadBytes()));
    load.pages.push_back({Key(i), Tier::kRemote, pages[static_cast<size_t>(i)]});
  }
  pool->micros = 2000;
  pool->most_under_way = 0;
  const TierStores stores{.remote = {std::shared_ptr<void>(), &*worker.store}};
  const LoadingTerms terms{.shape = kShape, .model = Model()};
  Landing landing;
  const SteadyClock clock;
  PageLoading run(load, stores, terms);
  const LoadDone done = run.Run(landing, clock);
  EXPECT_EQ(done.end, LoadEnd::kDone);
  EXPECT_EQ(done.pages_ok, 40);
  EXPECT_EQ(load.gate->opened(), 3);
  for (int i = 0; i < 40; ++i) {
    EXPECT_EQ(pages[static_cast<size_t>(i)], NumberedPayload(i, kShape)) << i;
  }
  EXPECT_EQ(pool->gets, 40);
  EXPECT_EQ(pool->most_under_way, 4);
  EXPECT_EQ(run.tally().pages[static_cast<size_t>(Tier::kRemote)], 40);
  EXPECT_EQ(worker.store->stats().unwanted, 0);
}

TEST(RemoteStoreTest, APageThatIsMissingEndsALoadAndWhatWasHintedIsGivenBack) {
  const auto pool = std::make_shared<ScriptedPool>();
  Worker worker(pool, 8);
  std::vector<std::vector<std::byte>> pages(20);
  PageLoad load{.id = 1, .root = NumberedPage(0, kShape).root, .deadline = Seconds(1e9)};
  for (int i = 0; i < 20; ++i) {
    EXPECT_TRUE(i == 5 || worker.Put(i).ok());
    pages[static_cast<size_t>(i)].resize(static_cast<size_t>(kShape.PayloadBytes()));
    load.pages.push_back({Key(i), Tier::kRemote, pages[static_cast<size_t>(i)]});
  }
  const TierStores stores{.remote = {std::shared_ptr<void>(), &*worker.store}};
  const LoadingTerms terms{.shape = kShape, .model = Model()};
  Landing landing;
  const LoadDone done = PageLoading(load, stores, terms).Run(landing, SteadyClock());
  EXPECT_EQ(done.end, LoadEnd::kFailed);
  EXPECT_EQ(done.pages_ok, 5);
  ASSERT_EQ(done.bad.size(), 1);
  EXPECT_EQ(done.bad[0].code, Code::kNotFound);
  worker.Settle();
  EXPECT_EQ(worker.store->stats().buffers_used, 0);
  // What was missed once is asked for again.
  EXPECT_TRUE(worker.Put(5).ok());
  EXPECT_EQ(PageLoading(load, stores, terms).Run(landing, SteadyClock()).pages_ok, 20);
}

// Whoever hints and never opens does not keep others from their pages.
TEST(RemoteStoreTest, ForgottenHintsGiveWay) {
  const auto pool = std::make_shared<ScriptedPool>();
  Worker worker(pool, 3);
  for (int i = 0; i < 8; ++i) EXPECT_TRUE(worker.Put(i).ok());
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(worker.store->WillOpen(Key(i), PageUse::kWhole));
  EXPECT_FALSE(worker.store->WillOpen(Key(3), PageUse::kWhole));
  for (int i = 7; i >= 0; --i) EXPECT_TRUE(worker.Read(i).ok()) << i;
}

// ---- The index

TEST(RemoteIndexTest, EachQuestionIsAnsweredOnceAndEmptyWhereThePoolFails) {
  const auto pool = std::make_shared<ScriptedPool>();
  Worker worker(pool);
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(worker.Put(i).ok());
  RemoteIndex index(worker.hub, Seconds(1));
  std::atomic<int> woken = 0;
  index.WakeBy([&] { ++woken; });
  std::map<uint64_t, std::vector<bool>> answers;
  const auto wait = [&](size_t count) {
    EXPECT_TRUE(Comes([&] {
      for (auto& answer : index.TakeAnswers()) {
        EXPECT_TRUE(answers.emplace(answer.id, answer.have).second);
      }
      return answers.size() >= count;
    }));
  };
  index.Ask(1, {Key(0), Key(1), Key(7), Key(2)});
  std::vector<BlockKey> many;
  for (int i = 0; i < 9000; ++i) many.push_back(Key(i));
  index.Ask(2, many);
  index.Ask(3, {});
  wait(3);
  EXPECT_EQ(answers[1], (std::vector{true, true, false, true}));
  EXPECT_EQ(answers[2].size(), 9000);
  EXPECT_EQ(std::ranges::count(answers[2], true), 3);
  EXPECT_TRUE(answers[3].empty());
  EXPECT_EQ(woken, 2);
  EXPECT_EQ(pool->asked, 4);
  pool->silent = true;
  for (uint64_t id = 10; id < 310; ++id) index.Ask(id, {Key(0)});
  wait(303);
  for (uint64_t id = 10; id < 310; ++id) EXPECT_TRUE(answers[id].empty());
  EXPECT_EQ(pool->asked, 4 + 256);
  index.WakeBy({});
}

// An answer that comes when nobody is there any more.
TEST(RemoteIndexTest, EndsWithCallsUnderWay) {
  const auto pool = std::make_shared<ScriptedPool>();
  Worker worker(pool);
  pool->micros = 20000;
  {
    RemoteIndex index(worker.hub, Seconds(1));
    index.WakeBy([] { FAIL(); });
    index.Ask(1, {Key(0)});
    (void)worker.store->WillOpen(Key(0), PageUse::kWhole);
  }
  worker.Settle();
}

}  // namespace
}  // namespace divisi
