// What a node of the remote pool keeps: objects by key in one arena of memory, the least recently
// used giving way to new ones, of a chain of pages its end first, since those before it may be used
// without it, not it without them. Decides only; the bytes are others'.
//
// Chains are known as far as they lie here: with several nodes a page's next one may be elsewhere.
//
// An object's life:  placed --Publish--> visible --evicted, removed--> gone
//                       \--Abandon--> gone
// Only a visible object is found. While readers pin it, it is neither evicted nor, when removed,
// overwritten: a removed one is found no more, and its place is free when the last reader is done.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <unordered_map>
#include <utility>
#include <vector>

#include "divisi/core/units.h"
#include "divisi/kv/block_key.h"
#include "divisi/kv/store_message.h"

namespace divisi {

// Places begin at multiples of this: objects are aligned as pages of memory and of a disk are.
inline constexpr int64_t kStoreAlignment = 4096;

class StoreSpace {
 public:
  using Slot = uint64_t;  // Names one placed object; never reused.
  struct Object {
    Slot slot = 0;
    Bytes offset;
    Bytes length;
  };
  struct Placing {
    StoreStatus status = StoreStatus::kNoRoom;  // kOk, kPresent, kTooLarge or kNoRoom
    Object object;
  };

  // An object became visible, or is no longer.
  struct Change {
    BlockKey key;
    bool visible = false;
    friend bool operator==(const Change&, const Change&) = default;
  };

  // report: for TakeChanges.
  explicit StoreSpace(Bytes size, bool report = false);

  // A place for the object; what was used longest ago gives way, as little as needed.
  // kPresent: it is visible, or placed and not yet published.
  Placing Place(const BlockKey& key, Bytes length);
  // parent: the page before it in its chain, here or not; zeros: none.
  // Requires: placed, neither published nor abandoned.
  void Publish(Slot slot, const BlockKey& parent = {});
  // Nobody writes there any more, and it never was visible.
  void Abandon(Slot slot);

  // Marks the page as used, if it is here: one that follows it is put.
  void Touch(const BlockKey& key);
  // Marks it and the page before it as used and pins it, until Unpin of its slot.
  std::optional<Object> Read(const BlockKey& key);
  void Unpin(Slot slot);
  // Without marking it.
  bool Has(const BlockKey& key) const;

  bool Remove(const BlockKey& key);
  int64_t Clear();  // How many went.

  // Since the last call, in order.
  std::vector<Change> TakeChanges() { return std::exchange(changes_, {}); }

  Bytes size() const { return size_; }
  Bytes used() const { return used_; }
  int64_t objects() const { return static_cast<int64_t>(ends_.size() + followed_.size()); }
  int64_t placed() const { return placed_; }
  int64_t evictions() const { return evictions_; }

 private:
  enum class State { kPlaced, kVisible, kRemoved };
  struct Entry {
    BlockKey key;
    BlockKey parent;  // Where visible
    Bytes offset;
    Bytes length;
    Bytes space;  // Length, rounded up
    int64_t pins = 0;
    State state = State::kPlaced;
    uint64_t used = 0;  // Where visible: when, in uses of any
  };
  using Entries = std::unordered_map<Slot, Entry>;
  using ByUse = std::map<uint64_t, Slot>;  // The longest unused first

  std::optional<Bytes> Take(Bytes space);
  void Give(Bytes offset, Bytes space);
  bool EvictOne();
  std::optional<Slot> FirstUnread(const ByUse& slots) const;
  ByUse& ListOf(const Entry& entry) { return children_.contains(entry.key) ? followed_ : ends_; }
  void Use(Slot slot, Entry& entry);
  Entry* VisibleAt(const BlockKey& key);
  void Follow(const BlockKey& parent);
  void Unfollow(const BlockKey& parent);
  void Hide(Entries::iterator entry);
  void Drop(Entries::iterator entry);

  const Bytes size_;
  const bool report_;
  std::vector<Change> changes_;
  Bytes used_;
  int64_t placed_ = 0;
  int64_t evictions_ = 0;
  Slot last_slot_ = 0;
  Entries entries_;
  std::unordered_map<BlockKey, Slot, BlockKeyHash> slots_;        // Placed and visible
  std::unordered_map<BlockKey, int64_t, BlockKeyHash> children_;  // Visible ones, by parent
  // Visible: those that no visible one follows, and the others.
  ByUse ends_, followed_;
  uint64_t uses_ = 0;
  std::map<int64_t, int64_t> free_;                     // Offset to size; neighbours are joined
  std::set<std::pair<int64_t, int64_t>> free_by_size_;  // The same, (size, offset)
};

}  // namespace divisi
