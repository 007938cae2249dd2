#include "divisi/kv/upcoming_uses.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <list>

#include "divisi/core/random.h"

namespace divisi {
namespace {

BlockKey KeyOf(int64_t number) {
  BlockKey key;
  for (int i = 0; i < 8; ++i) key.bytes[i] = static_cast<uint8_t>(number >> (8 * i));
  return key;
}

TEST(UpcomingUsesTest, TheFirstRequestThatNeedsAPageSaysWhen) {
  UpcomingUses upcoming(8);
  EXPECT_TRUE(upcoming.Expect(1, {{KeyOf(1), KeyOf(2)}}));
  EXPECT_TRUE(upcoming.Expect(2, {{KeyOf(2), KeyOf(3)}}));
  EXPECT_LT(*upcoming.NextUse(KeyOf(2)), *upcoming.NextUse(KeyOf(3)));
  EXPECT_EQ(upcoming.NextUse(KeyOf(1)), upcoming.NextUse(KeyOf(2)));
  EXPECT_EQ(upcoming.Forget(1).size(), 2u);
  EXPECT_EQ(upcoming.NextUse(KeyOf(1)), std::nullopt);
  EXPECT_EQ(upcoming.NextUse(KeyOf(2)), upcoming.NextUse(KeyOf(3)));
}

TEST(UpcomingUsesTest, LooksAheadSoFarAndNoFarther) {
  UpcomingUses upcoming(2);
  EXPECT_TRUE(upcoming.Expect(1, {{KeyOf(1)}}));
  EXPECT_FALSE(upcoming.Expect(1, {{KeyOf(9)}}));
  EXPECT_TRUE(upcoming.Expect(2, {{KeyOf(2)}}));
  EXPECT_FALSE(upcoming.Expect(3, {{KeyOf(3)}}));
  EXPECT_EQ(upcoming.NextUse(KeyOf(3)), std::nullopt);
  upcoming.Forget(1);
  EXPECT_TRUE(upcoming.Expect(3, {{KeyOf(3)}}));
}

TEST(UpcomingUsesTest, AgreesWithAListUnderRandomOperations) {
  Random random(7);
  UpcomingUses upcoming(20);
  std::list<std::pair<RequestId, std::vector<BlockKey>>> queue;
  for (RequestId id = 1; id < 3000; ++id) {
    std::vector<BlockKey> keys;
    for (int64_t i = random.Between(0, 6); i > 0; --i) keys.push_back(KeyOf(random.Between(1, 30)));
    if (upcoming.Expect(id, keys)) queue.emplace_back(id, keys);
    if (!queue.empty() && random.Chance(0.9)) {
      const auto chosen = std::next(queue.begin(), random.Between(0, int64_t(queue.size()) - 1));
      upcoming.Forget(chosen->first);
      queue.erase(chosen);
    }
    std::vector<std::pair<int64_t, size_t>> places;  // What it says, and the place in the list.
    for (int64_t number = 1; number <= 30; ++number) {
      size_t place = 0;
      for (const auto& [request, needed] : queue) {
        if (std::ranges::count(needed, KeyOf(number)) > 0) break;
        ++place;
      }
      const auto next = upcoming.NextUse(KeyOf(number));
      ASSERT_EQ(next.has_value(), place < queue.size());
      if (next) places.emplace_back(*next, place);
    }
    std::ranges::sort(places);
    ASSERT_TRUE(std::ranges::is_sorted(places, {}, [](const auto& pair) { return pair.second; }));
    ASSERT_EQ(upcoming.requests(), static_cast<int64_t>(queue.size()));
  }
  while (!queue.empty()) {
    upcoming.Forget(queue.front().first);
    queue.pop_front();
  }
  EXPECT_EQ(upcoming.pages(), 0);
}

}  // namespace
}  // namespace divisi
