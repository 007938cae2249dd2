#include "divisi/control/gateway_core.h"

#include <gtest/gtest.h>

#include <utility>

#include "divisi/control/member_keys.h"

namespace divisi {
namespace {

constexpr NodeId kGateway{1}, kFirst{11}, kSecond{12};
constexpr Seconds kNow{1};

HelloMessage Hello(NodeId node, WorkerRole role = WorkerRole::kReplica) {
  return {.node = node, .role = role, .name = "w", .max_sequences = 4};
}

template <typename Action>
std::vector<Action> Of(const std::vector<GatewayAction>& actions) {
  std::vector<Action> found;
  for (const GatewayAction& action : actions) {
    if (const auto* each = std::get_if<Action>(&action)) found.push_back(*each);
  }
  return found;
}

template <typename Message>
std::vector<std::pair<LinkId, Message>> Sent(const std::vector<GatewayAction>& actions) {
  std::vector<std::pair<LinkId, Message>> found;
  for (const SendAction& send : Of<SendAction>(actions)) {
    if (const auto* each = std::get_if<Message>(&send.message)) {
      found.emplace_back(send.link, *each);
    }
  }
  return found;
}

TEST(GatewayCoreTest, AWorkerThatSaysHelloGetsRequests) {
  GatewayCore core(kGateway, {});
  EXPECT_FALSE(core.Submit({.prompt = {1}}, kNow).ok());
  core.Receive(1, Hello(kFirst), kNow);
  EXPECT_EQ(Sent<WelcomeMessage>(core.TakeActions()).size(), 1u);
  ASSERT_TRUE(core.Submit({.prompt = {1}}, kNow).ok());
  const auto relays = Sent<RelayMessage>(core.TakeActions());
  ASSERT_EQ(relays.size(), 1u);
  EXPECT_EQ(relays[0].first, 1u);
  EXPECT_EQ(relays[0].second.from, kGateway);
  EXPECT_EQ(relays[0].second.to, kFirst);
  EXPECT_TRUE(std::holds_alternative<ServeMessage>(relays[0].second.message));
}

TEST(GatewayCoreTest, AWorkerOfLessContextThanPromisedGetsNoRequests) {
  GatewayCore core(kGateway, {.dispatch = {}, .registry = {.context = 64}});
  HelloMessage hello = Hello(kFirst);
  hello.context = 48;
  core.Receive(1, hello, kNow);
  const auto actions = core.TakeActions();
  EXPECT_EQ(Sent<RejectMessage>(actions).size(), 1u);
  EXPECT_EQ(Of<CloseAction>(actions).size(), 1u);
  EXPECT_FALSE(core.Submit({.prompt = {1}}, kNow).ok());
}

TEST(GatewayCoreTest, WhatComesBeforeAHelloEndsTheConnection) {
  GatewayCore core(kGateway, {});
  core.Receive(1, PingMessage{}, kNow);
  EXPECT_TRUE(core.TakeActions().empty());
  core.Receive(1, ReportMessage{}, kNow);
  EXPECT_EQ(Of<CloseAction>(core.TakeActions()).size(), 1u);
}

TEST(GatewayCoreTest, PassesOnWhatWorkersSayInTheirOwnNames) {
  GatewayCore core(kGateway, {});
  core.Receive(1, Hello(kFirst), kNow);
  core.Receive(2, Hello(kSecond), kNow);
  core.TakeActions();
  core.Receive(1, RelayMessage{kFirst, kSecond, TakenMessage{}}, kNow);
  const auto relays = Sent<RelayMessage>(core.TakeActions());
  ASSERT_EQ(relays.size(), 1u);
  EXPECT_EQ(relays[0].first, 2u);
  core.Receive(1, RelayMessage{kSecond, kSecond, TakenMessage{}}, kNow);
  core.Receive(1, RelayMessage{kFirst, NodeId{99}, TakenMessage{}}, kNow);
  EXPECT_TRUE(core.TakeActions().empty());
}

TEST(GatewayCoreTest, AnOperatorNeedsNoHello) {
  GatewayCore core(kGateway, {});
  core.Receive(7, QueryMessage{{"status"}}, kNow);
  const auto queries = Of<QueryAction>(core.TakeActions());
  ASSERT_EQ(queries.size(), 1u);
  EXPECT_EQ(queries[0].link, 7u);
}

TEST(GatewayCoreTest, ADrainedWorkerThatIsEnlistedGetsRequests) {
  GatewayCore core(kGateway, {});
  core.Receive(1, Hello(kFirst), kNow);
  core.Drain(kFirst, Seconds(5), kNow);
  EXPECT_TRUE(core.dispatcher().loads(kNow).at(0).draining);
  EXPECT_TRUE(core.Enlist(kFirst, WorkerRole::kDecode, kNow).ok());
  const auto loads = core.dispatcher().loads(kNow);
  EXPECT_FALSE(loads.at(0).draining);
  EXPECT_EQ(loads.at(0).role, WorkerRole::kDecode);
}

// With a directory
class GatewayCoreMemberTest : public testing::Test {
 protected:
  GatewayCoreMemberTest() : core_(kGateway, {.registry = {.lease = Seconds(2)}}) {}

  std::vector<DirectoryAction> Asked() { return Of<DirectoryAction>(core_.TakeActions()); }
  void Told(DirectoryEvent::Kind kind, Seconds now, const std::string& key = "") {
    core_.Told({kind, key, ""}, now);
  }
  using Kind = DirectoryEvent::Kind;

  GatewayCore core_;
};

TEST_F(GatewayCoreMemberTest, VouchesForWhomItReaches) {
  core_.Receive(1, Hello(kFirst), kNow);
  auto asked = Asked();
  ASSERT_EQ(asked.size(), 1u);
  EXPECT_EQ(std::get<KeepAction>(asked[0]).key, ReachKey(kFirst, kGateway));
  core_.Ended(1, "lost", kNow);
  asked = Asked();
  ASSERT_EQ(asked.size(), 1u);
  EXPECT_EQ(std::get<DropAction>(asked[0]).key, ReachKey(kFirst, kGateway));
}

// What was asked for before there was a directory was asked of nobody.
TEST_F(GatewayCoreMemberTest, VouchesAgainWhenTheDirectoryIsThere) {
  core_.Receive(1, Hello(kFirst), kNow);
  core_.TakeActions();
  Told(Kind::kUp, kNow);
  const auto asked = Asked();
  ASSERT_EQ(asked.size(), 1u);
  EXPECT_EQ(std::get<KeepAction>(asked[0]).key, ReachKey(kFirst, kGateway));
}

TEST_F(GatewayCoreMemberTest, OneWhoseLeaseEndedIsDeclaredDead) {
  Told(Kind::kPut, kNow, WorkerKey(kFirst));
  Told(Kind::kUp, kNow);
  core_.Receive(1, Hello(kFirst), kNow);
  core_.Ended(1, "lost", Seconds(5));
  core_.TakeActions();
  core_.Tick(Seconds(10));
  EXPECT_TRUE(Asked().empty()) << "it has its lease";
  Told(Kind::kGone, Seconds(10), WorkerKey(kFirst));
  core_.Tick(Seconds(10));
  const auto asked = Asked();
  ASSERT_EQ(asked.size(), 1u);
  const auto& declare = std::get<DeclareAction>(asked[0]);
  EXPECT_EQ(declare.key, DeadKey(kFirst));
  EXPECT_EQ(declare.absent, WorkerKey(kFirst));
  EXPECT_EQ(declare.none_of, ReachPrefix(kFirst));
  Told(Kind::kPut, Seconds(11), DeadKey(kFirst));
  EXPECT_TRUE(core_.registry().members().empty());
  core_.Receive(2, Hello(kFirst), Seconds(12));
  const auto rejects = Sent<RejectMessage>(core_.TakeActions());
  ASSERT_EQ(rejects.size(), 1u);
  EXPECT_TRUE(rejects[0].second.dead);
}

}  // namespace
}  // namespace divisi
