#include "divisi/core/utf8.h"

#include <gtest/gtest.h>

#include "divisi/core/random.h"

namespace divisi {
namespace {

const std::string kMark = "\xEF\xBF\xBD";

TEST(Utf8Test, ReplacesEachMaximalSubpartOnce) {
  // Expected texts are those of Python's bytes.decode("utf-8", "replace").
  EXPECT_EQ(RepairUtf8("caf\xC3\xA9 \xF0\x9F\x98\x80"), "café 😀");
  EXPECT_EQ(RepairUtf8("\xF0\x9F"), kMark);                                  // Unfinished.
  EXPECT_EQ(RepairUtf8("\xF0\x9F\x41"), kMark + "A");                        // Broken off.
  EXPECT_EQ(RepairUtf8("\xED\xA0\x80"), kMark + kMark + kMark);              // A surrogate.
  EXPECT_EQ(RepairUtf8("\xC0\xAF"), kMark + kMark);                          // Overlong.
  EXPECT_EQ(RepairUtf8("\xE0\x80\x80"), kMark + kMark + kMark);              // Overlong.
  EXPECT_EQ(RepairUtf8("\xF4\x90\x80\x80"), kMark + kMark + kMark + kMark);  // Above U+10FFFF.
  EXPECT_EQ(RepairUtf8("\xF5\xFF\x80"), kMark + kMark + kMark);
  EXPECT_EQ(RepairUtf8("\xE2\x82\xE2\x82\xAC"), kMark + "€");
  EXPECT_EQ(RepairUtf8(std::string("\0\x80", 2)), std::string("\0", 1) + kMark);
}

TEST(Utf8Test, CodePointsGoThereAndBack) {
  for (char32_t c = 0; c < 0x110000; ++c) {
    if (c >= 0xD800 && c <= 0xDFFF) continue;
    std::string text;
    AppendUtf8(c, text);
    const Utf8Step step = StepUtf8(text, 0);
    ASSERT_EQ(step.kind, Utf8Step::Kind::kCharacter);
    ASSERT_EQ(step.length, static_cast<int>(text.size()));
    ASSERT_EQ(DecodeUtf8(text, 0, step.length), c);
  }
}

// A byte that is likely to continue or to break a sequence.
char RandomByte(Random& random) {
  static constexpr std::string_view kBytes =
      "a\x80\x8F\x90\x9F\xA0\xBF\xC0\xC2\xDF\xE0\xE2\xED\xEF\xF0\xF1\xF4\xF5\xFF";
  return kBytes[random.Between(0, static_cast<int64_t>(kBytes.size()) - 1)];
}

TEST(Utf8Test, PartsTakenOneByOneMakeTheWhole) {
  Random random(1);
  for (int round = 0; round < 20000; ++round) {
    std::string bytes;
    std::string pending;
    std::string taken;
    for (int64_t part = random.Between(0, 6); part > 0; --part) {
      std::string chunk;
      for (int64_t i = random.Between(0, 5); i > 0; --i) chunk += RandomByte(random);
      bytes += chunk;
      pending += chunk;
      taken += TakeFinishedUtf8(pending);
      ASSERT_LE(pending.size(), 3u);
      ASSERT_TRUE(IsUtf8(taken));
    }
    ASSERT_EQ(taken + RepairUtf8(pending), RepairUtf8(bytes)) << "round " << round;
  }
}

}  // namespace
}  // namespace divisi
