#include "divisi/kv/held_blocks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace divisi {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using Kind = HeldChange::Kind;

EventHash H(uint64_t number) { return EventHash(number); }

StoredEvent Stored(std::vector<EventHash> hashes, const char* medium = "GPU", int64_t group = 0) {
  StoredEvent event;
  event.hashes = std::move(hashes);
  event.medium = medium;
  event.group = group;
  return event;
}
RemovedEvent Removed(std::vector<EventHash> hashes, const char* medium = "GPU", int64_t group = 0) {
  return {std::move(hashes), medium, group, {}};
}

TEST(HeldBlocksTest, APrefixEndsAtTheFirstBlockThatIsMissing) {
  HeldBlocks held;
  held.Apply(Stored({H(1), H(2), H(4)}));
  held.Apply(Stored({H(2)}, "DISK"));
  EXPECT_THAT(held.Prefix(std::vector{H(1), H(2), H(3), H(4)}),
              ElementsAre(EventTier::kDevice, EventTier::kDevice));
  held.Apply(Removed({H(2)}));
  EXPECT_THAT(held.Prefix(std::vector{H(1), H(2)}),
              ElementsAre(EventTier::kDevice, EventTier::kDisk));
  EXPECT_EQ(held.On(EventTier::kDevice), 2u);
  EXPECT_TRUE(held.Holds(H(2), EventTier::kDisk));
  EXPECT_FALSE(held.Holds(H(2), EventTier::kDevice));
}

TEST(HeldBlocksTest, ABlockStoredTwiceGoesWithItsSecondRemoval) {
  HeldBlocks held;
  EXPECT_THAT(held.Apply(Stored({H(1), H(1)}, "CPU")),
              ElementsAre(HeldChange{Kind::kStored, H(1), EventTier::kHost, 0}));
  EXPECT_THAT(held.Apply(Removed({H(1)}, "CPU")), IsEmpty());
  EXPECT_THAT(held.Apply(Removed({H(1)}, "CPU")),
              ElementsAre(HeldChange{Kind::kRemoved, H(1), EventTier::kHost, 0}));
  EXPECT_THAT(held.Apply(Removed({H(1)}, "CPU")), IsEmpty());
  EXPECT_EQ(held.size(), 0u);
}

TEST(HeldBlocksTest, AHitNeedsEveryGroup) {
  HeldBlocks held;
  held.Apply(Stored({H(1), H(2)}, "GPU", 0));
  held.Apply(Stored({H(1)}, "CPU", 1));
  EXPECT_THAT(held.Prefix(std::vector{H(1), H(2)}), ElementsAre(EventTier::kHost));
}

TEST(HeldBlocksTest, AWindowIsNoEvidence) {
  HeldBlocks held;
  StoredEvent window = Stored({H(1)}, "GPU", 1);
  window.spec_kind = "sliding_window";
  EXPECT_THAT(held.Apply(window), IsEmpty());
  EXPECT_THAT(held.Prefix(std::vector{H(1)}), IsEmpty());
  // Nor is it asked for beside a group that is.
  held.Apply(Stored({H(1)}, "GPU", 0));
  EXPECT_EQ(held.Prefix(std::vector{H(1)}).size(), 1u);
}

TEST(HeldBlocksTest, MediaOfUnknownNamesDoNotCount) {
  HeldBlocks held;
  EXPECT_THAT(held.Apply(Stored({H(1)}, "TAPE")), IsEmpty());
  EXPECT_THAT(held.Apply(Removed({H(1)}, "TAPE")), IsEmpty());
}

TEST(HeldBlocksTest, ClearingForgetsEveryTier) {
  HeldBlocks held;
  held.Apply(Stored({H(1)}));
  held.Apply(Stored({H(1)}, "DISK", 1));
  EXPECT_EQ(held.Apply(ClearedEvent{})[0].kind, Kind::kCleared);
  EXPECT_EQ(held.size(), 0u);
  held.Apply(Stored({H(1)}));
  EXPECT_EQ(held.Prefix(std::vector{H(1)}).size(), 1u);  // Group 1 was forgotten too.
}

TEST(HeldBlocksTest, BlocksAndGroupsAreBounded) {
  HeldBlocks held(2);
  EXPECT_EQ(held.Apply(Stored({H(1), H(2), H(3)})).size(), 2u);
  EXPECT_EQ(held.refused(), 1u);
  EXPECT_EQ(held.Apply(Stored({H(2)}, "CPU")).size(), 1u);
  for (int64_t group = 0; group < 1000; ++group) held.Apply(Stored({H(1)}, "GPU", group));
  EXPECT_TRUE(held.Holds(H(1), EventTier::kDevice));
}

}  // namespace
}  // namespace divisi
