#include "divisi/control/route_choice.h"

#include <algorithm>
#include <utility>

#include "divisi/core/format.h"
#include "divisi/core/nearest.h"

namespace divisi {
namespace {

// Beyond it no prompt is: a bound for the search of a threshold.
constexpr int64_t kMostTokens = int64_t{1} << 24;

// A tenth of a time to the first token, which is less than estimates err, is given to have half of
// the work or less: equal prompts that come at once are computed once.
constexpr double kLikeCost = 1.1;
constexpr double kMuchLess = 0.5;

constexpr RoutePolicy kPolicies[] = {RoutePolicy::kRoundRobin, RoutePolicy::kLeastLoaded,
                                     RoutePolicy::kCacheFirst, RoutePolicy::kExpectedTtft};

// One choice in the making.
class Choosing {
 public:
  Choosing(int64_t tokens, std::span<const RouteWorker> workers, const RouteRules& rules,
           RouteTurns& turns)
      : tokens_(tokens), workers_(workers), rules_(rules), turns_(turns) {}

  std::optional<RouteChoice> Make() {
    const bool times = rules_.policy == RoutePolicy::kExpectedTtft;
    if (times) {
      estimates_.reserve(workers_.size());
      for (const RouteWorker& worker : workers_) estimates_.push_back(Estimate(worker));
    }
    choice_.options.reserve(workers_.size());
    const bool apart = Apart();
    // Short prompts may go anywhere whole. Long ones are handed over where somebody may: unless
    // times are compared, also with replicas, and with decode workers that have most of it.
    if (apart) AddApart();
    const bool compared = times && !rules_.disaggregate_from;
    if (!apart || compared) AddWhole(WorkerRole::kReplica, tokens_);
    const bool has_replicas = Least(WorkerRole::kReplica, false, Fewest) != nullptr;
    if (apart && compared) AddWhole(WorkerRole::kDecode, *choice_.threshold.from - 1);
    if (!apart && (compared || !has_replicas)) AddWhole(WorkerRole::kDecode, tokens_);
    if (choice_.options.empty()) return std::nullopt;
    choice_.chosen = Cheapest();
    Remember();
    return std::move(choice_);
  }

 private:
  static int64_t Fewest(const RouteWorker& worker) { return worker.requests; }

  // The smallest of a role first, the first of equal ones; null of none.
  template <typename Key>
  const RouteWorker* Least(WorkerRole role, bool with_room, Key key) const {
    const RouteWorker* least = nullptr;
    for (const RouteWorker& worker : workers_) {
      if (worker.role != role || (with_room && !worker.room)) continue;
      if (least == nullptr || key(worker) < key(*least)) least = &worker;
    }
    return least;
  }

  RouteEstimate Estimate(const RouteWorker& worker) const {
    const bool prefill = worker.role == WorkerRole::kPrefill;
    return EstimateRoute(tokens_, worker, rules_.estimate, prefill ? rules_.reserve : Seconds(0));
  }
  const RouteEstimate& EstimateOf(const RouteWorker& worker) const {
    return estimates_[static_cast<size_t>(&worker - workers_.data())];
  }

  // Whether the prompt is to be handed over: by all that are there, with room or without.
  bool Apart() {
    const RouteWorker* prefill = PickPrefill(false);
    const RouteWorker* decode = PickDecode(false);
    if (prefill == nullptr || decode == nullptr) return false;
    choice_.threshold = ThresholdOf(*prefill, *decode, rules_);
    return choice_.threshold.from && tokens_ >= *choice_.threshold.from;
  }

  const RouteWorker* PickPrefill(bool with_room) const {
    return Pick(WorkerRole::kPrefill, with_room,
                [this](const RouteWorker& p) { return EstimateOf(p).cost(); });
  }
  const RouteWorker* PickDecode(bool with_room) const {
    return Pick(WorkerRole::kDecode, with_room, StepAt);
  }

  // Those that are on their way there decode, too, by the time this one does.
  static Seconds StepAt(const RouteWorker& worker) {
    return worker.rates.DecodeStep(std::max(worker.decoding, worker.requests));
  }

  template <typename Cost>
  const RouteWorker* Pick(WorkerRole role, bool with_room, Cost cost) const {
    switch (rules_.policy) {
      case RoutePolicy::kRoundRobin:
        return InTurn(role, with_room);
      case RoutePolicy::kLeastLoaded:
        return Least(role, with_room, Fewest);
      case RoutePolicy::kCacheFirst:
        return Least(role, with_room,
                     [](const RouteWorker& w) { return std::pair(-OwnPrefix(w), w.requests); });
      case RoutePolicy::kExpectedTtft:
        return Least(role, with_room,
                     [&](const RouteWorker& w) { return std::pair(cost(w), w.requests); });
    }
    return nullptr;
  }

  // Without the pool's, which everybody has.
  static int64_t OwnPrefix(const RouteWorker& worker) {
    const RoutePrefix& prefix = worker.prefix;
    const bool promised = prefix.promised > prefix.tokens.back();
    return promised ? prefix.promised : prefix.tokens[static_cast<size_t>(Tier::kDisk)];
  }

  // The next by name after the last one, around.
  const RouteWorker* InTurn(WorkerRole role, bool with_room) const {
    const NodeId last = turns_.last[static_cast<size_t>(role)];
    return Least(role, with_room,
                 [&](const RouteWorker& w) { return std::pair(w.node <= last, w.node); });
  }

  // Where times are compared: each prefill worker with the decode worker that suits it best, and
  // the best of them with each other decode worker. Else those that the policy picks.
  void AddApart() {
    if (rules_.policy != RoutePolicy::kExpectedTtft) {
      const RouteWorker* prefill = PickPrefill(true);
      const RouteWorker* decode = PickDecode(true);
      if (prefill == nullptr || decode == nullptr) return;
      choice_.options.push_back(Pair(*prefill, *decode, Estimate(*prefill)));
      return;
    }
    const RouteWorker *best = nullptr, *best_decode = nullptr;
    std::pair<Seconds, int64_t> least;
    for (const RouteWorker& p : workers_) {
      if (p.role != WorkerRole::kPrefill || !p.room) continue;
      const RouteEstimate& at = EstimateOf(p);
      const RouteWorker* d = Least(WorkerRole::kDecode, true, [&](const RouteWorker& decode) {
        return std::pair(TailAt(p, decode, at) + StepAt(decode), decode.requests);
      });
      if (d == nullptr) return;
      const RouteOption& option = choice_.options.emplace_back(Pair(p, *d, at));
      const std::pair key(option.cost(), option.requests);
      if (best != nullptr && least <= key) continue;
      least = key;
      best = &p;
      best_decode = d;
    }
    if (best == nullptr) return;
    for (const RouteWorker& d : workers_) {
      if (d.role != WorkerRole::kDecode || !d.room || &d == best_decode) continue;
      choice_.options.push_back(Pair(*best, d, EstimateOf(*best)));
    }
  }

  int64_t PresentAt(const RouteWorker& d) const { return std::min(d.prefix.tokens[0], tokens_); }

  // What is left to write to D when P has computed the prompt.
  Seconds TailAt(const RouteWorker& p, const RouteWorker& d, const RouteEstimate& at) const {
    const int64_t lacks = tokens_ - PresentAt(d);
    const Bytes token = rules_.estimate.bytes_per_token;
    const Seconds last = token * std::min({lacks, tokens_ - at.cached, p.chunk}) / p.rates.write;
    const int64_t chunk = std::max<int64_t>(p.chunk, 1);
    const int64_t steps = std::max<int64_t>((tokens_ - at.cached + chunk - 1) / chunk, 1);
    const Seconds first = at.times.compute / steps;
    return std::max(last, token * lacks / p.rates.write - (at.times.compute - first));
  }

  RouteOption Pair(const RouteWorker& p, const RouteWorker& d, const RouteEstimate& at) const {
    return {.prefill = p.node,
            .target = d.node,
            .at = at,
            .transfer = TailAt(p, d, at),
            .step = StepAt(d),
            .present = PresentAt(d),
            .requests = p.requests + d.requests};
  }

  // All of a role that have at most `left` tokens to compute, where times are compared; else the
  // one that the policy picks.
  void AddWhole(WorkerRole role, int64_t left) {
    const auto add = [&](const RouteWorker& worker, const RouteEstimate& at) {
      choice_.options.push_back({.target = worker.node, .at = at, .requests = worker.requests});
    };
    if (rules_.policy != RoutePolicy::kExpectedTtft) {
      const RouteWorker* picked = Pick(role, true, [](const RouteWorker&) { return Seconds(0); });
      if (picked != nullptr) add(*picked, Estimate(*picked));
      return;
    }
    for (const RouteWorker& worker : workers_) {
      if (worker.role != role || !worker.room) continue;
      if (tokens_ - worker.prefix.tokens[0] <= left) add(worker, EstimateOf(worker));
    }
  }

  // Of like costs the one with fewer requests. One with kMuchLess of the work may cost kLikeCost.
  const RouteOption& Cheapest() const {
    const auto key = [](const RouteOption& option) {
      return std::pair(option.cost(), option.requests);
    };
    const RouteOption& least = *std::ranges::min_element(choice_.options, {}, key);
    const RouteOption* best = &least;
    for (const RouteOption& option : choice_.options) {
      if (option.cost() > least.cost() * kLikeCost) continue;
      if (option.at.work > least.at.work * kMuchLess || option.at.work >= best->at.work) continue;
      best = &option;
    }
    return *best;
  }

  void Remember() {
    const RouteOption& chosen = choice_.chosen;
    if (chosen.prefill) turns_.last[static_cast<size_t>(WorkerRole::kPrefill)] = *chosen.prefill;
    for (const RouteWorker& worker : workers_) {
      if (worker.node == chosen.target) turns_.last[static_cast<size_t>(worker.role)] = worker.node;
    }
  }

  const int64_t tokens_;
  const std::span<const RouteWorker> workers_;
  const RouteRules& rules_;
  RouteTurns& turns_;
  std::vector<RouteEstimate> estimates_;  // As workers_; where times are compared
  RouteChoice choice_;
};

// "; 960 tokens cached: 480 device, 480 disk; odds 0.90, mean 55.00", where there are any.
std::string PrefixText(const RouteOption& option, const std::function<std::string(NodeId)>& name) {
  const RouteEstimate& at = option.at;
  if (at.cached == 0) return "";
  constexpr const char* kTiers[] = {"device", "host", "disk", "pool", "peer"};
  std::string text = Format("; {} tokens cached:", at.cached);
  const char* separator = " ";
  for (size_t t = 0; t < at.from.size(); ++t) {
    if (at.from[t] == 0) continue;
    text += Format("{}{} {}", separator, at.from[t], kTiers[t]);
    separator = ", ";
  }
  if (at.peer) text += " " + name(*at.peer);
  if (at.awaited > 0) text += Format("{}{} awaited", separator, at.awaited);
  if (at.odds < 1) {
    text += Format("; odds {:.3f}, expected {:.2f}", at.odds, option.expected().value * 1e3);
  }
  return text;
}

std::string TextOf(const RouteOption& option, const std::function<std::string(NodeId)>& name) {
  const std::string way =
      option.apart() ? Format("apart {}->", name(*option.prefill)) : std::string("whole ");
  const RouteTimes times = option.times();
  std::string text = Format("{}{} ttft {:.2f} ms (queue {:.2f}, ready {:.2f}, compute {:.2f}", way,
                            name(option.target), option.ttft().value * 1e3, times.queue.value * 1e3,
                            times.ready.value * 1e3, times.compute.value * 1e3);
  text += PrefixText(option, name);
  if (option.at.delay > Seconds(0)) {
    text += Format("; others {:.2f} later", option.at.delay.value * 1e3);
  }
  return text + ")";
}

}  // namespace

RouteTimes RouteOption::times() const {
  RouteTimes times = at.times;
  times.compute += transfer + step;
  return times;
}

const char* PolicyName(RoutePolicy policy) {
  constexpr const char* kNames[] = {"round-robin", "least-loaded", "cache-first", "expected-ttft"};
  return kNames[static_cast<int>(policy)];
}

Result<RoutePolicy> ParsePolicy(const std::string& name) {
  std::vector<std::string> names;
  for (const RoutePolicy policy : kPolicies) {
    if (name == PolicyName(policy)) return policy;
    names.emplace_back(PolicyName(policy));
  }
  return Error{Code::kInvalidArgument,
               Format("'{}' is no policy{}", name, DidYouMean(name, names))};
}

std::string RouteChoice::Text(const std::function<std::string(NodeId)>& name, size_t most) const {
  std::string text = TextOf(chosen, name);
  size_t shown = 1;
  for (const RouteOption& option : options) {
    if (option.prefill == chosen.prefill && option.target == chosen.target) continue;
    if (shown++ >= most) break;
    text += "; " + TextOf(option, name);
  }
  return text;
}

HandoverThreshold ThresholdOf(const RouteWorker& prefill, const RouteWorker& decode,
                              const RouteRules& rules) {
  HandoverThreshold threshold{
      .reserve = rules.reserve,
      .step = decode.rates.DecodeStep(decode.decoding),
      .work_per_token = decode.rates.per_token,
      .transfer_per_token = rules.estimate.bytes_per_token / prefill.rates.write,
      .streams = std::max<int64_t>(decode.decoding, 1),
  };
  if (rules.disaggregate_from) {
    threshold.from = rules.disaggregate_from;
    threshold.given = true;
    return threshold;
  }
  const auto pays = [&](int64_t n) {
    const Seconds here = decode.rates.PromptWork(n);
    const Seconds slower = std::max(prefill.rates.PromptWork(n) - here, Seconds(0));
    const Seconds away = threshold.reserve + threshold.step + slower +
                         threshold.transfer_per_token * std::min(n, prefill.chunk);
    return here * threshold.streams >= away;
  };
  // What waits here grows ever faster with n, what it costs to go away at most in proportion until
  // a chunk is full: the first may overtake once.
  if (!pays(kMostTokens)) return threshold;
  int64_t low = 0, high = kMostTokens;  // pays(high)
  while (low < high) {
    const int64_t middle = low + (high - low) / 2;
    if (pays(middle)) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  threshold.from = high;
  return threshold;
}

std::optional<RouteChoice> ChooseRoute(int64_t prompt_tokens, std::span<const RouteWorker> workers,
                                       const RouteRules& rules, RouteTurns& turns) {
  return Choosing(prompt_tokens, workers, rules, turns).Make();
}

}  // namespace divisi
