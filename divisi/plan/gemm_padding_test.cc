#include "divisi/plan/gemm_padding.h"

#include <gtest/gtest.h>

#include <vector>

namespace divisi {
namespace {

using Rows = std::vector<int64_t>;

TEST(GemmPaddingTest, FewRowsEachCostMostOfATile) {
  const auto padded = PadToTiles(Rows{32, 16, 8, 4, 2, 1, 1, 0}, 32);
  ASSERT_TRUE(padded);
  EXPECT_EQ(padded->useful, 64);
  EXPECT_EQ(padded->non_empty, 224);
  EXPECT_EQ(padded->all, 256);
  EXPECT_EQ(padded->largest, 256);
}

TEST(GemmPaddingTest, PaddingToTheFullestCostsMoreThanToTiles) {
  const auto padded = PadToTiles(Rows{65, 1, 0}, 32);
  ASSERT_TRUE(padded);
  EXPECT_EQ(padded->non_empty, 128);
  EXPECT_EQ(padded->all, 160);
  EXPECT_EQ(padded->largest, 288);
}

TEST(GemmPaddingTest, TilesOfOneRowPadNothing) {
  const auto padded = PadToTiles(Rows{3, 5}, 1);
  ASSERT_TRUE(padded);
  EXPECT_EQ(padded->non_empty, padded->useful);
}

TEST(GemmPaddingTest, RefusesWhatCannotBeCounted) {
  EXPECT_FALSE(PadToTiles(Rows{}, 32));
  EXPECT_FALSE(PadToTiles(Rows{0, 0}, 32));
  EXPECT_FALSE(PadToTiles(Rows{1}, 0));
  EXPECT_FALSE(PadToTiles(Rows{-1, 2}, 32));
  EXPECT_FALSE(PadToTiles(Rows{int64_t{1} << 62}, 32));
}

}  // namespace
}  // namespace divisi
