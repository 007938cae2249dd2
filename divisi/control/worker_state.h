// The worker's state, shared by worker.cc (what both roles have in common), worker_incoming.cc (D
// and replicas) and worker_sending.cc (P). Included by those alone.
#pragma once

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "divisi/control/worker.h"
#include "divisi/core/check.h"
#include "divisi/core/format.h"

namespace divisi {

class Worker::State {
 public:
  State(NodeId self, SchedulerOptions options, HandoffTimes times, Bytes page)
      : self_(self),
        times_(times),
        page_(page),
        options_(options),
        scheduler_(std::move(options)) {}

  void UseTiers(PrefixLoaderOptions options) {
    prefixes_.emplace(scheduler_, options_, std::move(options));
  }
  PrefixLoader* prefixes() { return prefixes_ ? &*prefixes_ : nullptr; }
  std::vector<PageChange> TakePageChanges() {
    return prefixes_ ? prefixes_->TakePageChanges() : scheduler_.TakePageChanges();
  }
  std::vector<TierEvent> TakeTierEvents() {
    return prefixes_ ? prefixes_->TakeTierEvents() : std::vector<TierEvent>();
  }
  bool HasPage(const BlockKey& key) const { return scheduler_.CachedPages({&key, 1}) == 1; }
  Seconds PromptToken() const;
  void Receive(NodeId from, HandoffMessage message, Seconds now) {
    std::visit([&](auto& m) { On(from, std::move(m), now); }, message);
  }
  void WriteDone(uint64_t write, bool ok, Seconds now);
  void PeerGone(NodeId peer, Seconds now);
  void Tick(Seconds now);
  std::optional<Seconds> NextTimer() const;
  const StepPlan& Plan(Seconds now);
  void Commit(std::vector<SliceResult> results, Seconds now);
  bool HasWork() const { return scheduler_.HasWork(); }
  std::vector<Outgoing> TakeMessages() { return std::exchange(messages_, {}); }
  std::vector<PageWrite> TakeWrites() { return std::exchange(writes_, {}); }
  std::vector<HandoverTimes> TakeHandovers() { return std::exchange(handovers_, {}); }
  WorkerStats stats() const;
  void Verify() const;

 private:
  // A request of D, or of a replica.
  struct Incoming {
    enum class Phase { kReserved, kStopping, kRunning, kFinished };
    Phase phase = Phase::kReserved;
    RequestId local = 0;
    std::optional<NodeId> writer;  // P, while it may write
    bool adopted = false;          // P has computed its prompt.
    Reservation reservation;
    Seconds lease_ends;
    Seconds resend_at;  // kStopping: of Abort to P
    std::vector<SampledToken> tokens;
    int64_t sent = 0;  // Tokens sent at least once
    std::vector<SampledToken> prompt_scores;
    PagesFound found{};
    int64_t cached_tokens = 0;
    bool lost = false;  // A load failed under it.
    std::optional<FinishReason> finish;
    std::optional<Error> error;
    Seconds sent_at;
  };
  struct Tombstone {
    Seconds until;
    bool well = false;
  };
  // How a transfer of P ends; each is counted as one.
  enum class End {
    kTaken,     // By D
    kFailed,    // It was not computed, a write failed, D did not take it, or D is gone.
    kAborted,   // By its gateway or D, or its gateway is silent.
    kAnswered,  // Its first token was its last.
  };
  // A request of P.
  struct Sending {
    enum class Phase { kComputing, kHandedOver, kStopping };
    Phase phase = Phase::kComputing;
    RequestId local = 0;
    NodeId decode;
    std::vector<BlockId> pages;  // At D
    int64_t next_page = 0;       // Not yet written
    int64_t present = 0;         // Pages that D had
    int64_t writing = 0;         // Writes under way
    bool held = false;           // All is computed
    bool tell_decode = false;    // kStopping: Stopped is owed
    std::optional<SampledToken> first;
    std::vector<SampledToken> prompt_scores;
    PagesFound found{};
    int64_t cached_tokens = 0;
    bool lost = false;  // A load failed under it.
    Seconds lease_ends;
    std::optional<Seconds> first_write, held_at;
    Seconds resend_at;     // kHandedOver: of Handover
    Seconds taken_before;  // kHandedOver
    Seconds began, written;
  };

  void On(NodeId from, ReserveMessage m, Seconds now);
  void On(NodeId from, PrefillMessage m, Seconds now);
  void On(NodeId from, HandoverMessage m, Seconds now);
  void On(NodeId from, TakenMessage m, Seconds now);
  void On(NodeId from, ServeMessage m, Seconds now);
  void On(NodeId from, RenewMessage m, Seconds now);
  void On(NodeId from, AbortMessage m, Seconds now);
  void On(NodeId from, StoppedMessage m, Seconds now);
  // For gateways; a worker that gets one ignores it.
  void On(NodeId, ReservedMessage, Seconds) {}
  void On(NodeId, TokensMessage, Seconds) {}
  void On(NodeId, RefusedMessage, Seconds) {}

  void Send(NodeId to, HandoffMessage message) { messages_.push_back({to, std::move(message)}); }
  void Refuse(const TransferId& id, Error error) {
    Send(id.gateway, RefusedMessage{id, std::move(error)});
  }
  bool Ended(const TransferId& id) const { return tombstones_.contains(id); }
  // well: this worker did its part, and the gateway need not hear that it is over.
  void Bury(const TransferId& id, Seconds now, bool well = false);

  // A request whose prompt is computed here.
  Result<void> Add(Request request, Seconds now);
  void Cancel(RequestId local, Seconds now);
  void NoteFound(const SchedulerEvent& event);
  void FitReads(WorkerRates& rates) const;
  void Apply(std::vector<SchedulerEvent> events, Seconds now);
  void ApplyIncoming(const TransferId& id, SchedulerEvent event, Seconds now);
  void ApplySending(const TransferId& id, SchedulerEvent event, Seconds now);
  void SendTokens(const TransferId& id, Incoming& incoming, int64_t start, Seconds now);
  void WritePages(const TransferId& id, int64_t pages, Seconds now);
  void HandOverWhenWritten(const TransferId& id, Sending& sending, Seconds now);
  void FinishAtPrefill(const TransferId& id, Sending& sending, SchedulerEvent event, Seconds now);
  // Of an unknown transfer: it never begins.
  void EndIncoming(const TransferId& id, Seconds now);
  // What P says of the prompt names only tokens of this model.
  Result<void> CheckTokens(const HandoverMessage& m) const;
  void FreeIncoming(std::map<TransferId, Incoming>::iterator at, Seconds now);
  void EndSending(const TransferId& id, End how, Seconds now);
  void Stop(Sending& sending, End how, Seconds now);
  void ForgetWhenWritten(const TransferId& id, Seconds now);
  void TickIncoming(Seconds now);
  void TickSending(Seconds now);

  const NodeId self_;
  const HandoffTimes times_;
  const Bytes page_;
  const SchedulerOptions options_;
  Scheduler scheduler_;
  std::optional<PrefixLoader> prefixes_;
  RequestId last_local_ = 0;
  uint64_t last_write_ = 0;
  std::map<TransferId, Incoming> incoming_;
  std::map<TransferId, Sending> sending_;
  std::map<RequestId, TransferId> local_;
  std::map<uint64_t, TransferId> write_of_;
  std::set<NodeId> gone_;  // A few bytes for each death in the cluster, for this process's life.
  std::map<TransferId, Tombstone> tombstones_;
  std::multimap<double, TransferId> burials_;
  std::vector<Outgoing> messages_;
  std::vector<PageWrite> writes_;
  std::vector<HandoverTimes> handovers_;
  WorkerCounters counters_;
  StepMeter step_meter_;
  WriteMeter write_meter_;
  const StepPlan* plan_ = nullptr;  // The scheduler's, of the step under way
  StepWork planned_;
  Seconds planned_at_;
};

}  // namespace divisi
