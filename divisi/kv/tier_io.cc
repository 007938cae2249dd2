#include "divisi/kv/tier_io.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "divisi/kv/tier_io_state.h"

namespace divisi {
namespace {

// Pages that loads found bad after they were given up: several for each of most_loads.
constexpr size_t kMostLateBad = 256;

std::chrono::duration<double> Wait(Seconds time) {
  return std::chrono::duration<double>(std::clamp(time.value, 1e-4, 1.0));
}

}  // namespace

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
  for (const BadPage& bad : done.bad) {
    stats.tiers[static_cast<size_t>(bad.tier)].pages_bad += SaysOfPage(bad.tier, bad.code);
  }
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
  if (std::exchange(job.reported, true)) {
    // Given up before; the next that ends tells what was found.
    const size_t room = kMostLateBad - std::min(kMostLateBad, late_bad.size());
    const auto count = static_cast<std::ptrdiff_t>(std::min(room, done.bad.size()));
    late_bad.insert(late_bad.end(), done.bad.begin(), done.bad.begin() + count);
    return;
  }
  done.bad.insert(done.bad.end(), late_bad.begin(), late_bad.end());
  late_bad.clear();
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
// That a store takes puts again is no such change.
void TierIo::State::WaitLocked(std::unique_lock<std::mutex>& lock) {
  const auto next_slow = NextSlowLocked();
  if (!LoadsLocked() && saving == nullptr && slow.empty() && putting.empty()) {
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
  if (next_slow == slow.end()) {
    if (!slow.empty()) next = std::min(next, kLookAgain);
  } else if (!saving) {
    next = std::min(next, (*next_slow)->since + options.patience - now);
  }
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
  job->tier = save.to;
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
