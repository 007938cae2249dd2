#include "divisi/model/bpe.h"

#include <gtest/gtest.h>

#include <map>
#include <string>

#include "divisi/core/clock.h"
#include "divisi/core/random.h"

namespace divisi {
namespace {

// A vocabulary of the bytes that grows by random merges of what it has.
struct RandomRules {
  std::array<TokenId, 256> byte_tokens;
  std::vector<Merge> merges;
};

RandomRules MakeRules(Random& random, int letters, int count) {
  RandomRules rules;
  for (int byte = 0; byte < 256; ++byte) rules.byte_tokens[byte] = byte;
  std::vector<std::string> texts;
  std::map<std::string, TokenId> ids;
  for (int byte = 0; byte < 256; ++byte) {
    texts.emplace_back(1, static_cast<char>(byte));
    ids[texts.back()] = byte;
  }
  const auto pick = [&]() -> TokenId {
    const int64_t grown = static_cast<int64_t>(texts.size()) - 256;
    const int64_t k = random.Between(0, letters + grown - 1);
    return static_cast<TokenId>(k < letters ? 'a' + k : 256 + k - letters);
  };
  for (int i = 0; i < count; ++i) {
    const TokenId left = pick();
    const TokenId right = pick();
    const std::string text = texts[left] + texts[right];
    const auto [entry, fresh] = ids.try_emplace(text, static_cast<TokenId>(texts.size()));
    if (fresh) texts.push_back(text);
    rules.merges.push_back({left, right, entry->second});
  }
  return rules;
}

// The definition, word for word: each round merges the leftmost pair of the lowest rank.
std::vector<TokenId> NaiveEncode(const RandomRules& rules, const std::string& piece) {
  std::map<std::pair<TokenId, TokenId>, size_t> ranks;
  for (size_t rank = 0; rank < rules.merges.size(); ++rank) {
    ranks[{rules.merges[rank].left, rules.merges[rank].right}] = rank;
  }
  std::vector<TokenId> ids;
  for (const char byte : piece) ids.push_back(rules.byte_tokens[static_cast<unsigned char>(byte)]);
  while (true) {
    size_t best = rules.merges.size();
    size_t place = 0;
    for (size_t i = 0; i + 1 < ids.size(); ++i) {
      const auto rank = ranks.find({ids[i], ids[i + 1]});
      if (rank != ranks.end() && rank->second < best) best = rank->second, place = i;
    }
    if (best == rules.merges.size()) return ids;
    ids[place] = rules.merges[best].merged;
    ids.erase(ids.begin() + place + 1);
  }
}

TEST(BytePairsTest, AgreesWithTheDefinition) {
  for (uint64_t seed = 0; seed < 400; ++seed) {
    Random random(seed);
    const int letters = static_cast<int>(random.Between(1, 4));
    const RandomRules rules = MakeRules(random, letters, static_cast<int>(random.Between(0, 60)));
    const BytePairs pairs(rules.byte_tokens, rules.merges);
    for (int round = 0; round < 8; ++round) {
      // Lengths on both sides of the change from scan to heap.
      std::string piece;
      for (int64_t i = random.Between(0, 120); i > 0; --i) {
        piece += static_cast<char>('a' + random.Between(0, letters - 1));
      }
      std::vector<TokenId> ids = {7};
      pairs.Append(piece, ids);
      std::vector<TokenId> expected = NaiveEncode(rules, piece);
      expected.insert(expected.begin(), 7);
      ASSERT_EQ(ids, expected) << "seed " << seed << ", piece " << piece;
    }
  }
}

TEST(BytePairsTest, LeavesOutBytesWithoutToken) {
  std::array<TokenId, 256> bytes;
  bytes.fill(BytePairs::kNoToken);
  bytes['a'] = 0;
  bytes['b'] = 1;
  const BytePairs pairs(bytes, {{0, 1, 2}});
  std::vector<TokenId> ids;
  pairs.Append("a?b?a", ids);
  EXPECT_EQ(ids, (std::vector<TokenId>{2, 0}));
}

TEST(BytePairsTest, LongPieceTakesTimeInProportion) {
  Random random(3);
  const RandomRules rules = MakeRules(random, 3, 500);
  const BytePairs pairs(rules.byte_tokens, rules.merges);
  const SteadyClock clock;
  const auto seconds = [&](size_t length) {
    std::string piece;
    for (size_t i = 0; i < length; ++i) piece += static_cast<char>('a' + random.Between(0, 2));
    std::vector<TokenId> ids;
    const Seconds start = clock.Now();
    pairs.Append(piece, ids);
    return (clock.Now() - start) / Seconds(1);
  };
  seconds(100'000);  // Warms up.
  const double part = seconds(50'000);
  const double whole = seconds(1'600'000);  // 32 times the bytes; quadratic work would take 1,024.
  EXPECT_LT(whole, 320 * part) << "seconds " << part << " and " << whole;
}

}  // namespace
}  // namespace divisi
