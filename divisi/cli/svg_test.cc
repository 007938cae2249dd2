#include "divisi/cli/svg.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "divisi/cli/html.h"

namespace divisi {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(SvgTest, SaysWhatItShows) {
  Svg svg({.id = "a", .title = "1 < 2", .description = "b & c", .width = 10, .height = 20.25});
  svg.Rect({1, 2, 3.04, 4}, "blue", "<hint>");
  svg.Boxes({{0, 0, 2, 2}, {2, 0, 2, 2}}, "red");
  const std::string html = svg.Html();
  EXPECT_THAT(html, HasSubstr("aria-labelledby=\"a-title a-desc\" viewBox=\"0 0 10 20.3\""));
  EXPECT_THAT(html, HasSubstr("<title id=\"a-title\">1 &lt; 2</title>"));
  EXPECT_THAT(html, HasSubstr("b &amp; c"));
  EXPECT_THAT(html, HasSubstr("width=\"3\" height=\"4\"><title>&lt;hint&gt;</title></rect>"));
  EXPECT_THAT(html, HasSubstr("M0 0h2v2h-2zM2 0h2v2h-2z"));
}

TEST(SvgTest, TicksAreRound) {
  EXPECT_THAT(RoundTicks(74.2, 5), ElementsAre(0, 20, 40, 60));
  EXPECT_THAT(RoundTicks(1, 2), ElementsAre(0, 0.5, 1));
  EXPECT_THAT(RoundTicks(3e9, 4), ElementsAre(0, 1e9, 2e9, 3e9));
}

TEST(HtmlTest, EscapesAndShortens) {
  EXPECT_EQ(HtmlText("<a b=\"c\">'&\x02"), "&lt;a b=&quot;c&quot;&gt;&#39;&amp;\xEF\xBF\xBD");
  EXPECT_EQ(Shortened("abcdef", 6), "abcdef");
  EXPECT_EQ(Shortened("abcdef", 4), "abc\xE2\x80\xA6");
  EXPECT_EQ(Shortened("\xC3\xA9\xC3\xA9\xC3\xA9", 2), "\xC3\xA9\xE2\x80\xA6");
}

TEST(HtmlTest, TablesHaveHeadings) {
  const std::string html = HtmlOf({.head = {"a", "b"}, .rows = {{"x", "<1"}}, .marked_column = 1});
  EXPECT_THAT(html, HasSubstr("<th scope=\"row\">x</th><td class=\"marked\">&lt;1</td>"));
}

}  // namespace
}  // namespace divisi
