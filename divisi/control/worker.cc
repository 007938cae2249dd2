#include "divisi/control/worker.h"

#include "divisi/control/worker_state.h"
#include "divisi/engine/gate_wait.h"

namespace divisi {
namespace {

// Ended transfers are remembered for as long as a message of theirs may come: two leases. Beyond
// this many the oldest go first; a worker ends some hundred requests a second at most.
constexpr size_t kMostTombstones = 100'000;

}  // namespace

void Worker::State::Bury(const TransferId& id, Seconds now, bool well) {
  const Seconds until = now + times_.lease * 2;
  if (!tombstones_.emplace(id, Tombstone{until, well}).second) return;
  burials_.emplace(until.value, id);
  while (tombstones_.size() > kMostTombstones) {
    tombstones_.erase(burials_.begin()->second);
    burials_.erase(burials_.begin());
  }
}

void Worker::State::On(NodeId from, AbortMessage m, Seconds now) {
  const bool sends = sending_.contains(m.id);
  if (sends) EndSending(m.id, End::kAborted, now);
  // P may have ended the request with its first token, which then waits here for the gateway, with
  // pages of an earlier chunk still being written.
  if (from == m.id.gateway) {
    if (!sends || incoming_.contains(m.id)) EndIncoming(m.id, now);
    return;
  }
  // D waits for this answer; P may never have heard of the transfer.
  if (sends) return;
  if (!incoming_.contains(m.id)) Bury(m.id, now);
  Send(from, StoppedMessage{m.id});
}

void Worker::State::On(NodeId, RenewMessage m, Seconds now) {
  if (const auto found = sending_.find(m.id); found != sending_.end()) {
    found->second.lease_ends = now + times_.lease;
  }
  const auto found = incoming_.find(m.id);
  if (found == incoming_.end()) {
    // An answer, so that the gateway need not wait for a deadline.
    const auto tombstone = tombstones_.find(m.id);
    const bool well = tombstone != tombstones_.end() && tombstone->second.well;
    if (!sending_.contains(m.id) && !well) {
      Refuse(m.id, Error{Code::kUnavailable, "the worker does not have the request"});
    }
    return;
  }
  Incoming& incoming = found->second;
  incoming.lease_ends = now + times_.lease;
  const auto size = static_cast<int64_t>(incoming.tokens.size());
  const bool missing = m.have < size || incoming.finish;
  if (m.have < 0 || m.have > size || !missing) return;
  if (now - incoming.sent_at >= times_.resend) SendTokens(m.id, incoming, m.have, now);
}

void Worker::State::PeerGone(NodeId peer, Seconds now) {
  gone_.insert(peer);
  std::vector<TransferId> incoming, sending;
  for (const auto& [id, entry] : incoming_) {
    if (entry.writer == peer) incoming.push_back(id);
  }
  for (const auto& [id, entry] : sending_) {
    if (entry.decode == peer) sending.push_back(id);
  }
  for (const TransferId& id : incoming) {
    incoming_.at(id).writer.reset();  // Fenced: none of its writes lands any more.
    Refuse(id, Error{Code::kUnavailable, "the prefill worker is gone"});
    EndIncoming(id, now);
  }
  for (const TransferId& id : sending) {
    Refuse(id, Error{Code::kUnavailable, "the decode worker is gone"});
    EndSending(id, End::kFailed, now);
  }
}

const StepPlan& Worker::State::Plan(Seconds now) {
  const StepPlan& plan = scheduler_.Plan();
  plan_ = &plan;
  planned_ = WorkOf(plan);
  planned_at_ = now;
  for (const StepSlice& slice : plan.slices) {
    (IsDecode(slice) ? counters_.decode_tokens : counters_.prefill_tokens) += slice.count;
  }
  return plan;
}

void Worker::State::Commit(std::vector<SliceResult> results, Seconds now) {
  if (!AnyLost(results)) step_meter_.Add(planned_, now - planned_at_ - WaitedAtGates(*plan_));
  Apply(scheduler_.Commit(std::move(results)), now);
}

Result<void> Worker::State::Add(Request request, Seconds now) {
  if (prefixes_) return prefixes_->Add(std::move(request), now);
  return scheduler_.Add(std::move(request));
}

void Worker::State::Cancel(RequestId local, Seconds now) {
  if (prefixes_ && prefixes_->Cancel(local, now)) return;
  scheduler_.Cancel(local);
}

Seconds Worker::State::PromptToken() const {
  WorkerRates rates;
  step_meter_.Fit(rates);
  return rates.prompt_steps > 0 ? rates.per_token : Seconds(0);
}

// What there was of the prompt when its computing began. Of a load that failed under it that is
// what came, which is known once the load has ended: when the first token is there.
void Worker::State::NoteFound(const SchedulerEvent& event) {
  using Kind = SchedulerEvent::Kind;
  const auto local = local_.find(event.request);
  if (local == local_.end()) return;
  const auto take = [&](auto& entry) {
    if (event.kind == Kind::kScheduled) {
      const int64_t cached = event.cached_tokens / kBlockTokens;
      entry.cached_tokens = event.cached_tokens;
      entry.found = prefixes_ ? prefixes_->Found(event.request, cached) : PagesFound{cached};
    } else if (event.kind == Kind::kLost) {
      entry.cached_tokens = 0;
      entry.lost = true;
    } else if (entry.lost && prefixes_) {
      entry.found = prefixes_->Found(event.request, entry.found[0]);
    }
  };
  if (const auto at = sending_.find(local->second); at != sending_.end()) {
    take(at->second);
  } else if (const auto in = incoming_.find(local->second); in != incoming_.end()) {
    // Of a prompt that another worker computed, that one said it.
    if (!in->second.adopted) take(in->second);
  }
}

void Worker::State::FitReads(WorkerRates& rates) const {
  if (!prefixes_) return;
  const TierSpeeds& speeds = prefixes_->speeds();
  const std::array<BytesPerSecond, kSources> read{BytesPerSecond(0), speeds.host, speeds.disk,
                                                  speeds.remote, speeds.peer};
  for (size_t t = 1; t < read.size(); ++t) {
    if (read[t].value <= 0) continue;
    rates.read[t] = read[t];
    rates.read_measured[t] = true;
  }
  if (prefixes_->lookup() <= Seconds(0)) return;
  rates.lookup = prefixes_->lookup();
  rates.lookup_measured = true;
}

void Worker::State::Apply(std::vector<SchedulerEvent> events, Seconds now) {
  for (const SchedulerEvent& event : events) NoteFound(event);
  if (prefixes_) prefixes_->Note(events, now);
  std::set<TransferId> talked;
  for (SchedulerEvent& event : events) {
    const auto local = local_.find(event.request);
    if (local == local_.end()) continue;
    const TransferId id = local->second;
    if (sending_.contains(id)) {
      ApplySending(id, std::move(event), now);
    } else {
      ApplyIncoming(id, std::move(event), now);
      talked.insert(id);
    }
  }
  for (const TransferId& id : talked) {
    Incoming& incoming = incoming_.at(id);
    const auto size = static_cast<int64_t>(incoming.tokens.size());
    if (incoming.sent == size && !incoming.finish) continue;
    SendTokens(id, incoming, incoming.sent, now);
    incoming.sent = size;
  }
}

void Worker::State::Tick(Seconds now) {
  TickIncoming(now);
  TickSending(now);
  while (!burials_.empty() && burials_.begin()->first <= now.value) {
    tombstones_.erase(burials_.begin()->second);
    burials_.erase(burials_.begin());
  }
}

std::optional<Seconds> Worker::State::NextTimer() const {
  std::optional<Seconds> next;
  const auto at = [&](Seconds time) {
    if (!next || time < *next) next = time;
  };
  for (const auto& [id, incoming] : incoming_) {
    at(incoming.phase == Incoming::Phase::kStopping ? incoming.resend_at : incoming.lease_ends);
  }
  for (const auto& [id, sending] : sending_) {
    if (sending.phase == Sending::Phase::kStopping) continue;
    at(sending.lease_ends);
    if (sending.phase == Sending::Phase::kHandedOver) {
      at(std::min(sending.resend_at, sending.taken_before));
    }
  }
  if (!burials_.empty()) at(Seconds(burials_.begin()->first));
  return next;
}

WorkerStats Worker::State::stats() const {
  WorkerStats stats{.scheduler = scheduler_.stats(), .counters = counters_};
  stats.counters.queried_tokens = stats.scheduler.prefix_queried_tokens;
  stats.counters.cached_tokens = stats.scheduler.prefix_hit_tokens;
  stats.counters.preemptions = stats.scheduler.preemptions;
  if (prefixes_) stats.prefixes = prefixes_->stats();
  step_meter_.Fit(stats.rates);
  write_meter_.Fit(stats.rates);
  FitReads(stats.rates);
  stats.incoming = static_cast<int64_t>(incoming_.size());
  stats.outgoing = static_cast<int64_t>(sending_.size());
  for (const auto& [id, incoming] : incoming_) {
    stats.stopping += incoming.phase == Incoming::Phase::kStopping;
    if (incoming.phase != Incoming::Phase::kReserved && !incoming.writer) continue;
    stats.pages_reserved += static_cast<int64_t>(incoming.reservation.pages.size());
  }
  for (const auto& [id, sending] : sending_) {
    const bool computing = sending.phase == Sending::Phase::kComputing;
    stats.computing += computing && !sending.held;
    stats.writing += computing && sending.held;
    stats.handed_over += sending.phase == Sending::Phase::kHandedOver;
    stats.ending += sending.phase == Sending::Phase::kStopping;
    if (!sending.held || sending.phase == Sending::Phase::kStopping) continue;
    stats.pages_pinned += static_cast<int64_t>(scheduler_.PagesOf(sending.local).size());
  }
  return stats;
}

void Worker::State::Verify() const {
  scheduler_.Verify();
  if (prefixes_) prefixes_->Verify();
  for (const auto& [id, incoming] : incoming_) {
    CHECK(!sending_.contains(id) || incoming.phase == Incoming::Phase::kFinished);
    CHECK(incoming.phase != Incoming::Phase::kStopping || incoming.writer);
  }
  int64_t writing = 0, ended = counters_.transfers;
  for (const auto& [id, sending] : sending_) {
    writing += sending.writing;
    ended -= sending.phase != Sending::Phase::kStopping;
  }
  CHECK(writing == static_cast<int64_t>(write_of_.size()));
  CHECK(ended == counters_.handovers + counters_.transfers_failed + counters_.transfers_aborted +
                     counters_.transfers_answered);
  CHECK(tombstones_.size() == burials_.size());
}

// ---- The public face

Worker::Worker(NodeId self, SchedulerOptions options, HandoffTimes times, Bytes page)
    : state_(std::make_unique<State>(self, std::move(options), times, page)) {}
Worker::~Worker() = default;
void Worker::UseTiers(PrefixLoaderOptions options) { state_->UseTiers(std::move(options)); }
PrefixLoader* Worker::prefixes() { return state_->prefixes(); }
std::vector<PageChange> Worker::TakePageChanges() { return state_->TakePageChanges(); }
std::vector<TierEvent> Worker::TakeTierEvents() { return state_->TakeTierEvents(); }
bool Worker::HasPage(const BlockKey& key) const { return state_->HasPage(key); }
Seconds Worker::PromptToken() const { return state_->PromptToken(); }
void Worker::Receive(NodeId from, HandoffMessage message, Seconds now) {
  state_->Receive(from, std::move(message), now);
}
void Worker::WriteDone(uint64_t id, bool ok, Seconds now) { state_->WriteDone(id, ok, now); }
void Worker::PeerGone(NodeId peer, Seconds now) { state_->PeerGone(peer, now); }
void Worker::Tick(Seconds now) { state_->Tick(now); }
std::optional<Seconds> Worker::NextTimer() const { return state_->NextTimer(); }
const StepPlan& Worker::Plan(Seconds now) { return state_->Plan(now); }
void Worker::Commit(std::vector<SliceResult> results, Seconds now) {
  state_->Commit(std::move(results), now);
}
bool Worker::HasWork() const { return state_->HasWork(); }
std::vector<Outgoing> Worker::TakeMessages() { return state_->TakeMessages(); }
std::vector<PageWrite> Worker::TakeWrites() { return state_->TakeWrites(); }
std::vector<HandoverTimes> Worker::TakeHandovers() { return state_->TakeHandovers(); }
WorkerStats Worker::stats() const { return state_->stats(); }
void Worker::Verify() const { state_->Verify(); }

}  // namespace divisi
