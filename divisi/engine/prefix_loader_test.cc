// The loader over the real scheduler and tier manager, with tiers that are maps: tokens are those
// of a run without any cache, and every page and every count comes back.
#include "divisi/engine/prefix_loader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "divisi/core/random.h"
#include "divisi/sim/prefix_loader_fixture.h"

namespace divisi {
namespace {

TEST(PrefixLoaderTest, APrefixComesBackFromHostMemory) {
  Tiers tiers;
  HostSetup setup;
  setup.loader.tiers.host_pages = 100;
  Host host(setup, tiers);
  ASSERT_TRUE(host.Add(Prompt(1, 70)).ok());
  host.RunAll();
  PushOut(host);
  ASSERT_TRUE(host.Add(Prompt(2, 70)).ok());
  EXPECT_EQ(host.loader_.stats().loading_pages, 4);
  host.RunAll();
  EXPECT_EQ(host.cached_.at(2), 64);
  EXPECT_EQ(host.tokens_.at(2), Alone(Prompt(2, 70)));
  EXPECT_EQ(host.loader_.stats().pages_read, 4);
  EXPECT_EQ(host.loader_.stats().pages_used, 4);
  EXPECT_EQ(host.found_.at(1), (std::array<int64_t, kSources>{0, 0, 0, 0}));
  EXPECT_EQ(host.found_.at(2), (std::array<int64_t, kSources>{0, 4, 0, 0}));
  // They are on the device now.
  ASSERT_TRUE(host.Add(Prompt(3, 70)).ok());
  host.RunAll();
  EXPECT_EQ(host.found_.at(3), (std::array<int64_t, kSources>{4, 0, 0, 0}));
}

TEST(PrefixLoaderTest, PagesThatDoNotComeAreComputedAndNotAskedForAgain) {
  Tiers tiers;
  HostSetup setup;
  setup.loader.tiers.host_pages = 100;
  Host host(setup, tiers);
  ASSERT_TRUE(host.Add(Prompt(1, 70)).ok());
  host.RunAll();
  PushOut(host);
  ASSERT_TRUE(host.Add(Prompt(2, 70)).ok());
  host.Tick();
  host.Carry(1);
  host.RunAll();
  EXPECT_EQ(host.cached_.at(2), 16);
  EXPECT_EQ(host.tokens_.at(2), Alone(Prompt(2, 70)));
  EXPECT_EQ(host.loader_.stats().loads_failed, 1);
  EXPECT_EQ(host.loader_.stats().pages_read, 1);
  EXPECT_EQ(host.found_.at(2), (std::array<int64_t, kSources>{0, 1, 0, 0}));
}

TEST(PrefixLoaderTest, WhatAnotherHostPutIntoThePoolIsFound) {
  Tiers tiers;
  HostSetup setup;
  setup.loader.tiers = {.pool = true};
  setup.loader.tiers.host_pages = 4;
  Host first(setup, tiers);
  ASSERT_TRUE(first.Add(Prompt(1, 70)).ok());
  first.RunAll();
  EXPECT_GE(first.In(Tier::kRemote).size(), 4);
  Tiers others;
  others.of[3] = tiers.of[3];
  Host second(setup, others);
  ASSERT_TRUE(second.Add(Prompt(2, 70)).ok());
  EXPECT_EQ(second.loader_.asking(), 1);
  EXPECT_EQ(second.loader_.lookup(), Seconds(0));
  second.now_ += Seconds(0.004);
  second.RunAll();
  EXPECT_NEAR(second.loader_.lookup().value, 0.005, 1e-12);  // A tick is 1 ms.
  EXPECT_EQ(second.found_.at(2), (std::array<int64_t, kSources>{0, 0, 0, 4}));
  EXPECT_EQ(second.cached_.at(2), 64);
  EXPECT_EQ(second.tokens_.at(2), Alone(Prompt(2, 70)));
}

// Another worker's host memory goes on where this one's ends, and what came is kept here, too.
TEST(PrefixLoaderTest, APeersPagesAreReadAndKept) {
  Tiers tiers;
  HostSetup setup;
  Host first(setup, tiers);
  ASSERT_TRUE(first.Add(Prompt(1, 70)).ok());
  first.RunAll();
  Tiers others;
  others.of[4] = tiers.of[1];
  setup.loader.peers = true;
  setup.loader.tiers.host_pages = 100;
  Host second(setup, others);
  Request request = Prompt(2, 70);
  request.peer = PrefixPeer{.address = "10.0.0.1:7", .pages = 3};
  ASSERT_TRUE(second.Add(request).ok());
  second.Tick();
  ASSERT_EQ(second.loads_.size(), 1u);
  EXPECT_EQ(second.loads_[0].peer, "10.0.0.1:7");
  second.RunAll();
  EXPECT_EQ(second.found_.at(2), (std::array<int64_t, kSources>{0, 0, 0, 0, 3}));
  EXPECT_EQ(second.cached_.at(2), 48);
  EXPECT_EQ(second.tokens_.at(2), Alone(Prompt(2, 70)));
  EXPECT_EQ(second.In(Tier::kHost).size(), 4) << "three came, one was computed";
  PushOut(second);
  second.In(Tier::kPeer).clear();
  request.id = 3;
  ASSERT_TRUE(second.Add(request).ok());
  second.RunAll();
  EXPECT_EQ(second.found_.at(3), (std::array<int64_t, kSources>{0, 4, 0, 0, 0}));
}

TEST(PrefixLoaderTest, APeerThatLacksPagesOrHasThemDamagedCostsTheirComputing) {
  Tiers tiers;
  HostSetup setup;
  Host first(setup, tiers);
  ASSERT_TRUE(first.Add(Prompt(1, 70)).ok());
  first.RunAll();
  setup.loader = {.tiers = {}, .page = Bytes(1000), .most_loading = 8, .peers = true};
  setup.loader.tiers.pool = true;  // Which is not asked.
  Tiers others;
  others.of[4] = tiers.of[1];
  Host second(setup, others);
  Request request = Prompt(2, 70);
  request.peer = PrefixPeer{.address = "10.0.0.1:7", .pages = 99};
  ASSERT_TRUE(second.Add(request).ok());
  EXPECT_EQ(second.loader_.asking(), 0);
  second.Tick();
  second.Carry(2);  // The third is damaged.
  second.RunAll();
  EXPECT_EQ(second.found_.at(2), (std::array<int64_t, kSources>{0, 0, 0, 0, 2}));
  EXPECT_EQ(second.tokens_.at(2), Alone(Prompt(2, 70)));
  // It is not asked for again.
  PushOut(second);
  second.In(Tier::kRemote).clear();
  request.id = 3;
  ASSERT_TRUE(second.Add(request).ok());
  second.RunAll();
  EXPECT_EQ(second.found_.at(3), (std::array<int64_t, kSources>{0, 0, 0, 0, 2}));
  EXPECT_EQ(second.tokens_.at(3), Alone(Prompt(2, 70)));
}

// Who does not read others' memory computes.
TEST(PrefixLoaderTest, APeerIsNothingToAWorkerWithoutThatTier) {
  Tiers tiers;
  HostSetup setup;
  Host host(setup, tiers);
  Request request = Prompt(1, 70);
  request.peer = PrefixPeer{.address = "10.0.0.1:7", .pages = 4};
  ASSERT_TRUE(host.Add(request).ok());
  host.RunAll();
  EXPECT_EQ(host.cached_.at(1), 0);
  EXPECT_EQ(host.loader_.stats().loads, 0);
}

TEST(PrefixLoaderTest, APoolServesWithoutHostMemory) {
  Tiers tiers;
  HostSetup setup;
  setup.loader.tiers = {.pool = true};
  Host first(setup, tiers);
  ASSERT_TRUE(first.Add(Prompt(1, 70)).ok());
  first.RunAll();
  EXPECT_EQ(first.In(Tier::kRemote).size(), 4);
  Host second(setup, tiers);
  ASSERT_TRUE(second.Add(Prompt(2, 70)).ok());
  second.RunAll();
  EXPECT_EQ(second.cached_.at(2), 64);
  EXPECT_EQ(second.tokens_.at(2), Alone(Prompt(2, 70)));
  EXPECT_EQ(second.loader_.stats().tiers.pool_puts, 0);  // They are there.
}

TEST(PrefixLoaderTest, WhatCameFromThePoolIsInHostMemoryNextTime) {
  Tiers tiers;
  HostSetup setup;
  setup.loader.tiers = {.host_pages = 100, .pool = true};
  Host first(setup, tiers);
  ASSERT_TRUE(first.Add(Prompt(1, 70)).ok());
  first.RunAll();
  Tiers others;
  others.of[3] = tiers.of[3];
  Host second(setup, others);
  ASSERT_TRUE(second.Add(Prompt(2, 70)).ok());
  second.RunAll();
  EXPECT_EQ(second.cached_.at(2), 64);
  EXPECT_EQ(second.In(Tier::kHost).size(), 4);
  EXPECT_EQ(second.loader_.stats().tiers.pool_puts, 0);
  PushOut(second);
  second.In(Tier::kRemote).clear();
  ASSERT_TRUE(second.Add(Prompt(3, 70)).ok());
  second.RunAll();
  EXPECT_EQ(second.cached_.at(3), 64);
}

TEST(PrefixLoaderTest, ADamagedPageOfThePoolIsComputedAndPutAnew) {
  Tiers tiers;
  HostSetup setup;
  setup.loader.tiers = {.pool = true};
  Host first(setup, tiers);
  ASSERT_TRUE(first.Add(Prompt(1, 70)).ok());
  first.RunAll();
  Host second(setup, tiers);
  ASSERT_TRUE(second.Add(Prompt(2, 70)).ok());
  second.Tick();
  second.Answer();
  second.Carry(2);  // The third is bad.
  second.RunAll();
  EXPECT_EQ(second.cached_.at(2), 32);
  EXPECT_EQ(second.tokens_.at(2), Alone(Prompt(2, 70)));
  EXPECT_EQ(second.loader_.stats().tiers.bad_objects, 1);
  EXPECT_EQ(second.loader_.stats().tiers.pool_puts, 1);
  PushOut(second);
  ASSERT_TRUE(second.Add(Prompt(3, 70)).ok());
  second.RunAll();
  EXPECT_EQ(second.cached_.at(3), 64);
}

TEST(PrefixLoaderTest, APoolThatDoesNotAnswerCostsItsBound) {
  Tiers tiers;
  HostSetup setup;
  setup.loader.tiers = {.host_pages = 4, .pool = true};
  Host host(setup, tiers);
  ASSERT_TRUE(host.Add(Prompt(1, 70)).ok());
  host.Tick();
  host.questions_.clear();
  EXPECT_FALSE(host.Step());
  host.now_ = *host.loader_.NextTimer();
  EXPECT_TRUE(host.Step());
  EXPECT_EQ(host.loader_.stats().unanswered, 1);
  host.RunAll();
  EXPECT_EQ(host.tokens_.at(1), Alone(Prompt(1, 70)));
}

// All layers were there for its one step; that the load has ended is heard later.
TEST(PrefixLoaderTest, WhoEndsBeforeTheLoadBehindItIsHeardHasUsedItsPages) {
  HostSetup setup;
  setup.loader.layers = 2;
  Tiers tiers;
  Host host(setup, tiers);
  ASSERT_TRUE(host.Add(Prompt(1, 50)).ok());
  host.RunAll();
  PushOut(host);
  Request again = Prompt(2, 50);
  again.max_tokens = 1;
  ASSERT_TRUE(host.Add(again).ok());
  host.Tick();
  ASSERT_EQ(host.loads_.size(), 1);
  const LoadOrder order = host.loads_.front();
  for (const LoadOrder::Page& page : order.pages) {
    host.executor_.WritePage(page.block, host.In(page.tier).at(page.key));
  }
  order.gate->Open(2);
  while (!host.tokens_.contains(2)) host.Step();
  EXPECT_EQ(host.tokens_.at(2).front(), host.tokens_.at(1).front());
  host.Carry();
  EXPECT_EQ(host.loader_.stats().pages_read, 3);
  EXPECT_EQ(host.loader_.stats().pages_used, 3);
}

TEST(PrefixLoaderTest, ReadingThatTakesLongerThanComputingIsNotBegun) {
  Tiers tiers;
  HostSetup setup;
  setup.loader.tiers.host_pages = 100;
  Host host(setup, tiers);
  ASSERT_TRUE(host.Add(Prompt(1, 70)).ok());
  host.RunAll();
  PushOut(host);
  host.loader_.SetSpeeds({.host = BytesPerSecond(1000), .per_token = Seconds(0.01)});
  ASSERT_TRUE(host.Add(Prompt(2, 70)).ok());
  EXPECT_EQ(host.loader_.stats().not_worth, 1);
  host.RunAll();
  EXPECT_EQ(host.cached_.at(2), 0);
}

TEST(PrefixLoaderTest, WhatTheLookAheadHadNoPlaceForIsExpectedLater) {
  Tiers tiers;
  HostSetup setup;
  setup.scheduler.max_sequences = 1;
  setup.loader.tiers.lookahead = 1;
  Host host(setup, tiers);
  for (RequestId id = 1; id <= 3; ++id) {
    ASSERT_TRUE(host.Add(Prompt(id, 16 + 16 * id, static_cast<TokenId>(id * 1000))).ok());
  }
  EXPECT_TRUE(host.Cancel(2));
  EXPECT_EQ(host.loader_.stats().tiers.awaited_pages, 2);
  EXPECT_TRUE(host.Step());
  EXPECT_EQ(host.loader_.stats().tiers.awaited_pages, 4);
  host.RunAll();
  EXPECT_EQ(host.loader_.stats().tiers.awaited_pages, 0);
}

// Random arrivals, cancellations, failures and late answers: tokens stay, counts return to zero.
TEST(PrefixLoaderTest, RandomLoad) {
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    Tiers tiers;
    HostSetup setup;
    setup.scheduler.blocks = random.Between(9, 30);
    setup.loader.tiers.host_pages = random.Between(0, 30);
    setup.loader.tiers.disk_pages = random.Between(0, 60);
    setup.loader.tiers.pool = random.Chance(0.5);
    setup.loader.most_loading = random.Between(0, 20);
    Host host(setup, tiers);
    std::map<RequestId, Request> asked;
    std::vector<RequestId> cancelled;
    for (RequestId id = 1; id <= 60; ++id) {
      Request request =
          Prompt(id, random.Between(1, 120), static_cast<TokenId>(random.Between(0, 3) * 1000));
      if (host.Add(request).ok()) asked[id] = request;
      for (int64_t i = random.Between(0, 4); i > 0; --i) {
        host.Tick();
        if (!host.questions_.empty() && random.Chance(0.7)) host.Answer();
        if (!host.loads_.empty() && random.Chance(0.7)) {
          host.Carry(random.Chance(0.3) ? random.Between(0, 2) : 1000);
        }
        host.Step();
      }
      if (!random.Chance(0.1) || asked.empty()) continue;
      const RequestId victim = random.Between(1, static_cast<int64_t>(id));
      if (host.Cancel(victim)) asked.erase(victim);
    }
    for (int64_t i = 0; i < 100; ++i) host.Tick();
    host.RunAll();
    for (const auto& [id, request] : asked) {
      ASSERT_EQ(host.tokens_[id], Alone(request)) << "request " << id;
    }
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace divisi
