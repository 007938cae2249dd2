// Which page leaves a full tier first: a rank made from what is known of the page, compared as a
// whole, so that a tier keeps its pages in order and never searches for a victim.
//
//   queue   pages that no request in the queue waits for go first, by recency and frequency; of
//           those waited for, the one with the farthest next use. With the whole future as queue
//           this is the offline optimum (Belady 1966).
//   lru     the least recently used.   lfu: the least often used, of these the least recent.
//
// At equal rank a chain's tail goes before its head. More holds by construction: a page of a chain
// is used no later, no oftener and no sooner next than its parent, so it never outranks it.
#pragma once

#include <bit>
#include <compare>
#include <cstdint>
#include <optional>

namespace divisi {

enum class EvictionPolicy { kLru, kLfu, kQueue };

// Each doubling of a page's uses counts as being used so many requests later. Chosen on the
// Mooncake conversation trace at 10,000 blocks and held against the synthetic one
// (bench/RESULTS.md); both are flat from 300 to 1000.
inline constexpr int64_t kDoublingWorth = 600;

// What a tier knows of a page when it ranks it.
struct EvictionFacts {
  std::optional<int64_t> next_use;  // Place in the queue, smaller is sooner; none: not waited for.
  int64_t last_use = 0;             // Number of the request, counted from the start.
  int64_t uses = 1;                 // >= 1
  int64_t position = 0;             // Pages before it in its chain.
  bool also_below = false;          // A lower tier holds it too: dropping it costs a read, no more.
};

// Of two pages the lesser goes first.
struct EvictionRank {
  int64_t group = 0;
  int64_t value = 0;
  int64_t recency = 0;
  int64_t head = 0;  // Greater nearer the chain's head.
  friend auto operator<=>(const EvictionRank&, const EvictionRank&) = default;
};

inline EvictionRank RankOf(EvictionPolicy policy, const EvictionFacts& facts) {
  constexpr int64_t kCopied = 0, kUnawaited = 1, kAwaited = 2;
  if (policy == EvictionPolicy::kLru) return {kUnawaited, 0, facts.last_use, -facts.position};
  if (policy == EvictionPolicy::kLfu) {
    return {kUnawaited, facts.uses, facts.last_use, -facts.position};
  }
  if (facts.next_use) return {kAwaited, -*facts.next_use, facts.last_use, -facts.position};
  const int64_t doublings = std::bit_width(static_cast<uint64_t>(facts.uses)) - 1;
  const int64_t worth = facts.last_use + kDoublingWorth * doublings;
  return {facts.also_below ? kCopied : kUnawaited, worth, facts.last_use, -facts.position};
}

}  // namespace divisi
