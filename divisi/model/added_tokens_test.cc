#include "divisi/model/added_tokens.h"

#include <gmock/gmock.h>

namespace divisi {
namespace {

using ::testing::ElementsAre;

// The sections of `text`: those of tokens as "id:text".
std::vector<std::string> Divide(std::vector<AddedToken> tokens, std::string_view text) {
  const AddedTokenFinder finder = AddedTokenFinder::Make(tokens).value();
  Matcher matcher;
  std::vector<std::string> sections;
  for (const auto& section : finder.Divide(text, matcher)) {
    sections.push_back(section.token ? Format("{}:{}", *section.token, section.text)
                                     : std::string(section.text));
  }
  return sections;
}

TEST(AddedTokensTest, LongestOfTheLeftmost) {
  const std::vector<AddedToken> tokens = {
      {.id = 1, .content = "<a>"}, {.id = 2, .content = "<a><b>"}, {.id = 3, .content = "b><c"}};
  EXPECT_THAT(Divide(tokens, "x<a><b><c>"), ElementsAre("x", "2:<a><b>", "<c>"));
  EXPECT_THAT(Divide(tokens, "<a><<b><c"), ElementsAre("1:<a>", "<<", "3:b><c"));
  EXPECT_THAT(Divide(tokens, "<a><a>"), ElementsAre("1:<a>", "1:<a>"));
  EXPECT_THAT(Divide(tokens, "nothing"), ElementsAre("nothing"));
  EXPECT_THAT(Divide(tokens, ""), ElementsAre());
  EXPECT_THAT(Divide({}, "<a>"), ElementsAre("<a>"));
}

TEST(AddedTokensTest, StripsWhiteSpaceOnTheSidesThatItSays) {
  const std::vector<AddedToken> tokens = {{.id = 1, .content = "<l>", .lstrip = true},
                                          {.id = 2, .content = "<r>", .rstrip = true},
                                          {.id = 3, .content = "<n>"}};
  EXPECT_THAT(Divide(tokens, "a \u3000<l> b"), ElementsAre("a", "1: \u3000<l>", " b"));
  EXPECT_THAT(Divide(tokens, "a <r> \u00A0\nb"), ElementsAre("a ", "2:<r> \u00A0\n", "b"));
  EXPECT_THAT(Divide(tokens, "<r>  <l>"), ElementsAre("2:<r>  ", "1:<l>"));
  EXPECT_THAT(Divide(tokens, "<n> <n>"), ElementsAre("3:<n>", " ", "3:<n>"));
  EXPECT_THAT(Divide(tokens, " <l>"), ElementsAre("1: <l>"));
}

TEST(AddedTokensTest, StrippedWhiteSpaceIsNoTokenOfItsOwn) {
  const std::vector<AddedToken> tokens = {{.id = 1, .content = "<r>", .rstrip = true},
                                          {.id = 2, .content = "  "}};
  EXPECT_THAT(Divide(tokens, "<r>    x  y"), ElementsAre("1:<r>    ", "x", "2:  ", "y"));
}

TEST(AddedTokensTest, SingleWordStandsAlone) {
  const std::vector<AddedToken> tokens = {{.id = 1, .content = "cat", .single_word = true}};
  EXPECT_THAT(Divide(tokens, "cat"), ElementsAre("1:cat"));
  EXPECT_THAT(Divide(tokens, "a cat, scat cats"), ElementsAre("a ", "1:cat", ", scat cats"));
  EXPECT_THAT(Divide(tokens, "cat_ écat cat\u0301 (cat)"),
              ElementsAre("cat_ écat cat\u0301 (", "1:cat", ")"));
}

}  // namespace
}  // namespace divisi
