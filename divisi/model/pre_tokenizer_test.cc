#include "divisi/model/pre_tokenizer.h"

#include <gmock/gmock.h>

#include "divisi/core/file.h"

namespace divisi {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

const std::filesystem::path kSource = DIVISI_SOURCE_DIR;

PreTokenizer Read(std::string_view json) {
  return PreTokenizer::Read(Json::Parse(json).value()).value();
}

std::vector<std::string> Cut(const PreTokenizer& pre_tokenizer, std::string_view text) {
  Matcher matcher;
  const Pieces pieces = pre_tokenizer.Cut(std::string(text), matcher);
  std::vector<std::string> texts;
  size_t begin = 0;
  for (const size_t end : pieces.ends) {
    texts.push_back(pieces.text.substr(begin, end - begin));
    begin = end;
  }
  EXPECT_EQ(begin, pieces.text.size());
  return texts;
}

// A Split on `pattern` before a ByteLevel that changes nothing.
PreTokenizer SplitOn(std::string_view pattern, std::string_view behavior, bool invert = false) {
  return Read(Format(R"({{"type":"Sequence","pretokenizers":[
    {{"type":"Split","pattern":{},"behavior":"{}","invert":{}}},
    {{"type":"ByteLevel","add_prefix_space":false,"use_regex":false}}]}})",
                     pattern, behavior, invert));
}

TEST(PreTokenizerTest, CutsTheGoldenTexts) {
  const Json file =
      Json::Parse(ReadFile(kSource / "models/tiny-qwen3/tokenizer.json", 1 << 20).value()).value();
  const PreTokenizer qwen = PreTokenizer::Read(*file.Find("pre_tokenizer")).value();
  const Json golden =
      Json::Parse(ReadFile(kSource / "tests/golden/tokenizer.json", 1 << 20).value()).value();
  int checked = 0;
  for (const Json& item : golden.Find("cases")->as_array()) {
    const Json* pieces = item.Find("pieces");
    if (pieces == nullptr) continue;  // With special tokens, which are found before.
    std::vector<std::string> expected;
    for (const Json& piece : pieces->as_array()) expected.push_back(piece.as_string());
    // "decoded" is the text in form C, which the pieces are of.
    EXPECT_EQ(Cut(qwen, item.Find("decoded")->as_string()), expected) << item.Dump();
    ++checked;
  }
  EXPECT_GT(checked, 200);
}

TEST(PreTokenizerTest, Gpt2PatternKeepsCaseAndJoinsDigits) {
  const PreTokenizer gpt2 = Read(R"({"type":"ByteLevel","add_prefix_space":false})");
  EXPECT_THAT(Cut(gpt2, "I'm I'M  12345 x!\n\n y"),
              ElementsAre("I", "'m", " I", "'", "M", " ", " 12345", " x", "!", "\n\n", " y"));
}

TEST(PreTokenizerTest, Llama3PatternTakesThreeDigitsAndAnyCase) {
  const PreTokenizer llama = SplitOn(
      R"({"Regex":"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"})",
      "Isolated");
  EXPECT_THAT(Cut(llama, "I'M  12345 x!\n\n y\t\tz"),
              ElementsAre("I", "'M", " ", " ", "123", "45", " x", "!\n\n", " y", "\t", "\tz"));
  EXPECT_THAT(Cut(llama, "a\u00A0b\u3000\u3000c\u0085d"),
              ElementsAre("a", "\u00A0b", "\u3000", "\u3000c", "\u0085d"));
}

TEST(PreTokenizerTest, MongolianVowelSeparatorIsNoWhiteSpace) {
  const PreTokenizer spaces = SplitOn(R"({"Regex":"\\s+"})", "Isolated");
  EXPECT_THAT(Cut(spaces, "a\u180Eb c"), ElementsAre("a\u180Eb", " ", "c"));
  const PreTokenizer classes = SplitOn(R"({"Regex":"[\\s-]+"})", "Isolated");
  EXPECT_THAT(Cut(classes, "a\u180E- b"), ElementsAre("a\u180E", "- ", "b"));
}

TEST(PreTokenizerTest, BehavioursAreThoseOfTheLibrary) {
  // The library's own example, in its documentation of SplitDelimiterBehavior.
  const auto cut = [](std::string_view behavior) {
    return Cut(SplitOn(R"({"String":"-"})", behavior), "the-final--countdown");
  };
  EXPECT_THAT(cut("Removed"), ElementsAre("the", "final", "countdown"));
  EXPECT_THAT(cut("Isolated"), ElementsAre("the", "-", "final", "-", "-", "countdown"));
  EXPECT_THAT(cut("MergedWithPrevious"), ElementsAre("the-", "final-", "-", "countdown"));
  EXPECT_THAT(cut("MergedWithNext"), ElementsAre("the", "-final", "-", "-countdown"));
  EXPECT_THAT(cut("Contiguous"), ElementsAre("the", "-", "final", "--", "countdown"));
}

TEST(PreTokenizerTest, InvertTakesWhatLiesBetween) {
  const PreTokenizer words = SplitOn(R"({"Regex":"\\w+"})", "Removed", true);
  EXPECT_THAT(Cut(words, " one, two!"), ElementsAre("one", "two"));
}

TEST(PreTokenizerTest, EmptyMatchesDivideButYieldNothing) {
  EXPECT_THAT(Cut(SplitOn(R"({"Regex":"x*"})", "Isolated"), "aéxxb"),
              ElementsAre("a", "é", "xx", "b"));
  EXPECT_THAT(Cut(SplitOn(R"j({"Regex":"(?=[A-Z])"})j", "Isolated"), "oneTwoThree"),
              ElementsAre("one", "Two", "Three"));
}

TEST(PreTokenizerTest, PrefixSpaceComesBeforeEachPieceThatLacksOne) {
  const PreTokenizer gpt2 = Read(R"({"type":"ByteLevel","add_prefix_space":true})");
  EXPECT_THAT(Cut(gpt2, "hi you"), ElementsAre(" hi", " you"));
  EXPECT_THAT(Cut(gpt2, " hi"), ElementsAre(" hi"));
  EXPECT_THAT(Cut(gpt2, ""), ElementsAre());
  const PreTokenizer sequence = Read(R"({"type":"Sequence","pretokenizers":[
      {"type":"Digits","individual_digits":true},{"type":"ByteLevel"}]})");
  EXPECT_THAT(Cut(sequence, "ab12"), ElementsAre(" ab", " 1", " 2"));
}

TEST(PreTokenizerTest, DigitsStayTogetherUnlessIndividual) {
  const PreTokenizer digits = Read(R"({"type":"Sequence","pretokenizers":[
      {"type":"Digits"},{"type":"ByteLevel","add_prefix_space":false,"use_regex":false}]})");
  EXPECT_THAT(Cut(digits, "ab12½c"), ElementsAre("ab", "12½", "c"));
}

TEST(PreTokenizerTest, PatternThatBacktracksWithoutMeasureLeavesTheRestWhole) {
  const PreTokenizer hostile = SplitOn(R"({"Regex":"b|(?:a+)+$"})", "Isolated");
  std::string run(40, 'a');
  run += 'c';
  EXPECT_THAT(Cut(hostile, "b" + run + "b"), ElementsAre("b", run + "b"));
}

TEST(PreTokenizerTest, RefusesWhatItDoesNotRead) {
  const auto error = [](std::string_view json) {
    const auto read = PreTokenizer::Read(Json::Parse(json).value());
    EXPECT_FALSE(read.ok()) << json;
    return read.ok() ? Error{} : read.error();
  };
  const auto split = [&](std::string_view pattern) {
    return error(
        Format(R"({{"type":"Split","pattern":{{"Regex":"{}"}},"behavior":"Isolated"}})", pattern));
  };
  EXPECT_EQ(error("null").code, Code::kUnimplemented);
  EXPECT_THAT(error(R"({"type":"Metaspace"})").message, HasSubstr("Metaspace"));
  EXPECT_EQ(error(R"({"type":"Metaspace"})").code, Code::kUnimplemented);
  EXPECT_THAT(error(R"({"type":"Sequence","pretokenizers":[{"type":"ByteLevel"},
                        {"type":"Digits"}]})")
                  .message,
              HasSubstr("Digits after ByteLevel"));
  EXPECT_EQ(error(R"({"type":"Sequence"})").code, Code::kInvalidArgument);
  EXPECT_EQ(error(R"({"type":"ByteLevel","use_regex":3})").code, Code::kInvalidArgument);
  EXPECT_EQ(split("(").code, Code::kInvalidArgument);
  EXPECT_THAT(split("a(b").message, HasSubstr("a(b"));
  for (const char* construct :
       {R"([a&&b])", R"([a[b]])", R"(\\h)", R"(\\b)", R"(\\Qa)", R"([\\W])", "(*LIMIT_MATCH=1)a"}) {
    EXPECT_EQ(split(construct).code, Code::kUnimplemented) << construct;
  }
}

}  // namespace
}  // namespace divisi
