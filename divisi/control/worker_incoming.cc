#include "divisi/control/worker_state.h"

namespace divisi {

void Worker::State::On(NodeId, ReserveMessage m, Seconds now) {
  const auto found = incoming_.find(m.id);
  if (found != incoming_.end()) {  // Sent again: its answer was lost.
    const Incoming& incoming = found->second;
    if (incoming.phase != Incoming::Phase::kReserved) return;
    return Send(m.id.gateway,
                ReservedMessage{m.id, incoming.reservation.pages, incoming.reservation.present});
  }
  if (Ended(m.id)) return;
  // Nobody would tell again that it is gone.
  if (gone_.contains(m.prefill)) {
    return Refuse(m.id, Error{Code::kUnavailable, "the prefill worker is gone"});
  }
  m.request.id = ++last_local_;
  auto reservation = scheduler_.Reserve(std::move(m.request));
  if (!reservation) {
    ++counters_.reservations_refused;
    return Refuse(m.id, reservation.error());
  }
  ++counters_.reservations;
  Incoming& incoming = incoming_[m.id];
  incoming.local = last_local_;
  incoming.writer = m.prefill;
  incoming.reservation = *reservation;
  incoming.lease_ends = now + times_.lease;
  local_.emplace(last_local_, m.id);
  Send(m.id.gateway, ReservedMessage{m.id, reservation->pages, reservation->present});
}

void Worker::State::On(NodeId, ServeMessage m, Seconds now) {
  if (incoming_.contains(m.id) || Ended(m.id)) return;
  m.request.id = ++last_local_;
  m.request.hold_after_prompt = false;
  if (const auto added = Add(std::move(m.request), now); !added) {
    return Refuse(m.id, added.error());
  }
  Incoming& incoming = incoming_[m.id];
  incoming.phase = Incoming::Phase::kRunning;
  incoming.local = last_local_;
  incoming.lease_ends = now + times_.lease;
  local_.emplace(last_local_, m.id);
}

void Worker::State::On(NodeId from, HandoverMessage m, Seconds now) {
  const auto found = incoming_.find(m.id);
  if (found == incoming_.end()) return Send(from, AbortMessage{m.id});
  Incoming& incoming = found->second;
  switch (incoming.phase) {
    case Incoming::Phase::kStopping:  // P has written its last.
      if (incoming.writer == from) FreeIncoming(found, now);
      return;
    case Incoming::Phase::kRunning:
    case Incoming::Phase::kFinished:  // Taken was lost.
      return Send(from, TakenMessage{m.id});
    case Incoming::Phase::kReserved:
      break;
  }
  if (incoming.writer != from) return;
  if (const auto good = CheckTokens(m); !good) {  // P has written its last: it is of no use.
    Refuse(m.id, Error{Code::kDataLoss, "the prefill worker's answer: " + good.error().message});
    FreeIncoming(found, now);
    return Send(from, AbortMessage{m.id});
  }
  incoming.phase = Incoming::Phase::kRunning;
  incoming.writer.reset();
  counters_.pages_received +=
      static_cast<int64_t>(incoming.reservation.pages.size()) - incoming.reservation.present;
  incoming.prompt_scores = std::move(m.prompt_scores);
  incoming.found = m.found;
  incoming.cached_tokens = m.cached_tokens;
  incoming.adopted = true;
  Send(from, TakenMessage{m.id});
  Apply(scheduler_.Adopt(incoming.local, std::move(m.first)), now);
}

Result<void> Worker::State::CheckTokens(const HandoverMessage& m) const {
  const auto check = [this](const SampledToken& token) -> Result<void> {
    RETURN_IF_ERROR(CheckTokenId(options_, token.token, "a token"));
    for (const TokenLogprob& top : token.top) {
      RETURN_IF_ERROR(CheckTokenId(options_, top.token, "top_logprobs"));
    }
    return {};
  };
  RETURN_IF_ERROR(check(m.first));
  for (const SampledToken& score : m.prompt_scores) RETURN_IF_ERROR(check(score));
  return {};
}

void Worker::State::On(NodeId from, StoppedMessage m, Seconds now) {
  const auto found = incoming_.find(m.id);
  if (found == incoming_.end() || found->second.writer != from) return;
  // P gave up by itself: the gateway hears of it, since it may not from P.
  if (found->second.phase == Incoming::Phase::kReserved) {
    Refuse(m.id, Error{Code::kUnavailable, "the prefill worker gave the request up"});
  }
  FreeIncoming(found, now);
}

// Pages that nothing can reach any more are free.
void Worker::State::FreeIncoming(std::map<TransferId, Incoming>::iterator at, Seconds now) {
  const TransferId id = at->first;
  Cancel(at->second.local, now);
  local_.erase(at->second.local);
  incoming_.erase(at);
  Bury(id, now);
}

// Ends a request of D as soon as its pages are out of reach.
void Worker::State::EndIncoming(const TransferId& id, Seconds now) {
  const auto found = incoming_.find(id);
  if (found == incoming_.end()) return Bury(id, now);
  Incoming& incoming = found->second;
  if (!incoming.writer) return FreeIncoming(found, now);
  if (incoming.phase == Incoming::Phase::kStopping) return;
  incoming.phase = Incoming::Phase::kStopping;
  incoming.resend_at = now + times_.resend;
  Send(*incoming.writer, AbortMessage{id});
}

void Worker::State::SendTokens(const TransferId& id, Incoming& incoming, int64_t start,
                               Seconds now) {
  TokensMessage message{
      .id = id, .start = start, .finish = incoming.finish, .error = incoming.error};
  message.tokens.assign(incoming.tokens.begin() + start, incoming.tokens.end());
  if (start == 0) {
    message.prompt_scores = incoming.prompt_scores;
    message.found = incoming.found;
    message.cached_tokens = incoming.cached_tokens;
  }
  incoming.sent_at = now;
  Send(id.gateway, std::move(message));
}

void Worker::State::ApplyIncoming(const TransferId& id, SchedulerEvent event, Seconds) {
  Incoming& incoming = incoming_.at(id);
  switch (event.kind) {
    case SchedulerEvent::Kind::kToken:
      incoming.tokens.push_back(std::move(event.token));
      return;
    case SchedulerEvent::Kind::kPromptScores:
      std::ranges::move(event.prompt_scores, std::back_inserter(incoming.prompt_scores));
      return;
    case SchedulerEvent::Kind::kFinished:
      incoming.phase = Incoming::Phase::kFinished;
      incoming.finish = event.reason;
      incoming.error = std::move(event.error);
      return;
    default:
      return;
  }
}

void Worker::State::TickIncoming(Seconds now) {
  std::vector<TransferId> expired;
  for (auto& [id, incoming] : incoming_) {
    if (incoming.phase == Incoming::Phase::kStopping) {
      if (now < incoming.resend_at) continue;
      incoming.resend_at = now + times_.resend;
      Send(*incoming.writer, AbortMessage{id});
    } else if (now >= incoming.lease_ends) {
      expired.push_back(id);
    }
  }
  for (const TransferId& id : expired) {
    ++counters_.expired_leases;
    EndIncoming(id, now);
  }
}

}  // namespace divisi
