#include "divisi/control/dispatcher_state.h"
#include "divisi/control/route_prefix.h"

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
  TryQueue(now);
}

void Dispatcher::State::Report(NodeId node, const WorkerRates& rates, int64_t prompt_backlog,
                               Seconds now) {
  const auto found = nodes_.find(node);
  if (found == nodes_.end() || !rates.Sane()) return;
  Node& entry = found->second;
  entry.rates = rates;
  entry.others = Seconds(0);
  const Seconds own = QueueOf(entry, now);
  entry.others = std::max(rates.PromptWork(prompt_backlog) - own, Seconds(0));
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

// Prompts of this gateway that are ahead of a new one, the first of them partly through, and those
// of others.
Seconds Dispatcher::State::QueueOf(const Node& node, Seconds now) const {
  if (node.prompts.empty()) return node.others;
  const Seconds done = std::min(now - node.first_since, node.prompts.begin()->second);
  return std::max(node.prompts_sum - done, Seconds(0)) + node.others;
}

// ---- Choosing

// The worker's own, where it has measured; of one that has not, what others have, in the mean: a
// guess would set it apart from them.
WorkerRates Dispatcher::State::RatesOf(const Node& node) const {
  WorkerRates rates = node.rates;
  WorkerRates sum{.step = {}, .per_token = {}, .per_sequence = {}};
  for (const auto& [other, entry] : nodes_) {
    const WorkerRates& measured = entry.rates;
    if (measured.prompt_steps > 0) {
      ++sum.prompt_steps;
      sum.per_token += measured.per_token;
      sum.per_pair += measured.per_pair;
    }
    if (measured.steps > 0) {
      ++sum.steps;
      sum.step += measured.step;
      sum.per_sequence += measured.per_sequence;
    }
  }
  if (rates.prompt_steps == 0 && sum.prompt_steps > 0) {
    rates.per_token = sum.per_token / static_cast<double>(sum.prompt_steps);
    rates.per_pair = sum.per_pair / static_cast<double>(sum.prompt_steps);
  }
  if (rates.steps == 0 && sum.steps > 0) {
    rates.step = sum.step / static_cast<double>(sum.steps);
    rates.per_sequence = sum.per_sequence / static_cast<double>(sum.steps);
  }
  return rates;
}

std::vector<RouteWorker> Dispatcher::State::Workers(Seconds now) const {
  std::vector<RouteWorker> workers;
  for (const auto& [node, entry] : nodes_) {
    if (entry.draining) continue;
    workers.push_back({.node = node,
                       .role = entry.role,
                       .room = HasRoom(entry, now),
                       .requests = entry.requests,
                       .decoding = entry.decoding,
                       .queue = QueueOf(entry, now),
                       .chunk = entry.capacity.step_tokens,
                       .rates = RatesOf(entry)});
  }
  return workers;
}

RouteRules Dispatcher::State::Rules() const {
  Bytes page;
  for (const auto& [node, entry] : nodes_) page = std::max(page, entry.capacity.page);
  return {.policy = options_.policy,
          .disaggregate_from = options_.disaggregate_from,
          .reserve = reserve_,
          .estimate = {.bytes_per_token = page / int64_t{kBlockTokens}}};
}

// What each has of the prompt: looked up once for all of them.
void Dispatcher::State::FindPrefixes(const Job& job, std::vector<RouteWorker>& workers,
                                     Seconds now) const {
  if (directory_ == nullptr || job.pages.empty()) return;
  std::vector<PrefixHolder> holders;
  for (const RouteWorker& worker : workers) {
    holders.push_back({worker.node, nodes_.at(worker.node).capacity.pool});
  }
  const std::vector<RoutePrefix> prefixes = RoutePrefixes(*directory_, job.pages, holders, now);
  for (size_t i = 0; i < workers.size(); ++i) workers[i].prefix = prefixes[i];
}

std::optional<RouteChoice> Dispatcher::State::Choose(const Job& job, Seconds now) {
  std::vector<RouteWorker> workers = Workers(now);
  const auto failed = [&](const RouteWorker& worker) {
    return std::ranges::find(job.failed, worker.node) != job.failed.end();
  };
  std::set<WorkerRole> others;  // Roles with somebody who has not failed it
  for (const RouteWorker& worker : workers) {
    if (!failed(worker)) others.insert(worker.role);
  }
  std::erase_if(workers, [&](const RouteWorker& worker) {
    return failed(worker) && others.contains(worker.role);
  });
  FindPrefixes(job, workers, now);
  return ChooseRoute(job.prompt_tokens(), workers, Rules(), turns_);
}

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
    if (!choice) return;
    Begin(number, job, choice->chosen, now);
    if (options_.keep_choices) {
      choices_.push_back({number, job.attempt, std::move(*choice)});
    }
  }
}

std::optional<HandoverThreshold> Dispatcher::State::threshold(Seconds now) const {
  RouteTurns turns = turns_;
  RouteRules rules = Rules();
  std::vector<RouteWorker> workers = Workers(now);
  const bool both =
      std::ranges::any_of(workers,
                          [](const RouteWorker& w) { return w.role == WorkerRole::kPrefill; }) &&
      std::ranges::any_of(workers,
                          [](const RouteWorker& w) { return w.role == WorkerRole::kDecode; });
  if (!both) return std::nullopt;
  for (RouteWorker& worker : workers) worker.room = true;
  return ChooseRoute(1, workers, rules, turns)->threshold;
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
