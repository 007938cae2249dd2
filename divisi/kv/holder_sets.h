// Which holders have a page and in which tiers, in 16 bytes: up to five holders are listed there,
// more are bit masks in a block of 128 bytes beside it, so that a page with many holders is read
// as few words. A holder is a slot, 0 .. kHolderSlots - 1.
//
// A holder may announce a page in one tier again (a chunked offload does): announcements are
// counted, to 15, and the page is there until as many were withdrawn. A count of more is forgotten,
// which makes the page leave earlier, never later. Of listed holders counts are in the list, of
// masks those above one are in a table of their own, with up to 32 bytes for each (page, holder)
// that has any; when it is full they aren't counted.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "divisi/core/huge_memory.h"
#include "divisi/plan/kv_tiers.h"

namespace divisi {

inline constexpr int kHolderSlots = 256;
inline constexpr int kSlotWords = kHolderSlots / 64;
using SlotMask = std::array<uint64_t, kSlotWords>;

struct HolderSet {
  static constexpr int kListed = 5;
  static constexpr uint8_t kShared = 255;  // In `size`: counts[0..1] are a block's number.

  uint8_t size = 0;
  std::array<uint8_t, kListed> slots{};
  std::array<uint16_t, kListed> counts{};  // 4 bits a tier, the device's lowest.

  bool shared() const { return size == kShared; }
  bool empty() const { return size == 0; }
  uint32_t block() const { return counts[0] | uint32_t{counts[1]} << 16; }
};
static_assert(sizeof(HolderSet) == 16);

// Announcements beyond the first, by (block, slot): 4 bits a tier as in HolderSet. Grows by
// doubling, to twice as many entries as `most`.
class ExtraCounts {
 public:
  explicit ExtraCounts(int64_t most);
  uint16_t Get(uint32_t block, uint8_t slot) const;
  // 0 erases. False, and no change, when the table is full.
  bool Set(uint32_t block, uint8_t slot, uint16_t counts);
  int64_t size() const { return size_; }
  Bytes bytes() const { return Bytes(static_cast<int64_t>(entries_.size() * sizeof(uint64_t))); }

 private:
  size_t Home(uint64_t name) const { return (name * 0x9e3779b97f4a7c15) >> shift_; }
  size_t Position(uint64_t name) const;  // Its entry, or the free one where it would go.
  void EraseAt(size_t position);
  void Grow(size_t entries);

  int64_t most_;
  int64_t size_ = 0;
  int shift_ = 0;
  std::vector<uint64_t> entries_;  // (block << 8 | slot) << 16 | counts; 0: free.
};

// Bit h of word h / 64 for each of the tiers: what slots 0 .. 127 have is one cache line.
struct alignas(64) SharedSet {
  std::array<std::array<uint64_t, kTiers>, kSlotWords> words;
};

class HolderSets {
 public:
  enum class Added { kHolder, kTier, kAgain, kRefused };
  enum class Removed { kHolder, kTier, kOnce, kAbsent };

  // shared: sets of more than five holders at once. again: announcements counted beyond the first.
  // Errors: kResourceExhausted.
  static Result<HolderSets> Create(int64_t shared, int64_t again);

  Added Add(HolderSet& set, uint8_t slot, Tier tier);
  Removed Remove(HolderSet& set, uint8_t slot, Tier tier);
  // Takes out the slots that are not in `live`.
  void Keep(HolderSet& set, const SlotMask& live);

  // Announcements of `tier` by `slot` that were not withdrawn.
  int Count(const HolderSet& set, uint8_t slot, Tier tier) const;
  // Who has the page in any tier.
  SlotMask Holders(const HolderSet& set) const;

  void Prefetch(const HolderSet& set, int words) const {
    if (!set.shared()) return;
    __builtin_prefetch(&Shared(set));
    if (words > 2) __builtin_prefetch(&Shared(set).words[2]);
  }
  const SharedSet& Shared(const HolderSet& set) const { return Blocks()[set.block()]; }

  int64_t shared() const { return shared_; }  // Blocks in use.
  int64_t counted_again() const { return extra_.size(); }
  int64_t uncounted() const { return uncounted_; }  // Announcements, since the start.
  Bytes bytes() const;                              // Blocks that were ever used, and counts.

 private:
  HolderSets(HugeMemory blocks, int64_t most, int64_t again)
      : blocks_(std::move(blocks)), most_(most), extra_(again) {}
  SharedSet* Blocks() const { return reinterpret_cast<SharedSet*>(blocks_.data()); }
  bool MakeShared(HolderSet& set);
  void ListAgain(HolderSet& set);
  Added AddShared(HolderSet& set, uint8_t slot, Tier tier);
  Removed RemoveShared(HolderSet& set, uint8_t slot, Tier tier);
  void SetExtra(uint32_t block, uint8_t slot, uint16_t counts);

  HugeMemory blocks_;
  int64_t most_;
  int64_t shared_ = 0;
  uint32_t fresh_ = 0;          // Blocks from here on were never used.
  std::vector<uint32_t> free_;  // Of those before.
  ExtraCounts extra_;
  int64_t uncounted_ = 0;
};

}  // namespace divisi
