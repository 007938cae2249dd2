// The dispatcher's state, shared by dispatcher.cc (a request's course), dispatcher_workers.cc
// (workers, their room, and who is tried next) and dispatcher_routes.cc (what is known of workers
// for a choice, and what follows from it). Included by those alone.
#pragma once

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <span>
#include <utility>

#include "divisi/control/dispatcher.h"
#include "divisi/core/check.h"
#include "divisi/core/format.h"

namespace divisi {

class Dispatcher::State {
 public:
  State(NodeId self, DispatcherOptions options, PageDirectory* directory)
      : self_(self), options_(options), directory_(directory) {}

  void AddWorker(NodeId node, WorkerRole role, WorkerCapacity capacity);
  void Drain(NodeId node, Seconds now, Seconds within);
  void RemoveWorker(NodeId node, Seconds now);
  void Report(NodeId node, const WorkerRates& rates, int64_t prompt_backlog, Seconds now);
  Result<uint64_t> Submit(Request request, Seconds now, std::vector<BlockKey> pages);
  void Cancel(uint64_t request, Seconds now);
  void Receive(NodeId from, HandoffMessage message, Seconds now);
  void Tick(Seconds now);
  std::vector<Outgoing> TakeMessages() { return std::exchange(messages_, {}); }
  std::vector<DispatchEvent> TakeEvents() { return std::exchange(events_, {}); }
  std::vector<RouteNote> TakeChoices() { return std::exchange(choices_, {}); }
  const DispatcherOptions& options() const { return options_; }
  int64_t waiting() const { return waiting_; }
  int64_t live() const { return static_cast<int64_t>(jobs_.size()); }
  DispatcherStats stats() const;
  std::vector<WorkerLoad> loads(Seconds now) const;
  std::optional<HandoverThreshold> threshold(Seconds now) const;
  std::optional<RouteChoice> Explain(const RouteQuestion& question, Seconds now) const;
  void Verify() const;

 private:
  struct Job {
    enum class Phase { kQueued, kReserving, kPrefilling, kDecoding };
    Phase phase = Phase::kQueued;
    Request request;
    std::vector<BlockKey> pages;  // Of its prompt
    uint32_t attempt = 0;
    std::optional<NodeId> prefill;  // Of this attempt
    std::optional<NodeId> decode;   // Or who runs the whole of it
    PagesFound shown{};             // Pages of the prefix that it counts on, by tier
    std::optional<NodeId> peer;     // Whose kPeer's are
    int64_t have = 0;               // Tokens that the client has
    Seconds give_up_at;             // Before the first token
    Seconds begun_at;               // The phase
    Seconds deadline;               // Of the phase; kQueued: not tried before
    Seconds renew_at;
    Seconds backoff;
    std::optional<Error> last_error;  // Of an attempt
    std::vector<NodeId> failed;       // Workers that failed an attempt, the last few
    int64_t prompt_tokens() const { return static_cast<int64_t>(request.prompt.size()); }
  };
  struct Node {
    WorkerRole role = WorkerRole::kReplica;
    WorkerCapacity capacity;
    WorkerRates rates;
    int64_t requests = 0;
    int64_t decoding = 0;
    // Prompts that are not through, and what each takes: of this gateway one by one, by request;
    // of others their sum, as of the last report.
    struct Prompt {
      Seconds work;        // Without what of it was taken to be there
      int64_t tokens = 0;  // With that
    };
    std::map<uint64_t, Prompt> prompts;
    Seconds prompts_sum;
    Seconds first_since;  // When the first of them began, as far as can be told
    Seconds others;
    // What it is expected to read for prompts that are not through.
    struct Read {
      std::array<Bytes, kSources> bytes{};  // By tier
      std::optional<NodeId> peer;
      Seconds from, until;
      double Left(Seconds now) const;  // Of it, 0 to 1
    };
    std::map<uint64_t, Read> reads;

    bool draining = false;
    Seconds drain_ends;
    // Refused for want of room: attempts only for `credits`, or from `again_at` on.
    bool full = false;
    int64_t credits = 0;
    Seconds again_at;
    Seconds pause;
  };
  // Of the workers that have measured; counts of them.
  struct MeanRates {
    WorkerRates rates{.step = {}, .per_token = {}, .per_sequence = {}, .read = {}, .lookup = {}};
    double prompts = 0, steps = 0, lookups = 0;
    std::array<double, kSources> reads{};
    void Take(const WorkerRates& measured);
    void Finish();
  };
  struct Loss {
    Error why;
    RetryReason reason = RetryReason::kRefused;
    std::optional<NodeId> at;  // Whose fault it is
  };

  static bool Waiting(const Job& job) { return job.phase != Job::Phase::kDecoding; }
  TransferId IdOf(uint64_t number, const Job& job) const { return {self_, number, job.attempt}; }
  void Send(NodeId to, HandoffMessage message) { messages_.push_back({to, std::move(message)}); }

  // dispatcher.cc
  void Begin(uint64_t number, Job& job, const RouteOption& option, Seconds now);
  void Assign(uint64_t number, Job& job, const RouteOption& option, Seconds now);
  void PromptDone(NodeId node, uint64_t number, Seconds now);
  void LeaveAttempt(uint64_t number, Job& job, Seconds now);
  void Retry(uint64_t number, Job& job, Loss loss, Seconds now);
  void Finish(uint64_t number, DispatchEvent event, Seconds now);
  void Fail(uint64_t number, Error error, Seconds now);
  void GiveUp(uint64_t number, Seconds now);
  void Lost(uint64_t number, Job& job, Loss loss, Seconds now);
  void Renew(uint64_t number, Job& job, Seconds now);
  void On(uint64_t number, Job& job, NodeId from, ReservedMessage m, Seconds now);
  void On(uint64_t number, Job& job, NodeId from, TokensMessage m, Seconds now);
  void On(uint64_t number, Job& job, NodeId from, RefusedMessage m, Seconds now);
  template <typename Other>
  void On(uint64_t, Job&, NodeId, Other, Seconds) {}  // For workers

  // dispatcher_workers.cc
  bool HasRoom(const Node& node, Seconds now) const;
  static Seconds FirstDone(const Node& node, Seconds now);
  Seconds QueueOf(const Node& node, Seconds now) const;
  // What a prompt of its length is given beside the fixed times until the first token.
  Seconds ForPrompt(const Job& job) const {
    return options_.times.per_token * static_cast<double>(job.request.prompt.size());
  }
  bool CouldRun() const;  // Whether somebody takes requests, given room
  void TookOne(NodeId node);
  void IsFull(NodeId node, Seconds now);
  void EndDrains(Seconds now);
  // Tries those that wait, oldest first, until one finds no room.
  void TryQueue(Seconds now);

  // dispatcher_routes.cc
  void UpdateMeans();
  WorkerRates RatesOf(const Node& node) const;
  void NoteArrival(Seconds now);
  PerSecond ArrivalsAt(Seconds now) const;
  std::array<Bytes, kSources> ReadingOf(const Node& node, Seconds now) const;
  std::vector<RouteWorker> Workers(Seconds now) const;
  SharedLink PoolLink(std::span<const RouteWorker> workers) const;
  RouteRules Rules(std::span<const RouteWorker> workers, Seconds now) const;
  void FindPrefixes(std::span<const BlockKey> pages, std::vector<RouteWorker>& workers,
                    Seconds now) const;
  void FindPeers(std::vector<RouteWorker>& workers, Seconds now) const;
  std::map<NodeId, SharedLink> PeerLinks(Seconds now) const;
  void LeaveOutFailed(const Job& job, std::vector<RouteWorker>& workers) const;
  std::optional<RouteChoice> Choose(const Job& job, Seconds now);
  void NoteReads(uint64_t number, const RouteOption& option, Seconds now);
  void Promise(const Job& job, const RouteOption& option, Seconds now);
  void BreakPromise(uint64_t number, const Job& job);
  void Learn(const Job& job, NodeId node, const PagesFound& found);

  const NodeId self_;
  const DispatcherOptions options_;
  PageDirectory* const directory_;  // Null: who holds what is not known
  std::map<NodeId, Node> nodes_;
  std::map<uint64_t, Job> jobs_;
  std::set<uint64_t> queue_;  // kQueued; numbers rise with arrival
  uint64_t last_number_ = 0;
  int64_t waiting_ = 0;
  Seconds reserve_{1e-3};  // Until D has answered, a mean of the last ones
  MeanRates means_;
  PerSecond arrivals_;  // Of prompts, as of
  Seconds arrival_at_;
  RouteTurns turns_;
  DispatcherStats counters_;
  std::vector<Outgoing> messages_;
  std::vector<DispatchEvent> events_;
  std::vector<RouteNote> choices_;
};

}  // namespace divisi
