#include "divisi/kv/state_key.h"

#include <gtest/gtest.h>

#include <array>
#include <set>
#include <vector>

namespace divisi {
namespace {

const KeySpace kSpace{.model_fingerprint = {1, 2}, .page_format = "bf16", .tenant_salt = "t"};
constexpr std::array<std::byte, 3> kContent{std::byte{5}, std::byte{6}, std::byte{7}};

// Computed apart from this code, with Python's hashlib, f and root as in block_key_test.cc:
//   sha256(f(b"divisi.image.1") + f(root) + f(b"\x05\x06\x07")).hexdigest()
//   sha256(f(b"divisi.state.1") + f(root) + f(struct.pack("<3I", 100, 101, 102)) +
//          f(struct.pack("<Q", 19)) + f(struct.pack("<Q", 4096)) +
//          f(struct.pack("<Q", 2))).hexdigest()
TEST(StateKeyTest, MatchesAnIndependentHash) {
  EXPECT_EQ(ImageKey(kSpace, kContent).Hex(),
            "abb9927303c14584718d6b909ea77ebaac22dec63031bc67ed5d97ae7777fa6b");
  EXPECT_EQ(StateKey(RootKey(kSpace), std::vector<TokenId>{100, 101, 102},
                     {.position = 19, .window = 4096, .update = 2})
                .Hex(),
            "ff0ae1bce3f507e7bc5483edaa7f069e5907d076499962833cf40f084da0a64e");
}

// Whatever a state depends on tells it from others, and from pages and images of the same bytes.
TEST(StateKeyTest, EverythingCounts) {
  const BlockKey root = RootKey(kSpace);
  const std::vector<TokenId> page(kBlockTokens, 7), rest{1, 2};
  const BlockKey first = PageKey(root, page);
  std::set<BlockKey> keys{root, first, ImageKey(kSpace, kContent), ImageKey({}, kContent),
                          ImageKey(kSpace, std::span(kContent).first(2))};
  keys.insert(StateKey(first, rest, {.position = 18}));
  keys.insert(StateKey(first, rest, {.position = 34}));
  keys.insert(StateKey(first, rest, {.position = 18, .window = 16}));
  keys.insert(StateKey(first, rest, {.position = 18, .update = 18}));
  keys.insert(StateKey(root, rest, {.position = 18}));
  keys.insert(StateKey(first, std::vector<TokenId>{2, 1}, {.position = 18}));
  keys.insert(StateKey(first, {}, {.position = 16}));
  keys.insert(StateKey(root, {}, {}));
  keys.insert(ImageKey(kSpace, std::as_bytes(std::span(first.bytes))));
  EXPECT_EQ(keys.size(), 14u);
}

}  // namespace
}  // namespace divisi
