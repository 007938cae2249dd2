// One worker's KV pages: who holds each, which content can be found again, and which page is given
// up when a new one is needed. It deals in numbers; the memory behind a page is the executor's.
//
// A page is free (nobody's, content worthless), referenced (held by one or more sequences), or
// cached (held by none, kept under its key until its place is needed).
//
//     free --Allocate--> referenced --Publish--> referenced, findable
//     referenced --last Release--> cached where it has a key, else free
//     cached --Reference--> referenced;  cached --evicted by Allocate--> referenced by the new
//     owner
//
// Eviction takes the page whose last reference went away first. Of the pages that one Release lets
// go, the later in the sequence counts as the earlier released: a chain loses its tail before its
// head, without which the tail could not be found.
//
// Invariants, checked by Verify():
//   1. free + cached + referenced = total, and each page is in exactly one of the three.
//   2. A key names at most one page, a page has at most one key, and both directions agree.
//   3. A cached page has a key; a free page has none.
//   4. Only referenced pages have a reference count above zero. A page is never released more often
//      than it was referenced (checked at Release).
// All operations take constant time per page.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "divisi/kv/block_key.h"

namespace divisi {

class BlockPool {
 public:
  explicit BlockPool(int64_t blocks);

  // A page with one reference and no content; evicts if none is free. Nothing when every page is
  // referenced. evicted: gets the key of the page that was given up, where there is one.
  std::optional<BlockId> Allocate(std::optional<BlockKey>* evicted = nullptr);

  // The page published under `key`, which the caller may then Reference.
  std::optional<BlockId> Find(const BlockKey& key) const;

  // One more holder. Requires: the page is cached or referenced.
  void Reference(BlockId block);

  // Each loses one holder. blocks: in sequence order. Requires: each is held by the caller.
  void Release(std::span<const BlockId> blocks);

  // Names the content of a page, once it is complete. False, and no change, when another page has
  // the key already: the first stays. Requires: the page is referenced and has no other key.
  bool Publish(BlockId block, const BlockKey& key);

  int64_t total() const { return static_cast<int64_t>(pages_.size()); }
  int64_t free() const { return static_cast<int64_t>(free_.size()); }
  int64_t cached() const { return cached_; }
  int64_t referenced() const { return total() - free() - cached(); }
  int64_t available() const { return free() + cached(); }  // What Allocate can give.
  int64_t evictions() const { return evictions_; }         // Since the start.
  int64_t references(BlockId block) const { return PageAt(block).references; }
  const std::optional<BlockKey>& key(BlockId block) const { return PageAt(block).key; }

  // CHECKs the invariants; time in proportion to the pages. For tests.
  void Verify() const;

 private:
  // A page's neighbours in the list of cached pages; the list is a ring through a sentinel, whose
  // index is total().
  struct Page {
    int64_t references = 0;
    std::optional<BlockKey> key;
    int64_t older = -1;
    int64_t newer = -1;
  };

  const Page& PageAt(BlockId block) const;
  Page& PageAt(BlockId block);
  void PushNewest(BlockId block);
  void Unlink(BlockId block);

  std::vector<Page> pages_;
  Page ring_;                  // Sentinel: `newer` is the oldest cached page.
  std::vector<BlockId> free_;  // The last in is the first out: it is the warmest in memory.
  int64_t cached_ = 0;
  int64_t evictions_ = 0;
  std::unordered_map<BlockKey, BlockId, BlockKeyHash> by_key_;  // Never iterated to decide.
};

}  // namespace divisi
