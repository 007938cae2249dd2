#include "divisi/model/fixed_math.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>

#include "divisi/core/random.h"

namespace divisi {
namespace {

// FNV-1a over the bits of results: one number that differs if any bit of any does.
class Digest {
 public:
  void Add(double x) {
    for (uint64_t bits = std::bit_cast<uint64_t>(x), i = 0; i < 8; ++i, bits >>= 8) {
      value_ = (value_ ^ (bits & 0xff)) * 0x100000001b3;
    }
  }
  uint64_t value() const { return value_; }

 private:
  uint64_t value_ = 0xcbf29ce484222325;
};

// From 2^-1000 to 2^1000.
double AnyMagnitude(Random& random) {
  return std::ldexp(1 + random.Uniform(), static_cast<int>(random.Between(-1000, 999)));
}

TEST(FixedMath, IsWithinItsErrorOfTheTwinInExtendedPrecision) {
  Random random(1, 0);
  for (int i = 0; i < 200'000; ++i) {
    const double x = i % 2 == 0 ? AnyMagnitude(random) : 0.5 + random.Uniform();
    const long double log = std::log(static_cast<long double>(x));
    EXPECT_NEAR(FixedLog(x) / static_cast<double>(log), 1, 9e-16) << x;
    const double y = -700 + 1400 * random.Uniform();
    const long double exp = std::exp(static_cast<long double>(y));
    EXPECT_NEAR(static_cast<double>(FixedExp(y) / exp), 1, 9e-16) << y;
    const double angle = std::ldexp(random.Uniform(), static_cast<int>(random.Between(-30, 31)));
    const auto [sine, cosine] = FixedSineCosine(angle);
    EXPECT_NEAR(sine, static_cast<double>(std::sin(static_cast<long double>(angle))), 1e-15);
    EXPECT_NEAR(cosine, static_cast<double>(std::cos(static_cast<long double>(angle))), 1e-15);
  }
}

TEST(FixedMath, IsExactWhereTheResultIs) {
  EXPECT_EQ(FixedLog(1), 0);
  EXPECT_EQ(FixedExp(0), 1);
  EXPECT_EQ(FixedSineCosine(0).sine, 0);
  EXPECT_EQ(FixedSineCosine(0).cosine, 1);
}

// Found on one machine, expected on all.
TEST(FixedMath, GivesTheBitsItAlwaysGave) {
  Random random(2, 0);
  Digest logs, exps, circles;
  for (int i = 0; i < 100'000; ++i) {
    logs.Add(FixedLog(AnyMagnitude(random)));
    exps.Add(FixedExp(-700 + 1400 * random.Uniform()));
    const auto [sine, cosine] = FixedSineCosine(0x1p31 * random.Uniform());
    circles.Add(sine);
    circles.Add(cosine);
  }
  EXPECT_EQ(logs.value(), 13064287797405553622u);
  EXPECT_EQ(exps.value(), 12172638450482919456u);
  EXPECT_EQ(circles.value(), 9036562759328960052u);
}

}  // namespace
}  // namespace divisi
