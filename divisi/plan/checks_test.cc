#include "divisi/plan/checks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace divisi {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

TEST(ChecksTest, PositiveMeansFiniteAndAboveZero) {
  EXPECT_TRUE(RequirePositive({{"link", 1e-300}, {"rows", 1}}));
  for (const double wrong : {0.0, -1.0, kInfinity, std::nan("")}) {
    const auto checked = RequirePositive({{"rows", 1}, {"link", wrong}});
    ASSERT_FALSE(checked) << wrong;
    EXPECT_THAT(checked.error().message, testing::HasSubstr("link"));
  }
}

TEST(ChecksTest, BetweenHoldsBothEndsAndRefusesNan) {
  EXPECT_TRUE(RequireBetween({"experts", 1}, 1, 8));
  EXPECT_TRUE(RequireBetween({"experts", 8}, 1, 8));
  for (const double wrong : {0.0, 9.0, kInfinity, std::nan("")}) {
    EXPECT_FALSE(RequireBetween({"experts", wrong}, 1, 8)) << wrong;
  }
}

TEST(ChecksTest, BytesBeyond62BitsAreRefused) {
  EXPECT_EQ(BytesOf({"weights", 12.6})->value, 13);
  EXPECT_EQ(BytesOf({"weights", 0x1p62})->value, int64_t{1} << 62);
  for (const double wrong : {-1.0, 0x1p63, kInfinity, std::nan("")}) {
    EXPECT_FALSE(BytesOf({"weights", wrong})) << wrong;
  }
}

}  // namespace
}  // namespace divisi
