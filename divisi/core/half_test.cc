#include "divisi/core/half.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

namespace divisi {
namespace {

TEST(HalfTest, GivesTheValueOfEveryHalf) {
  for (int bits = 0; bits < 1 << 16; ++bits) {
    const float value = HalfToFloat(static_cast<uint16_t>(bits));
    const int exponent = bits >> 10 & 31, mantissa = bits & 0x3ff;
    EXPECT_EQ(std::signbit(value), bits >= 1 << 15);
    if (exponent == 31) {
      EXPECT_EQ(std::isinf(value), mantissa == 0) << bits;
      EXPECT_EQ(std::isnan(value), mantissa != 0) << bits;
    } else {
      const int leading = exponent == 0 ? 0 : 1024;
      EXPECT_EQ(std::fabs(value), std::ldexp(leading + mantissa, std::max(exponent, 1) - 25))
          << bits;
    }
  }
}

TEST(HalfTest, Bf16IsTheUpperHalfOfAFloat) {
  EXPECT_EQ(Bf16ToFloat(0x3F80), 1.0f);
  EXPECT_EQ(Bf16ToFloat(0xC0A0), -5.0f);
}

}  // namespace
}  // namespace divisi
