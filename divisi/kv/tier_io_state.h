// What TierIo's two threads share with their owner.
#pragma once

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <utility>

#include "divisi/kv/page_saving.h"

namespace divisi {

// After its deadline a load has this long to end by itself, with what it has, before it is given
// up; and a thread that was told to stop, before it is said to hang. A run is read in far less.
inline constexpr Seconds kGrace{0.05};
// How often it is seen whether a store takes puts again: its pauses begin with a tenth of a second.
inline constexpr Seconds kLookAgain{0.02};

struct LoadJob {
  PageLoad load;
  Landing landing;
  bool reported = false;
  Seconds given_up;  // When; where it was.
};

struct SaveJob {
  std::optional<PageSave> save;  // None: a removal.
  Tier tier = Tier::kDisk;       // Where it goes, or is removed.
  BlockKey key;                  // Of a removal.
  Landing landing;
  bool reported = false;
  Seconds since;                 // When it was asked for; once it runs, of its start.
  std::optional<Seconds> waits;  // Since when where it goes does not take it.
  bool paused = false;           // As that one is, when last looked at.
};

// What the threads share with their owner. A method whose name ends in "Locked" wants the lock.
struct TierIo::State : std::enable_shared_from_this<TierIo::State> {
  explicit State(TierIoOptions given)
      : options(std::move(given)), wake(std::exchange(options.wake, nullptr)) {}

  void LoadLoop();
  void SaveLoop();
  void RunLoad(std::unique_lock<std::mutex>& lock);
  void RunSave(std::unique_lock<std::mutex>& lock, std::shared_ptr<SaveJob> job);
  std::shared_ptr<SaveJob> NextSaveLocked(Seconds now);
  std::deque<std::shared_ptr<SaveJob>>::iterator NextSlowLocked();
  bool IsTakenLocked(const SaveJob& job) const;
  void PutEnded(const std::shared_ptr<SaveJob>& job, const Result<void>& put);
  // True: it did something else than waiting, and the caller looks again.
  bool AttendLocked(std::unique_lock<std::mutex>& lock);
  void WaitLocked(std::unique_lock<std::mutex>& lock);
  void EndLateLocked(Seconds now);
  void EndLateSavesLocked(Seconds now);
  void EndPausedLocked(Seconds now);
  void EndBehindLocked();
  void EndLoadLocked(LoadJob& job, LoadDone done);
  void GiveUpLocked(LoadJob& job, LoadEnd end, Seconds now);
  void EndSaveLocked(SaveJob& job, SaveDone done);
  void FailSaveLocked(SaveJob& job, const std::string& why);
  bool LoadHangsLocked(Seconds now) const {
    return loading && loading->reported && now - loading->given_up > kGrace;
  }
  bool SaveHangsLocked(Seconds now) const { return saving && now - saving->since > SaveTime(); }
  bool SaveIsSlowLocked(Seconds now) const {
    return saving && now - saving->since > options.device_wait;
  }
  static bool IsOfDevice(const SaveJob& job) { return job.save && job.save->from == Tier::kDevice; }
  Seconds SaveTime() const { return options.save_time; }
  bool LoadsLocked() const { return loading != nullptr || !loads.empty(); }
  void TallyLocked(const LoadTally& tally);
  void TallySaveLocked(const PageSave& save, const PageSaving& run, const SaveDone& done);
  void AddReadLocked(size_t tier, Bytes bytes, Seconds time);

  TierIoOptions options;
  mutable std::mutex mutex;
  std::condition_variable changed;
  // Guarded by mutex.
  std::deque<std::shared_ptr<LoadJob>> loads;
  std::shared_ptr<LoadJob> loading;
  std::deque<std::shared_ptr<SaveJob>> quick, slow;  // Into memory; others.
  std::shared_ptr<SaveJob> saving;
  std::vector<std::shared_ptr<SaveJob>> putting;  // Begun, of stores that take several
  Seconds put_since;                              // Since when some are, or the last ended.
  Seconds put_begun;                              // The last that ended well.
  Seconds look_at;                                // For saves that nobody takes
  std::vector<LoadDone> loads_done;
  std::vector<BadPage> late_bad;
  std::vector<SaveDone> saves_done;
  size_t loads_open = 0, saves_open = 0;  // Asked for and not yet taken.
  TierIoStats stats;
  std::array<MeasuredRate, kSources> read_rates, write_rates;
  bool wake_due = false;
  bool stopping = false;
  bool load_thread_ended = false, save_thread_ended = false;

  std::mutex wake_mutex;  // Never together with `mutex`.
  std::function<void()> wake;

  std::vector<std::byte> save_buffer;  // Of the saving thread alone.
};

}  // namespace divisi
