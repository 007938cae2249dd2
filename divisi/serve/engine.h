// One worker's engine: a thread that turns the scheduler's plans into executed steps, and a mailbox
// through which other threads submit, cancel and watch requests.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "divisi/core/clock.h"
#include "divisi/core/result.h"
#include "divisi/serve/executor.h"
#include "divisi/serve/scheduler.h"

namespace divisi {

// What a step did to one request. Events of a request come in order, tokens in order of position;
// the last one has `finish` set, and nothing follows it.
struct RequestEvent {
  RequestId request = 0;
  std::vector<SampledToken> prompt_scores;  // As prefill goes, where asked for.
  std::vector<SampledToken> tokens;
  std::optional<FinishReason> finish;
  Timeline timeline;                        // As of now; complete with `finish`.
};

struct EngineStats {
  SchedulerStats scheduler;
  int64_t steps = 0;
  int64_t prefill_tokens = 0;  // Computed, not those found in shared pages.
  int64_t decode_tokens = 0;
};

class Engine {
 public:
  using EventSink = std::function<void(RequestEvent)>;

  // executor and clock outlive this.
  Engine(SchedulerOptions options, Executor& executor, const Clock& clock);
  ~Engine();  // Cancels what is left; each such request gets its last event.

  // Hands a request over; request.id is assigned here. `sink` is called from the engine's thread and
  // must not block.
  // Errors: as Scheduler::Add; kUnavailable while stopping.
  Result<RequestId> Submit(Request request, EventSink sink);

  // The request's last event (kCancelled) comes within one step; its pages are then free. Nothing
  // happens for ended or unknown ids.
  void Cancel(RequestId id);

  EngineStats stats() const;
  const SchedulerOptions& options() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace divisi
