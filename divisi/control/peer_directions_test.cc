#include "divisi/control/peer_directions.h"

#include <gtest/gtest.h>

#include <vector>

namespace divisi {
namespace {

using Address = PeerDirections::Address;

BlockKey Key(int number) { return {.bytes = {static_cast<uint8_t>(number)}}; }

std::vector<BlockKey> Keys(int from, int to) {
  std::vector<BlockKey> keys;
  for (int i = from; i < to; ++i) keys.push_back(Key(i));
  return keys;
}

TEST(PeerDirectionsTest, TheLastWordCounts) {
  PeerDirections directions(8);
  const Address one{"10.0.0.1", 1}, other{"10.0.0.2", 2};
  directions.Set(Keys(0, 4), one);
  directions.Set(Keys(2, 6), other);
  EXPECT_EQ(directions.Of(Key(1)), one);
  EXPECT_EQ(directions.Of(Key(2)), other);
  EXPECT_EQ(directions.Of(Key(6)), std::nullopt);
}

// However old it is otherwise.
TEST(PeerDirectionsTest, WhatWasToldAgainStays) {
  PeerDirections directions(8);
  const Address one{"10.0.0.1", 1}, other{"10.0.0.2", 2};
  directions.Set(Keys(0, 8), one);
  directions.Set(Keys(0, 3), one);
  directions.Set(Keys(8, 12), other);
  for (int i = 0; i < 12; ++i) {
    const bool stays = i < 3 || i >= 7;
    EXPECT_EQ(directions.Of(Key(i)).has_value(), stays) << i;
  }
  directions.Set(Keys(20, 40), other);
  EXPECT_FALSE(directions.Of(Key(20)).has_value());
  EXPECT_TRUE(directions.Of(Key(39)).has_value());
}

}  // namespace
}  // namespace divisi
