// The gateway's part of the cluster: which workers run a request, and its course until it ends. A
// pure state machine: submissions, messages and time go in, messages and client events come out.
//
//   queued --> reserving --> prefilling --> decoding --> over        (P and D apart)
//   queued --> decoding --> over                                     (a replica)
//      ^            refused, late, a worker gone, before the first token: another attempt, as
//      +----------- another transfer, until the total time is over
//
// Every request ends in exactly one event: a finish reason, or an error. After the first token a
// lost worker is an error to the client.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "divisi/control/handoff.h"

namespace divisi {

enum class WorkerRole { kReplica, kPrefill, kDecode };
const char* RoleName(WorkerRole role);  // "replica", "prefill", "decode"

struct DispatcherOptions {
  HandoffTimes times;
  int64_t max_waiting =
      1024;  // Requests that no worker has accepted yet; beyond it Submit refuses.
  // Prompts shorter than this go to a replica where there is one, though P and D are there too.
  int64_t disaggregate_from = 0;
};

// Output of one request, in order.
struct DispatchEvent {
  uint64_t request = 0;
  std::vector<SampledToken> tokens;
  std::vector<SampledToken> prompt_scores;
  std::optional<FinishReason> finish;  // The last event
  std::optional<Error> error;          // With kError
};

struct WorkerLoad {
  NodeId node;
  WorkerRole role = WorkerRole::kReplica;
  int64_t requests = 0;  // Attempts that have this worker a part of
  bool draining = false;
};

class Dispatcher {
 public:
  Dispatcher(NodeId self, DispatcherOptions options);
  ~Dispatcher();

  // A worker that takes requests from now on, or whose role changed: what it has goes on.
  void AddWorker(NodeId node, WorkerRole role);
  // It gets no new requests.
  void Drain(NodeId node);
  // It is gone for good. What it had is tried elsewhere, or fails.
  void RemoveWorker(NodeId node, Seconds now);

  // Errors: kResourceExhausted when max_waiting are waiting; kUnavailable without workers.
  Result<uint64_t> Submit(Request request, Seconds now);
  // No event follows. Nothing happens for an ended or unknown one.
  void Cancel(uint64_t request, Seconds now);
  void Receive(NodeId from, HandoffMessage message, Seconds now);
  void Tick(Seconds now);
  std::optional<Seconds> NextTimer() const;

  std::vector<Outgoing> TakeMessages();
  std::vector<DispatchEvent> TakeEvents();

  int64_t waiting() const;
  int64_t live() const;  // Requests that have not ended
  std::vector<WorkerLoad> loads() const;
  // CHECKs that requests and loads agree. For tests.
  void Verify() const;

 private:
  class State;
  std::unique_ptr<State> state_;
};

}  // namespace divisi
