#include "divisi/control/registry.h"

#include <gtest/gtest.h>

namespace divisi {
namespace {

constexpr NodeId kGateway{1};

HelloMessage HelloOf(uint64_t node, const std::string& name,
                     WorkerRole role = WorkerRole::kReplica) {
  return {.node = {node},
          .role = role,
          .name = name,
          .compatibility = {.model = "m", .tokenizer = "t"},
          .data_address = name + ":1"};
}

// What the actions of one kind say.
template <typename Action>
std::vector<Action> Of(const std::vector<RegistryAction>& actions) {
  std::vector<Action> found;
  for (const RegistryAction& action : actions) {
    if (const auto* one = std::get_if<Action>(&action)) found.push_back(*one);
  }
  return found;
}

template <typename Message>
std::vector<std::pair<LinkId, Message>> Sent(const std::vector<RegistryAction>& actions) {
  std::vector<std::pair<LinkId, Message>> found;
  for (const SendAction& send : Of<SendAction>(actions)) {
    if (const auto* one = std::get_if<Message>(&send.message)) found.emplace_back(send.link, *one);
  }
  return found;
}

class RegistryTest : public testing::Test {
 protected:
  std::vector<RegistryAction> Join(LinkId link, uint64_t node, const std::string& name) {
    registry_.Hello(link, HelloOf(node, name), now_);
    return registry_.TakeActions();
  }
  std::vector<RegistryAction> After(double seconds) {
    now_ += Seconds(seconds);
    registry_.Tick(now_);
    return registry_.TakeActions();
  }

  Registry registry_{kGateway, {}};
  Seconds now_{100};
};

TEST_F(RegistryTest, TellsEachWorkerOfTheOthers) {
  auto first = Join(1, 11, "a");
  EXPECT_EQ(Sent<WelcomeMessage>(first).at(0).first, 1u);
  EXPECT_EQ(Of<JoinedAction>(first).at(0).node, NodeId{11});
  EXPECT_TRUE(Sent<PeerUpMessage>(first).empty());

  const auto second = Join(2, 12, "b");
  const auto ups = Sent<PeerUpMessage>(second);
  ASSERT_EQ(ups.size(), 2u);
  EXPECT_EQ(ups[0].first, 2u);
  EXPECT_EQ(ups[0].second.node, NodeId{11});
  EXPECT_EQ(ups[1].first, 1u);
  EXPECT_EQ(ups[1].second.data_address, "b:1");
}

TEST_F(RegistryTest, AWorkerComesBackAsTheSameWithinTheGrace) {
  Join(1, 11, "a");
  Join(2, 12, "b");
  registry_.Ended(1, "reset", now_);
  EXPECT_FALSE(registry_.LinkOf({11}));
  EXPECT_TRUE(Of<GoneAction>(After(0.4)).empty());
  const auto back = Join(3, 11, "a");
  EXPECT_TRUE(Of<JoinedAction>(back).empty());
  EXPECT_EQ(Sent<PeerUpMessage>(back).size(), 1u);  // To itself: it may have missed one.
  EXPECT_EQ(registry_.LinkOf({11}), 3u);
  EXPECT_TRUE(Of<GoneAction>(After(5)).empty());
}

TEST_F(RegistryTest, AfterTheGraceItIsGoneAndOthersAreTold) {
  Join(1, 11, "a");
  Join(2, 12, "b");
  registry_.Ended(1, "reset", now_);
  const auto gone = After(0.5);
  EXPECT_EQ(Of<GoneAction>(gone).at(0).node, NodeId{11});
  EXPECT_EQ(Sent<PeerGoneMessage>(gone).at(0).first, 2u);
  const auto back = Join(3, 11, "a");
  EXPECT_NE(Sent<RejectMessage>(back).at(0).second.reason.find("declared dead"), std::string::npos);
  EXPECT_EQ(Of<CloseAction>(back).at(0).link, 3u);
  EXPECT_FALSE(Of<JoinedAction>(Join(4, 13, "a")).empty());  // A new life.
}

TEST_F(RegistryTest, ANewerConnectionReplacesTheOlder) {
  Join(1, 11, "a");
  const auto again = Join(2, 11, "a");
  EXPECT_EQ(Of<CloseAction>(again).at(0).link, 1u);
  registry_.Ended(1, "closed", now_);  // The older one's end says nothing about the worker.
  EXPECT_EQ(registry_.LinkOf({11}), 2u);
  EXPECT_TRUE(Of<GoneAction>(After(5)).empty());
}

TEST_F(RegistryTest, RefusesAnotherModelByName) {
  Join(1, 11, "a");
  HelloMessage other = HelloOf(12, "b");
  other.compatibility.model = "other";
  registry_.Hello(2, other, now_);
  const auto refused = registry_.TakeActions();
  EXPECT_NE(Sent<RejectMessage>(refused).at(0).second.reason.find("the model differs"),
            std::string::npos);
  EXPECT_FALSE(registry_.NodeOf(2));
  registry_.Ended(2, "refused", now_);
  EXPECT_EQ(registry_.members().size(), 1u);
}

TEST_F(RegistryTest, ARoleThatAnOperatorGaveOutlivesAConnection) {
  Join(1, 11, "a");
  registry_.SetRole({11}, WorkerRole::kDecode);
  registry_.Ended(1, "reset", now_);
  Join(2, 11, "a");
  EXPECT_EQ(registry_.members().at({11}).hello.role, WorkerRole::kDecode);
}

TEST_F(RegistryTest, ASecondHelloOnOneConnectionEndsIt) {
  Join(1, 11, "a");
  EXPECT_EQ(Of<CloseAction>(Join(1, 12, "b")).at(0).link, 1u);
  EXPECT_EQ(registry_.members().size(), 1u);
}

TEST_F(RegistryTest, PingsEveryoneThatIsThere) {
  Join(1, 11, "a");
  Join(2, 12, "b");
  registry_.Ended(2, "reset", now_);
  const auto pings = Sent<PingMessage>(After(1));
  ASSERT_EQ(pings.size(), 1u);
  EXPECT_EQ(pings[0].first, 1u);
}

TEST_F(RegistryTest, NamesTheNearestWorkerOfAWrongName) {
  Join(1, 11, "prefill-1");
  EXPECT_EQ(*registry_.Named("prefill-1"), NodeId{11});
  EXPECT_NE(registry_.Named("prefil-1").error().message.find("prefill-1"), std::string::npos);
}

}  // namespace
}  // namespace divisi
