// Byte pair encoding: a piece begins as single bytes, and the neighbouring pair of the lowest rank
// is merged, the leftmost first, until no pair has a rank. Source: Sennrich et al. 2016,
// section 3.2; GPT-2's byte alphabet, Radford et al. 2019.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "divisi/core/ids.h"

namespace divisi {

// A rule: `left` and `right`, side by side, become `merged`. Its rank is its place in the list.
struct Merge {
  TokenId left = 0;
  TokenId right = 0;
  TokenId merged = 0;
};

// Immutable; safe from any thread.
class BytePairs {
 public:
  // byte_tokens: the id of each single byte, or kNoToken; such bytes are left out of the result, as
  // in the Hugging Face library. merges: of a pair that is listed twice the last rank counts.
  BytePairs(const std::array<TokenId, 256>& byte_tokens, const std::vector<Merge>& merges);
  static constexpr TokenId kNoToken = -1;

  // Appends the ids of `piece` to `ids`, in O(n log n).
  void Append(std::string_view piece, std::vector<TokenId>& ids) const;

 private:
  struct Rule {
    uint64_t pair = 0;
    uint32_t rank = 0;
    TokenId merged = kNoToken;
  };

  const Rule& Find(TokenId left, TokenId right) const;
  size_t SlotOf(uint64_t pair) const;
  void MergeShort(std::vector<TokenId>& ids, size_t first) const;
  void MergeLong(std::vector<TokenId>& ids, size_t first) const;

  std::array<TokenId, 256> byte_tokens_;
  std::vector<Rule> rules_;  // Open addressing; a power of two, at most half full.
  int shift_ = 0;            // 64 minus the logarithm of rules_.size().
};

}  // namespace divisi
