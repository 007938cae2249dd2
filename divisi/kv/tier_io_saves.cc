// The saving thread of TierIo.
#include <set>

#include "divisi/kv/tier_io_state.h"

namespace divisi {
namespace {

// How long pages of the device may wait for who takes none: requests may want their place.
constexpr Seconds kDevicePaused{0.25};

}  // namespace

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

// The first whose store takes it now: others wait for none of a store that has enough, or takes no
// such page now. What is done with one page of a tier keeps its order.
std::deque<std::shared_ptr<SaveJob>>::iterator TierIo::State::NextSlowLocked() {
  const auto page = [](const SaveJob& job) {
    return std::pair(job.save ? job.save->header.key : job.key, job.tier);
  };
  std::set<std::pair<BlockKey, Tier>> passed;
  for (const auto& job : putting) passed.insert(page(*job));
  return std::ranges::find_if(slow, [&](const auto& job) {
    const bool taken = !passed.contains(page(*job)) && IsTakenLocked(*job);
    if (!taken) passed.insert(page(*job));
    return taken;
  });
}

bool TierIo::State::IsTakenLocked(const SaveJob& job) const {
  const PageStore* store = options.stores.Of(job.tier);
  if (store == nullptr || store->most_puts() <= 1) return true;
  if (putting.size() >= store->most_puts()) return false;
  return !job.save || store->TurnOf(job.save->header.key) == PutTurn::kNow;
}

void TierIo::State::RunSave(std::unique_lock<std::mutex>& lock, std::shared_ptr<SaveJob> job) {
  job->since = options.clock->Now();
  saving = job;
  changed.notify_all();  // The other thread looks after this one's time.
  PageStore* const store = options.stores.Of(job->tier);
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
    put_begun = std::max(put_begun, job->since);
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
  EndPausedLocked(now);
  if (SaveHangsLocked(now)) EndBehindLocked();
}

// Of what waits because nobody takes it, what is past its time; and where that is paused and others
// are taken meanwhile, what came first of more than may stand in their way.
void TierIo::State::EndPausedLocked(Seconds now) {
  if (slow.empty() || now < look_at) return;
  look_at = now + kLookAgain;
  size_t count = 0;
  for (const auto& job : slow) {
    const PageStore* store = options.stores.Of(job->tier);
    const bool asks = job->save && store != nullptr && store->most_puts() > 1;
    const PutTurn turn = asks ? store->TurnOf(job->save->header.key) : PutTurn::kNow;
    if (turn == PutTurn::kNow) {
      job->waits.reset();
    } else if (!job->waits) {
      job->waits = now;
    }
    job->paused = turn == PutTurn::kPaused;
    count += job->paused;
  }
  std::erase_if(slow, [&](const auto& job) {
    if (!job->waits) return false;
    const Seconds most = IsOfDevice(*job) ? std::min(kDevicePaused, SaveTime()) : SaveTime();
    const bool late = now - *job->waits > most;
    const bool in_the_way = job->paused && count > options.most_paused && put_begun > *job->waits;
    if (!late && !in_the_way) return false;
    count -= job->paused;
    FailSaveLocked(*job, "where it goes takes no pages now");
    return true;
  });
}

void TierIo::State::EndBehindLocked() {
  FailSaveLocked(*saving, Format("not done within {}", HumanSeconds(SaveTime())));
  for (auto* queue : {&quick, &slow}) {
    std::erase_if(*queue, [&](const auto& job) {
      FailSaveLocked(*job, "one before it hangs");
      return job->save.has_value();
    });
  }
}

}  // namespace divisi
