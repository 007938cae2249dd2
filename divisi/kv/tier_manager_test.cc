#include "divisi/kv/tier_manager.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <map>
#include <set>

#include "divisi/core/random.h"
#include "divisi/kv/tier_manager_fixture.h"

namespace divisi {
namespace {

TEST(TierManagerTest, APageIsFoundWhenItsCopyIsDone) {
  Driver driver(Sizes(4, 0));
  const auto chain = Chain(1, 2);
  driver.Start(chain);
  EXPECT_TRUE(driver.tiers.Find(chain, 0).empty());
  EXPECT_TRUE(driver.tiers.TakeEvents().empty());
  driver.CarryOut();
  EXPECT_EQ(driver.tiers.Find(chain, 0), (std::vector<Tier>{Tier::kHost, Tier::kHost}));
  EXPECT_EQ(driver.tiers.Find(chain, 1).size(), 1u);
  EXPECT_EQ(driver.tiers.TakeEvents().size(), 2u);
  driver.Start(chain);
  driver.CarryOut();
  EXPECT_EQ(driver.Copies(Tier::kHost), 2);
}

TEST(TierManagerTest, AFailedCopyIsAsIfNeverBegun) {
  Driver driver(Sizes(4, 0));
  const auto chain = Chain(1, 1);
  driver.Start(chain);
  driver.CarryOut(false);
  EXPECT_TRUE(driver.tiers.Find(chain, 0).empty());
  EXPECT_TRUE(driver.tiers.TakeEvents().empty());
  EXPECT_EQ(driver.tiers.stats().failed_moves, 1);
  driver.Start(chain);
  driver.CarryOut();
  EXPECT_EQ(driver.tiers.Find(chain, 0).size(), 1u);
  driver.tiers.Done(99, true, Seconds(0));  // No such copy.
}

TEST(TierManagerTest, WhatIsReadStaysAndAFullTierRefuses) {
  Driver driver(Sizes(2, 0));
  const auto chain = Chain(1, 2);
  driver.Serve(chain);
  driver.CarryOut();
  for (const BlockKey& key : chain) driver.tiers.Pin(key, Tier::kHost);
  driver.Serve(Chain(10, 1));
  driver.CarryOut();
  EXPECT_EQ(driver.tiers.stats().saves_refused, 1);
  EXPECT_EQ(driver.tiers.Find(chain, 0).size(), 2u);
  for (const BlockKey& key : chain) driver.tiers.Unpin(key, Tier::kHost);
  EXPECT_EQ(driver.tiers.stats().host_pinned, 0);
  driver.Serve(Chain(20, 1));
  driver.CarryOut();
  EXPECT_EQ(driver.tiers.Find(Chain(20, 1), 0).size(), 1u);
}

TEST(TierManagerTest, WhatARequestWaitsForGoesToTheDiskAndComesBack) {
  Driver driver(Sizes(4, 8));
  const auto first = Chain(1, 3);
  const auto second = Chain(10, 4);
  driver.Serve(first);
  driver.CarryOut();
  driver.tiers.Expect(1, Chain(10, 4), driver.now);
  driver.tiers.Expect(2, first, driver.now);
  driver.Serve(second);
  driver.CarryOut();
  const auto tiers = driver.tiers.Find(first, 0);
  ASSERT_EQ(tiers.size(), 3u);
  EXPECT_EQ(tiers[2], Tier::kDisk);
  driver.tiers.Forget(1, driver.now);
  driver.CarryOut();
  EXPECT_EQ(driver.tiers.Find(first, 0), std::vector<Tier>(3, Tier::kHost));
  EXPECT_GT(driver.tiers.stats().promotions, 0);
}

TEST(TierManagerTest, WhatARequestHasOrReadsWhereItIsDoesNotComeBackBesides) {
  for (const bool early : {true, false}) {
    Driver driver(Sizes(4, 8));
    const auto first = Chain(1, 3);
    driver.Serve(first);
    driver.tiers.Expect(1, Chain(10, 4), driver.now);
    if (early) driver.tiers.HasFirst(2, 3);
    driver.tiers.Expect(2, first, driver.now);
    driver.tiers.HasFirst(2, 3);
    driver.Serve(Chain(10, 4));
    ASSERT_EQ(driver.tiers.Find(first, 0)[2], Tier::kDisk);
    driver.tiers.Forget(1, driver.now);
    driver.CarryOut();
    EXPECT_EQ(driver.tiers.stats().promotions, 0);
    // Another one may wait for some of them later.
    driver.tiers.Forget(2, driver.now);
    driver.tiers.HasFirst(3, 2);
    driver.tiers.Expect(3, first, driver.now);
    driver.CarryOut();
    EXPECT_EQ(driver.tiers.stats().promotions, 1);
    EXPECT_EQ(driver.tiers.Find(first, 0)[1], Tier::kDisk);
    // What it had may have given way meanwhile.
    driver.tiers.HasFirst(3, 0);
    driver.tiers.Forget(99, driver.now);
    driver.CarryOut();
    EXPECT_GT(driver.tiers.stats().promotions, 1);
  }
}

// Host memory makes room by writing to the disk, and those writes take all moves.
TEST(TierManagerTest, ASaveThatFindsNoMoveLeftWaitsAndDropsNothing) {
  TierOptions options = Sizes(6, 100);
  options.most_moves = 2;
  Driver driver(options);
  driver.Serve(Chain(1, 6));
  driver.tiers.Expect(1, Chain(1, 6), driver.now);  // So that the disk takes them.
  driver.tiers.Expect(2, Chain(10, 6), driver.now);
  driver.tiers.Forget(1, driver.now);
  driver.tiers.Expect(3, Chain(1, 6), driver.now);
  driver.Start(Chain(10, 6));
  for (int i = 0; i < 20; ++i) driver.CarryOut();
  EXPECT_EQ(driver.tiers.stats().saves_refused, 0);
  EXPECT_EQ(driver.tiers.stats().saves_waiting, 0);
  EXPECT_EQ(driver.tiers.Find(Chain(1, 6), 0).size(), 6u);
  EXPECT_EQ(driver.tiers.Find(Chain(10, 6), 0).size(), 6u);
}

TEST(TierManagerTest, WhatAStepCompletesIsSavedHoweverManyPagesThatAre) {
  TierOptions options = Sizes(100, 0);
  options.most_moves = 8;
  Driver driver(options);
  const auto chain = Chain(1, 50);
  driver.Start(chain);
  EXPECT_EQ(driver.tiers.stats().moves, 8);
  EXPECT_EQ(driver.tiers.stats().saves_waiting, 42);
  driver.CarryOut();
  EXPECT_EQ(driver.tiers.stats().saves_waiting, 0);
  EXPECT_EQ(driver.tiers.stats().saves_refused, 0);
  EXPECT_EQ(driver.tiers.Find(chain, 0).size(), 50u);
}

TEST(TierManagerTest, TheTailGoesBeforeTheHead) {
  Driver driver(Sizes(4, 0));
  const auto chain = Chain(1, 4);
  driver.Serve(chain);
  driver.CarryOut();
  driver.Serve(Chain(10, 2));
  driver.CarryOut();
  EXPECT_EQ(driver.tiers.Find(chain, 0).size(), 2u);
  EXPECT_EQ(driver.tiers.Find(Chain(10, 2), 0).size(), 2u);
}

TEST(TierManagerTest, ABadObjectIsNotOfferedUntilRewrittenAndNotForEver) {
  Driver driver(Sizes(4, 0));
  const auto chain = Chain(1, 1);
  for (int round = 0; round <= PageQuarantine::kMostRewrites; ++round) {
    driver.Serve(chain);
    driver.CarryOut();
    ASSERT_EQ(driver.tiers.Find(chain, 0).size(), 1u) << round;
    driver.tiers.Bad(chain[0], Tier::kHost);
    driver.CarryOut();
    EXPECT_TRUE(driver.tiers.Find(chain, 0).empty());
    EXPECT_TRUE(driver.tiers.Quarantined(chain[0], Tier::kHost));
  }
  driver.Serve(chain);
  driver.CarryOut();
  EXPECT_TRUE(driver.tiers.Find(chain, 0).empty());
  EXPECT_EQ(driver.tiers.stats().bad_objects, PageQuarantine::kMostRewrites + 1);
}

TEST(TierManagerTest, ClearRevokesWhatIsOnItsWay) {
  Driver driver(Sizes(4, 4));
  const auto chain = Chain(1, 2);
  driver.Serve(chain);
  driver.CarryOut();
  driver.tiers.Pin(chain[0], Tier::kHost);
  driver.Start(Chain(10, 1));
  driver.tiers.Clear();
  driver.CarryOut();
  EXPECT_TRUE(driver.tiers.Find(chain, 0).empty());
  EXPECT_TRUE(driver.tiers.Find(Chain(10, 1), 0).empty());
  driver.tiers.Unpin(chain[0], Tier::kHost);
  driver.CarryOut();
  EXPECT_EQ(driver.tiers.stats().host_pages, 0);
  const auto removed = std::ranges::count_if(driver.taken, [](const TierAction& action) {
    return action.kind == TierAction::Kind::kRemove;
  });
  EXPECT_EQ(removed, 3);
}

TEST(TierManagerTest, AStartFindsWhatTheDiskHolds) {
  Driver driver(Sizes(2, 2));
  const auto chain = Chain(1, 3);
  EXPECT_TRUE(driver.tiers.Restore(NameOf(chain, 0)));
  EXPECT_FALSE(driver.tiers.Restore(NameOf(chain, 0)));
  EXPECT_TRUE(driver.tiers.Restore(NameOf(chain, 1)));
  EXPECT_FALSE(driver.tiers.Restore(NameOf(chain, 2)));
  EXPECT_EQ(driver.tiers.Find(chain, 0), std::vector<Tier>(2, Tier::kDisk));
  driver.tiers.Verify();
}

// What a worker may see, kept by actions and events alone: which bytes are where, who reads them.
struct Model {
  std::map<std::pair<BlockKey, Tier>, int> stored;  // By events: visible. Value: 1.
  std::set<std::pair<BlockKey, Tier>> bytes;        // By actions: written and not removed.
  std::map<std::pair<BlockKey, Tier>, int> pins;
  std::map<uint64_t, TierAction> moves;

  void Take(TierManager& tiers) {
    for (const TierAction& action : tiers.TakeActions()) {
      if (action.kind == TierAction::Kind::kCopy) {
        EXPECT_TRUE(moves.emplace(action.id, action).second);
        if (action.from != Tier::kDevice) {
          EXPECT_TRUE(bytes.contains({action.page.key, action.from}));
        }
        continue;
      }
      const std::pair name(action.page.key, action.from);
      EXPECT_EQ(bytes.erase(name), 1u);
      EXPECT_EQ(pins.count(name), 0u) << "removed while it is read";
      for (const auto& [id, move] : moves) {
        EXPECT_FALSE(move.page.key == name.first && move.from == name.second);
      }
    }
    for (const TierEvent& event : tiers.TakeEvents()) {
      if (event.kind == TierEvent::Kind::kCleared) {
        std::erase_if(stored, [&](const auto& entry) { return entry.first.second == event.tier; });
      } else if (event.kind == TierEvent::Kind::kStored) {
        EXPECT_EQ(stored[std::pair(event.page.key, event.tier)]++, 0);
      } else {
        EXPECT_EQ(stored.erase({event.page.key, event.tier}), 1u);
      }
    }
  }
};

class RandomRun {
 public:
  explicit RandomRun(uint64_t seed)
      : random_(seed),
        options_({.host_pages = random_.Between(0, 12),
                  .disk_pages = random_.Between(0, 20),
                  .pool = random_.Chance(0.3),
                  .policy = static_cast<EvictionPolicy>(random_.Between(0, 2)),
                  .disk_writes = random_.Chance(0.2) ? DiskWrites::kAll : DiskWrites::kAdmitted,
                  .budget = {random_.Uniform() * 5, static_cast<double>(random_.Between(0, 20))},
                  .lookahead = random_.Between(0, 6),
                  .most_moves = random_.Between(1, 8),
                  .most_pool_moves = random_.Between(1, 4),
                  .most_pool_pins = random_.Between(1, 2),
                  .most_pool_waiting = random_.Between(0, 10),
                  .most_bad = random_.Between(1, 4),
                  .remembered = random_.Between(1, 40)}),
        tiers_(options_) {}

  void Step() {
    now_ += Seconds(random_.Uniform());
    const auto chain = Chain(1 + 10 * random_.Between(0, 5), random_.Between(1, 6));
    const int64_t choice = random_.Between(0, 9);
    if (choice <= 2) {
      tiers_.Used(chain);
      for (size_t i = 0; i < chain.size(); ++i) tiers_.Complete(NameOf(chain, i), 0, now_);
      tiers_.Ended(chain, random_.Between(0, 400), SessionState::kUnknown);
    } else if (choice <= 4) {
      EndOne();
    } else if (choice == 5) {
      if (tiers_.Expect(next_request_, chain, now_)) waiting_.push_back(next_request_);
      ++next_request_;
    } else if (choice == 6 && !waiting_.empty()) {
      const auto at = waiting_.begin() + random_.Between(0, int64_t(waiting_.size()) - 1);
      tiers_.Forget(*at, now_);
      waiting_.erase(at);
    } else if (choice == 7) {
      PinRun(chain);
    } else if (choice == 8) {
      UnpinOne();
    } else {
      constexpr Tier kBelow[] = {Tier::kHost, Tier::kDisk, Tier::kRemote};
      const Tier tier = kBelow[random_.Between(0, 2)];
      if (random_.Chance(0.3)) tiers_.Bad(chain.back(), tier);
      if (random_.Chance(0.02)) tiers_.Clear();
    }
    model_.Take(tiers_);
  }

  void EndOne() {
    if (model_.moves.empty()) return;
    const auto at =
        std::next(model_.moves.begin(), random_.Between(0, int64_t(model_.moves.size()) - 1));
    const TierAction action = at->second;
    model_.moves.erase(at);
    const bool ok = random_.Chance(0.85);
    if (ok) model_.bytes.emplace(action.page.key, action.to);
    tiers_.Done(action.id, ok, now_);
  }

  void PinRun(const std::vector<BlockKey>& chain) {
    const auto found = tiers_.Find(chain, 0);
    for (size_t i = 0; i < found.size(); ++i) {
      tiers_.Pin(chain[i], found[i]);
      ++model_.pins[std::pair(chain[i], found[i])];
    }
  }

  void UnpinOne() {
    if (model_.pins.empty()) return;
    const auto at =
        std::next(model_.pins.begin(), random_.Between(0, int64_t(model_.pins.size()) - 1));
    const auto [key, tier] = at->first;
    if (--at->second == 0) model_.pins.erase(at);
    tiers_.Unpin(key, tier);
  }

  // What the manager offers is what its events said, and bytes lie behind it.
  void Compare() {
    tiers_.Verify();
    for (int64_t number = 1; number <= 60; ++number) {
      const BlockKey key = KeyOf(number);
      const auto found = tiers_.Find({{key}}, 0);
      const bool host = model_.stored.contains({key, Tier::kHost});
      const bool disk = model_.stored.contains({key, Tier::kDisk});
      ASSERT_EQ(found.size(), host || disk ? 1u : 0u);
      if (found.empty()) continue;
      ASSERT_EQ(found[0], host ? Tier::kHost : Tier::kDisk);
      ASSERT_TRUE(model_.bytes.contains({key, found[0]}));
    }
    const TierStats stats = tiers_.stats();
    ASSERT_EQ(stats.moves, static_cast<int64_t>(model_.moves.size()));
    ASSERT_LE(stats.host_pages + stats.host_arriving, options_.host_pages);
    ASSERT_LE(stats.disk_pages + stats.disk_arriving, options_.disk_pages);
  }

  // Everything ends; nothing stays pinned, and no bytes lie about that nobody can find.
  void Finish() {
    while (!model_.pins.empty()) UnpinOne();
    for (const RequestId request : waiting_) tiers_.Forget(request, now_);
    waiting_.clear();
    model_.Take(tiers_);
    while (!model_.moves.empty()) {
      EndOne();
      model_.Take(tiers_);
    }
    Compare();
    const TierStats stats = tiers_.stats();
    EXPECT_EQ(stats.host_pinned + stats.disk_pinned + stats.awaited_pages, 0);
    for (const auto& [key, tier] : model_.bytes) {
      if (tier == Tier::kRemote) continue;
      EXPECT_TRUE(model_.stored.contains({key, tier}));
    }
  }

 private:
  Random random_;
  TierOptions options_;
  TierManager tiers_;
  Model model_;
  Seconds now_{0};
  RequestId next_request_ = 1;
  std::vector<RequestId> waiting_;
};

TEST(TierManagerTest, KeepsItsPromisesUnderRandomOperations) {
  for (uint64_t seed = 1; seed <= 150; ++seed) {
    SCOPED_TRACE(seed);
    RandomRun run(seed);
    for (int step = 0; step < 400; ++step) {
      run.Step();
      run.Compare();
      if (testing::Test::HasFailure()) return;
    }
    run.Finish();
    if (testing::Test::HasFailure()) return;
  }
}

int64_t ResidentPages() {
  FILE* file = std::fopen("/proc/self/statm", "r");
  long total = 0, resident = 0;
  if (file == nullptr) return 0;
  const int read = std::fscanf(file, "%ld %ld", &total, &resident);
  std::fclose(file);
  return read == 2 ? resident : 0;
}

// New prompts without end: names, history, queue and quarantine all stay within their bounds.
TEST(TierManagerTest, AMillionPagesOfChurnKeepMemoryFlat) {
  TierOptions options = Sizes(200, 400);
  options.remembered = 2000;
  options.lookahead = 16;
  options.budget = {50, 100};
  Driver driver(options);
  constexpr int64_t kPages = 8;
  constexpr int64_t kRounds = 1'000'000 / kPages;
  int64_t warm = 0;
  for (int64_t round = 0; round < kRounds; ++round) {
    driver.now = Seconds(0.01 * static_cast<double>(round));
    driver.tiers.Expect(static_cast<RequestId>(round + 4), Chain(1 + kPages * (round + 4), kPages),
                        driver.now);
    driver.tiers.Forget(static_cast<RequestId>(round), driver.now);
    driver.Start(Chain(1 + kPages * (round - round % 3), kPages));
    for (auto actions = driver.tiers.TakeActions(); !actions.empty();
         actions = driver.tiers.TakeActions()) {
      for (const TierAction& action : actions) driver.tiers.Done(action.id, true, driver.now);
    }
    driver.tiers.TakeEvents();
    if (round % 100 == 0) driver.tiers.Bad(KeyOf(1 + kPages * round), Tier::kHost);
    if (round == kRounds / 5) warm = ResidentPages();
  }
  driver.tiers.TakeActions();
  driver.tiers.Verify();
  EXPECT_LE(driver.tiers.stats().host_pages, 200);
  EXPECT_LE(driver.tiers.stats().disk_pages, 400);
#ifndef __SANITIZE_ADDRESS__  // It keeps what was freed.
  EXPECT_LT(ResidentPages() - warm, 256) << "1 MiB in pages of 4 KiB";
#else
  (void)warm;
#endif
}

}  // namespace
}  // namespace divisi
