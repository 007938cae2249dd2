// What becomes of requests when the room for loads is taken.
#include <gtest/gtest.h>

#include "divisi/engine/prefix_loader.h"
#include "divisi/sim/prefix_loader_fixture.h"

namespace divisi {
namespace {

TEST(PrefixLoaderRoomTest, WithoutRoomLaterRequestsComputeAtOnce) {
  Tiers tiers;
  HostSetup setup;
  setup.scheduler.blocks = 60;
  setup.loader.tiers.host_pages = 200;
  setup.loader.most_loading = 8;
  Host host(setup, tiers);
  for (RequestId id = 1; id <= 4; ++id) {
    ASSERT_TRUE(host.Add(Prompt(id, 70, static_cast<TokenId>(id * 1000))).ok());
  }
  host.RunAll();
  for (RequestId id = 900; id < 910; ++id) {
    ASSERT_TRUE(host.Add(Prompt(id, 100, static_cast<TokenId>(id * 1000))).ok());
    host.RunAll();
  }
  for (RequestId id = 11; id <= 14; ++id) {
    ASSERT_TRUE(host.Add(Prompt(id, 70, static_cast<TokenId>((id - 10) * 1000))).ok());
  }
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
  for (RequestId id = 1; id <= 3; ++id) {
    ASSERT_TRUE(host.Add(Prompt(id, 70, static_cast<TokenId>(id * 1000))).ok());
  }
  host.RunAll();
  for (RequestId id = 900; id < 910; ++id) {
    ASSERT_TRUE(host.Add(Prompt(id, 100, static_cast<TokenId>(id * 1000))).ok());
    host.RunAll();
  }
  for (RequestId id = 11; id <= 13; ++id) {
    ASSERT_TRUE(host.Add(Prompt(id, 70, static_cast<TokenId>((id - 10) * 1000))).ok());
  }
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

}  // namespace
}  // namespace divisi
