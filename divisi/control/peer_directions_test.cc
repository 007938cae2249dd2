#include "divisi/control/peer_directions.h"

#include <gtest/gtest.h>

#include <vector>

namespace divisi {
namespace {

using Address = PeerDirections::Address;

std::vector<BlockKey> Keys(uint8_t from, uint8_t to) {
  std::vector<BlockKey> keys;
  for (uint8_t i = from; i < to; ++i) keys.push_back({.bytes = {i}});
  return keys;
}

TEST(PeerDirectionsTest, TheLastWordCounts) {
  PeerDirections directions(8);
  const Address one{"10.0.0.1", 1}, other{"10.0.0.2", 2};
  directions.Set(Keys(0, 4), one);
  directions.Set(Keys(2, 6), other);
  EXPECT_EQ(directions.Of(Keys(1, 2)[0]), one);
  EXPECT_EQ(directions.Of(Keys(2, 3)[0]), other);
  EXPECT_EQ(directions.Of(Keys(6, 7)[0]), std::nullopt);
}

// However old it is otherwise.
TEST(PeerDirectionsTest, WhatWasToldAgainStays) {
  PeerDirections directions(8);
  const Address one{"10.0.0.1", 1}, other{"10.0.0.2", 2};
  directions.Set(Keys(0, 8), one);
  directions.Set(Keys(0, 3), one);
  directions.Set(Keys(8, 12), other);
  for (uint8_t i = 0; i < 12; ++i) {
    const bool stays = i < 3 || i >= 7;
    EXPECT_EQ(directions.Of(Keys(i, i + 1)[0]).has_value(), stays) << int{i};
  }
  directions.Set(Keys(20, 40), other);
  EXPECT_FALSE(directions.Of(Keys(20, 21)[0]).has_value());
  EXPECT_TRUE(directions.Of(Keys(39, 40)[0]).has_value());
}

}  // namespace
}  // namespace divisi
