// What a gateway knows of its members' pages, through the core that joins it with the registry.
#include "divisi/control/cluster_pages.h"

#include <gtest/gtest.h>

#include <utility>

#include "divisi/control/gateway_core.h"
#include "divisi/control/route_prefix.h"
#include "divisi/core/check.h"
#include "divisi/kv/event_log.h"

namespace divisi {
namespace {

constexpr NodeId kGateway{1}, kFirst{11}, kSecond{12};
constexpr Seconds kNow{1};

BlockKey Key(uint8_t number) {
  BlockKey key;
  key.bytes[5] = number;
  return key;
}
KvEvent Stored(uint8_t number, EventTier tier = EventTier::kDevice) {
  return PageStored(Key(number), nullptr, {}, tier);
}
KvEvent Removed(uint8_t number, EventTier tier = EventTier::kDevice) {
  return PageRemoved(Key(number), tier);
}
EventUpdate Told(std::vector<KvEvent> events, bool forget = false) {
  return {.forget = forget, .events = std::move(events)};
}

class ClusterPagesTest : public testing::Test {
 protected:
  // gateways: that workers are connected to.
  explicit ClusterPagesTest(uint32_t gateways = 1)
      : gateways_(gateways), core_(kGateway, {.pages = Directory()}) {}

  static std::optional<PageDirectory> Directory() {
    auto directory = PageDirectory::Create({.pages = 1000});
    CHECK(directory.ok());
    return *std::move(directory);
  }
  HelloMessage Hello(NodeId node) const {
    HelloMessage hello{.node = node, .name = "w", .max_sequences = 4, .gateways = gateways_};
    hello.compatibility.model = "m";
    hello.compatibility.page_format = "f";
    hello.events = {"tcp://10.0.0.2:5557", "tcp://10.0.0.2:5558", "kv@w@m"};
    return hello;
  }
  template <typename Action>
  std::vector<NodeId> Asked() {
    std::vector<NodeId> nodes;
    for (const GatewayAction& action : core_.TakeActions()) {
      if (const auto* each = std::get_if<Action>(&action)) nodes.push_back(each->node);
    }
    return nodes;
  }
  int64_t PagesOf(NodeId node) const { return core_.pages()->pages_of(node); }

  const uint32_t gateways_;
  GatewayCore core_;
};

using Nodes = std::vector<NodeId>;

TEST_F(ClusterPagesTest, FollowsWhoPublishesUntilItIsGone) {
  core_.Receive(1, Hello(kFirst), kNow);
  const auto actions = core_.TakeActions();
  const auto follow = std::ranges::find_if(actions, [](const GatewayAction& action) {
    return std::holds_alternative<FollowAction>(action);
  });
  ASSERT_NE(follow, actions.end());
  EXPECT_EQ(std::get<FollowAction>(*follow).node, kFirst);
  EXPECT_EQ(std::get<FollowAction>(*follow).endpoints, Hello(kFirst).events);
  HelloMessage silent = Hello(kSecond);
  silent.events = {};
  core_.Receive(2, silent, kNow);
  EXPECT_TRUE(Asked<FollowAction>().empty());

  core_.Heard(kFirst, Told({Stored(1), Stored(2, EventTier::kHost)}), kNow);
  core_.Heard(kSecond, Told({Stored(1)}), kNow);
  EXPECT_EQ(PagesOf(kFirst), 2);
  EXPECT_EQ(PagesOf(kSecond), 0);
  core_.Heard(kFirst, Told({Removed(1)}), kNow);
  EXPECT_EQ(PagesOf(kFirst), 1);

  core_.Receive(1, LeaveMessage{.now = true}, kNow);
  EXPECT_EQ(Asked<UnfollowAction>(), Nodes{kFirst});
  EXPECT_EQ(PagesOf(kFirst), 0);
  core_.Heard(kFirst, Told({Stored(3)}), kNow);  // What was still on its way
  EXPECT_EQ(PagesOf(kFirst), 0);
}

TEST_F(ClusterPagesTest, WhoFoundNoRoomIsFollowedWhenAnotherWent) {
  constexpr uint64_t kWorkers = kHolderSlots;  // One more than there is room for, with the pool
  for (uint64_t i = 1; i <= kWorkers; ++i) core_.Receive(i, Hello({1000 + i}), kNow);
  EXPECT_EQ(Asked<FollowAction>().size(), kWorkers - 1);
  core_.Receive(1, LeaveMessage{.now = true}, kNow);
  EXPECT_EQ(Asked<FollowAction>(), Nodes{{1000 + kWorkers}});
}

TEST_F(ClusterPagesTest, ANewLifeStartsEmpty) {
  core_.Receive(1, Hello(kFirst), kNow);
  core_.Heard(kFirst, Told({Stored(1)}), kNow);
  core_.Ended(1, "lost", kNow);
  core_.Tick(kNow + Seconds(1));
  EXPECT_EQ(Asked<UnfollowAction>(), Nodes{kFirst});
  core_.Receive(2, Hello(kSecond), kNow + Seconds(1));
  EXPECT_EQ(Asked<FollowAction>(), Nodes{kSecond});
  EXPECT_EQ(PagesOf(kFirst), 0);
  EXPECT_EQ(PagesOf(kSecond), 0);
}

TEST_F(ClusterPagesTest, ForgetsWhenTold) {
  core_.Receive(1, Hello(kFirst), kNow);
  core_.Heard(kFirst, Told({Stored(1), Stored(2)}), kNow);
  core_.Heard(kFirst, Told({Stored(3)}, true), kNow);
  EXPECT_EQ(PagesOf(kFirst), 1);
  core_.Heard(kFirst, Told({ClearedEvent{}, Stored(4), Stored(5)}), kNow);
  EXPECT_EQ(PagesOf(kFirst), 2);
}

TEST_F(ClusterPagesTest, WhatIsNoEvidenceOfAPrefixIsPassedOver) {
  core_.Receive(1, Hello(kFirst), kNow);
  StoredEvent window = std::get<StoredEvent>(Stored(1));
  window.spec_kind = "sliding_window";
  StoredEvent nowhere = std::get<StoredEvent>(Stored(2));
  nowhere.medium = "TAPE";
  core_.Heard(kFirst, Told({window, nowhere, OtherEvent{"x", "y"}}), kNow);
  EXPECT_EQ(PagesOf(kFirst), 0);
}

TEST_F(ClusterPagesTest, APageOfThePoolIsThereUntilItsLastStoreLosesIt) {
  core_.HeardStore(0,
                   Told({Stored(1, EventTier::kRemote), Stored(1, EventTier::kRemote),
                         Stored(2, EventTier::kRemote)}),
                   kNow);
  core_.HeardStore(1, Told({Stored(1, EventTier::kRemote)}), kNow);
  EXPECT_EQ(PagesOf(kPoolHolder), 2);
  core_.HeardStore(0, Told({}, true), kNow);
  EXPECT_EQ(PagesOf(kPoolHolder), 1);
  core_.HeardStore(1, Told({Removed(1, EventTier::kRemote), Removed(2, EventTier::kRemote)}), kNow);
  EXPECT_EQ(PagesOf(kPoolHolder), 0);
  core_.pages()->Verify();
  EXPECT_EQ(core_.pages()->stats().unknown_removals, 0);
}

TEST_F(ClusterPagesTest, NamesPagesAsItsMembersDo) {
  EXPECT_FALSE(core_.PageSpace());
  core_.Receive(1, Hello(kFirst), kNow);
  const auto space = core_.PageSpace();
  ASSERT_TRUE(space);
  EXPECT_EQ(space->model_fingerprint, std::vector<uint8_t>{'m'});
  EXPECT_EQ(space->page_format, "f");
}

TEST_F(ClusterPagesTest, WithoutADirectoryNothingIsFollowed) {
  GatewayCore core(kGateway, {});
  core.Receive(1, Hello(kFirst), kNow);
  for (const GatewayAction& action : core.TakeActions()) {
    EXPECT_FALSE(std::holds_alternative<FollowAction>(action));
  }
  core.Heard(kFirst, Told({Stored(1)}), kNow);
  core.HeardStore(0, Told({Stored(1)}), kNow);
  EXPECT_FALSE(core.PageSpace());
}

class SeveralGatewaysTest : public ClusterPagesTest {
 protected:
  SeveralGatewaysTest() : ClusterPagesTest(2) {}
};

TEST_F(SeveralGatewaysTest, ADoubtedWorkerKeepsWhatItHas) {
  core_.Receive(1, Hello(kFirst), kNow);
  core_.Heard(kFirst, Told({Stored(1)}), kNow);
  core_.Ended(1, "lost", kNow);
  core_.Tick(kNow + Seconds(1));
  EXPECT_TRUE(core_.registry().members().at(kFirst).doubted);
  EXPECT_TRUE(core_.dispatcher().loads(kNow).empty());
  EXPECT_TRUE(Asked<UnfollowAction>().empty());
  EXPECT_EQ(PagesOf(kFirst), 1);
  core_.Receive(2, Hello(kFirst), kNow + Seconds(2));
  EXPECT_TRUE(Asked<FollowAction>().empty());
  EXPECT_EQ(PagesOf(kFirst), 1);
  core_.Ended(2, "lost", kNow + Seconds(3));
  core_.Tick(kNow + Seconds(100));
  EXPECT_EQ(Asked<UnfollowAction>(), Nodes{kFirst});
  EXPECT_EQ(PagesOf(kFirst), 0);
}

}  // namespace
}  // namespace divisi
