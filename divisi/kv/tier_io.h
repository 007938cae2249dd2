// Moves pages between tiers, on two threads: one loads into the device's memory, the other saves,
// demotes, promotes and removes. Whoever decides asks without waiting and polls for results.
//
// A store that takes several puts at a time (PageStore::most_puts) is given as many; the saving
// thread goes on meanwhile. What it takes not now (PageStore::TurnOf) waits, for the time of a save
// at most (of the device: a quarter of a second), and others pass.
//
// Bounds. A queue that is full refuses, at once. A load has a deadline, a save the time in
// TierIoOptions; past it the asker has its answer even where the system's read or write never
// returns: nothing is written to the asker's memory, or read from it, once the answer is there.
// While a thread hangs so, what would wait behind it is refused, or fails at its own deadline.
// Destruction gives up what is under way and waits `stop` for both threads; one that still hangs is
// left behind, with all that it uses (stores and clock are shared with it), and touches nothing
// else when it returns.
//
// Order. Loads go first come, first served. Saves into host memory go before those that touch a
// disk or the pool; these stand back while loads are waiting or running, until they have waited
// for `patience`. Removals keep their place among them.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "divisi/kv/page_loading.h"
#include "divisi/kv/tier_rates.h"

namespace divisi {

// A page to store in another tier. From the device: `payload`, all of it, which stays as it is
// until the SaveDone. From another tier: header.key is all that counts.
struct PageSave {
  uint64_t id = 0;
  PageHeader header;
  Tier from = Tier::kDevice;
  Tier to = Tier::kHost;
  std::span<const std::byte> payload;
};

struct SaveDone {
  uint64_t id = 0;
  BlockKey key;
  Tier from = Tier::kDevice;
  Tier to = Tier::kHost;
  bool ok = false;
  // Where it is not ok. Whether it is `from` that lacks the page, or has it damaged.
  bool source_bad = false;
  std::string why;
};

struct TierIoOptions {
  TierStores stores;
  LoadingTerms terms;
  size_t most_loads = 64;  // Asked for and not yet polled.
  size_t most_saves = 256;
  // Saves that wait because where they go takes none now; of more the oldest fail, as soon as
  // others are taken. Half of what a TierManager has on its way to the pool (TierOptions).
  size_t most_paused = 16;
  Seconds save_time{30};  // Of one, from its start.
  // What is to be saved from the device waits no longer behind one that takes so long, since its
  // page can't be used again meanwhile; it is given up, and so are further ones until that ends.
  Seconds device_wait{2};
  Seconds patience{1};
  Seconds stop{2};
  // Called from the threads when there is a result. It may not call back, nor wait for long.
  std::function<void()> wake;
  // Shared with the threads.
  std::shared_ptr<const Clock> clock = std::make_shared<SteadyClock>();
};

struct TierTraffic {
  Bytes read, written;
  Seconds reading, writing;
  int64_t pages_read = 0;                // Whole, by loads.
  int64_t pages_written = 0;             // By saves.
  int64_t pages_bad = 0;                 // Not found or not good, in loads and saves.
  BytesPerSecond read_rate, write_rate;  // As last measured; 0: not yet.
};

struct TierIoStats {
  std::array<TierTraffic, kSources> tiers;
  int64_t loads = 0;  // Ended, of whatever end.
  int64_t loads_failed = 0, loads_late = 0, loads_cancelled = 0, loads_refused = 0;
  int64_t saves = 0;
  int64_t saves_failed = 0, saves_refused = 0;
  int64_t pages_loaded = 0;  // Given to askers as good.
  int64_t pages_used = 0;    // Of those, as the askers say.
  int64_t loads_waiting = 0, saves_waiting = 0;
  bool hangs = false;  // A thread is past its time.
};

class TierIo {
 public:
  explicit TierIo(TierIoOptions options);
  ~TierIo();
  TierIo(const TierIo&) = delete;
  TierIo& operator=(const TierIo&) = delete;

  // Errors of both: kResourceExhausted where the queue is full, kUnavailable while its thread
  // hangs; nothing was begun.  Requires: spans of a whole page each.
  Result<void> Load(PageLoad load);
  Result<void> Save(PageSave save);
  // The load ends as kCancelled, if it has not ended. From the return on nothing lands in its
  // pages.
  void Cancel(uint64_t load);
  // Of host memory at once; of another tier in the order of saves.
  void Remove(Tier tier, const BlockKey& key);

  // What ended since the last call; what is past its time ends here, too.
  std::vector<LoadDone> TakeLoads();
  std::vector<SaveDone> TakeSaves();

  // Of pages_ok, those that were used: a prompt that is all cached computes its last page again.
  void CountUsed(int64_t pages);
  TierIoStats stats() const;

 private:
  struct State;
  // Shared with the threads, which outlive this where a read hangs.
  std::shared_ptr<State> state_;
  std::thread loading_, saving_;
};

}  // namespace divisi
