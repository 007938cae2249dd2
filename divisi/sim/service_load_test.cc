#include "divisi/sim/service_load.h"

#include <gtest/gtest.h>

#include <set>

namespace divisi {
namespace {

TEST(ServiceLoadTest, EqualContentsAreEqualTokens) {
  const ServiceRequest a{.prompt = 1100, .contents = {7, 8, 9}};
  const ServiceRequest b{.prompt = 1300, .contents = {7, 8, 10}};
  const std::vector<TokenId> first = PromptOf(a, 0), second = PromptOf(b, 1);
  ASSERT_EQ(first.size(), 1100u);
  ASSERT_EQ(second.size(), 1300u);
  EXPECT_TRUE(std::equal(first.begin(), first.begin() + 1024, second.begin()));
  EXPECT_NE(first[1024], second[1024]);
}

TEST(ServiceLoadTest, WithoutContentsNoTwoPromptsBeginAlike) {
  std::set<std::vector<TokenId>> pages;
  for (uint64_t i = 0; i < 100; ++i) pages.insert(PromptOf({.prompt = 16}, i));
  EXPECT_EQ(pages.size(), 100u);
}

TEST(ServiceLoadTest, TurnsOfASessionBeginWithTheOneBefore) {
  const auto requests = DrawConversations({.requests = 500, .turns = 4}, 1);
  ASSERT_EQ(requests.size(), 500u);
  EXPECT_TRUE(std::ranges::is_sorted(requests, {}, &ServiceRequest::arrival));
  std::set<uint64_t> seen;
  int64_t contents = 0, known = 0;
  for (const ServiceRequest& request : requests) {
    bool prefix = true;
    for (const uint64_t content : request.contents) {
      prefix = prefix && seen.contains(content);
      known += prefix;
      ++contents;
    }
    seen.insert(request.contents.begin(), request.contents.end());
  }
  // Of four turns three find the last one's text, and all find an opening.
  EXPECT_GT(known, contents / 2);
  EXPECT_LT(known, contents * 9 / 10);
}

TEST(ServiceLoadTest, FasterIsTheSameLoadSooner) {
  const auto requests = DrawConversations({.requests = 50}, 2);
  const auto faster = Faster(requests, 2);
  EXPECT_NEAR(ArrivalRate(faster) / ArrivalRate(requests), 2, 1e-9);
  EXPECT_EQ(faster.back().contents, requests.back().contents);
}

}  // namespace
}  // namespace divisi
