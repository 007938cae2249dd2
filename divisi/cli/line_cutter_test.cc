#include "divisi/cli/line_cutter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace divisi {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::StartsWith;

TEST(LineCutterTest, GivesWholeLines) {
  LineCutter lines;
  EXPECT_THAT(lines.Take("one\ntw"), ElementsAre("one"));
  EXPECT_THAT(lines.Take(""), IsEmpty());
  EXPECT_THAT(lines.Take("o\n\nthree"), ElementsAre("two", ""));
  EXPECT_EQ(lines.End(), "three");
  EXPECT_EQ(lines.End(), std::nullopt);
}

TEST(LineCutterTest, ALineWithoutEndIsCutOnce) {
  LineCutter lines;
  const std::string piece(4096, 'x');
  size_t given = 0;
  for (size_t i = 0; i < 4 * kMostLineBytes / piece.size(); ++i) {
    for (const std::string& line : lines.Take(piece)) {
      ++given;
      EXPECT_THAT(line, StartsWith(std::string(kMostLineBytes, 'x') + " [cut: longer than 65536"));
      EXPECT_LT(line.size(), kMostLineBytes + 64);
    }
  }
  EXPECT_EQ(given, 1);
  EXPECT_THAT(lines.Take("rest\nnext\n"), ElementsAre("next"));
}

TEST(LineCutterTest, OneOfJustTheMostIsWhole) {
  LineCutter lines;
  const std::string most(kMostLineBytes, 'y');
  EXPECT_THAT(lines.Take(most), IsEmpty());
  EXPECT_THAT(lines.Take("\nz\n"), ElementsAre(most, "z"));
}

TEST(LineCutterTest, TheRestOfACutLineIsNotTheNextLifes) {
  LineCutter lines;
  EXPECT_EQ(lines.Take(std::string(kMostLineBytes + 1, 'x')).size(), 1);
  EXPECT_EQ(lines.End(), std::nullopt);
  EXPECT_THAT(lines.Take("new\n"), ElementsAre("new"));
}

}  // namespace
}  // namespace divisi
