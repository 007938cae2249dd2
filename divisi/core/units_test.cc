#include "divisi/core/units.h"

#include <gtest/gtest.h>

namespace divisi {
namespace {

TEST(UnitsTest, BytesAreRoundedNotCut) {
  EXPECT_EQ(ParseBytes("16.4GB")->value, 16400000000);  // 16.4 * 1e9 is just below it.
  EXPECT_EQ(ParseBytes("0.4B")->value, 0);
}

TEST(UnitsTest, ReadsAmountsOfMemory) {
  EXPECT_EQ(ParseBytes("1.125 GiB")->value, 1207959552);
  EXPECT_EQ(ParseBytes("512MB")->value, 512000000);
  EXPECT_EQ(ParseBytes("4096")->value, 4096);
  EXPECT_EQ(ParseBytes("2 kib")->value, 2048);
  for (const char* bad : {"", "GiB", "-1", "1 parsec", "nan", "inf GB", "1e30", "1 GiB x"}) {
    EXPECT_FALSE(ParseBytes(bad).ok()) << bad;
  }
}

TEST(UnitsTest, ReadsRatesAndTimesWithTheirUnits) {
  EXPECT_DOUBLE_EQ(ParseBytesPerSecond("25 GB/s")->value, 25e9);
  EXPECT_DOUBLE_EQ(ParseBytesPerSecond("200 Gbit/s")->value, 25e9);
  EXPECT_DOUBLE_EQ(ParseBytesPerSecond("400Gbps")->value, 50e9);
  EXPECT_DOUBLE_EQ(ParseFlopsPerSecond("1.8 TFLOP/s")->value, 1.8e12);
  EXPECT_DOUBLE_EQ(ParseSeconds("5 us")->value, 5e-6);
  EXPECT_DOUBLE_EQ(ParseSeconds("5 \xce\xbcs")->value, 5e-6);
  EXPECT_DOUBLE_EQ(ParseSeconds("1.5 h")->value, 5400);
  for (const char* bad : {"25", "25 GB", "-1 GB/s", "nan GB/s", "1e400 GB/s", "25 GB/s x", "10"}) {
    EXPECT_FALSE(ParseBytesPerSecond(bad).ok()) << bad;
    EXPECT_FALSE(ParseFlopsPerSecond(bad).ok()) << bad;
    EXPECT_FALSE(ParseSeconds(bad).ok()) << bad;
  }
}

// What must not compile, does not: sums of unlike quantities, fractions of whole ones.
template <typename A, typename B>
concept Addable = requires(A a, B b) {
  a + b;
};
template <typename A, typename B>
concept Multipliable = requires(A a, B b) {
  a* b;
};
static_assert(!Addable<Bytes, Tokens> && !Addable<Seconds, PerSecond> && Addable<Bytes, Bytes>);
static_assert(!Multipliable<Bytes, double> && Multipliable<Bytes, int> &&
              !Multipliable<Bytes, Bytes>);
static_assert(!std::is_convertible_v<double, Seconds> && !std::is_convertible_v<Bytes, Tokens>);

TEST(UnitsTest, DividesIntoOtherUnits) {
  constexpr Bytes kState(1207959552);
  EXPECT_DOUBLE_EQ((kState / BytesPerSecond(25e9)).value, 0.04831838208);
  EXPECT_DOUBLE_EQ((BytesPerSecond(25e9) / kState).value, 25e9 / 1207959552);
  EXPECT_DOUBLE_EQ((kState * PerSecond(8)).value, 9663676416);
  EXPECT_DOUBLE_EQ((Flops(156e12) / FlopsPerSecond(312e12)).value, 0.5);
  EXPECT_EQ(Scale(Bytes(3), 0.5).value, 2);
}

TEST(UnitsTest, WritesForPeople) {
  EXPECT_EQ(HumanRate(BytesPerSecond(25e9)), "25 GB/s");
  EXPECT_EQ(HumanRate(FlopsPerSecond(312e12)), "312 TFLOP/s");
  EXPECT_EQ(HumanBytes(Bytes(512)), "512 B");
  EXPECT_EQ(HumanBytes(Bytes(1207959552)), "1.125 GiB");
  EXPECT_EQ(HumanSeconds(Seconds(0.0123)), "12.3 ms");
  EXPECT_EQ(HumanSeconds(Seconds(2.5)), "2.5 s");
  EXPECT_EQ(HumanNumber(4.5546), "4.55");
  EXPECT_EQ(HumanNumber(999.4), "999");
  EXPECT_EQ(HumanNumber(999.6), "1000");
  EXPECT_EQ(HumanNumber(1040.7), "1041");
  EXPECT_EQ(HumanNumber(-0.00278), "-0.00278");
  EXPECT_EQ(HumanNumber(1e9), "1e+09");
}

}  // namespace
}  // namespace divisi
