#include "divisi/control/dispatcher.h"

#include <algorithm>
#include <map>
#include <utility>

#include "divisi/core/check.h"
#include "divisi/core/format.h"

namespace divisi {

const char* RoleName(WorkerRole role) {
  constexpr const char* kNames[] = {"replica", "prefill", "decode"};
  return kNames[static_cast<int>(role)];
}

class Dispatcher::State {
 public:
  State(NodeId self, DispatcherOptions options) : self_(self), options_(options) {}

  void AddWorker(NodeId node, WorkerRole role);
  void Drain(NodeId node);
  void RemoveWorker(NodeId node, Seconds now);
  Result<uint64_t> Submit(Request request, Seconds now);
  void Cancel(uint64_t request, Seconds now);
  void Receive(NodeId from, HandoffMessage message, Seconds now);
  void Tick(Seconds now);
  std::optional<Seconds> NextTimer() const;
  std::vector<Outgoing> TakeMessages() { return std::exchange(messages_, {}); }
  std::vector<DispatchEvent> TakeEvents() { return std::exchange(events_, {}); }
  int64_t waiting() const { return waiting_; }
  int64_t live() const { return static_cast<int64_t>(jobs_.size()); }
  std::vector<WorkerLoad> loads() const;
  void Verify() const;

 private:
  struct Job {
    enum class Phase { kQueued, kReserving, kPrefilling, kDecoding };
    Phase phase = Phase::kQueued;
    Request request;
    uint32_t attempt = 0;
    std::optional<NodeId> prefill;  // Of this attempt
    std::optional<NodeId> decode;   // Or the replica
    int64_t have = 0;               // Tokens that the client has
    Seconds give_up_at;             // Before the first token
    Seconds deadline;               // Of the phase; kQueued: when to try again
    Seconds renew_at;
    Seconds backoff;
    bool was_full = false;  // The last refusal was for want of room
  };
  struct Node {
    WorkerRole role = WorkerRole::kReplica;
    bool draining = false;
    int64_t requests = 0;
  };

  bool Waiting(const Job& job) const { return job.phase != Job::Phase::kDecoding; }
  TransferId IdOf(uint64_t number, const Job& job) const { return {self_, number, job.attempt}; }
  std::optional<NodeId> LeastLoaded(WorkerRole role) const;
  void Try(uint64_t number, Job& job, Seconds now);
  void Assign(Job& job, std::optional<NodeId> prefill, std::optional<NodeId> decode);
  void LeaveAttempt(uint64_t number, Job& job);
  void Retry(uint64_t number, Job& job, const Error& why, Seconds now);
  void Finish(uint64_t number, DispatchEvent event);
  void Fail(uint64_t number, Error error);
  void Lost(uint64_t number, Job& job, const Error& why, Seconds now);
  void Renew(uint64_t number, Job& job, Seconds now);
  void Send(NodeId to, HandoffMessage message) { messages_.push_back({to, std::move(message)}); }

  void On(uint64_t number, Job& job, NodeId from, ReservedMessage m, Seconds now);
  void On(uint64_t number, Job& job, NodeId from, TokensMessage m, Seconds now);
  void On(uint64_t number, Job& job, NodeId from, RefusedMessage m, Seconds now);
  template <typename Other>
  void On(uint64_t, Job&, NodeId, Other, Seconds) {}  // For workers

  const NodeId self_;
  const DispatcherOptions options_;
  std::map<NodeId, Node> nodes_;
  std::map<uint64_t, Job> jobs_;
  uint64_t last_number_ = 0;
  int64_t waiting_ = 0;
  std::vector<Outgoing> messages_;
  std::vector<DispatchEvent> events_;
};

// ---- Workers

void Dispatcher::State::AddWorker(NodeId node, WorkerRole role) {
  Node& entry = nodes_[node];
  entry.role = role;
  entry.draining = false;
}

void Dispatcher::State::Drain(NodeId node) {
  if (const auto found = nodes_.find(node); found != nodes_.end()) found->second.draining = true;
}

void Dispatcher::State::RemoveWorker(NodeId node, Seconds now) {
  std::vector<uint64_t> touched;
  for (const auto& [number, job] : jobs_) {
    if (job.prefill == node || job.decode == node) touched.push_back(number);
  }
  for (const uint64_t number : touched) {
    Job& job = jobs_.at(number);
    Lost(number, job, Error{Code::kUnavailable, "a worker is gone"}, now);
  }
  nodes_.erase(node);
}

std::optional<NodeId> Dispatcher::State::LeastLoaded(WorkerRole role) const {
  std::optional<NodeId> least;
  for (const auto& [node, entry] : nodes_) {
    if (entry.role != role || entry.draining) continue;
    if (!least || entry.requests < nodes_.at(*least).requests) least = node;
  }
  return least;
}

// ---- A request's course

Result<uint64_t> Dispatcher::State::Submit(Request request, Seconds now) {
  if (waiting_ >= options_.max_waiting) {
    return Error{Code::kResourceExhausted,
                 Format("{} requests are waiting, which is the limit; retry later", waiting_)};
  }
  const bool any = std::ranges::any_of(nodes_, [](const auto& n) { return !n.second.draining; });
  if (!any) return Error{Code::kUnavailable, "no worker is ready; retry later"};
  const uint64_t number = ++last_number_;
  Job& job = jobs_[number];
  job.request = std::move(request);
  job.give_up_at = now + options_.times.total;
  job.backoff = options_.times.backoff;
  ++waiting_;
  Try(number, job, now);
  return number;
}

void Dispatcher::State::Assign(Job& job, std::optional<NodeId> prefill,
                               std::optional<NodeId> decode) {
  job.prefill = prefill;
  job.decode = decode;
  if (prefill) ++nodes_.at(*prefill).requests;
  if (decode) ++nodes_.at(*decode).requests;
}

void Dispatcher::State::Try(uint64_t number, Job& job, Seconds now) {
  ++job.attempt;
  job.renew_at = now + options_.times.renew;
  const auto replica = LeastLoaded(WorkerRole::kReplica);
  const auto prefill = LeastLoaded(WorkerRole::kPrefill);
  const auto decode = LeastLoaded(WorkerRole::kDecode);
  const auto length = static_cast<int64_t>(job.request.prompt.size());
  const bool apart = prefill && decode && (!replica || length >= options_.disaggregate_from);
  if (apart) {
    Assign(job, prefill, decode);
    job.phase = Job::Phase::kReserving;
    job.deadline = now + options_.times.reserve;
    return Send(*decode, ReserveMessage{IdOf(number, job), job.request, *prefill});
  }
  if (replica) {
    Assign(job, std::nullopt, replica);
    job.phase = Job::Phase::kPrefilling;
    job.deadline = now + options_.times.prefill;
    return Send(*replica, ServeMessage{IdOf(number, job), job.request});
  }
  job.phase = Job::Phase::kQueued;
  job.deadline = now + job.backoff;
  job.backoff = std::min(job.backoff * 2, options_.times.most_backoff);
}

// Tells the workers of this attempt that it is over.
void Dispatcher::State::LeaveAttempt(uint64_t number, Job& job) {
  for (std::optional<NodeId>* node : {&job.prefill, &job.decode}) {
    if (!*node) continue;
    --nodes_.at(**node).requests;
    Send(**node, AbortMessage{IdOf(number, job)});
    node->reset();
  }
}

void Dispatcher::State::Retry(uint64_t number, Job& job, const Error& why, Seconds now) {
  LeaveAttempt(number, job);
  job.was_full = why.code == Code::kResourceExhausted;
  job.phase = Job::Phase::kQueued;
  job.deadline = now + job.backoff;
  job.backoff = std::min(job.backoff * 2, options_.times.most_backoff);
  if (job.deadline < job.give_up_at) return;
  Fail(number, job.was_full
                   ? Error{Code::kResourceExhausted, "no worker had room in time; retry later"}
                   : Error{Code::kDeadlineExceeded,
                           Format("no first token in {}: {}", HumanSeconds(options_.times.total),
                                  why.message)});
}

// Something that the attempt needs is lost: before the first token another one is made.
void Dispatcher::State::Lost(uint64_t number, Job& job, const Error& why, Seconds now) {
  if (job.have == 0) {
    if (job.phase == Job::Phase::kDecoding) ++waiting_;
    return Retry(number, job, why, now);
  }
  LeaveAttempt(number, job);
  Fail(number, Error{Code::kUnavailable, "the worker was lost while it generated: " + why.message});
}

void Dispatcher::State::Fail(uint64_t number, Error error) {
  Finish(number, {.request = number, .finish = FinishReason::kError, .error = std::move(error)});
}

void Dispatcher::State::Finish(uint64_t number, DispatchEvent event) {
  const auto found = jobs_.find(number);
  Job& job = found->second;
  LeaveAttempt(number, job);
  waiting_ -= Waiting(job);
  events_.push_back(std::move(event));
  jobs_.erase(found);
}

void Dispatcher::State::Cancel(uint64_t number, Seconds) {
  const auto found = jobs_.find(number);
  if (found == jobs_.end()) return;
  LeaveAttempt(number, found->second);
  waiting_ -= Waiting(found->second);
  jobs_.erase(found);
  std::erase_if(events_, [&](const DispatchEvent& event) { return event.request == number; });
}

// ---- Messages

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
}

void Dispatcher::State::On(uint64_t number, Job& job, NodeId from, ReservedMessage m, Seconds now) {
  if (job.phase != Job::Phase::kReserving || job.decode != from) return;
  job.phase = Job::Phase::kPrefilling;
  job.deadline = now + options_.times.prefill;
  Send(*job.prefill, PrefillMessage{.id = IdOf(number, job),
                                    .request = job.request,
                                    .decode = *job.decode,
                                    .pages = std::move(m.pages),
                                    .present = m.present});
}

void Dispatcher::State::On(uint64_t number, Job& job, NodeId from, TokensMessage m, Seconds now) {
  const auto count = static_cast<int64_t>(m.tokens.size());
  // A gap is filled by Renew, which says what is here; a repetition is left out.
  if (m.start > job.have) return;
  const int64_t fresh = m.start + count - job.have;
  if (fresh < 0 || (fresh == 0 && !m.finish)) return;
  if (Waiting(job)) {
    --waiting_;
    job.phase = Job::Phase::kDecoding;
  }
  if (from == job.decode && job.prefill) {  // P's part is over.
    --nodes_.at(*job.prefill).requests;
    job.prefill.reset();
  }
  DispatchEvent event{.request = number};
  if (job.have == 0) event.prompt_scores = std::move(m.prompt_scores);
  event.tokens.assign(std::make_move_iterator(m.tokens.end() - fresh),
                      std::make_move_iterator(m.tokens.end()));
  job.have += fresh;
  job.deadline = now + options_.times.token;
  if (!m.finish) return events_.push_back(std::move(event));
  event.finish = m.finish;
  event.error = std::move(m.error);
  Finish(number, std::move(event));
}

void Dispatcher::State::On(uint64_t number, Job& job, NodeId, RefusedMessage m, Seconds now) {
  // What can never run is told at once; anything else may run elsewhere, or later.
  const bool never = m.error.code == Code::kInvalidArgument || m.error.code == Code::kOutOfRange;
  if (never && job.have == 0) return Fail(number, std::move(m.error));
  Lost(number, job, m.error, now);
}

// ---- Time

void Dispatcher::State::Renew(uint64_t number, Job& job, Seconds now) {
  job.renew_at = now + options_.times.renew;
  if (job.decode) Send(*job.decode, RenewMessage{IdOf(number, job), job.have});
  // P hears of a request only when D has reserved.
  if (job.prefill && job.phase == Job::Phase::kPrefilling) {
    Send(*job.prefill, RenewMessage{IdOf(number, job), job.have});
  }
}

void Dispatcher::State::Tick(Seconds now) {
  std::vector<uint64_t> due, renew;
  for (const auto& [number, job] : jobs_) {
    if (now >= job.deadline || (job.have == 0 && now >= job.give_up_at)) {
      due.push_back(number);
    } else if (now >= job.renew_at && job.phase != Job::Phase::kQueued) {
      renew.push_back(number);
    }
  }
  for (const uint64_t number : renew) Renew(number, jobs_.at(number), now);
  for (const uint64_t number : due) {
    Job& job = jobs_.at(number);
    if (job.phase == Job::Phase::kQueued && now < job.give_up_at) {
      Try(number, job, now);
    } else {
      Lost(number, job, Error{Code::kDeadlineExceeded, "a worker did not answer in time"}, now);
    }
  }
}

std::optional<Seconds> Dispatcher::State::NextTimer() const {
  std::optional<Seconds> next;
  for (const auto& [number, job] : jobs_) {
    Seconds at = job.deadline;
    if (job.phase != Job::Phase::kQueued) at = std::min(at, job.renew_at);
    if (job.have == 0) at = std::min(at, job.give_up_at);
    if (!next || at < *next) next = at;
  }
  return next;
}

std::vector<WorkerLoad> Dispatcher::State::loads() const {
  std::vector<WorkerLoad> loads;
  for (const auto& [node, entry] : nodes_) {
    loads.push_back({node, entry.role, entry.requests, entry.draining});
  }
  return loads;
}

void Dispatcher::State::Verify() const {
  std::map<NodeId, int64_t> counted;
  int64_t waiting = 0;
  for (const auto& [number, job] : jobs_) {
    if (job.prefill) ++counted[*job.prefill];
    if (job.decode) ++counted[*job.decode];
    waiting += Waiting(job);
    CHECK(job.phase != Job::Phase::kQueued || (!job.prefill && !job.decode));
  }
  CHECK(waiting == waiting_, "{} wait, {} counted", waiting, waiting_);
  for (const auto& [node, entry] : nodes_) {
    CHECK(entry.requests == counted[node], "{} requests, {} counted", counted[node],
          entry.requests);
  }
}

// ---- The public face

Dispatcher::Dispatcher(NodeId self, DispatcherOptions options)
    : state_(std::make_unique<State>(self, options)) {}
Dispatcher::~Dispatcher() = default;
void Dispatcher::AddWorker(NodeId node, WorkerRole role) { state_->AddWorker(node, role); }
void Dispatcher::Drain(NodeId node) { state_->Drain(node); }
void Dispatcher::RemoveWorker(NodeId node, Seconds now) { state_->RemoveWorker(node, now); }
Result<uint64_t> Dispatcher::Submit(Request request, Seconds now) {
  return state_->Submit(std::move(request), now);
}
void Dispatcher::Cancel(uint64_t request, Seconds now) { state_->Cancel(request, now); }
void Dispatcher::Receive(NodeId from, HandoffMessage message, Seconds now) {
  state_->Receive(from, std::move(message), now);
}
void Dispatcher::Tick(Seconds now) { state_->Tick(now); }
std::optional<Seconds> Dispatcher::NextTimer() const { return state_->NextTimer(); }
std::vector<Outgoing> Dispatcher::TakeMessages() { return state_->TakeMessages(); }
std::vector<DispatchEvent> Dispatcher::TakeEvents() { return state_->TakeEvents(); }
int64_t Dispatcher::waiting() const { return state_->waiting(); }
int64_t Dispatcher::live() const { return state_->live(); }
std::vector<WorkerLoad> Dispatcher::loads() const { return state_->loads(); }
void Dispatcher::Verify() const { state_->Verify(); }

}  // namespace divisi
