// Which tokens run in the next step: continuous batching with chunked prefill under a token budget,
// page allocation, prefix sharing, preemption by recompute. A pure state machine: no clock, no I/O,
// no threads; the same calls give the same plans.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "divisi/core/result.h"
#include "divisi/serve/executor.h"

namespace divisi {

struct SchedulerOptions {
  int64_t max_sequences = 256;      // Running at once.
  int64_t max_batched_tokens = 2048;  // Per step.
  int64_t max_model_len = 2048;     // Prompt plus output of one request.
  int64_t max_waiting = 1024;       // Queued requests; beyond it Add refuses.
  int64_t blocks = 0;               // KV pages.
  bool share_prefixes = true;
  std::vector<uint8_t> model_fingerprint;  // Part of every page's key.
};

// What happened to a request in a committed step.
struct SchedulerEvent {
  enum class Kind { kScheduled, kPreempted, kPromptScores, kToken, kFinished };
  Kind kind = Kind::kToken;
  RequestId request = 0;
  int64_t cached_tokens = 0;                // kScheduled: prompt tokens found in shared pages.
  SampledToken token;                       // kToken
  std::vector<SampledToken> prompt_scores;  // kPromptScores
  FinishReason reason = FinishReason::kStop;  // kFinished
};

struct SchedulerStats {
  int64_t running = 0;
  int64_t waiting = 0;
  int64_t blocks_total = 0;
  int64_t blocks_used = 0;     // Held by sequences.
  int64_t blocks_cached = 0;   // Held by none, content kept for sharing.
  int64_t preemptions = 0;     // Counters since the start.
  int64_t prefix_queried_tokens = 0;
  int64_t prefix_hit_tokens = 0;
};

class Scheduler {
 public:
  explicit Scheduler(SchedulerOptions options);
  ~Scheduler();

  // Errors: kOutOfRange when the request could never run (prompt + 1 > max_model_len, or more pages
  // than the pool has); kResourceExhausted when the queue is full; kInvalidArgument when empty or
  // its id is in use.
  Result<void> Add(Request request);

  // Ends a request wherever it is; its pages are free when this returns, unless a step that uses
  // them is in flight: then at its Commit. False when there is no such request (already ended).
  bool Cancel(RequestId id);

  // The next step; empty when nothing can run. Requires: the last plan was committed.
  const StepPlan& Plan();

  // Takes the step's results and gives what happened, in order of the plan's slices.
  // Requires: one result per slice.
  std::vector<SchedulerEvent> Commit(std::vector<SliceResult> results);

  bool HasWork() const;
  SchedulerStats stats() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace divisi
