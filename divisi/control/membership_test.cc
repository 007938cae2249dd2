#include "divisi/control/membership.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace divisi {
namespace {

const GatewayAddress kA{"a", 1};
const GatewayAddress kB{"b", 2};
constexpr NodeId kGatewayA{101};
constexpr NodeId kGatewayB{102};
constexpr NodeId kPeer{7};

class MembershipTest : public testing::Test {
 protected:
  // The links to both gateways, which have welcomed this worker.
  void JoinBoth() {
    membership_.Expect({kA, kB});
    JoinAll();
  }
  void JoinAll() {
    membership_.Heard(now_);
    for (const auto& [link, address] : membership_.TakeDials(now_)) {
      membership_.Connected(link);
      membership_.Welcomed(link, address == kA ? kGatewayA : kGatewayB);
      (address == kA ? a_ : b_) = link;
    }
  }
  std::vector<NodeId> GoneAfter(double seconds) {
    now_ += Seconds(seconds);
    return membership_.TakeGone(now_);
  }

  Membership membership_;
  Seconds now_{50};
  LinkId a_ = 0, b_ = 0;
};

TEST_F(MembershipTest, DialsEachGatewayAndTriesAgainMoreAndMoreSlowly) {
  membership_.Expect({kA});
  LinkId link = membership_.TakeDials(now_).at(0).link;
  EXPECT_TRUE(membership_.TakeDials(now_).empty());
  int tries = 0;
  for (const Seconds end = now_ + Seconds(20); now_ < end; now_ += Seconds(0.05)) {
    if (link != 0) membership_.Ended(link, "refused", now_);
    const auto dials = membership_.TakeDials(now_);
    link = dials.empty() ? 0 : dials[0].link;
    tries += !dials.empty();
  }
  EXPECT_GT(tries, 10);
  EXPECT_LT(tries, 20);
}

TEST_F(MembershipTest, SaysWhichGatewaysItCouldNotReach) {
  membership_.Expect({kA});
  membership_.Heard(now_);
  membership_.Ended(membership_.TakeDials(now_).at(0).link, "cannot reach a:1: refused", now_);
  EXPECT_EQ(membership_.Deserted(Seconds(5), now_), "");
  EXPECT_EQ(membership_.Deserted(Seconds(5), now_ + Seconds(6)),
            "no gateway was reached in " + HumanSeconds(Seconds(5)) +
                "; cannot reach a:1: refused");
}

TEST_F(MembershipTest, MessagesGoByTheTransfersGatewayOrByAnother) {
  JoinBoth();
  membership_.PeerUp(a_, kPeer);
  membership_.PeerUp(b_, kPeer);
  EXPECT_EQ(membership_.RouteVia(kGatewayA, kPeer), a_);
  EXPECT_EQ(membership_.RouteVia(kGatewayB, kPeer), b_);
  membership_.PeerLost(a_, kPeer, PeerLoss::kUnreached);
  EXPECT_EQ(membership_.RouteVia(kGatewayA, kPeer), b_);
  membership_.PeerUp(a_, kPeer);
  membership_.Ended(a_, "reset", now_);
  EXPECT_EQ(membership_.RouteVia(kGatewayA, kPeer), b_);
  EXPECT_FALSE(membership_.RouteTo(kGatewayA));  // Nobody speaks for a gateway.
}

TEST_F(MembershipTest, OneGatewaysDoubtIsNotADeath) {
  JoinBoth();
  membership_.PeerUp(a_, kPeer);
  membership_.PeerUp(b_, kPeer);
  membership_.PeerLost(a_, kPeer, PeerLoss::kDoubted);
  EXPECT_TRUE(GoneAfter(100).empty());
  membership_.PeerLost(b_, kPeer, PeerLoss::kDoubted);
  EXPECT_EQ(GoneAfter(0), std::vector{kPeer});
  EXPECT_TRUE(GoneAfter(1).empty());  // Said once
}

TEST_F(MembershipTest, TheWordOfALostGatewayCountsForAWhile) {
  JoinBoth();
  membership_.PeerUp(a_, kPeer);
  membership_.PeerUp(b_, kPeer);
  membership_.Ended(b_, "reset", now_);
  membership_.PeerLost(a_, kPeer, PeerLoss::kDoubted);
  EXPECT_TRUE(GoneAfter(2.9).empty());
  EXPECT_EQ(GoneAfter(0.2), std::vector{kPeer});
}

TEST_F(MembershipTest, AConfirmedDeathIsOneWhoeverSaysIt) {
  JoinBoth();
  membership_.PeerUp(b_, kPeer);
  membership_.PeerLost(a_, kPeer, PeerLoss::kConfirmed);
  membership_.PeerLost(b_, kPeer, PeerLoss::kConfirmed);
  EXPECT_EQ(GoneAfter(0), std::vector{kPeer});
  EXPECT_FALSE(membership_.PeerUp(b_, kPeer));  // A gateway that missed it is told.
}

TEST_F(MembershipTest, APeerThatNoGatewayReachesIsKeptWhileItsLeaseLasts) {
  JoinBoth();
  membership_.PeerUp(a_, kPeer);
  membership_.PeerLost(a_, kPeer, PeerLoss::kUnreached);
  EXPECT_TRUE(GoneAfter(0).empty());
  EXPECT_TRUE(GoneAfter(100).empty());
}

TEST_F(MembershipTest, APeerThatNoGatewayKnowsAnyMoreIsGoneInTime) {
  JoinBoth();
  membership_.PeerUp(a_, kPeer);
  membership_.Ended(a_, "the gateway ended", now_);  // Its successor has never seen the peer.
  EXPECT_TRUE(GoneAfter(4).empty());
  EXPECT_TRUE(GoneAfter(9).empty());
  EXPECT_EQ(GoneAfter(2), std::vector{kPeer});
}

TEST_F(MembershipTest, ADeathThatWasToldWhileItsGatewayWasOutOfReachIsNotWaitedForForEver) {
  JoinBoth();
  membership_.PeerUp(a_, kPeer);
  membership_.PeerLost(a_, kPeer, PeerLoss::kUnreached);
  membership_.Ended(a_, "silent", now_);
  now_ += Seconds(5);  // Here it tells of the death. Then it is back, and knows no such peer.
  const LinkId again = membership_.TakeDials(now_).at(0).link;
  membership_.Connected(again);
  membership_.Welcomed(again, kGatewayA);
  EXPECT_TRUE(GoneAfter(4).empty());
  EXPECT_EQ(GoneAfter(11), std::vector{kPeer});
}

TEST_F(MembershipTest, WithoutAnyGatewayNobodyIsForgotten) {
  JoinBoth();
  membership_.PeerUp(a_, kPeer);
  membership_.Ended(a_, "reset", now_);
  membership_.Ended(b_, "reset", now_);
  for (int i = 0; i < 100; ++i) EXPECT_TRUE(GoneAfter(1).empty());
}

TEST_F(MembershipTest, AWithdrawnGatewayIsKeptUntilItsConnectionEnds) {
  membership_.Announce(kA);
  membership_.Announce(kB);
  JoinAll();
  membership_.Withdraw(kB);
  EXPECT_EQ(membership_.Joined().size(), 2u);
  membership_.Ended(b_, "reset", now_);
  now_ += Seconds(10);
  EXPECT_TRUE(membership_.TakeDials(now_).empty());
  EXPECT_EQ(membership_.gateways(), 1u);
}

// It came back on its port before the lease of its earlier life ended.
TEST_F(MembershipTest, AnEarlierLifesEndDoesNotWithdrawALaterOnesAddress) {
  membership_.Announce(kA);
  membership_.Announce(kA);
  JoinAll();
  membership_.Withdraw(kA);
  membership_.Ended(a_, "reset", now_);
  now_ += Seconds(10);
  EXPECT_EQ(membership_.TakeDials(now_).size(), 1u);
}

TEST_F(MembershipTest, AGatewayThatWasGivenIsNeverWithdrawn) {
  membership_.Expect({kA});
  membership_.Announce(kA);
  JoinAll();
  membership_.Withdraw(kA);
  membership_.Withdraw(kA);
  membership_.Ended(a_, "reset", now_);
  now_ += Seconds(10);
  EXPECT_EQ(membership_.TakeDials(now_).size(), 1u);
}

// Peers that the gateway presented over the newer of two connections are not doubted for the end of
// the older.
TEST_F(MembershipTest, AGatewaysWordHoldsWhileAnyConnectionToItDoes) {
  JoinBoth();
  membership_.Welcomed(b_, kGatewayA);
  membership_.PeerUp(b_, kPeer);
  membership_.Ended(a_, "there is a newer one", now_);
  for (int i = 0; i < 100; ++i) EXPECT_TRUE(GoneAfter(1).empty());
}

TEST_F(MembershipTest, AGatewayOfTwoAddressesIsDialedByOne) {
  membership_.Expect({kA, kB});
  const auto dials = membership_.TakeDials(now_);
  membership_.Welcomed(dials[0].link, kGatewayA);
  membership_.Welcomed(dials[1].link, kGatewayA);
  membership_.Ended(dials[0].link, "the worker has a newer connection", now_);
  now_ += Seconds(10);
  EXPECT_TRUE(membership_.TakeDials(now_).empty());
  membership_.Ended(dials[1].link, "reset", now_);
  now_ += Seconds(10);
  EXPECT_EQ(membership_.TakeDials(now_).size(), 2u);
}

TEST_F(MembershipTest, ANewLifeKnowsNobody) {
  JoinBoth();
  membership_.PeerUp(a_, kPeer);
  membership_.PeerLost(a_, kPeer, PeerLoss::kConfirmed);
  membership_.BeNew();
  EXPECT_TRUE(membership_.Joined().empty());
  const auto dials = membership_.TakeDials(now_);
  ASSERT_EQ(dials.size(), 2u);
  membership_.Ended(a_, "of the old life", now_);  // Late
  EXPECT_TRUE(membership_.TakeDials(now_ + Seconds(10)).empty());
  membership_.Welcomed(dials[0].link, kGatewayA);
  EXPECT_TRUE(membership_.PeerUp(dials[0].link, kPeer));
}

}  // namespace
}  // namespace divisi
