#include "divisi/serve/text_output.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>

#include "divisi/core/format.h"
#include "divisi/core/random.h"
#include "divisi/serve/byte_tokenizer.h"

namespace divisi {
namespace {

using testing::ElementsAre;

// Where the whole text ends by its stop strings, found by looking everywhere.
std::optional<StopMatcher::Found> FindStop(const std::string& text,
                                           const std::vector<std::string>& stops) {
  for (size_t end = 1; end <= text.size(); ++end) {
    size_t longest = 0;
    for (const std::string& stop : stops) {
      if (stop.size() <= end && text.compare(end - stop.size(), stop.size(), stop) == 0) {
        longest = std::max(longest, stop.size());
      }
    }
    if (longest > 0) return StopMatcher::Found{true, end - longest, end};
  }
  return std::nullopt;
}

// The longest end of `text` that a stop string begins with.
size_t HeldBack(const std::string& text, const std::vector<std::string>& stops) {
  size_t held = 0;
  for (const std::string& stop : stops) {
    for (size_t k = 1; k < stop.size() && k <= text.size(); ++k) {
      if (text.compare(text.size() - k, k, stop, 0, k) == 0) held = std::max(held, k);
    }
  }
  return held;
}

std::string RandomStop(Random& random) {
  static const std::vector<std::string> kParts{"a", "b", "ab", "EN", "D", "\xE6\x97\xA5",
                                               " ", "aa"};
  std::string stop;
  const int64_t parts = random.Between(1, 4);
  for (int64_t i = 0; i < parts; ++i) {
    stop += kParts[static_cast<size_t>(random.Between(0, static_cast<int64_t>(kParts.size()) - 1))];
  }
  return stop;
}

TokenId RandomToken(Random& random) {
  if (random.Chance(0.6))
    return static_cast<TokenId>("abEND \xE6\x97\xA5"[random.Between(0, 8)] & 0xFF);
  if (random.Chance(0.9)) return static_cast<TokenId>(kByteTokenizerLonger + random.Between(0, 7));
  return random.Chance(0.5) ? kByteTokenizerEnd : static_cast<TokenId>(random.Between(0, 255));
}

// One random run against the twin that has the whole text before it.
void CompareWithTwin(const Tokenizer& tokenizer, uint64_t seed) {
  Random random(seed);
  TextOutput::Options options{.include_stop = random.Chance(0.3),
                              .skip_special_tokens = random.Chance(0.7),
                              .keep_tokens = true};
  for (int64_t i = random.Between(0, 3); i > 0; --i) options.stop.push_back(RandomStop(random));
  std::vector<TokenId> ids;
  for (int64_t i = random.Between(0, 40); i > 0; --i) ids.push_back(RandomToken(random));
  const std::string whole = tokenizer.Decode(ids, options.skip_special_tokens);
  const auto stop = FindStop(whole, options.stop);
  const size_t cut = !stop ? whole.size() : options.include_stop ? stop->end : stop->begin;

  TextOutput output(tokenizer, options);
  StreamDecoder plain(tokenizer, options.skip_special_tokens);
  std::string text;     // Given out.
  std::string decoded;  // All so far.
  std::vector<TokenId> tokens;
  std::vector<TokenId> expected_tokens;
  bool stopped = false;
  const auto take = [&](const TextOutput::Piece& piece) {
    text += piece.text;
    for (const auto& token : piece.tokens) tokens.push_back(token.sampled.token);
    stopped = piece.stopped;
    ASSERT_TRUE(whole.starts_with(text)) << "seed " << seed;
  };
  for (const TokenId id : ids) {
    if (!stop || decoded.size() < cut) expected_tokens.push_back(id);
    decoded += plain.Push(id);
    take(output.Push({.token = id}));
    if (stopped) break;
    ASSERT_EQ(text.size(), decoded.size() - HeldBack(decoded, options.stop)) << "seed " << seed;
  }
  if (!stopped) take(output.Finish());
  EXPECT_EQ(stopped, stop.has_value()) << "seed " << seed;
  EXPECT_EQ(text, whole.substr(0, cut)) << "seed " << seed;
  EXPECT_EQ(tokens, expected_tokens) << "seed " << seed;
}

TEST(TextOutput, AgreesWithATwinThatSeesTheWholeText) {
  const Tokenizer tokenizer = MakeByteTokenizer();
  for (uint64_t seed = 0; seed < 20000 && !testing::Test::HasFailure(); ++seed) {
    CompareWithTwin(tokenizer, seed);
  }
}

TEST(TextOutput, HoldsBackOnlyWhatMayBecomeAStopString) {
  const Tokenizer tokenizer = MakeByteTokenizer();
  TextOutput output(tokenizer, {.stop = {"END"}});
  EXPECT_EQ(output.Push({.token = 'x'}).text, "x");
  EXPECT_EQ(output.Push({.token = 'E'}).text, "");
  EXPECT_EQ(output.Push({.token = 'E'}).text, "E");
  EXPECT_EQ(output.Push({.token = 'N'}).text, "");
  EXPECT_EQ(output.Push({.token = 'x'}).text, "ENx");
  EXPECT_EQ(output.Push({.token = 'E'}).text, "");
  EXPECT_EQ(output.Finish().text, "E");
}

TEST(TextOutput, TokensComeWithTheirTextAndOffsetsInCharacters) {
  const Tokenizer tokenizer = MakeByteTokenizer();
  TextOutput output(tokenizer, {.stop = {"ab"}, .keep_tokens = true});
  EXPECT_TRUE(output.Push({.token = 0xE6}).tokens.empty());
  EXPECT_TRUE(output.Push({.token = 0x97}).tokens.empty());
  const auto piece = output.Push({.token = 0xA5});
  ASSERT_EQ(piece.tokens.size(), 3u);
  EXPECT_EQ(piece.tokens[2].text_offset, 0);
  EXPECT_TRUE(output.Push({.token = 'a'}).tokens.empty());
  const auto next = output.Push({.token = 'x'});
  ASSERT_EQ(next.tokens.size(), 2u);
  EXPECT_EQ(next.tokens[0].text_offset, 1);
  EXPECT_EQ(next.tokens[1].text_offset, 2);
  output.Push({.token = 'a'});
  EXPECT_TRUE(output.Push({.token = 'b'}).tokens.empty());
}

TEST(TextOutput, AnUnfinishedCharacterAtTheEndIsReplaced) {
  const Tokenizer tokenizer = MakeByteTokenizer();
  TextOutput output(tokenizer, {});
  EXPECT_EQ(output.Push({.token = 0xE6}).text, "");
  EXPECT_EQ(output.Finish().text, "\xEF\xBF\xBD");
}

TEST(StopMatcher, TheEarliestEndCountsThenTheLongest) {
  StopMatcher matcher({"bcd", "abc", "c"});
  const auto found = matcher.Push("xxabcd");
  EXPECT_TRUE(found.stopped);
  EXPECT_EQ(found.begin, 2u);
  EXPECT_EQ(found.end, 5u);
}

TEST(StopMatcher, FindsWhatOverlapsItself) {
  StopMatcher matcher({"aab"});
  EXPECT_FALSE(matcher.Push("aaa").stopped);
  EXPECT_EQ(matcher.HeldBytes(), 2u);
  const auto found = matcher.Push("b");
  EXPECT_TRUE(found.stopped);
  EXPECT_EQ(found.begin, 1u);
}

}  // namespace
}  // namespace divisi
