#include "divisi/kv/event_stream.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "divisi/kv/xxh3.h"

namespace divisi {
namespace {

// Batches whose content is remembered to tell repeated ones from those of another life. Channels
// reorder little: ZeroMQ's over one connection not at all.
constexpr size_t kRecent = 1024;
// Doublings of the answers that are awaited between two asks for everything.
constexpr int kMostRefreshes = 3;
constexpr Seconds kNever{std::numeric_limits<double>::infinity()};

}  // namespace

EventStream::Batch EventStream::Decode(std::string_view payload) {
  Batch batch;
  batch.digest = Xxh3(std::as_bytes(std::span(payload)));
  batch.bytes = payload.size();
  auto decoded = DecodeEventBatch(payload);
  if (decoded) batch.batch = *std::move(decoded);
  return batch;
}

bool EventStream::Clears(const Batch& batch) {
  return batch.batch && !batch.batch->events.empty() &&
         std::holds_alternative<ClearedEvent>(batch.batch->events.front());
}

std::optional<uint64_t> EventStream::DigestOf(uint64_t sequence) const {
  for (const auto& [number, digest] : recent_) {
    if (number == sequence) return digest;
  }
  return std::nullopt;
}

// Of a live batch whose number was passed already.
bool EventStream::IsRestart(uint64_t sequence, const Batch& batch) const {
  if (const auto digest = DigestOf(sequence)) return *digest != batch.digest;
  return batch.batch && batch.batch->time_seconds > last_time_;
}

void EventStream::Forget() {
  if (holds_) forget_ = true;
  holds_ = false;
}

void EventStream::Take(uint64_t sequence, Batch batch, bool remember) {
  next_ = sequence + 1;
  ++stats_.batches;
  if (remember) {
    recent_.emplace_back(sequence, batch.digest);
    if (recent_.size() > kRecent) recent_.pop_front();
  }
  if (Clears(batch)) incomplete_ = false;
  if (!batch.batch) {
    incomplete_ = true;
    ++stats_.undecodable;
    ++stats_.losses;
    return Forget();
  }
  last_time_ = batch.batch->time_seconds;
  stats_.other_events += static_cast<uint64_t>(std::ranges::count_if(
      batch.batch->events, [](const auto& e) { return std::holds_alternative<OtherEvent>(e); }));
  if (batch.batch->events.empty()) return;
  updates_.push_back({std::exchange(forget_, false), std::move(batch.batch->events), sequence,
                      batch.batch->time_seconds, batch.batch->data_parallel_rank});
  holds_ = true;
}

void EventStream::Keep(uint64_t sequence, Batch batch, Seconds now) {
  const auto there = pending_.find(sequence);
  if (there != pending_.end()) {
    ++stats_.duplicates;
    // Of two lives the later one counts.
    const auto& kept = there->second.batch;
    const bool later = batch.batch && (!kept || kept->time_seconds < batch.batch->time_seconds);
    if (!later) return;
    pending_bytes_ -= there->second.bytes;
    pending_.erase(there);
  }
  pending_bytes_ += batch.bytes;
  pending_.emplace(sequence, std::move(batch));
  if (pending_.size() > options_.pending_batches || pending_bytes_ > options_.pending_bytes) {
    GiveUp(now);
  }
}

void EventStream::DropPending(uint64_t below) {
  while (!pending_.empty() && pending_.begin()->first < below) {
    pending_bytes_ -= pending_.begin()->second.bytes;
    pending_.erase(pending_.begin());
  }
}

// Than what was taken last: then it is of another life, or the sender's clock went back, and the
// replay tells which.
bool EventStream::IsOlder(const Batch& batch) const {
  return options_.replay && batch.batch && batch.batch->time_seconds < last_time_;
}

// Whether live batches are kept aside though they seem to follow: what they follow is not sure.
bool EventStream::MustWait() const { return verify_due_ || (asking_ && asking_->snapshot); }

void EventStream::Drain() {
  DropPending(*next_);
  while (!pending_.empty() && pending_.begin()->first == *next_) {
    auto node = pending_.extract(pending_.begin());
    pending_bytes_ -= node.mapped().bytes;
    if (!IsOlder(node.mapped())) Take(node.key(), std::move(node.mapped()), true);
  }
}

void EventStream::Follow(Seconds now) {
  phase_ = Phase::kFollowing;
  attempts_ = 0;
  at_ = options_.replay ? now + options_.check_every : kNever;
}

void EventStream::WaitToAsk(Seconds at) {
  phase_ = Phase::kWaiting;
  asking_.reset();
  ask_.reset();
  at_ = at;
}

// After something was taken outside of an answer.
void EventStream::Settle(Seconds now) {
  if (phase_ == Phase::kWaiting && pending_.empty() && !verify_due_) Follow(now);
}

void EventStream::GiveUp(Seconds now) {
  AbandonAnswer();
  verify_due_ = false;
  attempts_ = 0;
  if (next_) Drain();
  if (!next_) incomplete_ = true;
  if (!pending_.empty()) {
    incomplete_ = true;
    ++stats_.losses;
    Forget();
    next_ = pending_.begin()->first;
    last_time_ = -std::numeric_limits<double>::infinity();
    recent_.clear();
    Drain();
  }
  if (!next_) next_ = 0;
  if (pending_.empty()) return Follow(now);
  WaitToAsk(now + options_.reorder_wait);
}

void EventStream::Restart(Seconds now) {
  ++stats_.restarts;
  Forget();
  recent_.clear();
  pending_.clear();
  pending_bytes_ = 0;
  // Even its first batch is taken from the answer: a live one may be of yet another life.
  next_.reset();
  last_time_ = -std::numeric_limits<double>::infinity();
  attempts_ = 0;
  verify_due_ = false;
  incomplete_ = false;
  WaitToAsk(now);
}

// As if nothing had come yet, except what is kept aside.
void EventStream::StartOver(Seconds now) {
  answers_to_wait_ = 1 << refreshes_;
  refreshes_ = std::min(refreshes_ + 1, kMostRefreshes);
  Forget();
  recent_.clear();
  next_.reset();
  WaitToAsk(now);
}

void EventStream::Ask(Seconds now) {
  phase_ = Phase::kAsking;
  Asking asking;
  asking.ask.id = next_ask_++;
  const uint64_t next = next_.value_or(0);
  asking.verifies = next > 0;
  asking.ask.from = asking.verifies ? next - 1 : 0;
  asking.digest = asking.verifies ? DigestOf(next - 1) : std::nullopt;
  asking.end = now + options_.replay_wait;
  at_ = now + options_.answer_wait;
  ask_ = asking.ask;
  asking_ = asking;
  ++stats_.asks;
}

// Half a snapshot is none, and its numbers are those of other batches: it is asked for again.
void EventStream::AbandonAnswer() {
  if (asking_ && asking_->snapshot) {
    Forget();
    incomplete_ = true;
    next_ = asking_->ask.from + (asking_->verifies ? 1 : 0);
  }
  asking_.reset();
  ask_.reset();
}

void EventStream::AskFailed(Seconds now) {
  AbandonAnswer();
  if (++attempts_ >= options_.attempts) return GiveUp(now);
  Seconds backoff = options_.first_backoff;
  for (int i = 1; i < attempts_ && backoff < options_.most_backoff; ++i) backoff = backoff * 2;
  WaitToAsk(now + std::min(backoff, options_.most_backoff));
}

void EventStream::Tick(Seconds now) {
  if (now < at_) return;
  switch (phase_) {
    case Phase::kFollowing:
      return options_.replay ? Ask(now) : void(at_ = kNever);
    case Phase::kWaiting:
      if (options_.replay) return Ask(now);
      if (next_) return GiveUp(now);
      at_ = kNever;  // Nothing came yet, and there is nothing to ask.
      return;
    case Phase::kAsking:
      ++stats_.unanswered;
      return AskFailed(now);
  }
}

void EventStream::Connected(Seconds now) {
  stats_.connected = true;
  // What was kept aside may be of a life that ended; of one that goes on the answer has it.
  DropPending(std::numeric_limits<uint64_t>::max());
  if (!options_.replay) {
    if (holds_) ++stats_.losses;
    Forget();
    next_.reset();
    return;
  }
  // Something may have been missed, and the source may be another.
  AbandonAnswer();
  verify_due_ = next_.value_or(0) > 0;
  attempts_ = 0;
  WaitToAsk(now);
}

void EventStream::Disconnected(Seconds) { stats_.connected = false; }

// Of a number that was passed.
void EventStream::LiveBehind(uint64_t sequence, Batch batch, Seconds now) {
  if (!IsRestart(sequence, batch)) {
    ++stats_.duplicates;
    return;
  }
  Restart(now);
  if (!options_.replay) {
    Take(sequence, std::move(batch), true);
    return Settle(now);
  }
  Keep(sequence, std::move(batch), now);
}

void EventStream::LiveAhead(uint64_t sequence, Batch batch, Seconds now) {
  // All before it stopped to matter. Not while an answer may be about another life.
  if (Clears(batch) && phase_ != Phase::kAsking && !IsOlder(batch)) {
    Take(sequence, std::move(batch), true);
    Drain();
    return Settle(now);
  }
  if (phase_ == Phase::kFollowing) {
    ++stats_.gaps;
    WaitToAsk(now + options_.reorder_wait);
  }
  Keep(sequence, std::move(batch), now);
}

void EventStream::Live(uint64_t sequence, std::string_view payload, Seconds now) {
  Batch batch = Decode(payload);
  if (!next_ && !options_.replay) {
    next_ = sequence;
    last_time_ = -std::numeric_limits<double>::infinity();
  }
  if (!next_) return Keep(sequence, std::move(batch), now);
  if (sequence < *next_ && !(asking_ && asking_->snapshot)) {
    return LiveBehind(sequence, std::move(batch), now);
  }
  if (MustWait()) return Keep(sequence, std::move(batch), now);
  if (sequence > *next_) return LiveAhead(sequence, std::move(batch), now);
  if (IsOlder(batch)) {
    if (phase_ == Phase::kFollowing) WaitToAsk(now + options_.reorder_wait);
    return;
  }
  Take(sequence, std::move(batch), true);
  Drain();
  Settle(now);
}

bool EventStream::AnswersOtherLife(uint64_t sequence, const Batch& batch) const {
  const Asking& asking = *asking_;
  const auto taken = DigestOf(sequence);
  if (!asking.snapshot && taken) return *taken != batch.digest;
  if (!asking.verifies || asking.answered || sequence != asking.ask.from) return false;
  if (asking.digest) return *asking.digest != batch.digest;
  return batch.batch && batch.batch->time_seconds > last_time_;
}

void EventStream::Replayed(uint64_t id, uint64_t sequence, std::string_view payload, Seconds now) {
  if (!asking_ || asking_->ask.id != id) return;
  Batch batch = Decode(payload);
  const uint64_t from = asking_->ask.from;
  if (sequence < from) return;
  at_ = std::min(now + options_.answer_wait, asking_->end);
  const bool begins = !asking_->answered;
  if (begins && Clears(batch) && DigestOf(sequence) != batch.digest) {
    // From here on all is told anew, by this life or another.
    asking_->answered = true;
    asking_->snapshot = true;
    recent_.clear();
    return Take(sequence, std::move(batch), false);
  }
  if (AnswersOtherLife(sequence, batch)) return Restart(now);
  asking_->answered = true;
  if (next_ && sequence < *next_) return;
  if (sequence > next_.value_or(0)) {
    // Its first: the source keeps no older ones. A later one: some were lost on the way.
    if (!begins) {
      ++stats_.unanswered;
      return AskFailed(now);
    }
    if (holds_) ++stats_.losses;
    Forget();
  }
  Take(sequence, std::move(batch), !asking_->snapshot);
}

void EventStream::ReplayEnded(uint64_t id, Seconds now) {
  if (!asking_ || asking_->ask.id != id) return;
  const Asking asking = *asking_;
  asking_.reset();
  ask_.reset();
  if (asking.verifies && !asking.answered) return Restart(now);
  verify_due_ = false;
  if (!asking.verifies) incomplete_ = false;
  if (!incomplete_) refreshes_ = answers_to_wait_ = 0;
  if (!next_) next_ = 0;
  Drain();
  if (pending_.empty()) {
    if (incomplete_ && answers_to_wait_-- <= 0) return StartOver(now);
    return Follow(now);
  }
  asking_ = Asking{};  // Answered, but not with all that is missing.
  AskFailed(now);
}

std::vector<EventUpdate> EventStream::TakeUpdates() {
  if (std::exchange(forget_, false)) updates_.push_back({.forget = true, .events = {}});
  return std::exchange(updates_, {});
}

std::optional<ReplayAsk> EventStream::TakeAsk() { return std::exchange(ask_, std::nullopt); }

EventStreamStats EventStream::stats() const {
  EventStreamStats stats = stats_;
  stats.next = next_.value_or(0);
  stats.following = phase_ == Phase::kFollowing;
  return stats;
}

}  // namespace divisi
