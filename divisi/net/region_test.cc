#include "divisi/net/region.h"

#include <gtest/gtest.h>

#include <limits>

namespace divisi {
namespace {

constexpr int64_t kMost = std::numeric_limits<int64_t>::max();

TEST(RegionTest, RoundTrips) {
  for (const int64_t size : {int64_t{0}, int64_t{1}, int64_t{1} << 40, kMost}) {
    const RegionDescriptor region{{0xFFFFFFFFFFFFFFFFULL}, 0x0123456789ABCDEFULL, Bytes(size)};
    EXPECT_EQ(DecodeRegion(EncodeRegion(region)).value(), region);
  }
}

TEST(RegionTest, RefusesEveryDamagedByteAndEveryOtherLength) {
  const std::string good = EncodeRegion({{7}, 9, Bytes(1 << 20)});
  for (size_t i = 0; i < good.size(); ++i) {
    std::string bad = good;
    bad[i] ^= 1;
    EXPECT_FALSE(DecodeRegion(bad).ok()) << i;
    EXPECT_FALSE(DecodeRegion(good.substr(0, i)).ok()) << i;
  }
  EXPECT_FALSE(DecodeRegion(good + "x").ok());
}

TEST(RegionTest, NamesAnotherVersion) {
  std::string other = EncodeRegion({{7}, 9, Bytes(1)});
  other[4] = 2;
  const auto region = DecodeRegion(other);
  ASSERT_FALSE(region.ok());
  EXPECT_EQ(region.error().code, Code::kInvalidArgument);
  EXPECT_NE(region.error().message.find("version 2"), std::string::npos) << region.error().message;
}

TEST(RegionTest, RangesDoNotOverflow) {
  EXPECT_TRUE(InRegion(Bytes(10), Bytes(0), Bytes(10)));
  EXPECT_TRUE(InRegion(Bytes(10), Bytes(10), Bytes(0)));
  EXPECT_FALSE(InRegion(Bytes(10), Bytes(1), Bytes(10)));
  EXPECT_FALSE(InRegion(Bytes(10), Bytes(-1), Bytes(1)));
  EXPECT_FALSE(InRegion(Bytes(10), Bytes(1), Bytes(-1)));
  EXPECT_FALSE(InRegion(Bytes(kMost), Bytes(2), Bytes(kMost - 1)));
  EXPECT_FALSE(InRegion(Bytes(10), Bytes(kMost), Bytes(kMost)));
}

}  // namespace
}  // namespace divisi
