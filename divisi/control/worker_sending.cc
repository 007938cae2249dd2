#include "divisi/control/worker_state.h"

namespace divisi {

void Worker::State::On(NodeId, PrefillMessage m, Seconds now) {
  if (sending_.contains(m.id)) return;
  if (Ended(m.id)) return Send(m.decode, StoppedMessage{m.id});
  if (gone_.contains(m.decode)) {
    return Refuse(m.id, Error{Code::kUnavailable, "the decode worker is gone"});
  }
  m.request.id = ++last_local_;
  m.request.hold_after_prompt = true;
  if (const auto added = Add(std::move(m.request), now); !added) {
    Bury(m.id, now);
    Refuse(m.id, added.error());  // First: D, once told, says less than this.
    return Send(m.decode, StoppedMessage{m.id});
  }
  ++counters_.transfers;
  Sending& sending = sending_[m.id];
  sending.local = last_local_;
  sending.decode = m.decode;
  sending.pages = std::move(m.pages);
  sending.next_page = sending.present = m.present;
  sending.began = now;
  sending.lease_ends = now + times_.lease;
  local_.emplace(last_local_, m.id);
}

// Those of the first `pages` that are not on their way yet.
void Worker::State::WritePages(const TransferId& id, int64_t pages, Seconds now) {
  Sending& sending = sending_.at(id);
  const std::span<const BlockId> own = scheduler_.PagesOf(sending.local);
  pages = std::min(
      {pages, static_cast<int64_t>(own.size()), static_cast<int64_t>(sending.pages.size())});
  for (; sending.next_page < pages; ++sending.next_page) {
    const auto at = static_cast<size_t>(sending.next_page);
    write_of_.emplace(++last_write_, id);
    writes_.push_back({last_write_, sending.decode, own[at], sending.pages[at]});
    ++sending.writing;
    if (!sending.first_write) sending.first_write = now;
    write_meter_.Begin(now);
  }
}

void Worker::State::HandOverWhenWritten(const TransferId& id, Sending& sending, Seconds now) {
  if (!sending.held || sending.writing > 0 || sending.phase != Sending::Phase::kComputing) return;
  sending.phase = Sending::Phase::kHandedOver;
  sending.written = now;
  sending.resend_at = now + times_.resend;
  sending.taken_before = now + times_.taken;
  Send(sending.decode, HandoverMessage{id, *sending.first, sending.prompt_scores, sending.found,
                                       sending.cached_tokens});
}

void Worker::State::WriteDone(uint64_t write, bool ok, Seconds now) {
  const auto at = write_of_.find(write);
  if (at == write_of_.end()) return;
  const TransferId id = at->second;
  write_of_.erase(at);
  const auto found = sending_.find(id);
  CHECK(found != sending_.end(), "a write of no transfer");
  Sending& sending = found->second;
  --sending.writing;
  write_meter_.End(ok ? page_ : Bytes(0), now);
  counters_.pages_sent += ok;
  if (sending.phase == Sending::Phase::kStopping) return ForgetWhenWritten(id, now);
  if (!ok) {
    Refuse(id, Error{Code::kUnavailable, "pages could not be written to the decode worker"});
    return EndSending(id, End::kFailed, now);
  }
  HandOverWhenWritten(id, sending, now);
}

void Worker::State::EndSending(const TransferId& id, End how, Seconds now) {
  Sending& sending = sending_.at(id);
  if (sending.phase != Sending::Phase::kStopping) Stop(sending, how, now);
  sending.tell_decode |= how != End::kTaken;
  ForgetWhenWritten(id, now);
}

// The content that writes under way carry no longer matters, so the pages are free at once.
void Worker::State::Stop(Sending& sending, End how, Seconds now) {
  sending.phase = Sending::Phase::kStopping;
  Cancel(sending.local, now);
  local_.erase(sending.local);
  counters_.handovers += how == End::kTaken;
  counters_.transfers_failed += how == End::kFailed;
  counters_.transfers_aborted += how == End::kAborted;
  counters_.transfers_answered += how == End::kAnswered;
}

// D is told, and the transfer forgotten, once no write is under way.
void Worker::State::ForgetWhenWritten(const TransferId& id, Seconds now) {
  const auto found = sending_.find(id);
  if (found->second.writing > 0) return;
  const bool taken = !found->second.tell_decode;
  if (!taken) Send(found->second.decode, StoppedMessage{id});
  sending_.erase(found);
  Bury(id, now, taken);
}

void Worker::State::On(NodeId from, TakenMessage m, Seconds now) {
  const auto found = sending_.find(m.id);
  if (found == sending_.end() || found->second.decode != from) return;
  if (found->second.phase != Sending::Phase::kHandedOver) return;
  const Sending& sending = found->second;
  counters_.tail_times.Add(now - *sending.held_at);
  counters_.transfer_times.Add(now - sending.first_write.value_or(*sending.held_at));
  handovers_.push_back({.id = m.id,
                        .pages = sending.next_page - sending.present,
                        .computing = *sending.held_at - sending.began,
                        .writing = sending.written - *sending.held_at,
                        .taking = now - sending.written});
  EndSending(m.id, End::kTaken, now);
}

void Worker::State::ApplySending(const TransferId& id, SchedulerEvent event, Seconds now) {
  Sending& sending = sending_.at(id);
  switch (event.kind) {
    case SchedulerEvent::Kind::kComputed:
      // Whole pages only: the last one follows when the prompt is done.
      return WritePages(id, event.computed_tokens / kBlockTokens, now);
    case SchedulerEvent::Kind::kPromptScores:
      std::ranges::move(event.prompt_scores, std::back_inserter(sending.prompt_scores));
      return;
    case SchedulerEvent::Kind::kToken:
      sending.first = std::move(event.token);
      return;
    case SchedulerEvent::Kind::kHeld:
      sending.held = true;
      sending.held_at = now;
      WritePages(id, static_cast<int64_t>(sending.pages.size()), now);
      return HandOverWhenWritten(id, sending, now);
    case SchedulerEvent::Kind::kFinished:
      return FinishAtPrefill(id, sending, std::move(event), now);
    default:
      return;
  }
}

// The first token was the last, or none can be had: nothing is handed over. From here on this is a
// request like a replica's, whose tokens wait for the gateway.
void Worker::State::FinishAtPrefill(const TransferId& id, Sending& sending, SchedulerEvent event,
                                    Seconds now) {
  Incoming incoming{.phase = Incoming::Phase::kFinished, .lease_ends = sending.lease_ends};
  if (sending.first) incoming.tokens.push_back(*sending.first);
  incoming.prompt_scores = std::move(sending.prompt_scores);
  incoming.found = sending.found;
  incoming.cached_tokens = sending.cached_tokens;
  incoming.finish = event.reason;
  incoming.error = std::move(event.error);
  // Before D is told: it says that P gave up, and the gateway would try again.
  SendTokens(id, incoming, 0, now);
  EndSending(id, event.reason == FinishReason::kError ? End::kFailed : End::kAnswered, now);
  incoming_[id] = std::move(incoming);
}

void Worker::State::TickSending(Seconds now) {
  std::vector<TransferId> silent, untaken;
  for (auto& [id, sending] : sending_) {
    if (sending.phase == Sending::Phase::kStopping) continue;
    const bool handed = sending.phase == Sending::Phase::kHandedOver;
    if (now >= sending.lease_ends) {
      silent.push_back(id);
    } else if (handed && now >= sending.taken_before) {
      untaken.push_back(id);
    } else if (handed && now >= sending.resend_at) {
      sending.resend_at = now + times_.resend;
      Send(sending.decode, HandoverMessage{id, *sending.first, sending.prompt_scores, sending.found,
                                           sending.cached_tokens});
    }
  }
  for (const TransferId& id : silent) {
    ++counters_.expired_leases;
    Refuse(id, Error{Code::kDeadlineExceeded, "the gateway was not heard of for a whole lease"});
    EndSending(id, End::kAborted, now);
  }
  for (const TransferId& id : untaken) {
    Refuse(id, Error{Code::kDeadlineExceeded, "the decode worker did not take the prompt in time"});
    EndSending(id, End::kFailed, now);
  }
}

}  // namespace divisi
