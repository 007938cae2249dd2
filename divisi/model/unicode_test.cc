#include "divisi/model/unicode.h"

#include <gtest/gtest.h>

#include "divisi/core/clock.h"

namespace divisi {
namespace {

TEST(UnicodeTest, ComposesAndOrders) {
  EXPECT_EQ(ToNfc("e\u0301"), "é");
  EXPECT_EQ(ToNfc("a\u0315\u0300\u05AE\u0062"), "\u00E0\u05AE\u0315\u0062");  // Of the UAX 15 test.
  EXPECT_EQ(ToNfc("\u212B\u2126"), "ÅΩ");                                     // Singletons.
  EXPECT_EQ(ToNfc("\u0958"), "\u0915\u093C");    // A composition exclusion.
  EXPECT_EQ(ToNfc("\u1100\u1161\u11A8"), "각");  // Hangul.
  EXPECT_EQ(ToNfc("\uFB01"), "\uFB01");          // Compatibility characters stay.
  EXPECT_EQ(ToNfc(std::string("a\0b", 3)), std::string("a\0b", 3));
  EXPECT_EQ(ToNfc(""), "");
}

TEST(UnicodeTest, CodePointBeforeTheTrailingConsonantsStays) {
  EXPECT_EQ(ToNfc("\uAC00\u11A7"), "\uAC00\u11A7");
  EXPECT_EQ(ToNfc("\u1100\u1161\u11A7\u11A7\u1100\u1161\u11A8"), "\uAC00\u11A7\u11A7\uAC01");
}

TEST(UnicodeTest, PlainTextIsItsOwnFormC) {
  EXPECT_TRUE(IsPlainNfc("plain, café, ÿ, \u02FF"));
  EXPECT_FALSE(IsPlainNfc("e\u0301"));
  EXPECT_EQ(ToNfc("plain, café, ÿ, \u02FF"), "plain, café, ÿ, \u02FF");
}

TEST(UnicodeTest, LongRunOfMarksTakesTimeInProportion) {
  // Half of class 230, half of class 220: each of the latter belongs before all of the former.
  const auto marks = [](int count) {
    std::string text = "x";
    for (int i = 0; i < count; ++i) text += "\u0300";
    for (int i = 0; i < count; ++i) text += "\u0316";
    return text;
  };
  std::string expected = "x";
  for (int i = 0; i < 3; ++i) expected += "\u0316";
  for (int i = 0; i < 3; ++i) expected += "\u0300";
  EXPECT_EQ(ToNfc(marks(3)), expected);
  const SteadyClock clock;
  const Seconds start = clock.Now();
  EXPECT_EQ(ToNfc(marks(250'000)).size(), 1'000'001u);
  EXPECT_LT((clock.Now() - start) / Seconds(1), 5.0);  // Exchanging neighbours takes minutes.
}

TEST(UnicodeTest, WhiteSpace) {
  for (const char32_t c : {0x09, 0x20, 0x85, 0xA0, 0x2009, 0x3000}) EXPECT_TRUE(IsWhiteSpace(c));
  for (const char32_t c : {0x08, 0x41, 0x180E, 0x200B, 0xFEFF}) EXPECT_FALSE(IsWhiteSpace(c));
}

}  // namespace
}  // namespace divisi
