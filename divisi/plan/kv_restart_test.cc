#include "divisi/plan/kv_restart.h"

#include <gtest/gtest.h>

namespace divisi {
namespace {

constexpr Bytes kPerToken = Bytes(144 << 10);  // Qwen3-8B

TEST(KvRestartTest, APageIsSeventyTwoSegmentsOrOneObject) {
  const PageLayout page = LayoutOf(Tokens(16), kPerToken, 36, 2);
  EXPECT_EQ(page.bytes.value, 2359296);  // 2.25 MiB
  EXPECT_EQ(page.segments, 72);
  EXPECT_EQ(page.Segment().value, 32 << 10);
}

TEST(KvRestartTest, LatentsAreOneSegmentALayer) {
  const PageLayout page = LayoutOf(Tokens(16), Bytes(70272), 61, 1);
  EXPECT_EQ(page.segments, 61);
  EXPECT_EQ(page.Segment().value, 16 * 1152);
}

TEST(KvRestartTest, SixtyFourPagesReadSixtyThreeUsed) {
  const PageLayout page = LayoutOf(Tokens(16), kPerToken, 36, 2);
  const RestartRead read = ReadAfterRestart(page, Tokens(1024), Tokens(1008));
  EXPECT_EQ(read.pages_read, 64);
  EXPECT_EQ(read.pages_used, 63);
  EXPECT_EQ(read.PagesWasted(), 1);
  EXPECT_EQ(read.read.value, 144 << 20);
  EXPECT_EQ(read.used.value, 148635648);  // 141.75 MiB
}

TEST(KvRestartTest, PagesAreReadWholeAndUsedWhole) {
  const PageLayout page = LayoutOf(Tokens(16), kPerToken, 36, 2);
  const RestartRead read = ReadAfterRestart(page, Tokens(17), Tokens(31));
  EXPECT_EQ(read.pages_read, 2);
  EXPECT_EQ(read.pages_used, 1);
}

TEST(KvRestartTest, NoMoreIsUsedThanWasRead) {
  const PageLayout page = LayoutOf(Tokens(16), kPerToken, 36, 2);
  EXPECT_EQ(ReadAfterRestart(page, Tokens(16), Tokens(1024)).pages_used, 1);
  EXPECT_EQ(ReadAfterRestart(page, Tokens(0), Tokens(16)).pages_used, 0);
  EXPECT_EQ(ReadAfterRestart(page, Tokens(-5), Tokens(-5)).pages_read, 0);
}

}  // namespace
}  // namespace divisi
