#include "divisi/control/registry.h"

#include <gtest/gtest.h>

#include <utility>

namespace divisi {
namespace {

constexpr NodeId kGateway{1};

HelloMessage HelloOf(uint64_t node, const std::string& name, uint32_t gateways = 1) {
  return {.node = {node},
          .name = name,
          .compatibility = {.model = "m", .tokenizer = "t"},
          .data_address = name + ":1",
          .gateways = gateways};
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
    registry_.Hello(link, HelloOf(node, name));
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

TEST_F(RegistryTest, AWorkerOfAnotherModelThanTheGatewaysIsRefusedFirstOrLast) {
  registry_ = Registry(kGateway, {.model = "mine", .tokenizer = "t"});
  EXPECT_NE(Sent<RejectMessage>(Join(1, 11, "a")).at(0).second.reason.find("the model differs"),
            std::string::npos);
  HelloMessage mine = HelloOf(12, "b");
  mine.compatibility.model = "mine";
  registry_.Hello(2, mine);
  EXPECT_EQ(Of<JoinedAction>(registry_.TakeActions()).size(), 1u);
}

TEST_F(RegistryTest, AWorkerThatRunsLessThanWhatIsPromisedIsRefusedWithTheRemedy) {
  registry_ = Registry(kGateway, {.context = 2048});
  HelloMessage small = HelloOf(11, "a");
  small.context = 672;
  registry_.Hello(1, small);
  const auto refused = registry_.TakeActions();
  const std::string expected =
      "context: this worker has 672 tokens and the gateway promises 2048; give the worker more "
      "--kv-memory or a larger --max-model-len, or start the gateway with --max-model-len 672";
  EXPECT_EQ(Sent<RejectMessage>(refused).at(0).second.reason, expected);
  EXPECT_EQ(Of<NoteAction>(refused).at(0).why, expected);
  EXPECT_FALSE(registry_.NodeOf(1));
  for (const int64_t enough : {2048, 4096}) {
    HelloMessage other = HelloOf(static_cast<uint64_t>(enough), "b");
    other.context = enough;
    registry_.Hello(static_cast<LinkId>(enough), other);
    EXPECT_EQ(Of<JoinedAction>(registry_.TakeActions()).size(), 1u) << enough;
  }
}

// Also where it is the first: the gateway's own is what counts.
TEST_F(RegistryTest, AWorkerOfAnotherProtocolIsRefused) {
  HelloMessage other = HelloOf(11, "a");
  other.compatibility.protocol = kClusterProtocol + 1;
  registry_.Hello(1, other);
  EXPECT_NE(Sent<RejectMessage>(registry_.TakeActions()).at(0).second.reason.find("protocol"),
            std::string::npos);
  EXPECT_EQ(Of<JoinedAction>(Join(2, 12, "b")).size(), 1u);
}

// Whoever came first counts only while somebody is there.
TEST_F(RegistryTest, AnotherModelMayComeWhenAllAreGone) {
  Join(1, 11, "a");
  registry_.Ended(1, "reset", now_);
  After(1);
  HelloMessage other = HelloOf(12, "b");
  other.compatibility.model = "another";
  registry_.Hello(2, other);
  EXPECT_EQ(Of<JoinedAction>(registry_.TakeActions()).size(), 1u);
}

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
  EXPECT_TRUE(Of<LostAction>(After(0.4)).empty());
  const auto back = Join(3, 11, "a");
  EXPECT_TRUE(Of<JoinedAction>(back).empty());
  EXPECT_EQ(Sent<PeerUpMessage>(back).size(), 1u);  // To itself: it may have missed one.
  EXPECT_EQ(registry_.LinkOf({11}), 3u);
  EXPECT_TRUE(Of<LostAction>(After(5)).empty());
}

TEST_F(RegistryTest, AfterTheGraceItIsGoneAndOthersAreTold) {
  Join(1, 11, "a");
  Join(2, 12, "b");
  registry_.Ended(1, "reset", now_);
  const auto gone = After(0.5);
  EXPECT_EQ(Of<LostAction>(gone).at(0).node, NodeId{11});
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
  EXPECT_TRUE(Of<LostAction>(After(5)).empty());
}

TEST_F(RegistryTest, RefusesAnotherModelByName) {
  Join(1, 11, "a");
  HelloMessage other = HelloOf(12, "b");
  other.compatibility.model = "other";
  registry_.Hello(2, other);
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

TEST_F(RegistryTest, CountsWhoComesAndGoesAndNothingElse) {
  uint64_t seen = registry_.changes();
  const auto changed = [&] {
    return std::exchange(seen, registry_.changes()) != registry_.changes();
  };
  Join(1, 11, "a");
  EXPECT_TRUE(changed());
  registry_.Hello(2, [] {
    HelloMessage other = HelloOf(12, "b");
    other.compatibility.model = "another";
    return other;
  }());
  registry_.Report(1, {});
  After(5);
  registry_.Ended(1, "cut", now_);
  EXPECT_FALSE(changed());
  Join(3, 11, "a");  // What it says of itself may be new.
  EXPECT_TRUE(changed());
  registry_.Leave(3, {.now = true});
  EXPECT_TRUE(changed());
  registry_.Hello(4, HelloOf(13, "c", 2));
  EXPECT_TRUE(changed());
  registry_.Ended(4, "cut", now_);
  After(1);
  EXPECT_FALSE(changed());
  After(61);  // Forgotten
  EXPECT_TRUE(changed());
}

TEST_F(RegistryTest, PingsEveryoneThatIsThere) {
  Join(1, 11, "a");
  Join(2, 12, "b");
  registry_.Ended(2, "reset", now_);
  const auto pings = Sent<PingMessage>(After(1));
  ASSERT_EQ(pings.size(), 1u);
  EXPECT_EQ(pings[0].first, 1u);
}

TEST_F(RegistryTest, OneThatLeavesGetsNothingNewAndIsGoneAtItsLastWord) {
  Join(1, 11, "a");
  Join(2, 12, "b");
  registry_.Leave(1, {.drain = Seconds(7)});
  const auto drained = Of<DrainAction>(registry_.TakeActions()).at(0);
  EXPECT_EQ(drained.node, NodeId{11});
  EXPECT_EQ(drained.within, Seconds(7));
  registry_.Leave(1, {.now = true});
  const auto left = registry_.TakeActions();
  EXPECT_EQ(Of<CloseAction>(left).at(0).link, 1u);
  EXPECT_EQ(Of<LostAction>(left).at(0).node, NodeId{11});
  EXPECT_EQ(Sent<PeerGoneMessage>(left).at(0).second.loss, PeerLoss::kConfirmed);
}

TEST_F(RegistryTest, ADrainOutlivesALostConnection) {
  registry_.Hello(1, HelloOf(11, "a", 2));
  registry_.Drain({11}, Seconds(9));
  registry_.Ended(1, "reset", now_);
  After(1);
  registry_.Hello(2, HelloOf(11, "a", 2));
  EXPECT_EQ(Of<DrainAction>(registry_.TakeActions()).at(0).within, Seconds(9));
}

// Several gateways that know nothing of each other.

TEST_F(RegistryTest, OneOfSeveralGatewaysDoubtsAndDeclaresNobodyDead) {
  registry_.Hello(1, HelloOf(11, "a", 2));
  registry_.Hello(2, HelloOf(12, "b", 2));
  registry_.TakeActions();
  registry_.Ended(1, "reset", now_);
  const auto away = After(0.5);
  EXPECT_EQ(Of<LostAction>(away).size(), 1u);
  const auto told = Sent<PeerGoneMessage>(away);
  ASSERT_EQ(told.size(), 2u);
  EXPECT_EQ(told[1].second.loss, PeerLoss::kDoubted);
  EXPECT_TRUE(Sent<PeerGoneMessage>(After(1)).empty());  // Once

  registry_.Hello(3, HelloOf(11, "a", 2));
  const auto back = registry_.TakeActions();
  EXPECT_EQ(Of<JoinedAction>(back).size(), 1u);
  EXPECT_EQ(Sent<PeerUpMessage>(back).size(), 2u);
}

TEST_F(RegistryTest, OneThatAnotherWorkerHasBarredHasToBeNew) {
  registry_.Hello(1, HelloOf(11, "a", 2));
  registry_.Hello(2, HelloOf(12, "b", 2));
  registry_.TakeActions();
  registry_.Barred({11});
  const auto barred = registry_.TakeActions();
  EXPECT_TRUE(Sent<RejectMessage>(barred).at(0).second.dead);
  EXPECT_EQ(Sent<PeerGoneMessage>(barred).at(0).second.loss, PeerLoss::kConfirmed);
  registry_.Barred({11});
  EXPECT_TRUE(registry_.TakeActions().empty());
}

TEST_F(RegistryTest, OneThatNobodySeesAgainIsForgotten) {
  registry_.Hello(1, HelloOf(11, "a", 2));
  registry_.Ended(1, "reset", now_);
  After(1);
  EXPECT_EQ(registry_.members().size(), 1u);
  After(60);
  EXPECT_TRUE(registry_.members().empty());
}

TEST_F(RegistryTest, WhatAnOperatorMadeOfAWorkerIsNotForgottenWithIt) {
  const auto forget = [&](LinkId link) {
    registry_.Ended(link, "reset", now_);
    After(1);
    After(60);
    ASSERT_TRUE(registry_.members().empty());
  };
  registry_.Hello(1, HelloOf(11, "a", 2));
  registry_.SetRole({11}, WorkerRole::kDecode);
  registry_.Drain({11}, Seconds(9));
  forget(1);
  registry_.Hello(2, HelloOf(11, "a", 2));
  auto back = registry_.TakeActions();
  EXPECT_EQ(Of<JoinedAction>(back).at(0).role, WorkerRole::kDecode);
  EXPECT_EQ(Of<DrainAction>(back).at(0).within, Seconds(9));
  registry_.SetRole({11}, WorkerRole::kReplica);  // Which takes the drain back
  forget(2);
  registry_.Hello(3, HelloOf(11, "a", 2));
  back = registry_.TakeActions();
  EXPECT_EQ(Of<JoinedAction>(back).at(0).role, WorkerRole::kReplica);
  EXPECT_TRUE(Of<DrainAction>(back).empty());
}

// With a directory.

class RegistryWithDirectoryTest : public RegistryTest {
 protected:
  RegistryWithDirectoryTest() {
    registry_ = Registry(kGateway, {.lease = Seconds(5)});
    registry_.DirectoryUp(now_);
    for (const uint64_t node : {11, 12}) {
      registry_.Leased({node});
      registry_.Hello(node, HelloOf(node, node == 11 ? "a" : "b"));
    }
    After(10);
  }
};

TEST_F(RegistryWithDirectoryTest, AnUnreachedWorkerWithALeaseIsNotDeclaredDead) {
  registry_.Ended(11, "reset", now_);
  EXPECT_FALSE(Of<VouchAction>(registry_.TakeActions()).at(0).reaches);
  const auto away = After(0.5);
  EXPECT_EQ(Of<LostAction>(away).size(), 1u);
  ASSERT_EQ(Sent<PeerGoneMessage>(away).size(), 1u);
  EXPECT_EQ(Sent<PeerGoneMessage>(away)[0].second.loss, PeerLoss::kUnreached);
  for (int i = 0; i < 100; ++i) {
    const auto later = After(1);
    EXPECT_TRUE(Of<BuryAction>(later).empty());
    EXPECT_TRUE(Sent<PeerGoneMessage>(later).empty());
  }
  registry_.Hello(21, HelloOf(11, "a"));
  const auto back = registry_.TakeActions();
  EXPECT_EQ(Of<JoinedAction>(back).size(), 1u);
  EXPECT_TRUE(Of<VouchAction>(back).at(0).reaches);
}

TEST_F(RegistryWithDirectoryTest, AWorkerThatComesLearnsWhoIsAway) {
  registry_.Ended(11, "reset", now_);
  After(1);
  registry_.Hello(13, HelloOf(13, "c"));
  const auto told = Sent<PeerGoneMessage>(registry_.TakeActions());
  ASSERT_EQ(told.size(), 1u);
  EXPECT_EQ(told[0].second.node, NodeId{11});
  EXPECT_EQ(told[0].second.loss, PeerLoss::kUnreached);
}

TEST_F(RegistryWithDirectoryTest, ALostLeaseAloneIsNoDeath) {
  registry_.LeaseEnded({11});
  EXPECT_TRUE(Of<BuryAction>(After(100)).empty());
}

TEST_F(RegistryWithDirectoryTest, LostLeaseAndConnectionAreConfirmedByTheDirectory) {
  registry_.Ended(11, "reset", now_);
  registry_.LeaseEnded({11});
  EXPECT_TRUE(Of<BuryAction>(After(0.4)).empty());
  const auto asked = After(0.2);
  EXPECT_EQ(Of<BuryAction>(asked).at(0).node, NodeId{11});
  EXPECT_EQ(Sent<PeerGoneMessage>(asked).at(0).second.loss, PeerLoss::kUnreached);
  EXPECT_TRUE(Of<BuryAction>(After(0.5)).empty());   // One is under way,
  EXPECT_EQ(Of<BuryAction>(After(0.6)).size(), 1u);  // and the next only after a while.
  registry_.Declared({11});
  const auto dead = registry_.TakeActions();
  EXPECT_EQ(Sent<PeerGoneMessage>(dead).at(0).second.loss, PeerLoss::kConfirmed);
  registry_.Declared({11});  // By another gateway too
  EXPECT_TRUE(registry_.TakeActions().empty());
  registry_.Hello(21, HelloOf(11, "a"));
  EXPECT_TRUE(Sent<RejectMessage>(registry_.TakeActions()).at(0).second.dead);
}

TEST_F(RegistryWithDirectoryTest, ADeathDeclaredElsewhereHoldsForALiveConnection) {
  registry_.Declared({11});
  const auto dead = registry_.TakeActions();
  EXPECT_TRUE(Sent<RejectMessage>(dead).at(0).second.dead);
  EXPECT_EQ(Of<LostAction>(dead).size(), 1u);
  EXPECT_EQ(Of<CloseAction>(dead).at(0).link, 11u);
}

TEST_F(RegistryWithDirectoryTest, AfterTheDirectoryWasAwayLeasesAreWaitedFor) {
  registry_.DirectoryDown(now_);
  After(20);
  registry_.Ended(11, "reset", now_);
  registry_.LeaseEnded({11});
  registry_.LeaseEnded({12});
  registry_.DirectoryUp(now_);
  EXPECT_TRUE(Of<BuryAction>(After(4.9)).empty());
  registry_.Leased({11});  // It lives, and has registered again.
  EXPECT_TRUE(Of<BuryAction>(After(10)).empty());
  EXPECT_EQ(registry_.LinkOf({12}), 12u);
}

TEST_F(RegistryWithDirectoryTest, WithoutTheDirectoryADeathIsDoubtedAfterALease) {
  registry_.DirectoryDown(now_);
  registry_.Ended(11, "reset", now_);
  for (int i = 0; i < 9; ++i) {
    for (const auto& [link, gone] : Sent<PeerGoneMessage>(After(0.5))) {
      EXPECT_EQ(gone.loss, PeerLoss::kUnreached);
    }
  }
  const auto doubted = Sent<PeerGoneMessage>(After(0.6));
  ASSERT_EQ(doubted.size(), 1u);
  EXPECT_EQ(doubted[0].second.loss, PeerLoss::kDoubted);
}

TEST_F(RegistryTest, NamesTheNearestWorkerOfAWrongName) {
  Join(1, 11, "prefill-1");
  EXPECT_EQ(*registry_.Named("prefill-1"), NodeId{11});
  EXPECT_NE(registry_.Named("prefil-1").error().message.find("prefill-1"), std::string::npos);
}

TEST_F(RegistryTest, OfNamesakesTheOneThatIsHereIsMeant) {
  for (const uint64_t node : {11, 12, 13}) registry_.Hello(node, HelloOf(node, "w", 2));
  registry_.Ended(11, "reset", now_);
  registry_.Leave(13, {.drain = Seconds(30)});
  EXPECT_EQ(*registry_.Named("w"), NodeId{12});
  registry_.Ended(12, "reset", now_);
  EXPECT_EQ(*registry_.Named("w"), NodeId{13});  // Ending, and here
  EXPECT_EQ(*registry_.Named("000000000000000b"), NodeId{11});
}

TEST_F(RegistryTest, AnAmbiguousNameIsRefusedWithTheIdsToGiveInstead) {
  Join(1, 11, "w");
  Join(2, 0xabc, "w");
  Join(3, 13, "other");
  const auto named = registry_.Named("w");
  ASSERT_FALSE(named);
  EXPECT_EQ(named.error().code, Code::kInvalidArgument);
  EXPECT_EQ(named.error().message,
            "2 workers are named 'w': give the id of one, 000000000000000b, 0000000000000abc");
  EXPECT_EQ(*registry_.Named("0000000000000abc"), NodeId{0xabc});
}

}  // namespace
}  // namespace divisi
