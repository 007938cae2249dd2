#include "divisi/serve/cluster_events.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "divisi/control/route_prefix.h"
#include "divisi/core/check.h"
#include "divisi/kv/event_log.h"
#include "divisi/serve/directory_status.h"

namespace divisi {
namespace {

using testing::HasSubstr;

constexpr NodeId kGateway{1}, kFirst{11};

BlockKey Key(uint8_t number) {
  BlockKey key;
  key.bytes[3] = number;
  return key;
}

class ClusterEventsTest : public testing::Test {
 protected:
  ClusterEventsTest() : core_(kGateway, {.pages = Directory()}), events_(clock_, logger_, [] {}) {}

  static std::optional<PageDirectory> Directory() {
    auto directory = PageDirectory::Create({.pages = 1000});
    CHECK(directory.ok());
    return *std::move(directory);
  }
  std::unique_ptr<EventPublisher> Publisher() {
    auto publisher = EventPublisher::Open(
        {.endpoint = "tcp://127.0.0.1:0", .replay_endpoint = "tcp://127.0.0.1:0", .topic = "t"},
        clock_, logger_);
    CHECK(publisher.ok(), "{}", publisher.error().message);
    return *std::move(publisher);
  }
  void Join(const EventPublisher& publisher) {
    HelloMessage hello{.node = kFirst, .name = "\"w\""};
    hello.events = {publisher.endpoint(), publisher.replay_endpoint(), "t"};
    core_.Receive(1, hello, clock_.Now());
    Do();
  }
  void Do() {
    for (GatewayAction& action : core_.TakeActions()) {
      if (const auto* follow = std::get_if<FollowAction>(&action)) events_.Follow(*follow);
      if (const auto* leave = std::get_if<UnfollowAction>(&action)) events_.Unfollow(leave->node);
    }
  }
  // Until the holder has so many pages.
  bool Has(NodeId holder, int64_t pages) {
    for (int i = 0; i < 2000; ++i) {
      events_.Tell(core_, clock_.Now());
      events_.LookAfterStores(core_, clock_.Now());
      if (core_.pages()->pages_of(holder) == pages) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return false;
  }

  SteadyClock clock_{};
  Logger logger_{{.least = LogLevel::kError}};
  GatewayCore core_;
  ClusterEvents events_;
};

TEST_F(ClusterEventsTest, TellsWhatMembersPublishUntilTheyGo) {
  const auto publisher = Publisher();
  publisher->Publish({PageStored(Key(1), nullptr, {}, EventTier::kDevice)});
  Join(*publisher);
  EXPECT_TRUE(Has(kFirst, 1)) << "what was published before";
  publisher->Publish({PageStored(Key(2), nullptr, {}, EventTier::kHost),
                      PageStored(Key(1), nullptr, {}, EventTier::kHost)});
  EXPECT_TRUE(Has(kFirst, 2));
  for (int i = 0; i < 50 && !events_.stats().members[kFirst].stream.following; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  const Json status = WorkerKvStatus(core_, events_.stats(), kFirst);
  EXPECT_EQ(status.Find("pages")->Find("device")->as_int(), 1);
  EXPECT_EQ(status.Find("pages")->Find("host")->as_int(), 2);
  EXPECT_TRUE(status.Find("events")->Find("following")->as_bool());
  EXPECT_THAT(
      DirectoryMetrics(core_, events_.stats(), "model_name=\"m\""),
      HasSubstr(
          "divisi:directory_worker_pages{model_name=\"m\",worker=\"\\\"w\\\"\",tier=\"host\"} "
          "2\n"));
  core_.Receive(1, LeaveMessage{.now = true}, clock_.Now());
  Do();
  EXPECT_TRUE(Has(kFirst, 0));
  EXPECT_TRUE(events_.stats().members.empty());
}

TEST_F(ClusterEventsTest, AStoreThatIsLostIsForgottenAndHeardAnew) {
  auto lost = Publisher();
  const auto stays = Publisher();
  const PoolStoreEvents at{lost->endpoint(), lost->replay_endpoint()};
  ASSERT_TRUE(events_.FollowStores({at, {stays->endpoint(), stays->replay_endpoint()}}).ok());
  lost->Publish({PageStored(Key(1), nullptr, {}, EventTier::kRemote),
                 PageStored(Key(2), nullptr, {}, EventTier::kRemote)});
  stays->Publish({PageStored(Key(2), nullptr, {}, EventTier::kRemote)});
  EXPECT_TRUE(Has(kPoolHolder, 2));
  const auto connected = [&] {
    const auto stores = events_.stats().stores;
    return stores[0].stream.connected && stores[1].stream.connected;
  };
  for (int i = 0; i < 100 && !connected(); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  EXPECT_TRUE(connected());
  lost.reset();
  EXPECT_TRUE(Has(kPoolHolder, 1)) << "what the other one has stays";
  EXPECT_EQ(events_.stats().stores.size(), 2u);
}

TEST_F(ClusterEventsTest, RefusesEndpointsThatAreNone) {
  EXPECT_FALSE(events_.FollowStores({{"10.0.0.7", ""}}).ok());
  core_.Receive(1, HelloMessage{.node = kFirst, .events = {.live = "tcp://*:5557"}}, clock_.Now());
  Do();  // Logged; the worker has no pages here.
  EXPECT_TRUE(events_.stats().members.empty());
}

}  // namespace
}  // namespace divisi
