#include "divisi/model/bpe.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <queue>

#include "divisi/core/check.h"

namespace divisi {
namespace {

constexpr uint32_t kNoRank = std::numeric_limits<uint32_t>::max();
// Ids are not negative, so no pair has this value.
constexpr uint64_t kFree = std::numeric_limits<uint64_t>::max();
constexpr size_t kMinRules = 16;

// Up to this many bytes the scan for the lowest rank costs less than a heap does. Words are far
// below it; random letters, base64 and blank runs are above.
constexpr size_t kMaxScanned = 48;

uint64_t PairOf(TokenId left, TokenId right) {
  return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
}

}  // namespace

BytePairs::BytePairs(const std::array<TokenId, 256>& byte_tokens, const std::vector<Merge>& merges)
    : byte_tokens_(byte_tokens) {
  CHECK(merges.size() < kNoRank, "{} merges", merges.size());
  const size_t size = std::bit_ceil(std::max(kMinRules, 2 * merges.size()));
  shift_ = 64 - std::countr_zero(size);
  rules_.assign(size, {.pair = kFree, .rank = kNoRank});
  for (size_t rank = 0; rank < merges.size(); ++rank) {
    const Merge& merge = merges[rank];
    CHECK(merge.left >= 0 && merge.right >= 0 && merge.merged >= 0);
    const uint64_t pair = PairOf(merge.left, merge.right);
    rules_[SlotOf(pair)] = {pair, static_cast<uint32_t>(rank), merge.merged};
  }
}

// The slot that holds `pair`, or else the free one where it belongs.
size_t BytePairs::SlotOf(uint64_t pair) const {
  constexpr uint64_t kGolden = 0x9E3779B97F4A7C15;  // 2^64 over the golden ratio (Knuth, 6.4).
  const size_t mask = rules_.size() - 1;
  size_t slot = ((pair ^ pair >> 29) * kGolden) >> shift_;
  while (rules_[slot].pair != pair && rules_[slot].pair != kFree) slot = (slot + 1) & mask;
  return slot;
}

// The rule for the pair; its rank is kNoRank when there is none.
const BytePairs::Rule& BytePairs::Find(TokenId left, TokenId right) const {
  return rules_[SlotOf(PairOf(left, right))];
}

void BytePairs::Append(std::string_view piece, std::vector<TokenId>& ids) const {
  const size_t first = ids.size();
  for (const char byte : piece) {
    const TokenId id = byte_tokens_[static_cast<unsigned char>(byte)];
    if (id != kNoToken) ids.push_back(id);
  }
  const size_t count = ids.size() - first;
  if (count < 2) return;
  if (count <= kMaxScanned) {
    MergeShort(ids, first);
  } else {
    MergeLong(ids, first);
  }
}

// Merges ids[first, end) in place: ranks[i] is that of the pair i, i + 1.
void BytePairs::MergeShort(std::vector<TokenId>& ids, size_t first) const {
  TokenId* const token = ids.data() + first;
  size_t count = ids.size() - first;
  std::array<uint32_t, kMaxScanned> ranks;
  std::array<TokenId, kMaxScanned> merged;
  const auto look = [&](size_t i) {
    const Rule& rule = Find(token[i], token[i + 1]);
    ranks[i] = rule.rank;
    merged[i] = rule.merged;
  };
  for (size_t i = 0; i + 1 < count; ++i) look(i);
  while (count > 1) {
    const auto lowest = std::min_element(ranks.begin(), ranks.begin() + (count - 1));
    if (*lowest == kNoRank) break;
    const size_t i = lowest - ranks.begin();
    token[i] = merged[i];
    std::copy(token + i + 2, token + count, token + i + 1);
    std::copy(ranks.begin() + i + 1, ranks.begin() + (count - 1), ranks.begin() + i);
    std::copy(merged.begin() + i + 1, merged.begin() + (count - 1), merged.begin() + i);
    --count;
    if (i + 1 < count) look(i);
    if (i > 0) look(i - 1);
  }
  ids.resize(first + count);
}

// The same with a heap of pairs and a list of tokens: an entry of the heap is stale, and skipped,
// when its left token has changed or gone since.
void BytePairs::MergeLong(std::vector<TokenId>& ids, size_t first) const {
  struct Node {
    TokenId token;  // kNoToken once it is merged into its left neighbour.
    size_t previous;
    size_t next;
  };
  struct Candidate {
    uint32_t rank;
    size_t position;
    TokenId left;
    TokenId right;
    TokenId merged;
    bool operator<(const Candidate& other) const {  // The heap's top is the greatest.
      return rank != other.rank ? rank > other.rank : position > other.position;
    }
  };
  const size_t count = ids.size() - first;
  const size_t none = count;
  std::vector<Node> nodes(count);
  for (size_t i = 0; i < count; ++i) {
    nodes[i] = {ids[first + i], i == 0 ? none : i - 1, i + 1};
  }
  std::vector<Candidate> candidates;
  candidates.reserve(count);
  const auto candidate = [&](size_t i) {
    const TokenId right = nodes[nodes[i].next].token;
    const Rule& rule = Find(nodes[i].token, right);
    return Candidate{rule.rank, i, nodes[i].token, right, rule.merged};
  };
  for (size_t i = 0; i + 1 < count; ++i) {
    if (const Candidate pair = candidate(i); pair.rank != kNoRank) candidates.push_back(pair);
  }
  std::priority_queue<Candidate> heap(std::less<Candidate>(), std::move(candidates));
  // Each round but the stale ones removes a node, and a removal adds at most two candidates.
  while (!heap.empty()) {
    const Candidate top = heap.top();
    heap.pop();
    Node& left = nodes[top.position];
    if (left.token != top.left || left.next == none || nodes[left.next].token != top.right)
      continue;
    const size_t gone = left.next;
    left.token = top.merged;
    left.next = nodes[gone].next;
    nodes[gone].token = kNoToken;
    if (left.next != none) nodes[left.next].previous = top.position;
    const auto push = [&](size_t i) {
      if (const Candidate pair = candidate(i); pair.rank != kNoRank) heap.push(pair);
    };
    if (left.next != none) push(top.position);
    if (left.previous != none) push(left.previous);
  }
  size_t written = first;
  for (size_t i = 0; i != none; i = nodes[i].next) ids[written++] = nodes[i].token;
  ids.resize(written);
}

}  // namespace divisi
