// The gateway's part of the cluster: which workers run a request, and its course until it ends. A
// pure state machine: submissions, messages and time go in, messages and client events come out.
//
//   queued --> reserving --> prefilling --> decoding --> over        (P and D apart)
//   queued --> prefilling --> decoding --> over                      (whole, on a replica or D)
//      ^            refused, late, a worker gone or drained, before the first token: another
//      +----------- attempt, as another transfer, until the total time is over
//
// Rules.
//  1. Every request ends in exactly one event: a finish reason, or an error. After the first token
//     a lost worker is an error to the client.
//  2. Requests that wait for room are tried in the order in which they came: a later one goes only
//     where no earlier one could. A worker that refused for want of room gets one attempt for each
//     of its requests that ends, or after a pause, until it has taken one and none waits.
//  3. A worker that failed an attempt gets the request again only where no other of its role is.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "divisi/control/handoff.h"
#include "divisi/control/route_choice.h"
#include "divisi/kv/page_directory.h"

namespace divisi {

struct DispatcherOptions {
  HandoffTimes times;
  // Requests without a first token, those that wait for room among them; beyond it Submit refuses.
  int64_t max_waiting = 1024;
  // Prompts of at least this many tokens are handed from prefill to decode workers, shorter ones
  // run whole. Absent: by what it costs (HandoverThreshold).
  std::optional<int64_t> disaggregate_from = 0;
  RoutePolicy policy = RoutePolicy::kExpectedTtft;
  RouteObjective objective = RouteObjective::kRequest;
  std::optional<double> quantile;  // Of the expected time, above 0 to 1; absent: the mean
  bool keep_choices = false;       // For TakeChoices
};

// Output of one request, in order.
struct DispatchEvent {
  uint64_t request = 0;
  std::vector<SampledToken> tokens;
  std::vector<SampledToken> prompt_scores;
  int64_t cached_tokens = 0;           // Of the prompt, found; with the first tokens
  std::optional<FinishReason> finish;  // The last event
  std::optional<Error> error;          // With kError
};

// What a worker says of itself when it comes.
struct WorkerCapacity {
  int64_t max_sequences = 0;  // At once; 0: not known, a refusal tells
  int64_t step_tokens = 2048;
  Bytes page;                // Bytes of one
  bool pool = false;         // Its prompts' prefixes may come from the remote pool
  int layers = 1;            // By which its computing follows reading; 1: it waits for all
  bool reads_peers = false;  // Other workers' host memory
  std::string exported_at;   // Where others read its own; empty: they do not
};

struct WorkerLoad {
  NodeId node;
  WorkerRole role = WorkerRole::kReplica;
  int64_t requests = 0;  // Attempts that have this worker a part of
  int64_t decoding = 0;  // Of them, those past their first token
  Seconds queue;         // Expected, of the prompts there
  bool full = false;     // Has refused for want of room, and not taken one since
  bool draining = false;
  Seconds drain_left;  // Until what it still has ends elsewhere, or by an error
  WorkerRates rates;
};

// Why an attempt was given up for another.
enum class RetryReason { kNoRoom, kRefused, kTimeout, kWorkerGone, kDrained };
inline constexpr size_t kRetryReasons = 5;
const char* RetryReasonName(RetryReason reason);  // "no_room", "refused", ...

// Requests by phase now, and counters since the start.
struct DispatcherStats {
  int64_t queued = 0, reserving = 0, prefilling = 0, decoding = 0;
  int64_t apart = 0, whole = 0;  // Attempts begun
  std::array<int64_t, kRetryReasons> retried{};
};

// One attempt's choice of workers.
struct RouteNote {
  uint64_t request = 0;
  uint32_t attempt = 0;
  Seconds at;
  int64_t prompt_tokens = 0;
  RouteChoice choice;
};

// A prompt that might come.
struct RouteQuestion {
  int64_t prompt_tokens = 0;
  std::vector<BlockKey> pages;  // As of Submit
  // Besides what is known: that a worker had so many leading tokens of it.
  struct Held {
    NodeId node;
    Tier tier = Tier::kDevice;
    int64_t tokens = 0;
  };
  std::vector<Held> held;
};

class Dispatcher {
 public:
  // directory: who holds which pages, outlives this; null: not known.
  Dispatcher(NodeId self, DispatcherOptions options, PageDirectory* directory = nullptr);
  ~Dispatcher();

  // A worker that takes requests from now on, drained before or not, or whose role changed: what it
  // has goes on. capacity counts where it is new.
  void AddWorker(NodeId node, WorkerRole role, WorkerCapacity capacity = {});
  // It gets no new requests. Those that it has not begun are tried elsewhere, where somebody could
  // run them; after `within` all that have no token are, and the rest end with an error.
  void Drain(NodeId node, Seconds now, Seconds within);
  // It is gone for good. What it had is tried elsewhere, or fails.
  void RemoveWorker(NodeId node, Seconds now);
  // What the worker measured of itself, and the prompt tokens that it has yet to compute, of every
  // gateway.
  void Report(NodeId node, const WorkerRates& rates, int64_t prompt_backlog, Seconds now);

  // pages: keys of the pages of its prompt that it can share (SharedPromptKeys), to be looked up in
  // the directory for each attempt.
  // Errors: kResourceExhausted when max_waiting are waiting; kUnavailable without workers.
  Result<uint64_t> Submit(Request request, Seconds now, std::vector<BlockKey> pages = {});
  // No event follows. Nothing happens for an ended or unknown one.
  void Cancel(uint64_t request, Seconds now);
  void Receive(NodeId from, HandoffMessage message, Seconds now);
  void Tick(Seconds now);

  std::vector<Outgoing> TakeMessages();
  std::vector<DispatchEvent> TakeEvents();
  std::vector<RouteNote> TakeChoices();

  const DispatcherOptions& options() const;
  int64_t waiting() const;
  int64_t live() const;  // Requests that have not ended
  DispatcherStats stats() const;
  std::vector<WorkerLoad> loads(Seconds now) const;
  // For a prompt that came now; absent without prefill and decode workers.
  std::optional<HandoverThreshold> threshold(Seconds now) const;
  // Where it would go now; nothing changes. Absent: nobody could run it.
  std::optional<RouteChoice> Explain(const RouteQuestion& question, Seconds now) const;
  // CHECKs that requests, queue and loads agree. For tests.
  void Verify() const;

 private:
  class State;
  std::unique_ptr<State> state_;
};

}  // namespace divisi
