// Nodes of the pool and other workers, of which one fails and the others do not.
#include "divisi/kv/remote_targets.h"

#include <gtest/gtest.h>

#include "divisi/kv/remote_worker_fixture.h"

namespace divisi {
namespace {

TEST(RemoteTargetsTest, APageThatOnePeerHasDamagedIsReadOfAnother) {
  const auto pool = std::make_shared<ScriptedPool>();
  pool->directed = 1;
  Worker worker(pool, 2);
  const auto good = EncodePageObject(NumberedPage(1, kShape), NumberedPayload(1, kShape));
  auto bad = good;
  bad[kPageHeadBytes + 5] ^= std::byte{1};
  pool->Set(Key(1), bad);
  EXPECT_EQ(worker.CodeOf(1), Code::kDataLoss);
  worker.Settle();
  pool->Set(Key(1), good);
  EXPECT_EQ(worker.CodeOf(1), Code::kNotFound);
  pool->directed = 2;
  EXPECT_TRUE(worker.Read(1).ok());
  pool->directed = 1;
  EXPECT_EQ(worker.CodeOf(1), Code::kNotFound);
}

TEST(RemoteTargetsTest, OneThatHangsHasHalfOfTheBuffersAndNoOthersPages) {
  const auto pool = std::make_shared<ScriptedPool>();
  pool->targets = 2;
  pool->troubled = 0;
  Worker worker(pool, 8,
                {.get = Seconds(5), .first_pause = Seconds(60), .most_pause = Seconds(60)});
  for (int i = 0; i < 20; ++i) EXPECT_TRUE(worker.Put(i).ok());
  pool->silent = pool->hold = true;
  int hinted = 0;
  for (int i = 0; i < 20; i += 2) hinted += worker.store->WillOpen(Key(i), PageUse::kWhole);
  EXPECT_EQ(hinted, 4);
  for (int i = 1; i < 20; i += 2) EXPECT_TRUE(worker.Read(i).ok()) << i;
  EXPECT_EQ(worker.CodeOf(0), Code::kUnavailable);
  EXPECT_EQ(worker.CodeOf(10), Code::kUnavailable);
  EXPECT_EQ(worker.store->stats().skipped, 1);
  for (int i = 1; i < 20; i += 2) EXPECT_TRUE(worker.Read(i).ok()) << i;
  pool->silent = pool->hold = false;
  worker.Settle();
}

// Where a page goes decides, not where others do.
TEST(RemoteTargetsTest, ANodeThatIsAwayOrLatePausesPutsToItAlone) {
  for (const bool late : {false, true}) {
    SCOPED_TRACE(late);
    const auto pool = std::make_shared<ScriptedPool>();
    pool->targets = 2;
    pool->troubled = 0;
    Worker worker(
        pool, 2,
        {.put = Seconds(1), .most_puts = 4, .first_pause = Seconds(9), .most_pause = Seconds(9)});
    if (late) {
      pool->silent = true;
    } else {
      pool->error = static_cast<int>(Code::kUnavailable);
    }
    EXPECT_EQ(worker.store->TurnOf(Key(2)), PutTurn::kNow);
    EXPECT_FALSE(worker.Put(2).ok());
    EXPECT_EQ(worker.store->TurnOf(Key(2)), PutTurn::kPaused);
    EXPECT_EQ(worker.store->TurnOf(Key(1)), PutTurn::kNow);
    const int puts = pool->puts;
    EXPECT_FALSE(worker.Put(4).ok());
    EXPECT_EQ(pool->puts, puts);
    EXPECT_TRUE(worker.Put(1).ok());
    EXPECT_TRUE(worker.Put(3).ok());
  }
}

TEST(RemoteTargetsTest, OneNodesPutsLeaveOthersTheirShareAndOneTellsWhetherItIsBack) {
  const auto pool = std::make_shared<ScriptedPool>();
  pool->targets = 2;
  pool->troubled = 0;
  Worker worker(pool, 2,
                {.put = Seconds(5),
                 .most_puts = 4,
                 .first_pause = Seconds(1e-3),
                 .most_pause = Seconds(1e-3)});
  const auto begin = [&](int number) {
    const auto payload = NumberedPayload(number, kShape);
    worker.store->BeginPut(NumberedPage(number, kShape), payload, [](const Result<void>&) {});
  };
  pool->silent = true;
  begin(2);
  EXPECT_EQ(worker.store->TurnOf(Key(4)), PutTurn::kNow);
  begin(4);
  EXPECT_EQ(worker.store->TurnOf(Key(6)), PutTurn::kLater);
  EXPECT_EQ(worker.store->TurnOf(Key(1)), PutTurn::kNow);
  pool->silent = false;
  worker.Settle();
  pool->error = static_cast<int>(Code::kUnavailable);
  EXPECT_FALSE(worker.Put(6).ok());
  pool->error = 0;
  pool->silent = true;
  while (worker.store->TurnOf(Key(6)) == PutTurn::kPaused) std::this_thread::yield();
  begin(6);
  EXPECT_EQ(worker.store->TurnOf(Key(8)), PutTurn::kPaused);
  pool->silent = false;
  worker.Settle();
  EXPECT_EQ(worker.store->TurnOf(Key(8)), PutTurn::kNow);
}

// Its memory may still be read: nothing new goes there, and what waits for it is not kept waiting
// as if its turn would come.
TEST(RemoteTargetsTest, ANodeWhosePutsAreLateAndNotLetGoTakesNoMore) {
  const auto pool = std::make_shared<ScriptedPool>();
  pool->targets = 2;
  pool->troubled = 0;
  Worker worker(pool, 2,
                {.put = Seconds(0.05),
                 .most_puts = 4,
                 .first_pause = Seconds(1e-3),
                 .most_pause = Seconds(1e-3)});
  pool->silent = pool->hold = true;
  EXPECT_FALSE(worker.Put(2).ok());
  const SteadyClock clock;
  const Seconds after = clock.Now() + Seconds(0.1);
  while (clock.Now() < after) EXPECT_EQ(worker.store->TurnOf(Key(4)), PutTurn::kPaused);
  EXPECT_EQ(worker.store->TurnOf(Key(1)), PutTurn::kNow);
  pool->silent = pool->hold = false;
  worker.Settle();
}

TEST(RemoteTargetsTest, WhoseTimeIsOverIsForgotten) {
  RemoteTargets targets(Seconds(1), Seconds(4));
  targets.PutBegun(7, Seconds(0));
  targets.GetLate(8, Seconds(0));
  for (uint64_t i = 100; i < 1000; ++i) targets.PutFailed(i, Seconds(2));
  targets.PutFailed(1000, Seconds(9));
  EXPECT_EQ(targets.PutsOpen(7), 1);
  EXPECT_FALSE(targets.GetsPause(8, Seconds(0.5)));
  EXPECT_FALSE(targets.PutsFail(999));
  EXPECT_TRUE(targets.PutsFail(1000));
  targets.PutReleased(7);
  EXPECT_EQ(targets.PutsOpen(7), 0);
}

}  // namespace
}  // namespace divisi
