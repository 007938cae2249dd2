#include "divisi/control/dispatcher_state.h"

namespace divisi {

void Dispatcher::State::AddWorker(NodeId node, WorkerRole role, WorkerCapacity capacity) {
  const auto [at, fresh] = nodes_.try_emplace(node);
  Node& entry = at->second;
  if (fresh) {
    entry.capacity = capacity;
    entry.pause = options_.times.backoff;
  }
  entry.role = role;
  entry.draining = entry.full = false;
}

void Dispatcher::State::RemoveWorker(NodeId node, Seconds now) {
  std::vector<uint64_t> touched;
  for (const auto& [number, job] : jobs_) {
    if (job.prefill == node || job.decode == node) touched.push_back(number);
  }
  for (const uint64_t number : touched) {
    Lost(number, jobs_.at(number),
         {Error{Code::kUnavailable, "a worker is gone"}, RetryReason::kWorkerGone, node}, now);
  }
  nodes_.erase(node);
  UpdateMeans();
  TryQueue(now);
}

void Dispatcher::State::Report(NodeId node, const WorkerRates& rates, int64_t prompt_backlog,
                               Seconds now) {
  const auto found = nodes_.find(node);
  if (found == nodes_.end() || !rates.Sane()) return;
  Node& entry = found->second;
  entry.rates = rates;
  UpdateMeans();
  // The worker counts whole prompts until it looks what it has of them: so are its own here.
  int64_t own = 0;
  for (const auto& [number, prompt] : entry.prompts) own += prompt.tokens;
  if (!entry.prompts.empty()) {
    const Node::Prompt& first = entry.prompts.begin()->second;
    const double done = first.work > Seconds(0) ? FirstDone(entry, now) / first.work : 0;
    // The tokens of a step are counted until it ends.
    const int64_t step = std::max<int64_t>(entry.capacity.step_tokens, 1);
    own -= static_cast<int64_t>(static_cast<double>(first.tokens) * done) / step * step;
  }
  entry.others = rates.PromptWork(std::max<int64_t>(prompt_backlog - own, 0));
}

// ---- Draining

void Dispatcher::State::Drain(NodeId node, Seconds now, Seconds within) {
  const auto found = nodes_.find(node);
  if (found == nodes_.end()) return;
  Node& entry = found->second;
  entry.draining = true;
  entry.drain_ends = now + within;
  std::vector<uint64_t> fresh;
  for (const auto& [number, job] : jobs_) {
    if (job.prefill != node && job.decode != node) continue;
    // Of those whose prompt is under way the first is taken to have begun.
    const Node& computing = nodes_.at(job.prefill.value_or(*job.decode));
    const bool first = !computing.prompts.empty() && computing.prompts.begin()->first == number;
    const bool begun =
        job.phase == Job::Phase::kDecoding || (job.phase == Job::Phase::kPrefilling && first);
    if (!begun && CouldRun()) fresh.push_back(number);
  }
  const Loss drained{Error{Code::kUnavailable, "the worker is drained"}, RetryReason::kDrained, {}};
  for (const uint64_t number : fresh) Retry(number, jobs_.at(number), drained, now);
  EndDrains(now);
  TryQueue(now);
}

void Dispatcher::State::EndDrains(Seconds now) {
  std::vector<uint64_t> over;
  const auto ends = [&](const std::optional<NodeId>& node) {
    if (!node) return false;
    const Node& entry = nodes_.at(*node);
    return entry.draining && now >= entry.drain_ends;
  };
  for (const auto& [number, job] : jobs_) {
    if (ends(job.prefill) || ends(job.decode)) over.push_back(number);
  }
  for (const uint64_t number : over) {
    Lost(number, jobs_.at(number),
         {Error{Code::kUnavailable, "its worker was drained"}, RetryReason::kDrained, {}}, now);
  }
}

// ---- Room

bool Dispatcher::State::HasRoom(const Node& node, Seconds now) const {
  // A replica has a queue of its own; a decode worker reserves or refuses.
  const bool bounded = node.role == WorkerRole::kDecode && node.capacity.max_sequences > 0;
  if (bounded && node.requests >= node.capacity.max_sequences) return false;
  return !node.full || node.credits > 0 || now >= node.again_at;
}

void Dispatcher::State::IsFull(NodeId node, Seconds now) {
  Node& entry = nodes_.at(node);
  entry.full = true;
  entry.credits = 0;
  entry.again_at = now + entry.pause;
  entry.pause = std::min(entry.pause * 2, options_.times.most_backoff);
}

void Dispatcher::State::TookOne(NodeId node) {
  Node& entry = nodes_.at(node);
  if (!entry.full) return;
  entry.pause = options_.times.backoff;
  ++entry.credits;  // There may be room for more.
  if (queue_.empty()) entry.full = false;
}

// Of the first prompt, as far as can be told.
Seconds Dispatcher::State::FirstDone(const Node& node, Seconds now) {
  const Seconds since = std::max(now - node.first_since, Seconds(0));
  return std::min(since, node.prompts.begin()->second.work);
}

// Prompts of this gateway that are ahead of a new one, the first of them partly through, and those
// of others.
Seconds Dispatcher::State::QueueOf(const Node& node, Seconds now) const {
  if (node.prompts.empty()) return node.others;
  return std::max(node.prompts_sum - FirstDone(node, now), Seconds(0)) + node.others;
}

// ---- Choosing

bool Dispatcher::State::CouldRun() const {
  return std::ranges::any_of(nodes_, [](const auto& entry) {
    return !entry.second.draining && entry.second.role != WorkerRole::kPrefill;
  });
}

void Dispatcher::State::TryQueue(Seconds now) {
  for (auto at = queue_.begin(); at != queue_.end();) {
    const uint64_t number = *at++;
    Job& job = jobs_.at(number);
    if (now < job.deadline) continue;  // It pauses; it does not wait for room.
    auto choice = Choose(job, now);
    // One that leaves out who failed it waits for others; those behind it may go there.
    if (!choice && !job.failed.empty()) continue;
    if (!choice) return;
    Begin(number, job, choice->chosen, now);
    if (options_.keep_choices) {
      choices_.push_back({number, job.attempt, now, job.prompt_tokens(), std::move(*choice)});
    }
  }
}

// ---- What others see

DispatcherStats Dispatcher::State::stats() const {
  DispatcherStats stats = counters_;
  for (const auto& [number, job] : jobs_) {
    stats.queued += job.phase == Job::Phase::kQueued;
    stats.reserving += job.phase == Job::Phase::kReserving;
    stats.prefilling += job.phase == Job::Phase::kPrefilling;
    stats.decoding += job.phase == Job::Phase::kDecoding;
  }
  return stats;
}

std::vector<WorkerLoad> Dispatcher::State::loads(Seconds now) const {
  std::vector<WorkerLoad> loads;
  for (const auto& [node, entry] : nodes_) {
    loads.push_back(
        {.node = node,
         .role = entry.role,
         .requests = entry.requests,
         .decoding = entry.decoding,
         .queue = QueueOf(entry, now),
         .full = entry.full,
         .draining = entry.draining,
         .drain_left = entry.draining ? std::max(entry.drain_ends - now, Seconds(0)) : Seconds(0),
         .rates = entry.rates});
  }
  return loads;
}

void Dispatcher::State::Verify() const {
  std::map<NodeId, int64_t> requests, decoding;
  int64_t waiting = 0;
  for (const auto& [number, job] : jobs_) {
    const bool queued = job.phase == Job::Phase::kQueued;
    if (job.prefill) ++requests[*job.prefill];
    if (job.decode) {
      ++requests[*job.decode];
      decoding[*job.decode] += job.phase == Job::Phase::kDecoding;
    }
    waiting += Waiting(job);
    CHECK(!queued || (!job.prefill && !job.decode));
    CHECK(queued == queue_.contains(number), "request {} queued: {}", number, queued);
    if (queued || job.phase == Job::Phase::kDecoding) continue;
    CHECK(nodes_.at(job.prefill.value_or(*job.decode)).prompts.contains(number));
  }
  CHECK(waiting == waiting_, "{} wait, {} counted", waiting, waiting_);
  for (const auto& [node, entry] : nodes_) {
    CHECK(entry.requests == requests[node], "{} requests, {} counted", requests[node],
          entry.requests);
    CHECK(entry.decoding == decoding[node], "{} decode, {} counted", decoding[node],
          entry.decoding);
    for (const auto& [number, work] : entry.prompts) {
      const Job& job = jobs_.at(number);
      CHECK(Waiting(job) && (job.prefill == node || job.decode == node));
    }
  }
}

}  // namespace divisi
