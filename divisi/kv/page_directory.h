// Who holds which page in which tiers, as their events tell: the gateway's index over page keys. It
// answers for a prompt's chain of keys how many leading pages each holder has.
//
// It is a view, not the truth: what it shows may be gone. Tokens never depend on it, since a holder
// checks what it is asked for; CopyOdds learns how often it is right.
//
// Holders are lives of workers and stores (NodeId); one that comes back is another life and starts
// empty. Each has one of kHolderSlots slots. Forget and Clear take constant time: the slot is no
// longer asked about, so that all of its entries are gone at once, and serves again once a sweep,
// which goes a few places further with every update, has taken it out of every page.
//
// Memory never grows past what Create was told: a page past `pages`, a sixth holder of a page when
// `shared_pages` have more than five already, a promise past its table are refused and counted.
// Refusing the newest keeps what is there whole; to let the oldest go would tear holes into chains,
// and a chain is worth what comes before its first hole.
//
// A promise says that a holder is computing pages: until its time, requests with equal prefixes can
// follow it instead of computing them too. It is no evidence of a copy and counts in `promised`
// only; the holder's event replaces it.
//
// Pure: one thread, no clock; equal calls give equal answers.
//
// Invariants, checked by Verify():
//   1. A page has a holder; each of its holders' slots is live or waits for the sweep.
//   2. A live slot's pages are counted, and pages <= the capacity.
//   3. Each shared set belongs to one page, and has more than five holders.
//   4. No slot that is free occurs in any page.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "divisi/core/ids.h"
#include "divisi/core/units.h"
#include "divisi/kv/block_key.h"
#include "divisi/kv/chain_search.h"
#include "divisi/kv/copy_odds.h"
#include "divisi/kv/holder_sets.h"
#include "divisi/kv/key_table.h"
#include "divisi/plan/route.h"

namespace divisi {

// The key of a page that a foreign engine names by 64 bits, or by a digest of up to 32 bytes, whose
// first bytes are taken. Keys of our own and those of 32 bytes never meet those of 64 bits, but by
// a chance of 2^-192. Engines that hash otherwise belong in directories of their own.
BlockKey KeyOfHash(uint64_t hash);
BlockKey KeyOfHash(std::span<const uint8_t> digest);

struct DirectoryOptions {
  int64_t pages = 10'000'000;  // Distinct keys. At least the sum of all holders' tiers.
  int64_t shared_pages = 0;    // Of those, with more than five holders; 0: all.
  uint64_t seed = 0;           // Of the hash table: a process's secret where strangers choose keys.
};

// One holder's part of a chain, in leading pages; see ChainSearch for what it means where pages are
// missing in the middle.
struct HolderMatch {
  NodeId holder;
  // [t]: pages that are each in tier t or a faster one. Thus pages[0] can be used where they are,
  // pages[t] - pages[t - 1] come from tier t at worst, and pages.back() are there in any tier.
  std::array<int32_t, kTiers> pages{};
  int32_t promised = 0;  // Those that are there or promised; at least pages.back().
};

struct DirectoryStats {
  int64_t pages = 0;  // Keys, those of forgotten holders too until they are swept.
  int64_t pairs = 0;  // (page, holder), of live holders.
  int64_t shared_pages = 0;
  int64_t promises = 0;  // Pages with promises, expired ones too until they are swept.
  int64_t holders = 0;
  int64_t unswept_slots = 0;
  Bytes bytes;  // All memory, reserved or used.
  // Since the start.
  int64_t refused_pages = 0;  // Past `pages`; remedy: a larger capacity.
  int64_t refused_holders = 0;
  int64_t refused_promises = 0;
  int64_t uncounted = 0;  // Announcements that were not counted; see HolderSets.
  int64_t unknown_removals = 0;
  int64_t strangers = 0;     // Updates of lives that aren't holders.
  int64_t looked_pages = 0;  // By Find.
};

class PageDirectory {
 public:
  // Errors: kResourceExhausted.
  static Result<PageDirectory> Create(const DirectoryOptions& options);
  PageDirectory(PageDirectory&&) = default;
  PageDirectory& operator=(PageDirectory&&) = default;

  // A new holder, empty. Of one that is there: nothing changes.
  // Errors: kResourceExhausted when kHolderSlots lives are there.
  // Takes time in proportion to the capacity when every slot waits for the sweep.
  Result<void> Join(NodeId holder);
  // Drops all that the holder has, and the holder. Of a stranger: nothing.
  void Forget(NodeId holder);
  // Drops all that the holder has (cleared, or to be told anew from a snapshot); what was learned
  // of it stays.
  void Clear(NodeId holder);

  // What the holder announced, withdrew, or promised to have before `until`. Announcements are
  // counted by tier: as many withdrawals end them. Of a stranger: counted, nothing else.
  void Stored(NodeId holder, Tier tier, std::span<const BlockKey> keys);
  void Removed(NodeId holder, Tier tier, std::span<const BlockKey> keys);
  void Promise(NodeId holder, std::span<const BlockKey> keys, Seconds until, Seconds now);
  // It will not have them after all. What it did not promise, and of a stranger: nothing.
  void Break(NodeId holder, std::span<const BlockKey> keys);

  // How far each holder has the chain `keys`, in order of slots: O(holders log(pages)) looks.
  std::vector<HolderMatch> Find(std::span<const BlockKey> keys, Seconds now);
  // The same of one holder, each page looked at up to the first that is missing: exact whatever is
  // missing. Nothing of a stranger.
  HolderMatch FindExactly(NodeId holder, std::span<const BlockKey> keys, Seconds now);

  // A request used the holder's copies: of `shown` pages that the directory showed in `tier`,
  // `there` were. 0 shown: nothing was learned.
  void Used(NodeId holder, Tier tier, int64_t shown, int64_t there);
  // What was learned: the odds of a copy, and as the route estimate takes them. Of a stranger: what
  // is assumed.
  double Odds(NodeId holder, Tier tier) const;
  CopyChances Chances(NodeId holder) const;

  // Goes on with the sweep by up to `places`; for idle times, updates do so themselves. True: no
  // slot waits.
  bool Sweep(int64_t places);

  int64_t pages_of(NodeId holder) const;  // 0 of a stranger.
  // Of them, those in each tier; one may lie in several.
  std::array<int64_t, kTiers> tier_pages_of(NodeId holder) const;
  DirectoryStats stats() const;
  void Verify() const;

 private:
  static constexpr int kLevels = kTiers + 1;  // The last: promises too.
  // Pages whose misses overlap: more than a core can have under way.
  static constexpr size_t kGroup = 32;

  enum class SlotState : uint8_t { kFree, kLive, kUnswept };
  struct Slot {
    SlotState state = SlotState::kFree;
    NodeId holder;
    uint32_t life = 0;  // Of this use of the slot; the slot's number is in its low bits.
    int64_t pages = 0;
    std::array<int64_t, kTiers> by_tier{};
    int64_t swept_at = 0;  // The count of swept places at which it is free.
    CopyOdds odds;
  };
  // Who promised a page; a life of 0 is nobody. A third takes the place of the first to end.
  struct Promises {
    std::array<double, 2> until{};  // Seconds
    std::array<uint32_t, 2> lives{};
  };
  using Pages = KeyTable<HolderSet>;
  using PromiseTable = KeyTable<Promises>;

  PageDirectory(Pages pages, HolderSets sets, PromiseTable promises);
  int SlotOf(NodeId holder) const;  // -1: a stranger.
  Result<int> TakeSlot();
  void Occupy(int slot, NodeId holder);
  void Retire(int slot);
  template <typename Apply>
  void ForEachPage(std::span<const BlockKey> keys, Apply apply);
  void StoreOne(int slot, Tier tier, const BlockKey& key, const Pages::Place& place);
  void RemoveOne(int slot, Tier tier, const BlockKey& key, const Pages::Place& place);
  Pages::Index InsertPage(const BlockKey& key, const Pages::Place& place);
  void SweepPlace(Pages::Index index);
  void FreeSweptSlots();

  bool Counts(const Promises& promises, int entry, Seconds now) const;
  void PromiseOne(uint32_t life, const BlockKey& key, Seconds until, Seconds now);
  void Fulfil(uint32_t life, const BlockKey& key);
  void SweepPromises(int64_t places, Seconds now);
  void VerifySlots(const std::array<int64_t, kHolderSlots>& pages) const;

  template <int kWords>
  std::vector<HolderMatch> FindIn(std::span<const BlockKey> keys, Seconds now);
  template <int kWords>
  using Masks = LevelMasks<kLevels, kWords>;
  template <int kWords>
  Masks<kWords> LiveMasks() const;
  template <int kWords>
  void Look(std::span<const BlockKey* const> keys, Seconds now,
            std::span<Masks<kWords>> masks) const;
  template <int kWords>
  void ReadSet(const HolderSet& set, Masks<kWords>& masks) const;
  template <int kWords>
  void LookForPromises(std::span<const BlockKey* const> keys, Seconds now,
                       std::span<Masks<kWords>> masks) const;

  Pages pages_;
  HolderSets sets_;
  PromiseTable promises_;
  std::array<Slot, kHolderSlots> slots_;
  std::unordered_map<uint64_t, uint8_t> by_life_;  // Never iterated.
  SlotMask live_{};
  int unswept_ = 0;
  int64_t swept_ = 0;       // Places, since the start; the next is swept_ % places.
  int64_t first_free_ = 0;  // The least swept_at of slots that wait.
  int64_t promises_swept_ = 0;
  uint32_t lives_ = 0;
  // Scratch, for as many words of holders as a search asks about.
  std::tuple<ChainSearch<kLevels, 1>, ChainSearch<kLevels, 2>, ChainSearch<kLevels, kSlotWords>>
      searches_;
  DirectoryStats counted_;  // Only what is counted since the start.
};

}  // namespace divisi
