#include "divisi/core/random.h"

#include <gtest/gtest.h>

namespace divisi {
namespace {

// Known answers from the Random123 distribution (kat_vectors, philox4x32 10).
TEST(RandomTest, PhiloxMatchesPublishedVectors) {
  EXPECT_EQ(Philox4x32({0, 0, 0, 0}, {0, 0}),
            (std::array<uint32_t, 4>{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(Philox4x32({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff}),
            (std::array<uint32_t, 4>{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
}

TEST(RandomTest, DrawDependsOnEachCoordinate) {
  EXPECT_EQ(UniformAt(1, 2, 3), UniformAt(1, 2, 3));
  EXPECT_NE(UniformAt(1, 2, 3), UniformAt(2, 2, 3));
  EXPECT_NE(UniformAt(1, 2, 3), UniformAt(1, 3, 3));
  EXPECT_NE(UniformAt(1, 2, 3), UniformAt(1, 2, 4));
}

TEST(RandomTest, UniformHasTheRightMeanAndRange) {
  Random random(7);
  double sum = 0;
  for (int i = 0; i < 100000; ++i) {
    const double u = random.Uniform();
    ASSERT_GE(u, 0);
    ASSERT_LT(u, 1);
    sum += u;
  }
  EXPECT_NEAR(sum / 100000, 0.5, 0.005);
}

TEST(RandomTest, BetweenReachesBothEnds) {
  Random random(1);
  bool low = false, high = false;
  for (int i = 0; i < 1000; ++i) {
    const int64_t v = random.Between(-2, 2);
    ASSERT_GE(v, -2);
    ASSERT_LE(v, 2);
    low |= v == -2;
    high |= v == 2;
  }
  EXPECT_TRUE(low && high);
}

}  // namespace
}  // namespace divisi
