// Which pages one tier holds, in the order in which it would give them up.
//
//     Reserve --> arriving --Publish--> present --Remove--> gone
//                 arriving --Cancel---> gone
//                                       present --Remove while pinned--> hidden --last Unpin-->
//                                       gone
//
// Only present pages are offered: one that is being written is not there yet, and one that was
// given up while somebody reads it is not there any more, though both take room.
//
// Invariants, checked by Verify():
//   1. arriving + present + hidden = size() <= capacity; pages() of each state agree with counts.
//   2. The order holds exactly the present pages without pins, each under its rank.
//   3. A hidden page has pins, an arriving one has none.
// Operations take logarithmic time; none searches, so a tier whose pages are all pinned says at
// once that it has no victim.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <unordered_map>
#include <utility>
#include <vector>

#include "divisi/kv/block_key.h"
#include "divisi/kv/eviction_order.h"

namespace divisi {

class TierIndex {
 public:
  explicit TierIndex(int64_t capacity) : capacity_(capacity) {}

  // Room for a page that is on its way. False, and no change, when the tier knows it or is full.
  bool Reserve(const BlockKey& key);
  // Requires: the page is arriving.
  void Publish(const BlockKey& key, const EvictionRank& rank);
  void Cancel(const BlockKey& key);

  // One reader more or less. Unpin is true when the page was hidden and is now gone.
  // Requires: Pin: present. Unpin: pinned.
  void Pin(const BlockKey& key);
  bool Unpin(const BlockKey& key);

  // Another rank for a present page; nothing for others.
  void Rerank(const BlockKey& key, const EvictionRank& rank);

  // The page is no longer offered. True when it is gone, false when readers keep it a while.
  // Requires: present.
  bool Remove(const BlockKey& key);

  // All present pages. Those that are gone, in the order in which they would have gone; readers
  // keep the others hidden.
  std::vector<BlockKey> RemoveAll();

  struct Victim {
    BlockKey key;
    EvictionRank rank;
  };
  // The page that goes first; none when no page can go.
  std::optional<Victim> First() const;

  bool Has(const BlockKey& key) const;  // Present.
  bool Knows(const BlockKey& key) const { return pages_.contains(key); }
  bool Pinned(const BlockKey& key) const;

  int64_t capacity() const { return capacity_; }
  int64_t size() const { return static_cast<int64_t>(pages_.size()); }
  bool full() const { return size() >= capacity_; }
  int64_t arriving() const { return arriving_; }
  int64_t present() const { return present_; }
  int64_t pinned() const { return pinned_; }  // Pages with pins.

  void Verify() const;

 private:
  enum class State : uint8_t { kArriving, kPresent, kHidden };
  struct Page {
    State state = State::kArriving;
    int64_t pins = 0;
    EvictionRank rank;
  };
  Page& At(const BlockKey& key, State state);

  int64_t capacity_;
  int64_t arriving_ = 0;
  int64_t present_ = 0;
  int64_t pinned_ = 0;
  std::unordered_map<BlockKey, Page, BlockKeyHash> pages_;  // Never iterated to decide.
  std::set<std::pair<EvictionRank, BlockKey>> order_;
};

}  // namespace divisi
