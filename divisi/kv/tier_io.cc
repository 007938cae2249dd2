#include "divisi/kv/tier_io.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <utility>

#include "divisi/kv/page_saving.h"

namespace divisi {
namespace {

// After its deadline a load has this long to end by itself, with what it has, before it is given
// up; and a thread that was told to stop, before it is said to hang. A run is read in far less.
constexpr Seconds kGrace{0.05};

struct LoadJob {
  PageLoad load;
  Landing landing;
  bool reported = false;
  Seconds given_up;  // When; where it was.
};

struct SaveJob {
  std::optional<PageSave> save;  // None: a removal.
  Tier tier = Tier::kDisk;       // Of a removal.
  BlockKey key;
  Landing landing;
  bool reported = false;
  Seconds since;  // When it was asked for; once it runs, of its start.
};

std::chrono::duration<double> Wait(Seconds time) {
  return std::chrono::duration<double>(std::clamp(time.value, 1e-4, 1.0));
}

}  // namespace

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
  void PutEnded(const std::shared_ptr<SaveJob>& job, const Result<void>& put);
  // True: it did something else than waiting, and the caller looks again.
  bool AttendLocked(std::unique_lock<std::mutex>& lock);
  void WaitLocked(std::unique_lock<std::mutex>& lock);
  void EndLateLocked(Seconds now);
  void EndLateSavesLocked(Seconds now);
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
  std::vector<LoadDone> loads_done;
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

// ---- The loading thread ----

void TierIo::State::LoadLoop() {
  std::unique_lock lock(mutex);
  while (!stopping) {
    if (AttendLocked(lock)) continue;
    if (loads.empty()) {
      WaitLocked(lock);
    } else {
      RunLoad(lock);
    }
  }
  load_thread_ended = true;
  changed.notify_all();
}

void TierIo::State::RunLoad(std::unique_lock<std::mutex>& lock) {
  loading = loads.front();
  loads.pop_front();
  const auto job = loading;
  lock.unlock();
  PageLoading run(job->load, options.stores, options.terms);
  LoadDone done = run.Run(job->landing, *options.clock);
  lock.lock();
  loading.reset();
  TallyLocked(run.tally());
  for (const BadPage& bad : done.bad) ++stats.tiers[static_cast<size_t>(bad.tier)].pages_bad;
  EndLoadLocked(*job, std::move(done));
  changed.notify_all();  // Saves that stood back.
}

void TierIo::State::TallyLocked(const LoadTally& tally) {
  for (size_t tier = 0; tier < kSources; ++tier) {
    stats.tiers[tier].pages_read += tally.pages[tier];
    if (tally.read[tier] > Bytes(0)) AddReadLocked(tier, tally.read[tier], tally.reading[tier]);
  }
}

void TierIo::State::AddReadLocked(size_t tier, Bytes bytes, Seconds time) {
  stats.tiers[tier].read += bytes;
  stats.tiers[tier].reading += time;
  read_rates[tier].Add(bytes, time);
}

void TierIo::State::EndLoadLocked(LoadJob& job, LoadDone done) {
  if (std::exchange(job.reported, true)) return;
  ++stats.loads;
  stats.loads_failed += done.end == LoadEnd::kFailed;
  stats.loads_late += done.end == LoadEnd::kLate;
  stats.loads_cancelled += done.end == LoadEnd::kCancelled;
  stats.pages_loaded += done.pages_ok;
  loads_done.push_back(std::move(done));
  wake_due = true;
}

void TierIo::State::GiveUpLocked(LoadJob& job, LoadEnd end, Seconds now) {
  if (job.reported) return;
  // The gate first: it must not open for what then does not land.
  if (job.load.gate) job.load.gate->Fail();
  job.landing.GiveUp();
  job.given_up = now;
  EndLoadLocked(job, {.id = job.load.id, .end = end});
}

// ---- The saving thread ----

void TierIo::State::SaveLoop() {
  std::unique_lock lock(mutex);
  while (!stopping) {
    if (AttendLocked(lock)) continue;
    if (auto job = NextSaveLocked(options.clock->Now())) {
      RunSave(lock, std::move(job));
    } else {
      WaitLocked(lock);
    }
  }
  save_thread_ended = true;
  changed.notify_all();
}

std::shared_ptr<SaveJob> TierIo::State::NextSaveLocked(Seconds now) {
  auto& queue = quick.empty() ? slow : quick;
  const auto next = quick.empty() ? NextSlowLocked() : quick.begin();
  if (next == queue.end()) return nullptr;
  const bool stands_back = quick.empty() && (*next)->save && LoadsLocked();
  if (stands_back && now - (*next)->since < options.patience) return nullptr;
  auto job = std::move(*next);
  queue.erase(next);
  return job;
}

// The first whose store takes it now: others' wait for none of a store that has enough.
std::deque<std::shared_ptr<SaveJob>>::iterator TierIo::State::NextSlowLocked() {
  return std::ranges::find_if(slow, [&](const auto& job) {
    const Tier tier = job->save ? job->save->to : job->tier;
    const PageStore* store = options.stores.Of(tier);
    if (store == nullptr || store->most_puts() <= 1) return true;
    return putting.size() < store->most_puts();
  });
}

void TierIo::State::RunSave(std::unique_lock<std::mutex>& lock, std::shared_ptr<SaveJob> job) {
  job->since = options.clock->Now();
  saving = job;
  changed.notify_all();  // The other thread looks after this one's time.
  PageStore* const store = options.stores.Of(job->save ? job->save->to : job->tier);
  const bool several = job->save && store != nullptr && store->most_puts() > 1;
  if (several) {
    if (putting.empty()) put_since = job->since;
    putting.push_back(job);
  }
  lock.unlock();
  if (!job->save) {
    if (store != nullptr) store->Remove(job->key);
    lock.lock();
    saving.reset();
    return;
  }
  PageStore::PutDone later;
  if (several) {
    // Not an owner: the stores' own threads may not end the stores.
    later = [state = weak_from_this(), job](const Result<void>& put) {
      if (const auto there = state.lock()) there->PutEnded(job, put);
    };
  }
  PageSaving run(*job->save, options, save_buffer, std::move(later));
  SaveDone done = run.Run(job->landing);
  lock.lock();
  saving.reset();
  TallySaveLocked(*job->save, run, done);
  if (run.begun()) return;
  if (several) std::erase(putting, job);
  EndSaveLocked(*job, std::move(done));
}

void TierIo::State::PutEnded(const std::shared_ptr<SaveJob>& job, const Result<void>& put) {
  const std::lock_guard lock(mutex);
  if (std::erase(putting, job) == 0) return;  // It was late.
  const PageSave& save = *job->save;
  const Seconds now = options.clock->Now();
  if (put.ok()) {
    TierTraffic& traffic = stats.tiers[static_cast<size_t>(save.to)];
    const Bytes bytes(options.terms.shape.PayloadBytes());
    traffic.written += bytes;
    traffic.writing += now - put_since;
    ++traffic.pages_written;
    write_rates[static_cast<size_t>(save.to)].Add(bytes, now - put_since);
    put_since = now;
  }
  SaveDone done{.id = save.id, .key = save.header.key, .from = save.from, .to = save.to};
  done.ok = put.ok();
  if (!put) done.why = put.error().message;
  EndSaveLocked(*job, std::move(done));
  changed.notify_all();
}

void TierIo::State::TallySaveLocked(const PageSave& save, const PageSaving& run,
                                    const SaveDone& done) {
  const auto from = static_cast<size_t>(save.from), to = static_cast<size_t>(save.to);
  if (run.reading() > Seconds(0)) AddReadLocked(from, run.bytes(), run.reading());
  stats.tiers[from].pages_bad += done.source_bad;
  if (run.writing() == Seconds(0)) return;
  TierTraffic& traffic = stats.tiers[to];
  traffic.written += run.bytes();
  traffic.writing += run.writing();
  ++traffic.pages_written;
  write_rates[to].Add(run.bytes(), run.writing());
}

void TierIo::State::EndSaveLocked(SaveJob& job, SaveDone done) {
  if (std::exchange(job.reported, true)) return;
  ++stats.saves;
  stats.saves_failed += !done.ok;
  saves_done.push_back(std::move(done));
  wake_due = true;
}

void TierIo::State::FailSaveLocked(SaveJob& job, const std::string& why) {
  if (!job.save || job.reported) return;
  const PageSave& save = *job.save;
  job.landing.GiveUp();
  EndSaveLocked(
      job, {.id = save.id, .key = save.header.key, .from = save.from, .to = save.to, .why = why});
}

// ---- Both threads, and their owner ----

bool TierIo::State::AttendLocked(std::unique_lock<std::mutex>& lock) {
  EndLateLocked(options.clock->Now());
  if (!std::exchange(wake_due, false)) return false;
  lock.unlock();
  {
    const std::lock_guard waking(wake_mutex);
    if (wake) wake();
  }
  lock.lock();
  return true;
}

// Until something changes, or the next deadline: of the other thread's work, too, which may hang.
void TierIo::State::WaitLocked(std::unique_lock<std::mutex>& lock) {
  const auto next_slow = NextSlowLocked();
  if (!LoadsLocked() && saving == nullptr && next_slow == slow.end() && putting.empty()) {
    changed.wait(lock);
    return;
  }
  const Seconds now = options.clock->Now();
  Seconds next(1);
  for (const auto& job : loads) next = std::min(next, job->load.deadline - now);
  if (loading && !loading->reported) next = std::min(next, loading->load.deadline + kGrace - now);
  if (saving && saving->save && !saving->reported) {
    next = std::min(next, saving->since + SaveTime() - now);
  }
  if (saving && std::ranges::any_of(quick, [](const auto& job) { return IsOfDevice(*job); })) {
    next = std::min(next, saving->since + options.device_wait - now);
  }
  for (const auto& job : putting) next = std::min(next, job->since + SaveTime() - now);
  if (next_slow != slow.end() && !saving)
    next = std::min(next, (*next_slow)->since + options.patience - now);
  changed.wait_for(lock, Wait(next));
}

void TierIo::State::EndLateLocked(Seconds now) {
  if (loading && now >= loading->load.deadline + kGrace) {
    GiveUpLocked(*loading, LoadEnd::kLate, now);
  }
  std::erase_if(loads, [&](const auto& job) {
    if (now < job->load.deadline) return false;
    GiveUpLocked(*job, LoadEnd::kLate, now);
    return true;
  });
  EndLateSavesLocked(now);
}

void TierIo::State::EndLateSavesLocked(Seconds now) {
  if (SaveIsSlowLocked(now)) {
    for (auto* queue : {&quick, &slow}) {
      std::erase_if(*queue, [&](const auto& job) {
        if (IsOfDevice(*job)) FailSaveLocked(*job, "one before it takes too long");
        return IsOfDevice(*job);
      });
    }
  }
  std::erase_if(putting, [&](const auto& job) {
    const bool late = job != saving && now - job->since > SaveTime();
    if (late) FailSaveLocked(*job, Format("not done within {}", HumanSeconds(SaveTime())));
    return late;
  });
  if (!SaveHangsLocked(now)) return;
  FailSaveLocked(*saving, Format("not done within {}", HumanSeconds(SaveTime())));
  for (auto* queue : {&quick, &slow}) {
    std::erase_if(*queue, [&](const auto& job) {
      FailSaveLocked(*job, "one before it hangs");
      return job->save.has_value();
    });
  }
}

TierIo::TierIo(TierIoOptions options) : state_(std::make_shared<State>(std::move(options))) {
  CHECK(CheckEncodable({.shape = state_->options.terms.shape}).ok(), "a shape that no page has");
  loading_ = std::thread([state = state_] { state->LoadLoop(); });
  saving_ = std::thread([state = state_] { state->SaveLoop(); });
}

TierIo::~TierIo() {
  std::unique_lock lock(state_->mutex);
  state_->stopping = true;
  const Seconds now = state_->options.clock->Now();
  if (state_->loading) state_->GiveUpLocked(*state_->loading, LoadEnd::kCancelled, now);
  for (const auto& job : state_->loads) state_->GiveUpLocked(*job, LoadEnd::kCancelled, now);
  if (state_->saving) state_->saving->landing.GiveUp();
  state_->changed.notify_all();
  lock.unlock();
  {
    const std::lock_guard waking(state_->wake_mutex);
    state_->wake = nullptr;
  }
  lock.lock();
  const std::chrono::duration<double> stop(state_->options.stop.value);
  state_->changed.wait_for(lock, stop,
                           [&] { return state_->load_thread_ended && state_->save_thread_ended; });
  const bool load_ended = state_->load_thread_ended, save_ended = state_->save_thread_ended;
  lock.unlock();
  load_ended ? loading_.join() : loading_.detach();
  save_ended ? saving_.join() : saving_.detach();
  lock.lock();
  if (load_ended && save_ended) state_->options.stores = {};  // A put that ends now ends no store.
}

Result<void> TierIo::Load(PageLoad load) {
  const auto whole = static_cast<size_t>(state_->options.terms.shape.PayloadBytes());
  for (const LoadedPage& page : load.pages) CHECK(page.to.size() == whole, "not a whole page");
  const std::lock_guard lock(state_->mutex);
  if (state_->LoadHangsLocked(state_->options.clock->Now())) {
    ++state_->stats.loads_refused;
    return Error{Code::kUnavailable, "a read of a tier of KV hangs"};
  }
  if (state_->loads_open >= state_->options.most_loads) {
    ++state_->stats.loads_refused;
    return Error{Code::kResourceExhausted,
                 Format("{} loads of KV are waiting already", state_->loads_open)};
  }
  ++state_->loads_open;
  auto job = std::make_shared<LoadJob>();
  job->load = std::move(load);
  state_->loads.push_back(std::move(job));
  state_->changed.notify_all();
  return {};
}

Result<void> TierIo::Save(PageSave save) {
  const std::lock_guard lock(state_->mutex);
  if (state_->SaveHangsLocked(state_->options.clock->Now())) {
    ++state_->stats.saves_refused;
    return Error{Code::kUnavailable, "a write of a tier of KV hangs"};
  }
  if (save.from == Tier::kDevice && state_->SaveIsSlowLocked(state_->options.clock->Now())) {
    ++state_->stats.saves_refused;
    return Error{Code::kUnavailable, "a save of KV takes long, and this one would hold a page"};
  }
  if (state_->saves_open >= state_->options.most_saves) {
    ++state_->stats.saves_refused;
    return Error{Code::kResourceExhausted,
                 Format("{} saves of KV are waiting already", state_->saves_open)};
  }
  ++state_->saves_open;
  const bool quick = save.from == Tier::kDevice && save.to == Tier::kHost;
  auto job = std::make_shared<SaveJob>();
  job->save = std::move(save);
  job->since = state_->options.clock->Now();
  (quick ? state_->quick : state_->slow).push_back(std::move(job));
  state_->changed.notify_all();
  return {};
}

void TierIo::Cancel(uint64_t id) {
  const std::lock_guard lock(state_->mutex);
  const Seconds now = state_->options.clock->Now();
  if (state_->loading && state_->loading->load.id == id) {
    state_->GiveUpLocked(*state_->loading, LoadEnd::kCancelled, now);
  }
  std::erase_if(state_->loads, [&](const auto& job) {
    if (job->load.id != id) return false;
    state_->GiveUpLocked(*job, LoadEnd::kCancelled, now);
    return true;
  });
}

void TierIo::Remove(Tier tier, const BlockKey& key) {
  PageStore* store = state_->options.stores.Of(tier);
  if (store == nullptr) return;
  if (store->in_memory()) return store->Remove(key);
  auto job = std::make_shared<SaveJob>();
  job->tier = tier;
  job->key = key;
  job->since = state_->options.clock->Now();
  const std::lock_guard lock(state_->mutex);
  state_->slow.push_back(std::move(job));
  state_->changed.notify_all();
}

std::vector<LoadDone> TierIo::TakeLoads() {
  const std::lock_guard lock(state_->mutex);
  state_->EndLateLocked(state_->options.clock->Now());
  state_->loads_open -= state_->loads_done.size();
  return std::exchange(state_->loads_done, {});
}

std::vector<SaveDone> TierIo::TakeSaves() {
  const std::lock_guard lock(state_->mutex);
  state_->EndLateLocked(state_->options.clock->Now());
  state_->saves_open -= state_->saves_done.size();
  return std::exchange(state_->saves_done, {});
}

void TierIo::CountUsed(int64_t pages) {
  const std::lock_guard lock(state_->mutex);
  state_->stats.pages_used += pages;
}

TierIoStats TierIo::stats() const {
  const std::lock_guard lock(state_->mutex);
  const Seconds now = state_->options.clock->Now();
  TierIoStats stats = state_->stats;
  for (size_t tier = 0; tier < kSources; ++tier) {
    stats.tiers[tier].read_rate = state_->read_rates[tier].rate();
    stats.tiers[tier].write_rate = state_->write_rates[tier].rate();
  }
  stats.loads_waiting = static_cast<int64_t>(state_->loads.size()) + (state_->loading != nullptr);
  stats.saves_waiting =
      static_cast<int64_t>(state_->quick.size() + state_->slow.size() + state_->putting.size());
  const bool counted = std::ranges::count(state_->putting, state_->saving) > 0;
  stats.saves_waiting += state_->saving != nullptr && !counted;
  stats.hangs = state_->LoadHangsLocked(now) || state_->SaveHangsLocked(now);
  return stats;
}

}  // namespace divisi
