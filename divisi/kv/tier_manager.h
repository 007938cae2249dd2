// Decides where a worker's KV pages are kept below the device: which are saved to host memory,
// which of those go on to the disk, which come back before they are needed, and which are dropped.
// Pure: it takes what happened and gives actions and events; drivers carry the actions out and
// report each copy's end to Done.
//
//     device --Complete--> host --eviction, if admitted--> disk --awaited--> host
//                           `--> pool (once, where there is one)
//
// To the pool goes each page that it is not known to have, in the order in which they became
// complete, a few at a time; what host memory gave up before its turn is left out. Without host
// memory, or where it has no room, pages go there from the device.
//
// A copy is visible when it is done, never before. Saves come from device pages that the caller
// holds until Done. A page leaves host memory by the rank of its tier (eviction_order.h); before,
// it is judged once for the disk (write_admission.h). Host memory without a page that may go
// refuses the save: the page is judged for the disk at once, and nothing waits. Pages of waiting
// requests come back from the disk in queue order, as far as host memory has pages of lesser rank
// to give up for them.
//
// Invariants, checked by Verify():
//   1. Those of each tier's index.
//   2. A page has a name exactly while a tier knows it or a copy of it moves.
//   3. Each arriving page has exactly one copy on the way to it; each copy's source in a tier is
//      pinned.
//   4. At most most_moves copies are on their way, most_pool_moves to the pool, most_pool_pins
//      there from the device; a page waits for the pool or goes there once.
// An operation takes logarithmic time per page, and looks at most at kMostVictims pages for a new
// one.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "divisi/core/ids.h"
#include "divisi/core/units.h"
#include "divisi/kv/block_key.h"
#include "divisi/kv/known_keys.h"
#include "divisi/kv/page_history.h"
#include "divisi/kv/page_quarantine.h"
#include "divisi/kv/tier_index.h"
#include "divisi/kv/upcoming_uses.h"
#include "divisi/kv/write_admission.h"
#include "divisi/plan/kv_tiers.h"

namespace divisi {

// Pages that host memory may look at to make room for one: those that go to the disk make room
// later only, and a long chain goes as a whole. A refused page would cost the chain behind it. Each
// page is judged once, so that over many calls the work is constant for each page.
inline constexpr int kMostVictims = 256;

enum class DiskWrites {
  kAdmitted,  // What WriteAdmission admits, when it leaves host memory.
  kAll,       // Each page, as soon as host memory has it: for comparison.
};

struct TierOptions {
  int64_t host_pages = 0;
  int64_t disk_pages = 0;
  bool pool = false;  // Each saved page is put into it.
  EvictionPolicy policy = EvictionPolicy::kQueue;
  DiskWrites disk_writes = DiskWrites::kAdmitted;
  WriteBudget budget;
  int64_t lookahead = 512;         // Requests of the queue that are looked at.
  int64_t prefetch_requests = 32;  // Of these, whose pages come back from the disk.
  int64_t most_moves = 256;        // Copies on their way, of all kinds.
  int64_t most_pool_moves = 32;    // Of these, to the pool;
  int64_t most_pool_pins = 8;      // and of these, from the device.
  int64_t most_pool_waiting = 4096;
  int64_t most_waiting = 4096;   // Pages that wait to be saved.
  int64_t most_bad = 4096;       // Objects in quarantine.
  int64_t remembered = 1 << 20;  // Pages in the history.
};

struct PageName {
  BlockKey key;
  BlockKey parent;
  BlockKey root;         // Key space.
  int64_t position = 0;  // Pages before it in its chain.
  friend bool operator==(const PageName&, const PageName&) = default;
};

struct TierAction {
  enum class Kind { kCopy, kRemove };
  Kind kind = Kind::kCopy;
  uint64_t id = 0;  // Of a copy, for Done.
  PageName page;
  Tier from = Tier::kDevice;  // Of a removal: the tier that loses it.
  Tier to = Tier::kHost;      // Of a copy.
  BlockId block = -1;         // Of a copy from the device.
};

// For the directory and for KV events.
struct TierEvent {
  enum class Kind { kStored, kRemoved, kCleared };
  Kind kind = Kind::kStored;
  PageName page;  // Not of kCleared, which is all of the tier.
  Tier tier = Tier::kHost;
};

struct TierStats {
  int64_t host_pages = 0, host_pinned = 0, host_arriving = 0;
  int64_t disk_pages = 0, disk_pinned = 0, disk_arriving = 0;
  int64_t awaited_pages = 0;  // Distinct pages that the queue waits for.
  int64_t moves = 0;          // Copies on their way.
  // Since the start.
  int64_t host_writes = 0;  // Saves and promotions done.
  int64_t promotions = 0;   // Of these, from the disk.
  int64_t disk_writes = 0;
  int64_t pool_puts = 0;
  int64_t pool_puts_failed = 0;
  int64_t pool_puts_dropped = 0;  // Not begun: the queue was full, or the page gone.
  int64_t pool_waiting = 0;       // Now
  int64_t host_evictions = 0, disk_evictions = 0;
  int64_t saves_waiting = 0;  // Now
  int64_t saves_refused = 0;  // Host memory was full, or too many waited.
  int64_t failed_moves = 0;
  int64_t bad_objects = 0;
  int64_t in_quarantine = 0;
  int64_t writes_judged = 0;
  double budget_pages = 0;             // What the disk may take at once.
  double budget_pages_per_second = 0;  // What its endurance allows in the long run.
};

class TierManager {
 public:
  explicit TierManager(const TierOptions& options);

  // Where each page of the contiguous run that begins at keys[from] can be read: host memory if it
  // is there, else the disk. Ends before the first page that is in neither.
  std::vector<Tier> Find(std::span<const BlockKey> keys, int64_t from) const;

  // A request starts to use a chain of pages, from its first. Ended: its answer's length is known.
  void Used(std::span<const BlockKey> chain);
  void Ended(std::span<const BlockKey> chain, int64_t answer_tokens, SessionState session);

  // A device page is full and its content final. A copy from `block` may follow; the caller holds
  // the page until its Done. Nothing follows for a page that host memory knows. Idempotent. Where
  // as many copies are on their way as may be, it waits, and follows if the page is still there.
  void Complete(const PageName& page, BlockId block, Seconds now);

  // The queue, in order of service; what is beyond the look-ahead is ignored (false) and may be
  // shown again later. Forget: started or given up. HasFirst, before Expect or later: the request
  // has that many of its pages on the device, or reads them where they are, and none of these needs
  // to come to host memory for it.
  bool Expect(RequestId request, std::span<const BlockKey> keys, Seconds now);
  void HasFirst(RequestId request, int64_t pages);
  void Forget(RequestId request, Seconds now);

  // Reading begins and ends. Requires: Find gave the page at this tier, and nothing came between;
  // Unpin once for each Pin.
  void Pin(const BlockKey& key, Tier tier);
  void Unpin(const BlockKey& key, Tier tier);

  // A copy has ended. What failed is as if never begun. Unknown ids are ignored.
  void Done(uint64_t id, bool ok, Seconds now);

  // Reading or verifying failed: the object is not offered again until it is rewritten.
  void Bad(const BlockKey& key, Tier tier);
  bool Quarantined(const BlockKey& key, Tier tier) const { return bad_.Holds(key, tier); }

  // Whether the pool has a page, as far as was heard last: of what was asked, read and put.
  void PoolHas(const BlockKey& key, bool has) { in_pool_.Set(key, has); }
  bool PoolHas(const BlockKey& key) const { return in_pool_.Has(key); }
  // It has fewer copies than it should: the page is put there anew when it is saved next.
  void PoolLostCopy(const BlockKey& key);

  // A page that a start found on the disk. False when there is no room: remove it.
  bool Restore(const PageName& page);

  // Weights have changed: every page is dropped, those on their way too.
  void Clear();

  std::vector<TierAction> TakeActions();
  std::vector<TierEvent> TakeEvents();

  const WriteAdmission& admission() const { return admission_; }
  TierStats stats() const;
  void Verify() const;

 private:
  struct Move {
    TierAction action;
    bool revoked = false;  // What arrives is not to be kept.
  };
  struct PoolPut {
    PageName page;
    BlockId block = -1;  // Where host memory does not get the page.
  };
  struct Prefetch {
    std::vector<BlockKey> keys;
    size_t from = 0;  // Those before are not needed.
    size_t next = 0;
  };
  struct Save {
    PageName page;
    BlockId block = -1;
  };

  TierIndex& Index(Tier tier) { return tier == Tier::kHost ? host_ : disk_; }
  const TierIndex& Index(Tier tier) const { return tier == Tier::kHost ? host_ : disk_; }
  EvictionRank Rank(const BlockKey& key, Tier tier) const;
  void Rerank(const BlockKey& key);
  bool CanMove(int64_t share) const;
  void SavePage(const PageName& page, BlockId block, Seconds now);
  void RunSaves(Seconds now);
  void StartCopy(const PageName& page, Tier from, Tier to, BlockId block);
  void OfferToPool(const PageName& page, BlockId block);
  void RunPool();
  bool WriteAtOnce(const PageName& page, BlockId block, Seconds now);
  bool Judge(const BlockKey& key, Seconds now);
  bool MakeHostRoom(const EvictionRank& rank, Seconds now);
  bool Demote(const BlockKey& key, Seconds now);
  bool MakeDiskRoom(const EvictionRank& rank);
  void RunPrefetch(Seconds now);
  void Drop(const BlockKey& key, Tier tier);
  void Release(const Move& move);
  void Arrived(const Move& move);
  void Gone(const BlockKey& key, Tier tier);
  void ForgetName(const BlockKey& key);
  void LeftDisk(const PageName& page);
  void Emit(TierEvent::Kind kind, const BlockKey& key, Tier tier);

  TierOptions options_;
  TierIndex host_;
  TierIndex disk_;
  PageHistory history_;
  UpcomingUses upcoming_;
  WriteAdmission admission_;
  PageQuarantine bad_;
  KnownKeys in_pool_;
  std::unordered_set<BlockKey, BlockKeyHash> lost_copies_;
  std::deque<Save> saves_waiting_;
  std::deque<PoolPut> pool_waiting_;
  std::unordered_set<BlockKey, BlockKeyHash> to_pool_;  // Waiting, and on their way.
  int64_t pool_moves_ = 0, pool_pins_ = 0;
  std::unordered_map<BlockKey, PageName, BlockKeyHash> names_;  // Never iterated to decide.
  // Pages that follow a page and that the disk knows: without it they could not be used.
  std::unordered_map<BlockKey, int64_t, BlockKeyHash> disk_children_;
  std::map<uint64_t, Move> moves_;
  uint64_t next_move_ = 1;
  std::unordered_map<RequestId, int64_t> place_of_;  // In the queue.
  std::map<int64_t, Prefetch> prefetches_;           // By place.
  std::unordered_map<RequestId, size_t> has_first_;  // Pages, by HasFirst.
  std::set<int64_t> unfinished_;                     // Places whose pages may have to come back.
  std::vector<TierAction> actions_;
  std::vector<TierEvent> events_;
  TierStats counts_;
};

}  // namespace divisi
