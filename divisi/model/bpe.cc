#include "divisi/model/bpe.h"

#include <algorithm>
#include <bit>
#include <functional>
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

// The same with a heap of pairs and a list of tokens. An entry of the heap is a rank and a place;
// it is stale, and skipped, when the pair at that place has another rank by now.
void BytePairs::MergeLong(std::vector<TokenId>& ids, size_t first) const {
  struct Node {
    TokenId token;
    uint32_t previous;
    uint32_t next;
    uint32_t rank;   // Of the pair with the next token; kNoRank also once this token is gone,
    TokenId merged;  // and what that pair becomes.
  };
  const size_t count = ids.size() - first;
  CHECK(count < kNoRank, "a piece of {} bytes", count);
  const uint32_t none = static_cast<uint32_t>(count);
  std::vector<Node> nodes(count);
  std::vector<uint64_t> entries;
  entries.reserve(count);
  const auto look = [&](uint32_t i) {
    Node& node = nodes[i];
    if (node.next == none) {
      node.rank = kNoRank;
      return false;
    }
    const Rule& rule = Find(node.token, nodes[node.next].token);
    node.rank = rule.rank;
    node.merged = rule.merged;
    return rule.rank != kNoRank;
  };
  const auto entry = [&](uint32_t i) { return static_cast<uint64_t>(nodes[i].rank) << 32 | i; };
  for (uint32_t i = 0; i < none; ++i) {
    nodes[i] = {ids[first + i], i == 0 ? none : i - 1, i + 1, kNoRank, kNoToken};
  }
  for (uint32_t i = 0; i < none; ++i) {
    if (look(i)) entries.push_back(entry(i));
  }
  std::priority_queue heap(std::greater<uint64_t>(), std::move(entries));
  // A round merges, and then adds at most two entries, or it removes a stale one: 3 * count rounds.
  while (!heap.empty()) {
    const auto place = static_cast<uint32_t>(heap.top());
    const auto rank = static_cast<uint32_t>(heap.top() >> 32);
    heap.pop();
    Node& left = nodes[place];
    if (left.rank != rank) continue;
    Node& gone = nodes[left.next];
    left.token = left.merged;
    left.next = gone.next;
    gone.rank = kNoRank;
    if (left.next != none) nodes[left.next].previous = place;
    if (look(place)) heap.push(entry(place));
    if (left.previous != none && look(left.previous)) heap.push(entry(left.previous));
  }
  size_t written = first;
  for (uint32_t i = 0; i != none; i = nodes[i].next) ids[written++] = nodes[i].token;
  ids.resize(written);
}

}  // namespace divisi
