#include "divisi/engine/engine.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "divisi/core/check.h"
#include "divisi/core/format.h"
#include "divisi/engine/gate_wait.h"
#include "divisi/engine/page_news.h"

namespace divisi {
namespace {

// What a prompt's token takes: of steps that are mostly prompts, the newest counting most.
class PromptSpeed {
 public:
  void Add(int64_t tokens, Seconds time) {
    if (tokens < kLeastTokens) return;
    const Seconds each = time / static_cast<double>(tokens);
    per_token_ = per_token_.value > 0 ? per_token_ * 0.8 + each * 0.2 : each;
  }
  Seconds per_token() const { return per_token_; }

 private:
  static constexpr int64_t kLeastTokens = 64;
  Seconds per_token_;
};

// While a publisher has no room.
constexpr Seconds kTellAgain{0.02};

}  // namespace

class Engine::State {
 public:
  State(SchedulerOptions options, Executor& executor, const Clock& clock, EngineKv kv)
      : options_(Reporting(std::move(options), kv)),
        executor_(executor),
        clock_(clock),
        tiers_(kv.tiers),
        events_(kv.events),
        scheduler_(options_) {
    if (tiers_ != nullptr) {
      loader_.emplace(scheduler_, options_, tiers_->LoaderOptions());
      tiers_->Restore(*loader_);
      tiers_->WakeBy([this] { Wake(); });
    }
    thread_ = std::thread([this] { Loop(); });
  }

  ~State() {
    {
      std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    wake_.notify_one();
    thread_.join();
    if (tiers_ != nullptr) tiers_->WakeBy({});
  }

  Result<RequestId> Submit(Request request, EventSink sink);
  void Cancel(RequestId id);
  EngineStats stats() const;
  const SchedulerOptions& options() const { return options_; }

 private:
  struct Submission {
    Request request;
    EventSink sink;
    Seconds arrived;
  };
  struct Mail {
    std::vector<Submission> submissions;
    std::vector<RequestId> cancels;
    bool stopping = false;
  };
  // A request between Submit and its last event, as the engine's thread sees it.
  struct Active {
    EventSink sink;
    Timeline timeline;
    int64_t prompt_tokens = 0;
    bool scheduled = false;
    bool answered = false;  // Its first token came.
    RequestEvent pending;   // Of the step being reported,
    bool touched = false;   // once it has something for the sink.
  };

  static SchedulerOptions Reporting(SchedulerOptions options, const EngineKv& kv) {
    options.report_pages = kv.tiers != nullptr || kv.events != nullptr;
    return options;
  }
  void Wake() {
    {
      std::lock_guard lock(mutex_);
      woken_ = true;
    }
    wake_.notify_one();
  }
  void Loop();
  void Sleep(std::unique_lock<std::mutex>& lock);
  bool Drop(RequestId id);
  Mail WaitForMail();
  void TakeMail(Mail mail);
  void CancelAll();
  void CarryPages();
  void TellPages();
  void Step();
  void CountStep(const StepPlan& plan);
  void Report(std::vector<SchedulerEvent> events, Seconds began, Seconds ended);
  void Note(SchedulerEvent event, Active& active, Seconds began, Seconds ended);
  void Deliver(RequestId id);
  void ShowStats();

  const SchedulerOptions options_;
  Executor& executor_;
  const Clock& clock_;

  // Guarded by mutex_, which is held for a few instructions only and never while a sink runs.
  mutable std::mutex mutex_;
  std::condition_variable wake_;
  Mail mail_;                           // Submissions are bounded by max_waiting.
  std::unordered_set<RequestId> live_;  // Submitted, last event not yet sent, not cancelled:
                                        // bounds mail_.cancels.
  int64_t queued_ = 0;                  // Submitted and not yet scheduled, wherever they are.
  RequestId last_id_ = 0;
  bool stopping_ = false;
  bool woken_ = false;  // The tiers have something.
  EngineStats shown_;

  // The engine's thread's own.
  TierDriver* const tiers_;
  EventPublisher* const events_;
  Scheduler scheduler_;
  std::optional<PrefixLoader> loader_;  // With tiers
  PageNews news_;
  PromptSpeed prompt_speed_;
  std::unordered_map<RequestId, Active> active_;
  bool stalled_ = false;            // What waits needs pages that only mail can free.
  std::vector<RequestId> touched_;  // In order of the step's events.
  int64_t counted_tokens_ = 0;      // Of the step under way.
  int64_t left_queue_ = 0;          // To be taken from queued_ at the next ShowStats.
  EngineStats counters_;

  // A thread of its own, because a step computes for long while submissions must be answered at
  // once. Last: it starts when all else is there.
  std::thread thread_;
};

// ---- Called by other threads

Result<RequestId> Engine::State::Submit(Request request, EventSink sink) {
  RETURN_IF_ERROR(CheckRequest(options_, request));
  const Seconds now = clock_.Now();
  RequestId id;
  {
    std::lock_guard lock(mutex_);
    if (stopping_) return Error{Code::kUnavailable, "the engine is stopping; retry elsewhere"};
    if (queued_ >= options_.max_waiting) {
      return Error{Code::kResourceExhausted,
                   Format("{} requests are waiting, which is the limit; retry later", queued_)};
    }
    ++queued_;
    id = request.id = ++last_id_;
    live_.insert(id);
    mail_.submissions.push_back({std::move(request), std::move(sink), now});
  }
  wake_.notify_one();
  return id;
}

void Engine::State::Cancel(RequestId id) {
  {
    std::lock_guard lock(mutex_);
    if (live_.erase(id) == 0) return;
    mail_.cancels.push_back(id);
  }
  wake_.notify_one();
}

EngineStats Engine::State::stats() const {
  EngineStats stats;
  {
    std::lock_guard lock(mutex_);
    stats = shown_;
    stats.queued = queued_;
  }
  // Of threads and nodes of their own, which change while nothing runs.
  if (tiers_ != nullptr) stats.tiers = tiers_->stats();
  return stats;
}

// ---- The engine's thread

void Engine::State::Loop() {
  if (loader_) ShowStats();  // Of tiers that nobody has used yet.
  while (true) {
    Mail mail = WaitForMail();
    const bool stopping = mail.stopping;
    TakeMail(std::move(mail));
    if (stopping) return CancelAll();
    CarryPages();
    if (scheduler_.HasWork()) {
      Step();
      if (scheduler_.HasWork()) continue;
      CarryPages();  // Before it sleeps: what the last step completed is saved and told of.
    }
    if (loader_) ShowStats();
  }
}

void Engine::State::CarryPages() {
  if (loader_) tiers_->Carry(*loader_, prompt_speed_.per_token(), clock_.Now());
  TellPages();
}

// Sleeps while there is nothing to do.
Engine::State::Mail Engine::State::WaitForMail() {
  const bool idle = !scheduler_.HasWork() || stalled_;
  std::unique_lock lock(mutex_);
  if (idle) Sleep(lock);
  woken_ = false;
  Mail mail = std::exchange(mail_, {});
  mail.stopping = stopping_;
  stalled_ = false;
  return mail;
}

void Engine::State::Sleep(std::unique_lock<std::mutex>& lock) {
  const auto called = [this] {
    return stopping_ || woken_ || !mail_.submissions.empty() || !mail_.cancels.empty();
  };
  auto timer = loader_ ? loader_->NextTimer() : std::nullopt;
  if (news_.stats().waiting > 0) timer = clock_.Now() + kTellAgain;
  if (!timer) return wake_.wait(lock, called);
  const Seconds most = std::max(*timer - clock_.Now(), Seconds(0));
  wake_.wait_for(lock, std::chrono::duration<double>(most.value), called);
}

// False: it has ended meanwhile.
bool Engine::State::Drop(RequestId id) {
  const bool asking = loader_ && loader_->Cancel(id, clock_.Now());
  return asking || scheduler_.Cancel(id);
}

void Engine::State::TakeMail(Mail mail) {
  for (Submission& submission : mail.submissions) {
    const RequestId id = submission.request.id;
    Active& active = active_[id];
    active.sink = std::move(submission.sink);
    active.timeline.arrived = submission.arrived;
    active.prompt_tokens = static_cast<int64_t>(submission.request.prompt.size());
    // Submit checked the request, and queued_ counts at least what the scheduler has waiting.
    const Result<void> added = loader_ ? loader_->Add(std::move(submission.request), clock_.Now())
                                       : scheduler_.Add(std::move(submission.request));
    CHECK(added.ok(), "request {}: {}", id, added.error().message);
  }
  const Seconds now = clock_.Now();
  for (const RequestId id : mail.cancels) {
    if (!Drop(id)) continue;  // Ended meanwhile.
    Note({.kind = SchedulerEvent::Kind::kFinished,
          .request = id,
          .reason = FinishReason::kCancelled},
         active_.at(id), now, now);
  }
  if (mail.cancels.empty()) return;
  ShowStats();
  for (const RequestId id : std::exchange(touched_, {})) Deliver(id);
}

void Engine::State::CancelAll() {
  std::vector<RequestId> left;
  for (const auto& [id, active] : active_) left.push_back(id);
  std::ranges::sort(left);
  TakeMail({.cancels = std::move(left)});
}

// To whoever follows; nothing of it waits where nobody does.
void Engine::State::TellPages() {
  auto changes = loader_ ? loader_->TakePageChanges() : scheduler_.TakePageChanges();
  auto below = loader_ ? loader_->TakeTierEvents() : std::vector<TierEvent>();
  if (events_ == nullptr) return;
  news_.Take(std::move(changes));
  news_.Take(below);
  auto events = news_.Next(events_->Room());
  if (!events.empty()) events_->Publish(std::move(events));
}

void Engine::State::Step() {
  const Seconds began = clock_.Now();
  const StepPlan& plan = scheduler_.Plan();
  stalled_ = plan.slices.empty();
  if (stalled_) return;
  CountStep(plan);
  counted_tokens_ = plan.tokens;
  ShowStats();
  std::vector<SliceResult> results = executor_.Execute(plan);
  const Seconds waited = WaitedAtGates(plan);
  const bool lost = AnyLost(results);
  std::vector<SchedulerEvent> events = scheduler_.Commit(std::move(results));
  const Seconds ended = clock_.Now();
  if (loader_) loader_->Note(events, ended);
  if (!lost && began + waited < ended) prompt_speed_.Add(counted_tokens_, ended - began - waited);
  counters_.busy += ended - began;
  Report(std::move(events), began, ended);
}

void Engine::State::CountStep(const StepPlan& plan) {
  ++counters_.steps;
  for (const StepSlice& slice : plan.slices) {
    (IsDecode(slice) ? counters_.decode_tokens : counters_.prefill_tokens) += slice.count;
  }
  StepTokensHistogram& histogram = counters_.step_tokens;
  const auto bucket = std::ranges::lower_bound(StepTokensHistogram::kBounds, plan.tokens);
  ++histogram.counts[static_cast<size_t>(bucket - StepTokensHistogram::kBounds.begin())];
  histogram.sum += plan.tokens;
}

// The counters are shown before the sinks hear of the step: whoever has an event finds it counted.
void Engine::State::Report(std::vector<SchedulerEvent> events, Seconds began, Seconds ended) {
  for (SchedulerEvent& event : events) {
    Active& active = active_.at(event.request);
    Note(std::move(event), active, began, ended);
  }
  ShowStats();
  for (const RequestId id : std::exchange(touched_, {})) Deliver(id);
}

void Engine::State::Note(SchedulerEvent event, Active& active, Seconds began, Seconds ended) {
  using Kind = SchedulerEvent::Kind;
  Timeline& timeline = active.timeline;
  RequestEvent& pending = active.pending;
  if (event.kind == Kind::kPreempted) {
    ++timeline.preemptions;
    return;
  }
  if (event.kind == Kind::kLost) {
    timeline.cached_tokens = 0;
    return;
  }
  if (event.kind == Kind::kScheduled) {
    active.scheduled = true;
    timeline.scheduled = began;
    timeline.cached_tokens = event.cached_tokens;
    ++left_queue_;
    return;
  }
  if (!active.touched) touched_.push_back(event.request);
  active.touched = true;
  pending.request = event.request;
  pending.time = ended;
  if (event.kind == Kind::kPromptScores) {
    std::ranges::move(event.prompt_scores, std::back_inserter(pending.prompt_scores));
  } else if (event.kind == Kind::kToken) {
    if (!std::exchange(active.answered, true)) {
      timeline.first_token = ended;
      counters_.prompt_tokens += active.prompt_tokens;
    }
    ++counters_.generated_tokens;
    pending.tokens.push_back(std::move(event.token));
  } else {
    timeline.finished = ended;
    pending.finish = event.reason;
    pending.error = std::move(event.error);
    if (event.reason == FinishReason::kLength && !active.answered) {
      counters_.prompt_tokens += active.prompt_tokens;  // No output was asked for.
    }
    ++counters_.finished[static_cast<size_t>(event.reason)];
    left_queue_ += !active.scheduled;
  }
}

void Engine::State::Deliver(RequestId id) {
  const auto found = active_.find(id);
  Active& active = found->second;
  active.touched = false;
  RequestEvent event = std::exchange(active.pending, {});
  event.timeline = active.timeline;
  if (!event.finish) return active.sink(std::move(event));
  const EventSink sink = std::move(active.sink);
  active_.erase(found);
  {
    std::lock_guard lock(mutex_);
    live_.erase(id);
  }
  sink(std::move(event));
}

void Engine::State::ShowStats() {
  counters_.scheduler = scheduler_.stats();
  if (loader_) {
    counters_.prefixes = loader_->stats();
  }
  std::lock_guard lock(mutex_);
  queued_ -= std::exchange(left_queue_, 0);
  shown_ = counters_;
}

// ---- The public face

Engine::Engine(SchedulerOptions options, Executor& executor, const Clock& clock, EngineKv kv)
    : state_(std::make_unique<State>(std::move(options), executor, clock, kv)) {}
Engine::~Engine() = default;
Result<RequestId> Engine::Submit(Request request, EventSink sink) {
  return state_->Submit(std::move(request), std::move(sink));
}
void Engine::Cancel(RequestId id) { state_->Cancel(id); }
EngineStats Engine::stats() const { return state_->stats(); }
const SchedulerOptions& Engine::options() const { return state_->options(); }

}  // namespace divisi
