#include "divisi/control/route_prefix.h"

#include <gtest/gtest.h>

#include <array>

#include "divisi/core/check.h"

namespace divisi {
namespace {

constexpr NodeId kFirst{11}, kSecond{12};
constexpr Seconds kNow{1};
using Tokens = std::array<int64_t, 4>;

Request Asking(int64_t tokens) {
  Request request;
  for (int64_t i = 0; i < tokens; ++i) request.prompt.push_back(static_cast<TokenId>(i));
  return request;
}

PageDirectory Directory() {
  auto directory = PageDirectory::Create({.pages = 1000});
  CHECK(directory.ok());
  for (const NodeId holder : {kFirst, kSecond, kPoolHolder}) CHECK(directory->Join(holder).ok());
  return *std::move(directory);
}

TEST(RoutePrefixTest, KeysAreThoseOfTheWorkersAndSpareTheLastToken) {
  const KeySpace space{.model_fingerprint = {1, 2}, .page_format = "f"};
  EXPECT_TRUE(SharedPromptKeys(space, Asking(0)).empty());
  EXPECT_TRUE(SharedPromptKeys(space, Asking(16)).empty());
  const auto keys = SharedPromptKeys(space, Asking(33));
  ASSERT_EQ(keys.size(), 2u);
  std::vector<BlockKey> expected;
  ExtendKeys(RootKey(space), Asking(33).prompt, 2, expected);
  EXPECT_EQ(keys, expected);
  Request scored = Asking(33);
  scored.prompt_logprobs = 0;
  EXPECT_TRUE(SharedPromptKeys(space, scored).empty());
  Request salted = Asking(33);
  salted.cache_salt = "tenant";
  EXPECT_NE(SharedPromptKeys(space, salted), keys);
}

TEST(RoutePrefixTest, CountsLeadingTokensInATierOrAFasterOne) {
  PageDirectory directory = Directory();
  const auto keys = SharedPromptKeys({}, Asking(161));
  const std::span all(keys);
  directory.Stored(kFirst, Tier::kDevice, all.first(2));
  directory.Stored(kFirst, Tier::kHost, all.subspan(2, 3));
  directory.Stored(kSecond, Tier::kDisk, all.first(4));
  directory.Stored(kPoolHolder, Tier::kRemote, all.first(8));
  directory.Promise(kSecond, all.first(9), Seconds(5), kNow);
  const auto found = RoutePrefixes(
      directory, keys, std::vector<PrefixHolder>{{kFirst, true}, {kSecond, false}, {{99}, true}},
      kNow);
  ASSERT_EQ(found.size(), 3u);
  EXPECT_EQ(found[0].tokens, (Tokens{32, 80, 80, 128}));
  EXPECT_EQ(found[0].promised, 128);
  EXPECT_EQ(found[1].tokens, (Tokens{0, 0, 64, 64}));
  EXPECT_EQ(found[1].promised, 144);
  EXPECT_EQ(found[2].tokens, (Tokens{0, 0, 0, 128}));
}

TEST(RoutePrefixTest, OddsAreThoseLearnedOfTheWorker) {
  PageDirectory directory = Directory();
  for (int i = 0; i < 100; ++i) directory.Used(kSecond, Tier::kHost, 4, 1);
  const auto keys = SharedPromptKeys({}, Asking(40));
  const auto found =
      RoutePrefixes(directory, keys, std::vector<PrefixHolder>{{kFirst}, {kSecond}}, kNow);
  EXPECT_EQ(found[0].odds[1], directory.Odds(kFirst, Tier::kHost));
  EXPECT_EQ(found[1].odds[1], directory.Odds(kSecond, Tier::kHost));
  EXPECT_LT(found[1].odds[1], 0.5);
}

// Found in a faster tier than was shown counts, in a slower one it does not.
TEST(RoutePrefixTest, PagesThatWereShownWereThereOrNot) {
  const PagesFound shown{10, 0, 6, 0};
  EXPECT_EQ(PagesThere(shown, {10, 0, 6, 0}), shown);
  EXPECT_EQ(PagesThere(shown, {16, 0, 0, 0}), shown);
  EXPECT_EQ(PagesThere(shown, {10, 3, 0, 0}), (PagesFound{10, 0, 3, 0}));
  EXPECT_EQ(PagesThere(shown, {0, 16, 0, 0}), (PagesFound{0, 0, 6, 0}));
  EXPECT_EQ(PagesThere(shown, {4, 0, 0, 9}), (PagesFound{4, 0, 0, 0}));
  EXPECT_EQ(PagesThere(shown, {99, 99, 99, 99}), shown);
}

// Host memory has 80 tokens of it at the first, 64 at the second, none at the third.
TEST(RoutePrefixTest, APeerIsAnotherThatHasMoreInHostMemory) {
  PageDirectory directory = Directory();
  constexpr NodeId kThird{13};
  ASSERT_TRUE(directory.Join(kThird).ok());
  const auto keys = SharedPromptKeys({}, Asking(161));
  const std::span all(keys);
  directory.Stored(kFirst, Tier::kHost, all.first(5));
  directory.Stored(kSecond, Tier::kHost, all.first(4));
  directory.Stored(kThird, Tier::kDisk, all.first(4));
  const std::vector<PrefixHolder> holders = {{kFirst}, {kSecond}, {kThird}};
  auto found = RoutePrefixes(directory, keys, holders, kNow);
  std::vector<PeerHolder> peers = {{kFirst, true, true}, {kSecond, true, true}, {kThird, true}};
  for (int i = 0; i < 50; ++i) directory.Used(kFirst, Tier::kPeer, 4, 2);
  peers[0].link.reads = 3;
  FindPeers(directory, peers, found);
  EXPECT_EQ(found[0].peer.tokens, 0) << "the second has less";
  EXPECT_EQ(found[1].peer.node, kFirst);
  EXPECT_EQ(found[1].peer.tokens, 80);
  EXPECT_EQ(found[1].peer.odds, directory.Odds(kFirst, Tier::kPeer));
  EXPECT_LT(found[1].peer.odds, 0.8);
  EXPECT_EQ(found[1].peer.link.reads, 3);
  EXPECT_EQ(found[2].peer.node, kFirst);
  EXPECT_NEAR(directory.Odds(kFirst, Tier::kHost), 0.95, 1e-12) << "its own reads are others";
  // It gives nothing: then the second, where that has more than the disk.
  peers[0].gives = false;
  FindPeers(directory, peers, found);
  EXPECT_EQ(found[2].peer.tokens, 0);
  directory.Removed(kThird, Tier::kDisk, all.subspan(2, 1));
  found = RoutePrefixes(directory, keys, holders, kNow);
  FindPeers(directory, peers, found);
  EXPECT_EQ(found[2].peer.node, kSecond);
  EXPECT_EQ(found[2].peer.tokens, 64);
  peers[2].reads = false;
  FindPeers(directory, peers, found);
  EXPECT_EQ(found[2].peer.tokens, 0);
}

TEST(RoutePrefixTest, OfLikePeersTheOneWithLessToSend) {
  PageDirectory directory = Directory();
  const auto keys = SharedPromptKeys({}, Asking(161));
  for (const NodeId node : {kFirst, kSecond}) directory.Stored(node, Tier::kHost, keys);
  const std::vector<PrefixHolder> holders = {{kFirst}, {kSecond}, {{99}}};
  auto found = RoutePrefixes(directory, keys, holders, kNow);
  std::vector<PeerHolder> peers = {{kFirst, true, true}, {kSecond, true, true}, {{99}, true}};
  peers[0].link.under_way = Bytes(1000);
  FindPeers(directory, peers, found);
  EXPECT_EQ(found[2].peer.node, kSecond);
}

}  // namespace
}  // namespace divisi
