#include "divisi/core/units.h"

#include <gtest/gtest.h>

namespace divisi {
namespace {

TEST(UnitsTest, ReadsAmountsOfMemory) {
  EXPECT_EQ(ParseBytes("1.125 GiB")->value, 1207959552);
  EXPECT_EQ(ParseBytes("512MB")->value, 512000000);
  EXPECT_EQ(ParseBytes("4096")->value, 4096);
  EXPECT_EQ(ParseBytes("2 kib")->value, 2048);
  for (const char* bad : {"", "GiB", "-1", "1 parsec", "nan", "inf GB", "1e30", "1 GiB x"}) {
    EXPECT_FALSE(ParseBytes(bad).ok()) << bad;
  }
}

TEST(UnitsTest, WritesForPeople) {
  EXPECT_EQ(HumanBytes(Bytes(512)), "512 B");
  EXPECT_EQ(HumanBytes(Bytes(1207959552)), "1.125 GiB");
  EXPECT_EQ(HumanSeconds(Seconds(0.0123)), "12.3 ms");
  EXPECT_EQ(HumanSeconds(Seconds(2.5)), "2.5 s");
}

}  // namespace
}  // namespace divisi
