// Puts the KV tiers below the device to use for one scheduler: where a request's prefix lies in a
// tier, it is brought into the pool while the request waits, and complete pages are saved. A pure
// state machine over the scheduler and kv/tier_manager.h: orders go out, their ends come in.
//
// A request goes one of these ways:
//   at once      the pool holds its prefix, the tiers do not, reading takes longer than computing,
//                or the room for loads is taken: nobody waits for room, but who still waits for its
//                turn when there is some again is loaded then
//   asked        the remote pool is asked what it holds, for kAskPool at most
//   loaded       pages are reserved and read; it keeps its place in the queue, and runs once all is
//                there, or before, when computing hides what is still to be read
// Where a request names another worker that has more of its prefix, that one's pages are read as if
// the tiers went on there.
// A load that takes longer than computing its tokens is given up, and they are computed. So every
// way ends, and a request is never later than a read that was worth it would have made it.
//
// Source: section 9.5.2; Gao et al., "CachedAttention", USENIX ATC 2024 (read ahead of layers).
#pragma once

#include <array>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "divisi/engine/scheduler.h"
#include "divisi/kv/layer_gate.h"
#include "divisi/kv/tier_manager.h"

namespace divisi {

// For an answer about which of a prompt's pages the pool has.
inline constexpr Seconds kAskPool{0.05};

struct PrefixLoaderOptions {
  TierOptions tiers;
  Bytes page;      // Of KV
  int layers = 1;  // Of the model
  // Pages of loads, and of requests that wait with loaded pages; one alone may have more. 0: none.
  int64_t most_loading = 0;
  size_t most_loads = 64;  // Under way; later ones wait.
  bool follow = true;      // A step may wait at a gate
  bool peers = false;      // Other workers' host memory may be read (Request::peer)
};

// What moving and computing take now, as measured; 0: not known yet.
struct TierSpeeds {
  BytesPerSecond host, disk, remote, peer;
  Seconds per_token;  // Of a prompt
};
// Until something was measured: a modern machine's order of magnitude, so that the first reads are
// tried and measured.
inline constexpr TierSpeeds kAssumedSpeeds{.host = BytesPerSecond(20e9),
                                           .disk = BytesPerSecond(5e9),
                                           .remote = BytesPerSecond(10e9),
                                           .peer = BytesPerSecond(10e9),
                                           .per_token = Seconds(1e-3)};

// Pages to be read into blocks of the pool. LoadEnded answers.
struct LoadOrder {
  struct Page {
    BlockKey key;
    Tier tier = Tier::kHost;
    BlockId block = 0;
  };
  uint64_t id = 0;
  std::vector<Page> pages;
  BlockKey root;
  int64_t position = 0;
  Seconds deadline;  // A time of the clock
  std::shared_ptr<LayerGate> gate;
  bool by_layers = true;  // As PageLoad says
  std::string peer;       // Where pages of kPeer are
};

// How a load ended: nothing is written to its blocks any more.
struct LoadOutcome {
  uint64_t id = 0;
  int64_t pages = 0;  // The first this many are there, and checked.
  struct Bad {
    BlockKey key;
    Tier tier = Tier::kHost;
    bool damaged = true;  // Of the pool and a peer: else it was not there.
  };
  std::vector<Bad> bad;
};

// Which keys the pool has is asked. PoolAnswered answers.
struct PoolQuestion {
  uint64_t id = 0;
  std::vector<BlockKey> keys;
};

struct PrefixLoaderStats {
  TierStats tiers;
  int64_t loads = 0;         // Begun
  int64_t loads_failed = 0;  // Not all of their pages came.
  int64_t no_room = 0;       // Requests that found no room to load a prefix,
  int64_t loaded_later = 0;  // and of these, for which there was some before their turn.
  int64_t not_worth = 0;     // Requests that computed a prefix because reading takes longer
  int64_t pages_read = 0;    // By loads, the good ones
  int64_t pages_used = 0;    // Of those, by the requests that they were read for
  int64_t asked = 0, unanswered = 0;
  int64_t loading_pages = 0;  // Now, of most_loading
  int64_t asking = 0;         // Requests, now
};

class PrefixLoader {
 public:
  // scheduler outlives this; it reports its pages.
  PrefixLoader(Scheduler& scheduler, const SchedulerOptions& scheduling,
               PrefixLoaderOptions options);
  ~PrefixLoader();

  // In the place of Scheduler::Add. Errors: the same, at once.
  Result<void> Add(Request request, Seconds now);
  // Before Scheduler::Cancel, whose part it does for a request that the scheduler has not got yet:
  // true then.
  bool Cancel(RequestId request, Seconds now);

  void LoadEnded(const LoadOutcome& outcome);
  // ok: the page is where it was to go.
  void SaveEnded(uint64_t id, bool ok, Seconds now);
  // have: for each key of the question; empty: no answer will come.
  void PoolAnswered(uint64_t id, const std::vector<bool>& have, Seconds now);
  // What the scheduler said: after each of its Commit and Adopt.
  void Note(const std::vector<SchedulerEvent>& events, Seconds now);
  // Pages that became complete, loads that may be followed, questions that were not answered.
  // After everything else, before the next Plan; and by NextTimer.
  void Tick(Seconds now);
  std::optional<Seconds> NextTimer() const;
  void SetSpeeds(const TierSpeeds& speeds);
  const TierSpeeds& speeds() const;
  // Until the pool has said what it has, a mean of the last times; 0: not known yet.
  Seconds lookup() const;

  std::vector<LoadOrder> TakeLoads();
  // Loads whose requests went away: they may end early. LoadEnded answers all the same.
  std::vector<uint64_t> TakeUnwantedLoads();
  // A copy from the device reads its block, which stays as it is until SaveEnded.
  std::vector<TierAction> TakeActions();
  std::vector<PoolQuestion> TakeQuestions();
  // Of the device, and of the tiers: for who follows what this worker holds.
  std::vector<PageChange> TakePageChanges();
  std::vector<TierEvent> TakeTierEvents();

  // [t]: pages of the request's prefix that were found in Tier t; below the device when it came,
  // without those that then could not be read. Before Note is told of its kScheduled, with the
  // pages that are cached by that.
  std::array<int64_t, kSources> Found(RequestId request, int64_t cached) const;
  // Requests that the scheduler has not got: they wait for the pool's answer.
  int64_t asking() const;
  TierManager& tiers();
  PrefixLoaderStats stats() const;
  // CHECKs that pages, pins and counts agree. For tests.
  void Verify() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace divisi
