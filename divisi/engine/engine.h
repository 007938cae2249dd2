// One worker's engine: a thread that turns the scheduler's plans into executed steps, and a mailbox
// through which other threads submit, cancel and watch requests.
//
// Life of a request: Submit checks and queues it; before the next step the engine's thread hands it
// to the scheduler; each step that does something to it gives its sink one event; the last has
// `finish` set, after which the sink is destroyed. Events come from the engine's thread alone, so
// those of a request come one after another. A sink may call Submit, Cancel and stats.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "divisi/core/clock.h"
#include "divisi/core/result.h"
#include "divisi/engine/executor.h"
#include "divisi/engine/scheduler.h"
#include "divisi/engine/tier_driver.h"
#include "divisi/kv/event_socket.h"

namespace divisi {

// What a step did to one request. Events of a request come in order, tokens in order of position;
// the last one has `finish` set, and nothing follows it.
struct RequestEvent {
  RequestId request = 0;
  Seconds time;                             // When the step ended, in the engine's clock.
  std::vector<SampledToken> prompt_scores;  // As prefill goes, where asked for.
  std::vector<SampledToken> tokens;
  std::optional<FinishReason> finish;
  std::optional<Error> error;  // Why, where it finished by kError.
  Timeline timeline;           // As of now; complete with `finish`.
};

// Steps by the tokens that they ran: counts[i] of those with at most kBounds[i], the last of those
// beyond (not cumulative). vLLM's buckets of iteration_tokens_total.
struct StepTokensHistogram {
  static constexpr std::array<int64_t, 14> kBounds = {1,   8,   16,   32,   64,   96,   128,
                                                      256, 512, 1024, 2048, 4096, 8192, 16384};
  std::array<int64_t, kBounds.size() + 1> counts{};
  int64_t sum = 0;
};

// A moment's gauges and the counters since the start, all of one step.
struct EngineStats {
  SchedulerStats scheduler;
  int64_t queued = 0;  // Submitted requests that have not run yet.
  int64_t steps = 0;
  int64_t prefill_tokens = 0;  // Computed, not those found in shared pages; recomputed ones too.
  int64_t decode_tokens = 0;   // Computed.
  // Of requests whose first token came, or that wanted none; cached ones included.
  int64_t prompt_tokens = 0;
  int64_t generated_tokens = 0;
  std::array<int64_t, 4> finished{};  // By FinishReason.
  StepTokensHistogram step_tokens;
  Seconds busy;  // Spent in steps.
  // Where there are tiers below the device.
  std::optional<PrefixLoaderStats> prefixes;
  std::optional<TierDriverStats> tiers;
};

// What an engine's pages are kept in below the device, and told by. Both outlive it, and are its
// alone; null: there is none.
struct EngineKv {
  TierDriver* tiers = nullptr;
  EventPublisher* events = nullptr;
};

class Engine {
 public:
  using EventSink = std::function<void(RequestEvent)>;

  // executor and clock outlive this. The executor is used from the engine's thread alone, and so
  // are the tiers.
  Engine(SchedulerOptions options, Executor& executor, const Clock& clock, EngineKv kv = {});
  // Cancels what is left, each such request getting its last event, and waits for the step in
  // flight. Requires: no other call is under way.
  ~Engine();

  // Hands a request over; request.id is assigned here. Does not wait for a step. `sink` is called
  // from the engine's thread, possibly before this returns, and must not block; what it refers to
  // lives until its last event. On an error the sink is never called.
  // Errors: as CheckRequest; kResourceExhausted when max_waiting requests are queued (the message
  // says how many); kUnavailable while stopping.
  Result<RequestId> Submit(Request request, EventSink sink);

  // The request's last event (kCancelled, unless it ended before) comes within one step; its pages
  // are then free. Nothing happens for ended or unknown ids.
  void Cancel(RequestId id);

  EngineStats stats() const;
  const SchedulerOptions& options() const;

 private:
  class State;
  std::unique_ptr<State> state_;
};

}  // namespace divisi
