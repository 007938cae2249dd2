#include "divisi/kv/block_key.h"

#include <gtest/gtest.h>

#include <numeric>
#include <set>

namespace divisi {
namespace {

std::vector<TokenId> Tokens(size_t count, TokenId first) {
  std::vector<TokenId> tokens(count);
  std::iota(tokens.begin(), tokens.end(), first);
  return tokens;
}

// Both computed apart from this code, with Python's hashlib:
//   f = lambda b: struct.pack("<I", len(b)) + b
//   root = sha256(f(b"divisi.key-space.1") + f(b"\x01\x02") + f(b"") + f(b"bf16") +
//   f(b"t")).digest() sha256(f(b"divisi.page.1") + f(root) + f(struct.pack("<16I", *range(100,
//   116)))).hexdigest()
TEST(BlockKeyTest, MatchesAnIndependentHash) {
  const BlockKey root =
      RootKey({.model_fingerprint = {1, 2}, .page_format = "bf16", .tenant_salt = "t"});
  EXPECT_EQ(root.Hex(), "283a5f07eed5466e96a8a37d2f912792a22650b777d514ac07465cfef1c2fe2c");
  EXPECT_EQ(PageKey(root, Tokens(16, 100)).Hex(),
            "7090880228437544ac766c544997f701d322e034ae7236ede9fe61973098d327");
}

TEST(BlockKeyTest, EveryFieldOfTheKeySpaceCounts) {
  std::set<BlockKey> keys;
  keys.insert(RootKey({}));
  keys.insert(RootKey({.model_fingerprint = {'a'}}));
  keys.insert(RootKey({.adapter = "a"}));
  keys.insert(RootKey({.page_format = "a"}));
  keys.insert(RootKey({.tenant_salt = "a"}));
  // The same bytes cut elsewhere.
  keys.insert(RootKey({.adapter = "ab", .page_format = "c"}));
  keys.insert(RootKey({.adapter = "a", .page_format = "bc"}));
  EXPECT_EQ(keys.size(), 7u);
}

TEST(BlockKeyTest, NamesAllTokensUpToThePagesEnd) {
  const BlockKey root = RootKey({});
  const std::vector<TokenId> tokens = Tokens(64, 1);
  std::vector<BlockKey> keys;
  ExtendKeys(root, tokens, 4, keys);
  for (size_t changed = 0; changed < tokens.size(); ++changed) {
    std::vector<TokenId> other = tokens;
    other[changed] += 1000;
    std::vector<BlockKey> other_keys;
    ExtendKeys(root, other, 4, other_keys);
    for (size_t page = 0; page < 4; ++page) {
      EXPECT_EQ(keys[page] == other_keys[page], page < changed / kBlockTokens);
    }
  }
}

TEST(BlockKeyTest, ExtendingInStepsGivesTheSameKeys) {
  const std::vector<TokenId> tokens = Tokens(5 * kBlockTokens + 3, 7);
  std::vector<BlockKey> at_once;
  ExtendKeys(RootKey({}), tokens, 5, at_once);
  std::vector<BlockKey> in_steps;
  for (size_t pages = 1; pages <= 5; ++pages) ExtendKeys(RootKey({}), tokens, pages, in_steps);
  EXPECT_EQ(at_once, in_steps);
}

}  // namespace
}  // namespace divisi
