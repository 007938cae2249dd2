#include "divisi/control/dispatcher.h"

#include "divisi/control/dispatcher_state.h"

namespace divisi {
namespace {

// Workers that a request remembers to avoid: more than fail in one request's time.
constexpr size_t kMostFailed = 8;
// What a new measurement of the time to reserve counts.
constexpr double kNewReserve = 0.1;

}  // namespace

const char* RetryReasonName(RetryReason reason) {
  constexpr const char* kNames[kRetryReasons] = {"no_room", "refused", "timeout", "worker_gone",
                                                 "drained"};
  return kNames[static_cast<size_t>(reason)];
}

Result<uint64_t> Dispatcher::State::Submit(Request request, Seconds now,
                                           std::vector<BlockKey> pages) {
  if (waiting_ >= options_.max_waiting) {
    return Error{Code::kResourceExhausted,
                 Format("{} requests are waiting, which is the limit; retry later", waiting_)};
  }
  if (!CouldRun()) return Error{Code::kUnavailable, "no worker is ready; retry later"};
  const uint64_t number = ++last_number_;
  Job& job = jobs_[number];
  job.request = std::move(request);
  job.pages = std::move(pages);
  job.give_up_at = now + options_.times.total + ForPrompt(job);
  job.deadline = now;
  job.backoff = options_.times.backoff;
  ++waiting_;
  NoteArrival(now);
  queue_.insert(number);
  TryQueue(now);
  return number;
}

void Dispatcher::State::Assign(uint64_t number, Job& job, const RouteOption& option, Seconds now) {
  job.prefill = option.prefill;
  job.decode = option.target;
  for (const std::optional<NodeId>& node : {job.prefill, job.decode}) {
    if (!node) continue;
    Node& entry = nodes_.at(*node);
    ++entry.requests;
    if (!entry.full) continue;
    if (entry.credits > 0) {
      --entry.credits;
    } else {
      entry.again_at = now + entry.pause;
    }
  }
  Node& computing = nodes_.at(job.prefill.value_or(*job.decode));
  const Seconds work = option.at.times.compute;
  if (computing.prompts.empty()) computing.first_since = now + option.at.times.ready;
  computing.prompts.emplace(number, Node::Prompt{work, job.prompt_tokens()});
  computing.prompts_sum += work;
  NoteReads(number, option, now);
  Promise(job, option, now);
  for (size_t t = 0; t < job.shown.size(); ++t) job.shown[t] = option.at.from[t] / kBlockTokens;
  job.peer = option.at.peer;
  job.request.peer.reset();
  if (!job.peer) return;
  job.request.peer = PrefixPeer{.address = nodes_.at(*job.peer).capacity.exported_at,
                                .pages = option.at.cached / kBlockTokens};
}

void Dispatcher::State::Begin(uint64_t number, Job& job, const RouteOption& option, Seconds now) {
  queue_.erase(number);
  ++job.attempt;
  job.begun_at = now;
  job.renew_at = now + options_.times.renew;
  Assign(number, job, option, now);
  if (option.apart()) {
    ++counters_.apart;
    job.phase = Job::Phase::kReserving;
    job.deadline = now + options_.times.reserve;
    return Send(*job.decode, ReserveMessage{IdOf(number, job), job.request, *job.prefill});
  }
  ++counters_.whole;
  job.phase = Job::Phase::kPrefilling;
  job.deadline = now + options_.times.prefill + ForPrompt(job);
  Send(*job.decode, ServeMessage{IdOf(number, job), job.request});
}

// The node has computed the request's prompt, or need not any more.
void Dispatcher::State::PromptDone(NodeId node, uint64_t number, Seconds now) {
  Node& entry = nodes_.at(node);
  entry.reads.erase(number);
  const auto found = entry.prompts.find(number);
  if (found == entry.prompts.end()) return;
  const bool first = found == entry.prompts.begin();
  entry.prompts_sum = entry.prompts_sum - found->second.work;
  entry.prompts.erase(found);
  if (first) entry.first_since = now;
  if (entry.prompts.empty()) entry.prompts_sum = Seconds(0);  // Sums of fractions drift.
}

// Tells the workers of this attempt that it is over.
void Dispatcher::State::LeaveAttempt(uint64_t number, Job& job, Seconds now) {
  BreakPromise(number, job);
  for (std::optional<NodeId>* node : {&job.prefill, &job.decode}) {
    if (!*node) continue;
    Node& entry = nodes_.at(**node);
    --entry.requests;
    if (node == &job.decode) entry.decoding -= job.phase == Job::Phase::kDecoding;
    if (entry.full) ++entry.credits;
    PromptDone(**node, number, now);
    Send(**node, AbortMessage{IdOf(number, job)});
    node->reset();
  }
}

void Dispatcher::State::Retry(uint64_t number, Job& job, Loss loss, Seconds now) {
  ++counters_.retried[static_cast<size_t>(loss.reason)];
  LeaveAttempt(number, job, now);
  job.phase = Job::Phase::kQueued;
  job.deadline = now;
  queue_.insert(number);
  if (loss.reason == RetryReason::kNoRoom) {
    if (loss.at) IsFull(*loss.at, now);
  } else if (loss.reason != RetryReason::kDrained) {
    job.deadline = now + job.backoff;
    job.backoff = std::min(job.backoff * 2, options_.times.most_backoff);
    if (loss.at) job.failed.push_back(*loss.at);
    if (job.failed.size() > kMostFailed) job.failed.erase(job.failed.begin());
  }
  job.last_error = std::move(loss.why);
  if (job.deadline >= job.give_up_at) GiveUp(number, now);
}

// The time until the first token is over.
void Dispatcher::State::GiveUp(uint64_t number, Seconds now) {
  const Job& job = jobs_.at(number);
  const bool no_room = !job.last_error || job.last_error->code == Code::kResourceExhausted;
  if (no_room && CouldRun()) {
    return Fail(number, Error{Code::kResourceExhausted, "no worker had room in time; retry later"},
                now);
  }
  Fail(number,
       Error{Code::kDeadlineExceeded,
             Format("no first token in {}: {}", HumanSeconds(options_.times.total + ForPrompt(job)),
                    job.last_error ? job.last_error->message : "no worker was there to run it")},
       now);
}

// Something that the attempt needs is lost: before the first token another one is made.
void Dispatcher::State::Lost(uint64_t number, Job& job, Loss loss, Seconds now) {
  if (job.have == 0) {
    if (job.phase == Job::Phase::kDecoding) ++waiting_;
    return Retry(number, job, std::move(loss), now);
  }
  Fail(number,
       Error{Code::kUnavailable, "the worker was lost while it generated: " + loss.why.message},
       now);
}

void Dispatcher::State::Fail(uint64_t number, Error error, Seconds now) {
  Finish(number, {.request = number, .finish = FinishReason::kError, .error = std::move(error)},
         now);
}

void Dispatcher::State::Finish(uint64_t number, DispatchEvent event, Seconds now) {
  const auto found = jobs_.find(number);
  Job& job = found->second;
  waiting_ -= Waiting(job);
  LeaveAttempt(number, job, now);
  events_.push_back(std::move(event));
  queue_.erase(number);
  jobs_.erase(found);
}

void Dispatcher::State::Cancel(uint64_t number, Seconds now) {
  const auto found = jobs_.find(number);
  if (found == jobs_.end()) return;
  waiting_ -= Waiting(found->second);
  LeaveAttempt(number, found->second, now);
  queue_.erase(number);
  jobs_.erase(found);
  std::erase_if(events_, [&](const DispatchEvent& event) { return event.request == number; });
  TryQueue(now);
}

void Dispatcher::State::Receive(NodeId from, HandoffMessage message, Seconds now) {
  const TransferId id = divisi::IdOf(message);
  const auto found = jobs_.find(id.number);
  if (id.gateway != self_ || found == jobs_.end() || found->second.attempt != id.attempt) {
    // Of an attempt that is over: whoever still works for it stops at once, not with its lease.
    const bool works = std::holds_alternative<TokensMessage>(message) ||
                       std::holds_alternative<ReservedMessage>(message);
    if (works && id.gateway == self_) Send(from, AbortMessage{id});
    return;
  }
  Job& job = found->second;
  if (job.prefill != from && job.decode != from) return;
  std::visit([&](auto& m) { On(id.number, job, from, std::move(m), now); }, message);
  TryQueue(now);
}

void Dispatcher::State::On(uint64_t number, Job& job, NodeId from, ReservedMessage m, Seconds now) {
  if (job.phase != Job::Phase::kReserving || job.decode != from) return;
  TookOne(from);
  reserve_ += (now - job.begun_at - reserve_) * kNewReserve;
  job.phase = Job::Phase::kPrefilling;
  job.begun_at = now;
  job.deadline = now + options_.times.prefill + ForPrompt(job);
  Send(*job.prefill, PrefillMessage{.id = IdOf(number, job),
                                    .request = job.request,
                                    .decode = *job.decode,
                                    .pages = std::move(m.pages),
                                    .present = m.present});
}

void Dispatcher::State::On(uint64_t number, Job& job, NodeId from, TokensMessage m, Seconds now) {
  const auto count = static_cast<int64_t>(m.tokens.size());
  // A gap is filled by Renew, which says what is here; a repetition is left out.
  if (m.start < 0 || m.start > job.have) return;
  const int64_t fresh = m.start + count - job.have;
  if (fresh < 0 || (fresh == 0 && !m.finish)) return;
  if (Waiting(job)) {
    --waiting_;
    job.phase = Job::Phase::kDecoding;
    if (job.decode) ++nodes_.at(*job.decode).decoding;
    // D has taken it with Reserved; who computes the prompt says so with the first token.
    const NodeId computed = job.prefill.value_or(*job.decode);
    PromptDone(computed, number, now);
    if (m.found) Learn(job, computed, *m.found);
    TookOne(computed);
  }
  if (from == job.decode && job.prefill) {  // P's part is over.
    Node& prefill = nodes_.at(*job.prefill);
    --prefill.requests;
    if (prefill.full) ++prefill.credits;
    job.prefill.reset();
  }
  DispatchEvent event{.request = number};
  if (job.have == 0) {
    event.prompt_scores = std::move(m.prompt_scores);
    event.cached_tokens = std::min(m.cached_tokens, job.prompt_tokens());
  }
  event.tokens.assign(std::make_move_iterator(m.tokens.end() - fresh),
                      std::make_move_iterator(m.tokens.end()));
  job.have += fresh;
  job.deadline = now + options_.times.token;
  if (!m.finish) return events_.push_back(std::move(event));
  event.finish = m.finish;
  event.error = std::move(m.error);
  Finish(number, std::move(event), now);
}

void Dispatcher::State::On(uint64_t number, Job& job, NodeId from, RefusedMessage m, Seconds now) {
  // What can never run is told at once; anything else may run elsewhere, or later.
  const bool never = m.error.code == Code::kInvalidArgument || m.error.code == Code::kOutOfRange;
  if (never && job.have == 0) return Fail(number, std::move(m.error), now);
  const RetryReason reason =
      m.error.code == Code::kResourceExhausted ? RetryReason::kNoRoom : RetryReason::kRefused;
  Lost(number, job, {std::move(m.error), reason, from}, now);
}

void Dispatcher::State::Renew(uint64_t number, Job& job, Seconds now) {
  job.renew_at = now + options_.times.renew;
  if (job.decode) Send(*job.decode, RenewMessage{IdOf(number, job), job.have});
  // P hears of a request only when D has reserved.
  if (job.prefill && job.phase == Job::Phase::kPrefilling) {
    Send(*job.prefill, RenewMessage{IdOf(number, job), job.have});
  }
}

void Dispatcher::State::Tick(Seconds now) {
  std::vector<uint64_t> late, renew;
  for (const auto& [number, job] : jobs_) {
    const bool queued = job.phase == Job::Phase::kQueued;
    if ((!queued && now >= job.deadline) || (job.have == 0 && now >= job.give_up_at)) {
      late.push_back(number);
    } else if (!queued && now >= job.renew_at) {
      renew.push_back(number);
    }
  }
  for (const uint64_t number : renew) Renew(number, jobs_.at(number), now);
  for (const uint64_t number : late) {
    Job& job = jobs_.at(number);
    if (job.phase == Job::Phase::kQueued) {
      GiveUp(number, now);
      continue;
    }
    const std::optional<NodeId> silent =
        job.phase == Job::Phase::kPrefilling && job.prefill ? job.prefill : job.decode;
    Lost(number, job,
         {Error{Code::kDeadlineExceeded, "a worker did not answer in time"}, RetryReason::kTimeout,
          silent},
         now);
  }
  EndDrains(now);
  TryQueue(now);
}

// ---- The public face

Dispatcher::Dispatcher(NodeId self, DispatcherOptions options, PageDirectory* directory)
    : state_(std::make_unique<State>(self, options, directory)) {}
Dispatcher::~Dispatcher() = default;
void Dispatcher::AddWorker(NodeId node, WorkerRole role, WorkerCapacity capacity) {
  state_->AddWorker(node, role, capacity);
}
void Dispatcher::Drain(NodeId node, Seconds now, Seconds within) {
  state_->Drain(node, now, within);
}
void Dispatcher::RemoveWorker(NodeId node, Seconds now) { state_->RemoveWorker(node, now); }
void Dispatcher::Report(NodeId node, const WorkerRates& rates, int64_t prompt_backlog,
                        Seconds now) {
  state_->Report(node, rates, prompt_backlog, now);
}
Result<uint64_t> Dispatcher::Submit(Request request, Seconds now, std::vector<BlockKey> pages) {
  return state_->Submit(std::move(request), now, std::move(pages));
}
void Dispatcher::Cancel(uint64_t request, Seconds now) { state_->Cancel(request, now); }
void Dispatcher::Receive(NodeId from, HandoffMessage message, Seconds now) {
  state_->Receive(from, std::move(message), now);
}
void Dispatcher::Tick(Seconds now) { state_->Tick(now); }
std::vector<Outgoing> Dispatcher::TakeMessages() { return state_->TakeMessages(); }
std::vector<DispatchEvent> Dispatcher::TakeEvents() { return state_->TakeEvents(); }
std::vector<RouteNote> Dispatcher::TakeChoices() { return state_->TakeChoices(); }
const DispatcherOptions& Dispatcher::options() const { return state_->options(); }
int64_t Dispatcher::waiting() const { return state_->waiting(); }
int64_t Dispatcher::live() const { return state_->live(); }
DispatcherStats Dispatcher::stats() const { return state_->stats(); }
std::vector<WorkerLoad> Dispatcher::loads(Seconds now) const { return state_->loads(now); }
std::optional<HandoverThreshold> Dispatcher::threshold(Seconds now) const {
  return state_->threshold(now);
}
std::optional<RouteChoice> Dispatcher::Explain(const RouteQuestion& question, Seconds now) const {
  return state_->Explain(question, now);
}
void Dispatcher::Verify() const { state_->Verify(); }

}  // namespace divisi
