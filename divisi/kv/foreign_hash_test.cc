#include "divisi/kv/foreign_hash.h"

#include <gtest/gtest.h>

#include <numeric>

namespace divisi {
namespace {

std::vector<TokenId> Tokens(TokenId first, size_t count) {
  std::vector<TokenId> tokens(count);
  std::iota(tokens.begin(), tokens.end(), first);
  return tokens;
}

std::string FirstDigest(const VllmContext& context) {
  return Hex(VllmDigests(VllmRoot("0"), context, Tokens(0, 16), 16)[0]);
}

// Digests and numbers below were computed by other code, from the rules of each engine.
TEST(VllmHashTest, GivesTheGoldenDigests) {
  EXPECT_EQ(Hex(VllmRoot("0")), "4e1195df020de59e0d65a33a4279f1183e7ae4e5d980e309f8b55adff2e61c3e");
  const auto digests = VllmDigests(VllmRoot("0"), {}, Tokens(0, 47), 16);
  ASSERT_EQ(digests.size(), 2u);  // The third block is not full.
  EXPECT_EQ(Hex(digests[0]), "d830de3d42c00f25a2949b5d12d98642664a44872c1614c5b0147556276afc9c");
  EXPECT_EQ(Hex(digests[1]), "fedd9e4abebebbe6f6cf96b682f08d316063fe2f22a5c552192dd62904fcccac");
  EXPECT_EQ(VllmEventHash(digests[0]), EventHash(uint64_t{12687895063098490012u}));
  EXPECT_EQ(VllmEventHash(digests[1]), EventHash(uint64_t{1814341696565857452u}));
}

TEST(VllmHashTest, GivesTheGoldenDigestsOfTheDefaultSeed) {
  EXPECT_EQ(Hex(VllmRoot(kVllmDefaultSeed)),
            "9bd96a485ad84efdafb72ee48a1d7a69bcead0f8f0433173941b276b9581eef0");
  const auto digests = VllmDigests(VllmRoot(kVllmDefaultSeed), {}, Tokens(0, 32), 16);
  EXPECT_EQ(Hex(digests[0]), "dc918a88b139e5afe60b88eda27508d4aee16c10fdc354791efea06206ac0749");
  EXPECT_EQ(Hex(digests[1]), "c300ec275d7bf08af8fc63e76cdc0086911bbc7091e03c5cf892553bef84ef0c");
  EXPECT_EQ(VllmEventHash(digests[0]), EventHash(uint64_t{2233398808101521225u}));
  EXPECT_EQ(VllmEventHash(digests[1]), EventHash(uint64_t{17911472383915781900u}));
}

TEST(VllmHashTest, GivesTheGoldenDigestsOfExtras) {
  EXPECT_EQ(FirstDigest({.lora_name = "my-lora"}),
            "8b4227ad680a61cde1060f9e82d7d2994ea655458dd28e17c756e32d62e77a73");
  EXPECT_EQ(FirstDigest({.cache_salt = "salt"}),
            "ba548bc465821c2e9b6a60ed95bf1a7bf56d08e438e8bcd7758f29086c085ab8");
  EXPECT_EQ(FirstDigest({.media = {{"abcd", 4, 3}}}),
            "19b9a3aa4548bc05f61f1f6568d5263a7c2956d045f15b48d585468826453cf3");
}

TEST(VllmHashTest, ExtrasBelongToTheirBlocks) {
  const auto digests = [](const VllmContext& context) {
    return VllmDigests(VllmRoot("0"), context, Tokens(0, 48), 16);
  };
  const auto plain = digests({});
  // An item over the second and third block leaves the first as it is, and tells where it begins.
  const auto media = digests({.media = {{"abcd", 30, 4}}});
  EXPECT_EQ(media[0], plain[0]);
  EXPECT_NE(media[1], plain[1]);
  EXPECT_NE(media[2], digests({.media = {{"abcd", 31, 3}}})[2]);
  EXPECT_EQ(digests({.media = {{"abcd", 48, 4}}}), plain);
  // The offset is no part of what versions before 0.19 hashed.
  EXPECT_EQ(digests({.media = {{"abcd", 0, 4}}, .media_offsets = false})[0],
            digests({.media = {{"abcd", 1, 4}}, .media_offsets = false})[0]);
  // Only the first block has the salt, and its children inherit it by their parent.
  EXPECT_NE(digests({.cache_salt = "a"})[2], plain[2]);
  // vLLM does not tag its strings: one that is a LoRA's name equals one that is a salt.
  EXPECT_EQ(digests({.lora_name = "a"})[0], digests({.cache_salt = "a"})[0]);
  EXPECT_NE(digests({.embeddings = {plain[0], plain[1], plain[2]}})[0], plain[0]);
}

TEST(SglangHashTest, GivesTheGoldenNumbers) {
  const std::vector<EventHash> expected = {EventHash(int64_t{8635429971592222890}),
                                           EventHash(int64_t{1256577331724852459}),
                                           EventHash(int64_t{5689809685380680247})};
  EXPECT_EQ(ForeignKeys({.scheme = HashScheme::kSglang}, {}, Tokens(1, 48)), expected);
  EXPECT_EQ(SglangEventHash(SglangDigests(Tokens(0, 1), 1)[0]),
            EventHash(int64_t{-2360060374177730597}));
  EXPECT_EQ(SglangImageToken((uint64_t{5} << 30) + 7), 1'000'007);
}

TEST(DynamoHashTest, GivesTheGoldenNumbers) {
  EXPECT_EQ(DynamoLocalHash(Tokens(0, 16)), 15310707395893867146u);
  EXPECT_EQ(DynamoLocalHash(Tokens(16, 16)), 15292316782987903195u);
  const std::vector<EventHash> expected = {EventHash(uint64_t{15310707395893867146u}),
                                           EventHash(uint64_t{13769157705258532664u})};
  EXPECT_EQ(ForeignKeys({.scheme = HashScheme::kDynamo}, {}, Tokens(0, 40)), expected);
  EXPECT_EQ(DynamoLocalHash(Tokens(0, 16), {2, 1}), DynamoLocalHash(Tokens(0, 16), {1, 2}));
}

TEST(ForeignKeysTest, SpeakInTheEngineForm) {
  const auto tokens = Tokens(0, 32);
  const auto numbers = ForeignKeys({.seed = "0"}, {}, tokens);
  const auto bytes = ForeignKeys({.seed = "0", .digest_bytes = true}, {}, tokens);
  ASSERT_EQ(numbers.size(), 2u);
  EXPECT_EQ(bytes[1].bytes().size(), 32u);
  EXPECT_EQ(bytes[1].Short(), numbers[1].number());
  EXPECT_FALSE(bytes[1] == numbers[1]);

  const BlockKey root = RootKey({.adapter = "a"});
  const auto own = ForeignKeys({.scheme = HashScheme::kDivisi, .root = root}, {}, tokens);
  EXPECT_EQ(own[0].Key(), PageKey(root, std::span(tokens).first(16)));
  EXPECT_EQ(numbers[0].Key(), std::nullopt);
}

}  // namespace
}  // namespace divisi
