#include <algorithm>
#include <cmath>
#include <set>

#include "divisi/control/dispatcher_state.h"
#include "divisi/control/route_prefix.h"

namespace divisi {
namespace {

// Prompts of the last seconds tell how many come: time for which one counts, falling off.
constexpr Seconds kArrivalMemory{10};
// A promise is kept until the prompt should be through, that time again, and this: events of its
// pages are batched, and come over a network.
constexpr Seconds kPromiseMargin{1};

// How many leading pages are the same. A key names all pages before it, too.
size_t CommonPages(std::span<const BlockKey> one, std::span<const BlockKey> other) {
  size_t same = 0, most = std::min(one.size(), other.size());
  while (same < most) {
    const size_t middle = (same + most) / 2;
    if (one[middle] == other[middle]) {
      same = middle + 1;
    } else {
      most = middle;
    }
  }
  return same;
}

template <typename Sum>
void Divide(Sum& sum, double count) {
  if (count > 0) sum = sum / count;
}

}  // namespace

// ---- Rates

void Dispatcher::State::MeanRates::Take(const WorkerRates& measured) {
  if (measured.prompt_steps > 0) {
    ++prompts;
    rates.per_token += measured.per_token;
    rates.per_pair += measured.per_pair;
  }
  if (measured.steps > 0) {
    ++steps;
    rates.step += measured.step;
    rates.per_sequence += measured.per_sequence;
  }
  for (size_t t = 1; t < reads.size(); ++t) {
    if (!measured.read_measured[t]) continue;
    ++reads[t];
    rates.read[t] += measured.read[t];
  }
  if (measured.lookup_measured) {
    ++lookups;
    rates.lookup += measured.lookup;
  }
}

void Dispatcher::State::MeanRates::Finish() {
  Divide(rates.per_token, prompts);
  Divide(rates.per_pair, prompts);
  Divide(rates.step, steps);
  Divide(rates.per_sequence, steps);
  for (size_t t = 1; t < reads.size(); ++t) Divide(rates.read[t], reads[t]);
  Divide(rates.lookup, lookups);
}

// With each report, so that a choice need not.
void Dispatcher::State::UpdateMeans() {
  means_ = {};
  for (const auto& [node, entry] : nodes_) means_.Take(entry.rates);
  means_.Finish();
}

// The worker's own, where it has measured; of one that has not, what others have, in the mean: a
// guess would set it apart from them.
WorkerRates Dispatcher::State::RatesOf(const Node& node) const {
  WorkerRates rates = node.rates;
  if (rates.prompt_steps == 0 && means_.prompts > 0) {
    rates.per_token = means_.rates.per_token;
    rates.per_pair = means_.rates.per_pair;
  }
  if (rates.steps == 0 && means_.steps > 0) {
    rates.step = means_.rates.step;
    rates.per_sequence = means_.rates.per_sequence;
  }
  for (size_t t = 1; t < means_.reads.size(); ++t) {
    if (!rates.read_measured[t] && means_.reads[t] > 0) rates.read[t] = means_.rates.read[t];
  }
  if (!rates.lookup_measured && means_.lookups > 0) rates.lookup = means_.rates.lookup;
  return rates;
}

void Dispatcher::State::NoteArrival(Seconds now) {
  arrivals_ = ArrivalsAt(now) + Rate(kArrivalMemory);
  arrival_at_ = now;
}

PerSecond Dispatcher::State::ArrivalsAt(Seconds now) const {
  return arrivals_ * std::exp((arrival_at_ - now) / kArrivalMemory);
}

// ---- Choosing

double Dispatcher::State::Node::Read::Left(Seconds now) const {
  return now >= until ? 0 : std::min((until - now) / (until - from), 1.0);
}

std::array<Bytes, kSources> Dispatcher::State::ReadingOf(const Node& node, Seconds now) const {
  std::array<Bytes, kSources> left{};
  for (const auto& [number, read] : node.reads) {
    const double part = read.Left(now);
    for (size_t t = 0; t < left.size(); ++t) left[t] += Scale(read.bytes[t], part);
  }
  return left;
}

std::vector<RouteWorker> Dispatcher::State::Workers(Seconds now) const {
  std::vector<RouteWorker> workers;
  workers.reserve(nodes_.size());
  for (const auto& [node, entry] : nodes_) {
    if (entry.draining) continue;
    workers.push_back({.node = node,
                       .role = entry.role,
                       .room = HasRoom(entry, now),
                       .requests = entry.requests,
                       .decoding = entry.decoding,
                       .queue = QueueOf(entry, now),
                       .chunk = entry.capacity.step_tokens,
                       .rates = RatesOf(entry),
                       .reading = ReadingOf(entry, now),
                       .asks_pool = entry.capacity.pool});
  }
  return workers;
}

// The pool gives those that read from it now what they were measured to get, together.
SharedLink Dispatcher::State::PoolLink(std::span<const RouteWorker> workers) const {
  constexpr auto kPool = static_cast<size_t>(Tier::kRemote);
  SharedLink link;
  for (const RouteWorker& worker : workers) {
    if (worker.reading[kPool].value == 0) continue;
    link.rate = BytesPerSecond(link.rate.value + worker.rates.read[kPool].value);
    link.under_way += worker.reading[kPool];
    ++link.reads;
  }
  return link;
}

RouteRules Dispatcher::State::Rules(std::span<const RouteWorker> workers, Seconds now) const {
  Bytes page;
  int layers = 1;
  for (const auto& [node, entry] : nodes_) {
    page = std::max(page, entry.capacity.page);
    layers = std::max(layers, entry.capacity.layers);
  }
  int64_t prefill = 0, replicas = 0;
  for (const RouteWorker& worker : workers) {
    prefill += worker.role == WorkerRole::kPrefill;
    replicas += worker.role == WorkerRole::kReplica;
  }
  int64_t computing = prefill + replicas;
  if (computing == 0) computing = std::max<int64_t>(std::ssize(workers), 1);
  return {.policy = options_.policy,
          .disaggregate_from = options_.disaggregate_from,
          .reserve = reserve_,
          .estimate = {.bytes_per_token = page / int64_t{kBlockTokens},
                       .layers = layers,
                       .objective = options_.objective,
                       .quantile = options_.quantile,
                       .arrivals = ArrivalsAt(now) / static_cast<double>(computing),
                       .pool = PoolLink(workers)}};
}

// What each has of the prompt: looked up once for all of them.
void Dispatcher::State::FindPrefixes(std::span<const BlockKey> pages,
                                     std::vector<RouteWorker>& workers, Seconds now) const {
  if (directory_ == nullptr || pages.empty()) return;
  std::vector<PrefixHolder> holders;
  holders.reserve(workers.size());
  for (const RouteWorker& worker : workers) {
    holders.push_back({worker.node, nodes_.at(worker.node).capacity.pool});
  }
  const std::vector<RoutePrefix> prefixes = RoutePrefixes(*directory_, pages, holders, now);
  for (size_t i = 0; i < workers.size(); ++i) workers[i].prefix = prefixes[i];
}

// A worker's link gives those that read from it now what they were measured to get, together.
std::map<NodeId, SharedLink> Dispatcher::State::PeerLinks(Seconds now) const {
  constexpr auto kPeer = static_cast<size_t>(Tier::kPeer);
  std::map<NodeId, SharedLink> links;
  for (const auto& [node, entry] : nodes_) {
    for (const auto& [number, read] : entry.reads) {
      const Bytes left = Scale(read.bytes[kPeer], read.Left(now));
      if (!read.peer || left.value == 0) continue;
      SharedLink& link = links[*read.peer];
      link.rate = BytesPerSecond(link.rate.value + RatesOf(entry).read[kPeer].value);
      link.under_way += left;
      ++link.reads;
    }
  }
  return links;
}

// Where what a worker lacks may be read in another's host memory.
void Dispatcher::State::FindPeers(std::vector<RouteWorker>& workers, Seconds now) const {
  const auto exports = [](const auto& node) { return !node.second.capacity.exported_at.empty(); };
  if (directory_ == nullptr || std::ranges::none_of(nodes_, exports)) return;
  std::map<NodeId, SharedLink> links = PeerLinks(now);
  std::vector<PeerHolder> holders;
  std::vector<RoutePrefix> prefixes;
  holders.reserve(workers.size());
  prefixes.reserve(workers.size());
  for (const RouteWorker& worker : workers) {
    const WorkerCapacity& capacity = nodes_.at(worker.node).capacity;
    const bool gives = !capacity.exported_at.empty();
    holders.push_back({.node = worker.node, .reads = capacity.reads_peers, .gives = gives});
    if (gives && !links.empty()) holders.back().link = links[worker.node];
    prefixes.push_back(worker.prefix);
  }
  divisi::FindPeers(*directory_, holders, prefixes);
  for (size_t i = 0; i < workers.size(); ++i) workers[i].prefix.peer = prefixes[i].peer;
}

// Leaves out workers that have failed the job where others of their role have not.
void Dispatcher::State::LeaveOutFailed(const Job& job, std::vector<RouteWorker>& workers) const {
  if (job.failed.empty()) return;
  const auto failed = [&](const RouteWorker& worker) {
    return std::ranges::find(job.failed, worker.node) != job.failed.end();
  };
  std::set<WorkerRole> others;
  for (const RouteWorker& worker : workers) {
    if (!failed(worker)) others.insert(worker.role);
  }
  std::erase_if(workers, [&](const RouteWorker& worker) {
    return failed(worker) && others.contains(worker.role);
  });
}

std::optional<RouteChoice> Dispatcher::State::Choose(const Job& job, Seconds now) {
  std::vector<RouteWorker> workers = Workers(now);
  LeaveOutFailed(job, workers);
  // While nobody has room it is asked with every message: the search would be for nothing. Each way
  // ends at a worker that decodes.
  const auto has_room = [](const RouteWorker& worker) {
    return worker.room && worker.role != WorkerRole::kPrefill;
  };
  if (std::ranges::none_of(workers, has_room)) return std::nullopt;
  FindPrefixes(job.pages, workers, now);
  FindPeers(workers, now);
  return ChooseRoute(job.prompt_tokens(), workers, Rules(workers, now), turns_);
}

std::optional<RouteChoice> Dispatcher::State::Explain(const RouteQuestion& question,
                                                      Seconds now) const {
  std::vector<RouteWorker> workers = Workers(now);
  FindPrefixes(question.pages, workers, now);
  for (const auto& [node, tier, tokens] : question.held) {
    for (RouteWorker& worker : workers) {
      if (worker.node != node) continue;
      auto& held = worker.prefix.tokens;
      for (auto t = static_cast<size_t>(tier); t < held.size(); ++t) {
        held[t] = std::max(held[t], tokens);
      }
    }
  }
  FindPeers(workers, now);
  RouteTurns turns = turns_;
  return ChooseRoute(question.prompt_tokens, workers, Rules(workers, now), turns);
}

std::optional<HandoverThreshold> Dispatcher::State::threshold(Seconds now) const {
  RouteTurns turns = turns_;
  std::vector<RouteWorker> workers = Workers(now);
  const auto any = [&](WorkerRole role) {
    return std::ranges::any_of(workers, [&](const RouteWorker& w) { return w.role == role; });
  };
  if (!any(WorkerRole::kPrefill) || !any(WorkerRole::kDecode)) return std::nullopt;
  for (RouteWorker& worker : workers) worker.room = true;
  return ChooseRoute(1, workers, Rules(workers, now), turns)->threshold;
}

// ---- What a choice leads to

void Dispatcher::State::NoteReads(uint64_t number, const RouteOption& option, Seconds now) {
  const RouteEstimate& at = option.at;
  if (at.reading <= Seconds(0)) return;
  Node& node = nodes_.at(option.computes());
  Bytes page;
  for (const auto& [other, entry] : nodes_) page = std::max(page, entry.capacity.page);
  Node::Read read{.peer = at.peer, .from = now, .until = now + at.lookup + at.links + at.reading};
  for (size_t t = 1; t < read.bytes.size(); ++t) read.bytes[t] = page * PagesFor(at.from[t]);
  node.reads.insert_or_assign(number, read);
}

// Others with the same prefix may follow it.
void Dispatcher::State::Promise(const Job& job, const RouteOption& option, Seconds now) {
  if (directory_ == nullptr) return;
  const auto there = static_cast<size_t>(option.at.from[0] / kBlockTokens);
  const std::span<const BlockKey> pages = job.pages;
  if (there >= pages.size()) return;
  const Seconds until = now + option.expected() * 2 + kPromiseMargin;
  directory_->Promise(option.computes(), pages.subspan(there), until, now);
}

// Its worker will not compute it: others are not to follow it there. They still may where another
// prompt with the same beginning is on its way.
void Dispatcher::State::BreakPromise(uint64_t number, const Job& job) {
  if (directory_ == nullptr || (!job.prefill && !job.decode)) return;
  const NodeId node = job.prefill.value_or(*job.decode);
  const auto& prompts = nodes_.at(node).prompts;
  if (!prompts.contains(number)) return;  // It has.
  auto kept = static_cast<size_t>(job.shown[0]);
  for (const auto& [other, prompt] : prompts) {
    if (other == number) continue;
    kept = std::max(kept, CommonPages(job.pages, jobs_.at(other).pages));
  }
  if (kept >= job.pages.size()) return;
  directory_->Break(node, std::span(job.pages).subspan(kept));
}

// What the directory showed of the prefix was there or was not.
void Dispatcher::State::Learn(const Job& job, NodeId node, const PagesFound& found) {
  if (directory_ == nullptr) return;
  const PagesFound there = PagesThere(job.shown, found);
  constexpr auto kPeer = static_cast<size_t>(Tier::kPeer);
  if (job.peer && job.shown[kPeer] > 0) {
    directory_->Used(*job.peer, Tier::kPeer, job.shown[kPeer], there[kPeer]);
  }
  for (size_t t = 0; t < kTiers; ++t) {
    if (job.shown[t] == 0) continue;
    directory_->Used(node, static_cast<Tier>(t), job.shown[t], there[t]);
  }
}

}  // namespace divisi
