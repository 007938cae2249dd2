#include "divisi/kv/store_space.h"

#include <gtest/gtest.h>

#include <map>
#include <vector>

#include "divisi/core/random.h"

namespace divisi {
namespace {

BlockKey Key(int64_t number) {
  BlockKey key;
  for (size_t i = 0; i < 8; ++i) key.bytes[i] = static_cast<uint8_t>(number >> (8 * i));
  return key;
}

constexpr Bytes kObject(3 * kStoreAlignment - 100);

// Places and publishes it.
StoreStatus Put(StoreSpace& space, int64_t number, Bytes length = kObject) {
  const auto placing = space.Place(Key(number), length);
  if (placing.status == StoreStatus::kOk) space.Publish(placing.object.slot);
  return placing.status;
}

TEST(StoreSpaceTest, OnlyWhatIsPublishedIsFound) {
  StoreSpace space(Bytes(16 * kStoreAlignment));
  const auto placing = space.Place(Key(1), kObject);
  ASSERT_EQ(placing.status, StoreStatus::kOk);
  EXPECT_FALSE(space.Has(Key(1)));
  EXPECT_FALSE(space.Read(Key(1)).has_value());
  EXPECT_FALSE(space.Remove(Key(1)));
  EXPECT_EQ(space.Place(Key(1), kObject).status, StoreStatus::kPresent);
  space.Publish(placing.object.slot);
  EXPECT_TRUE(space.Has(Key(1)));
  EXPECT_EQ(space.Read(Key(1))->length, kObject);
  EXPECT_EQ(space.Place(Key(1), kObject).status, StoreStatus::kPresent);
}

TEST(StoreSpaceTest, AnAbandonedPlaceIsFreeAndItsKeyToo) {
  StoreSpace space(Bytes(3 * kStoreAlignment));
  const auto first = space.Place(Key(1), kObject);
  EXPECT_EQ(space.Place(Key(2), kObject).status, StoreStatus::kNoRoom);
  space.Abandon(first.object.slot);
  EXPECT_EQ(space.used(), Bytes(0));
  EXPECT_EQ(Put(space, 1), StoreStatus::kOk);
}

TEST(StoreSpaceTest, TheLeastRecentlyReadGivesWay) {
  StoreSpace space(Bytes(9 * kStoreAlignment));
  for (const int64_t number : {1, 2, 3}) EXPECT_EQ(Put(space, number), StoreStatus::kOk);
  space.Unpin(space.Read(Key(1))->slot);
  EXPECT_EQ(Put(space, 4), StoreStatus::kOk);
  EXPECT_TRUE(space.Has(Key(1)));
  EXPECT_FALSE(space.Has(Key(2)));
  EXPECT_EQ(space.evictions(), 1);
}

// A page of no use without those before it in its chain: so they outlive it, whoever was read last.
TEST(StoreSpaceTest, AChainGivesWayFromItsEnd) {
  StoreSpace space(Bytes(15 * kStoreAlignment));
  const auto put = [&](int64_t number, int64_t parent) {
    space.Touch(Key(parent));
    const auto placing = space.Place(Key(number), kObject);
    ASSERT_EQ(placing.status, StoreStatus::kOk);
    space.Publish(placing.object.slot, Key(parent));
  };
  const auto read = [&](int64_t number) { space.Unpin(space.Read(Key(number))->slot); };
  const auto there = [&] {
    std::vector<int64_t> numbers;
    for (int64_t number = 1; number < 20; ++number) {
      if (space.Has(Key(number))) numbers.push_back(number);
    }
    return numbers;
  };
  for (const int64_t number : {1, 2, 3}) put(number, number - 1);
  put(10, 9);
  put(11, 10);
  for (const int64_t number : {10, 11}) read(number);
  put(12, 11);
  EXPECT_EQ(there(), (std::vector<int64_t>{1, 2, 10, 11, 12}));
  put(13, 12);
  EXPECT_EQ(there(), (std::vector<int64_t>{1, 10, 11, 12, 13}));
  // One with two children stays for either.
  put(2, 1);
  EXPECT_EQ(there(), (std::vector<int64_t>{1, 2, 10, 11, 12}));
  put(3, 1);
  EXPECT_EQ(there(), (std::vector<int64_t>{1, 2, 3, 10, 11}));
  // Which are gone, and a third goes: the next time it is 1's turn.
  for (const int64_t number : {3, 2, 11, 10}) EXPECT_TRUE(space.Remove(Key(number)));
  for (const int64_t number : {20, 21, 22, 23, 24}) put(number, 0);
  EXPECT_EQ(there(), (std::vector<int64_t>{}));
}

// However long it is, and without looking at all of it for each page.
TEST(StoreSpaceTest, ALongChainGivesWayFromItsEndToo) {
  constexpr int64_t kPages = 50'000, kOthers = 10'000;
  StoreSpace space(Bytes(kPages * kStoreAlignment));
  const auto put = [&](int64_t number, int64_t parent) {
    const auto placing = space.Place(Key(number), Bytes(kStoreAlignment));
    ASSERT_EQ(placing.status, StoreStatus::kOk);
    space.Publish(placing.object.slot, parent == 0 ? BlockKey() : Key(parent));
  };
  for (int64_t i = 1; i <= kPages; ++i) put(i, i - 1);
  for (int64_t i = 1; i <= kOthers; ++i) put(kPages + i, i == 1 ? 0 : kPages + i - 1);
  for (int64_t i = 1; i <= kPages; ++i) ASSERT_EQ(space.Has(Key(i)), i <= kPages - kOthers) << i;
  EXPECT_EQ(space.Clear(), kPages);
}

TEST(StoreSpaceTest, WhereTheEndOfAChainIsReadItsHeadGivesWay) {
  StoreSpace space(Bytes(6 * kStoreAlignment));
  for (const int64_t number : {1, 2}) {
    space.Publish(space.Place(Key(number), kObject).object.slot, Key(number - 1));
  }
  const auto read = space.Read(Key(2));
  EXPECT_EQ(Put(space, 3), StoreStatus::kOk);
  EXPECT_FALSE(space.Has(Key(1)));
  space.Unpin(read->slot);
}

TEST(StoreSpaceTest, WhatIsReadDoesNotGiveWay) {
  StoreSpace space(Bytes(3 * kStoreAlignment));
  Put(space, 1);
  const auto read = space.Read(Key(1));
  EXPECT_EQ(Put(space, 2), StoreStatus::kNoRoom);
  space.Unpin(read->slot);
  EXPECT_EQ(Put(space, 2), StoreStatus::kOk);
}

TEST(StoreSpaceTest, WhatIsRemovedWhileReadKeepsItsPlaceButIsNotFound) {
  StoreSpace space(Bytes(6 * kStoreAlignment));
  Put(space, 1);
  const auto read = space.Read(Key(1));
  EXPECT_TRUE(space.Remove(Key(1)));
  EXPECT_FALSE(space.Has(Key(1)));
  // Written anew beside the one that is still read.
  const auto again = space.Place(Key(1), kObject);
  ASSERT_EQ(again.status, StoreStatus::kOk);
  EXPECT_NE(again.object.offset, read->offset);
  EXPECT_EQ(space.Place(Key(2), kObject).status, StoreStatus::kNoRoom);
  space.Unpin(read->slot);
  EXPECT_EQ(space.Place(Key(2), kObject).status, StoreStatus::kOk);
}

TEST(StoreSpaceTest, WhatNeverFitsIsTooLarge) {
  StoreSpace space(Bytes(3 * kStoreAlignment));
  Put(space, 1);
  EXPECT_EQ(Put(space, 2, Bytes(3 * kStoreAlignment + 1)), StoreStatus::kTooLarge);
  EXPECT_EQ(Put(space, 2, Bytes(0)), StoreStatus::kTooLarge);
  EXPECT_TRUE(space.Has(Key(1)));
}

// Against the invariants: live objects never overlap, and all that goes comes back.
TEST(StoreSpaceTest, RandomLivesNeverOverlap) {
  Random random(7);
  StoreSpace space(Bytes(64 * kStoreAlignment));
  std::map<StoreSpace::Slot, StoreSpace::Object> placed;
  std::vector<StoreSpace::Object> pinned;
  const auto overlaps = [](const StoreSpace::Object& a, const StoreSpace::Object& b) {
    return a.offset < b.offset + b.length && b.offset < a.offset + a.length;
  };
  for (int i = 0; i < 20000; ++i) {
    const BlockKey key = Key(random.Between(0, 40));
    switch (random.Between(0, 5)) {
      case 0: {
        const auto placing = space.Place(key, Bytes(random.Between(1, 9 * kStoreAlignment)));
        if (placing.status != StoreStatus::kOk) break;
        for (const auto& [slot, other] : placed) ASSERT_FALSE(overlaps(placing.object, other));
        for (const auto& other : pinned) ASSERT_FALSE(overlaps(placing.object, other));
        placed.emplace(placing.object.slot, placing.object);
        break;
      }
      case 1:
      case 2: {
        if (placed.empty()) break;
        const auto slot = placed.begin()->first;
        random.Chance(0.8) ? space.Publish(slot) : space.Abandon(slot);
        placed.erase(slot);
        break;
      }
      case 3:
        if (const auto read = space.Read(key)) pinned.push_back(*read);
        break;
      case 4: {
        if (pinned.empty()) break;
        space.Unpin(pinned.back().slot);
        pinned.pop_back();
        break;
      }
      default:
        random.Chance(0.02) ? (void)space.Clear() : (void)space.Remove(key);
    }
  }
  for (const auto& [slot, object] : placed) space.Abandon(slot);
  for (const auto& object : pinned) space.Unpin(object.slot);
  space.Clear();
  EXPECT_EQ(space.used(), Bytes(0));
  EXPECT_EQ(space.placed(), 0);
  EXPECT_EQ(Put(space, 1, Bytes(64 * kStoreAlignment)), StoreStatus::kOk);  // One hole again.
}

TEST(StoreSpaceTest, TellsWhatCameAndWent) {
  using Changes = std::vector<StoreSpace::Change>;
  BlockKey first, second, third;
  first.bytes[0] = 1;
  second.bytes[0] = 2;
  third.bytes[0] = 3;
  StoreSpace space(Bytes(2 * kStoreAlignment), /*report=*/true);
  const Bytes length(kStoreAlignment);
  space.Publish(space.Place(first, length).object.slot);
  const auto placed = space.Place(second, length);
  EXPECT_EQ(space.TakeChanges(), (Changes{{first, true}}));
  space.Publish(placed.object.slot);
  space.Publish(space.Place(third, length).object.slot);
  EXPECT_EQ(space.TakeChanges(), (Changes{{second, true}, {first, false}, {third, true}}));
  space.Remove(second);
  space.Clear();
  EXPECT_EQ(space.TakeChanges(), (Changes{{second, false}, {third, false}}));
  StoreSpace silent(Bytes(2 * kStoreAlignment));
  silent.Publish(silent.Place(first, length).object.slot);
  EXPECT_TRUE(silent.TakeChanges().empty());
}

}  // namespace
}  // namespace divisi
