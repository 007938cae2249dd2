// What becomes of requests when the room for loads is taken.
#include <gtest/gtest.h>

#include "divisi/engine/prefix_loader.h"
#include "divisi/sim/prefix_loader_fixture.h"

namespace divisi {
namespace {

// Requests 1 to `count`, each of its own prompt, which then lie in the tiers alone.
void RunAndPushOut(Host& host, RequestId count, int64_t tokens) {
  for (RequestId id = 1; id <= count; ++id) {
    ASSERT_TRUE(host.Add(Prompt(id, tokens, static_cast<TokenId>(id * 1000))).ok());
  }
  host.RunAll();
  for (RequestId id = 900; id < 910; ++id) {
    ASSERT_TRUE(host.Add(Prompt(id, 100, static_cast<TokenId>(id * 1000))).ok());
    host.RunAll();
  }
}

// Their prompts again, as requests 11 and so on.
void AddAgain(Host& host, RequestId count, int64_t tokens) {
  for (RequestId id = 1; id <= count; ++id) {
    ASSERT_TRUE(host.Add(Prompt(10 + id, tokens, static_cast<TokenId>(id * 1000))).ok());
  }
}

TEST(PrefixLoaderRoomTest, WithoutRoomLaterRequestsComputeAtOnce) {
  Tiers tiers;
  HostSetup setup;
  setup.scheduler.blocks = 60;
  setup.loader.tiers.host_pages = 200;
  setup.loader.most_loading = 8;
  Host host(setup, tiers);
  RunAndPushOut(host, 4, 70);
  AddAgain(host, 4, 70);
  EXPECT_EQ(host.loader_.stats().loading_pages, 8);
  EXPECT_EQ(host.loader_.stats().no_room, 2);
  host.RunAll();
  for (RequestId id = 11; id <= 14; ++id) EXPECT_EQ(host.tokens_.at(id), host.tokens_.at(id - 10));
}

TEST(PrefixLoaderRoomTest, WhoStillWaitsWhenThereIsRoomIsLoaded) {
  Tiers tiers;
  HostSetup setup;
  setup.scheduler.blocks = 60;
  setup.scheduler.max_sequences = 1;
  setup.loader.tiers.host_pages = 200;
  setup.loader.most_loading = 4;
  Host host(setup, tiers);
  RunAndPushOut(host, 3, 70);
  AddAgain(host, 3, 70);
  EXPECT_EQ(host.loader_.stats().no_room, 2);
  host.Tick();
  host.Carry();
  ASSERT_TRUE(host.Step());  // 11 begins, so there is room, and 12 and 13 wait for it.
  EXPECT_EQ(host.loader_.stats().loaded_later, 1);
  host.RunAll();
  EXPECT_EQ(host.loader_.stats().loaded_later, 2);
  for (RequestId id = 11; id <= 13; ++id) {
    EXPECT_EQ(host.tokens_.at(id), host.tokens_.at(id - 10));
    EXPECT_EQ(host.cached_.at(id), 64) << id;
    EXPECT_EQ(host.found_.at(id), (std::array<int64_t, kSources>{0, 4, 0, 0})) << id;
  }
}

TEST(PrefixLoaderRoomTest, AloneAPrefixMayBeLargerThanTheRoomForLoads) {
  Tiers tiers;
  HostSetup setup;
  setup.loader.tiers.host_pages = 100;
  setup.loader.most_loading = 4;
  Host host(setup, tiers);
  ASSERT_TRUE(host.Add(Prompt(1, 150)).ok());
  host.RunAll();
  PushOut(host);
  ASSERT_TRUE(host.Add(Prompt(2, 150)).ok());
  EXPECT_EQ(host.loader_.stats().loading_pages, 9);
  host.RunAll();
  EXPECT_EQ(host.cached_.at(2), 144);
  EXPECT_EQ(host.tokens_.at(2), Alone(Prompt(2, 150)));
}

TEST(PrefixLoaderRoomTest, NoMoreLoadsAtOnceThanTheTiersTake) {
  Tiers tiers;
  HostSetup setup;
  setup.scheduler.blocks = 60;
  setup.loader.tiers.host_pages = 200;
  setup.loader.most_loading = 40;
  setup.loader.most_loads = 2;
  Host host(setup, tiers);
  RunAndPushOut(host, 3, 70);
  AddAgain(host, 3, 70);
  EXPECT_EQ(host.loader_.stats().loads, 2);
  EXPECT_EQ(host.loader_.stats().no_room, 1);
  host.Tick();
  host.Carry();
  EXPECT_EQ(host.loader_.stats().loads, 3);
  host.RunAll();
  for (RequestId id = 11; id <= 13; ++id) EXPECT_EQ(host.cached_.at(id), 64) << id;
}

TEST(PrefixLoaderRoomTest, ASmallPartIsNoReasonToForgoTheRest) {
  Tiers tiers;
  HostSetup setup;
  setup.scheduler.blocks = 60;
  setup.loader.tiers.host_pages = 200;
  setup.loader.most_loading = 10;
  Host host(setup, tiers);
  RunAndPushOut(host, 2, 135);
  AddAgain(host, 2, 135);
  EXPECT_EQ(host.loader_.stats().loading_pages, 8);
  EXPECT_EQ(host.loader_.stats().no_room, 1);
  host.RunAll();
  EXPECT_EQ(host.loader_.stats().pages_read, 8 + 8 * host.loader_.stats().loaded_later);
  EXPECT_EQ(host.tokens_.at(12), host.tokens_.at(2));
}

// What the pool said that it has holds for who waits for room, too.
TEST(PrefixLoaderRoomTest, PagesOfThePoolAreLoadedLaterToo) {
  Tiers tiers;
  HostSetup setup;
  setup.scheduler.blocks = 60;
  setup.loader.tiers = {.pool = true};
  setup.loader.most_loading = 4;
  Host host(setup, tiers);
  RunAndPushOut(host, 2, 70);
  AddAgain(host, 2, 70);
  host.Tick();
  host.Answer();
  EXPECT_EQ(host.loader_.stats().no_room, 1);
  host.Cancel(11);
  host.Tick();
  EXPECT_EQ(host.loader_.stats().loaded_later, 1);
  host.RunAll();
  EXPECT_EQ(host.cached_.at(12), 64);
  EXPECT_EQ(host.found_.at(12), (std::array<int64_t, kSources>{0, 0, 0, 4}));
  EXPECT_EQ(host.tokens_.at(12), host.tokens_.at(2));
}

// A queue that empties while its head waits for pages keeps nobody from loading afterwards.
TEST(PrefixLoaderRoomTest, WhoWaitedForPagesAndWentIsNoReasonNotToLoad) {
  Tiers tiers;
  HostSetup setup;
  Host host(setup, tiers);
  ASSERT_TRUE(host.Add(Prompt(1, 70)).ok());
  host.RunAll();
  PushOut(host);
  Request grows = Prompt(2, 100, 5000);
  grows.max_tokens = 40;
  ASSERT_TRUE(host.Add(grows).ok());
  ASSERT_TRUE(host.Step());
  ASSERT_TRUE(host.Step());
  ASSERT_TRUE(host.Add(Prompt(3, 150, 7000)).ok());
  ASSERT_TRUE(host.Step());
  EXPECT_TRUE(host.scheduler_.Blocked());
  host.Cancel(3);
  host.Cancel(2);
  ASSERT_TRUE(host.Add(Prompt(5, 20, 9000)).ok());  // It waits, for nothing.
  ASSERT_TRUE(host.Add(Prompt(4, 70)).ok());
  EXPECT_EQ(host.loader_.stats().loading_pages, 4);
  host.RunAll();
  EXPECT_EQ(host.cached_.at(4), 64);
}

// What the pool cached when a request came may give way before its turn: host memory has it still.
TEST(PrefixLoaderRoomTest, CachedPagesThatGiveWayBeforeTheTurnAreReadBack) {
  Tiers tiers;
  HostSetup setup;
  setup.scheduler.max_sequences = 1;
  setup.loader.tiers.host_pages = 200;
  Host host(setup, tiers);
  ASSERT_TRUE(host.Add(Prompt(1, 70)).ok());
  host.RunAll();
  for (RequestId id = 900; id < 903; ++id) {
    ASSERT_TRUE(host.Add(Prompt(id, 100, static_cast<TokenId>(id * 1000))).ok());
  }
  ASSERT_TRUE(host.Add(Prompt(2, 70)).ok());
  EXPECT_EQ(host.loader_.stats().loads, 0);
  host.RunAll();
  EXPECT_EQ(host.tokens_.at(2), host.tokens_.at(1));
  EXPECT_EQ(host.cached_.at(2), 64);
  EXPECT_EQ(host.loader_.stats().loaded_later, 1);
  EXPECT_EQ(host.found_.at(2), (std::array<int64_t, kSources>{0, 4, 0, 0}));
}

// Each byte under way counts what its own tier takes for it.
TEST(PrefixLoaderRoomTest, ASlowDiskMakesNoHostHitWorthless) {
  Tiers tiers;
  HostSetup setup;
  setup.loader.tiers.host_pages = 200;
  Host host(setup, tiers);
  ASSERT_TRUE(host.Add(Prompt(1, 70, 1000)).ok());
  ASSERT_TRUE(host.Add(Prompt(2, 70, 2000)).ok());
  host.RunAll();
  PushOut(host);
  host.loader_.SetSpeeds({.disk = BytesPerSecond(1000)});
  AddAgain(host, 2, 70);
  EXPECT_EQ(host.loader_.stats().not_worth, 0);
  EXPECT_EQ(host.loader_.stats().loads, 2);
  host.RunAll();
  EXPECT_EQ(host.cached_.at(12), 64);
}

TEST(PrefixLoaderRoomTest, LoadedPagesThatOthersNeedAreNoLongerCounted) {
  Tiers tiers;
  HostSetup setup;
  setup.scheduler.max_sequences = 1;
  Host host(setup, tiers);
  ASSERT_TRUE(host.Add(Prompt(1, 70)).ok());
  host.RunAll();
  PushOut(host);
  Request grows = Prompt(2, 40, 5000);
  grows.max_tokens = 140;  // Twelve pages, all there are
  ASSERT_TRUE(host.Add(grows).ok());
  ASSERT_TRUE(host.Step());
  ASSERT_TRUE(host.Add(Prompt(3, 70)).ok());
  ASSERT_EQ(host.loader_.stats().loading_pages, 4);
  host.Tick();
  host.Carry();
  while (!host.tokens_.contains(3) && host.tokens_[2].size() < 139) ASSERT_TRUE(host.Step());
  EXPECT_EQ(host.loader_.stats().loading_pages, 0);
  host.RunAll();
  EXPECT_EQ(host.loader_.stats().pages_read, 4 + host.loader_.stats().pages_used);
  EXPECT_EQ(host.tokens_.at(3), host.tokens_.at(1));
}

}  // namespace
}  // namespace divisi
