#include "divisi/control/route_choice.h"

#include <algorithm>
#include <utility>

#include "divisi/core/format.h"
#include "divisi/core/nearest.h"

namespace divisi {
namespace {

// Beyond it no prompt is: a bound for the search of a threshold.
constexpr int64_t kMostTokens = int64_t{1} << 24;

constexpr RoutePolicy kPolicies[] = {RoutePolicy::kRoundRobin, RoutePolicy::kLeastLoaded,
                                     RoutePolicy::kExpectedTtft};

// The smallest first, the first of equal ones; null of none.
template <typename Key>
const RouteWorker* Least(std::span<const RouteWorker* const> workers, Key key) {
  const RouteWorker* least = nullptr;
  for (const RouteWorker* worker : workers) {
    if (least == nullptr || key(*worker) < key(*least)) least = worker;
  }
  return least;
}

// One choice in the making.
class Choosing {
 public:
  Choosing(int64_t tokens, const RouteRules& rules, RouteTurns& turns)
      : tokens_(tokens), rules_(rules), turns_(turns) {}

  std::optional<RouteChoice> Of(std::span<const RouteWorker> workers) {
    const bool apart = Apart(workers);
    const bool has_replicas = !pool_[static_cast<size_t>(WorkerRole::kReplica)].empty();
    Fill(workers, true);
    // Short prompts may go anywhere whole. Long ones are handed over where somebody may: unless
    // times are compared, also with replicas.
    if (apart) AddApart();
    const bool compared = rules_.policy == RoutePolicy::kExpectedTtft && !rules_.disaggregate_from;
    if (!apart || compared) AddWhole(WorkerRole::kReplica);
    if (!apart && (compared || !has_replicas)) AddWhole(WorkerRole::kDecode);
    if (choice_.options.empty()) return std::nullopt;
    choice_.chosen = *std::ranges::min_element(choice_.options, {}, [](const RouteOption& option) {
      return std::pair(option.ttft(), option.requests);
    });
    Remember();
    return std::move(choice_);
  }

 private:
  // Whether the prompt is to be handed over: by all that are there, with room or without.
  bool Apart(std::span<const RouteWorker> workers) {
    Fill(workers, false);
    const RouteWorker* prefill = PickPrefill();
    const RouteWorker* decode = PickDecode();
    if (prefill == nullptr || decode == nullptr) return false;
    choice_.threshold = ThresholdOf(*prefill, *decode, rules_);
    return choice_.threshold.from && tokens_ >= *choice_.threshold.from;
  }

  void Fill(std::span<const RouteWorker> workers, bool with_room) {
    pool_ = {};
    for (const RouteWorker& worker : workers) {
      if (worker.room || !with_room) pool_[static_cast<size_t>(worker.role)].push_back(&worker);
    }
  }

  const RouteWorker* PickPrefill() const {
    return Pick(WorkerRole::kPrefill, [&](const RouteWorker& p) { return PromptAt(p); });
  }
  const RouteWorker* PickDecode() const {
    return Pick(WorkerRole::kDecode, [](const RouteWorker& d) { return StepAt(d); });
  }

  // Those that are on their way there decode, too, by the time this one does.
  static Seconds StepAt(const RouteWorker& worker) {
    return worker.rates.DecodeStep(std::max(worker.decoding, worker.requests));
  }
  Seconds PromptAt(const RouteWorker& worker) const {
    return worker.queue + worker.rates.Prefill(tokens_, worker.chunk, worker.decoding);
  }

  template <typename Time>
  const RouteWorker* Pick(WorkerRole role, Time time) const {
    const std::span<const RouteWorker* const> pool = pool_[static_cast<size_t>(role)];
    switch (rules_.policy) {
      case RoutePolicy::kRoundRobin:
        return InTurn(role);
      case RoutePolicy::kLeastLoaded:
        return Least(pool, [](const RouteWorker& w) { return w.requests; });
      case RoutePolicy::kExpectedTtft:
        return Least(pool, [&](const RouteWorker& w) { return std::pair(time(w), w.requests); });
    }
    return nullptr;
  }

  // The next by name after the last one, around.
  const RouteWorker* InTurn(WorkerRole role) const {
    const auto& pool = pool_[static_cast<size_t>(role)];
    const NodeId last = turns_.last[static_cast<size_t>(role)];
    return Least(pool, [&](const RouteWorker& w) { return std::pair(w.node <= last, w.node); });
  }

  void AddApart() {
    const RouteWorker* prefill = PickPrefill();
    const RouteWorker* decode = PickDecode();
    if (prefill == nullptr || decode == nullptr) return;
    const RouteWorker &p = *prefill, &d = *decode;
    const Bytes last = rules_.bytes_per_token * std::min(tokens_, p.chunk);
    RouteOption option{.prefill = p.node, .target = d.node, .requests = d.requests};
    option.transfer = last / p.rates.write;
    option.step = StepAt(d);
    option.times = {
        .queue = p.queue,
        .ready = rules_.reserve,
        .compute = p.rates.Prefill(tokens_, p.chunk, p.decoding) + option.transfer + option.step};
    choice_.options.push_back(option);
  }

  // All of a role where times are compared; else the one that the policy picks.
  void AddWhole(WorkerRole role) {
    const auto add = [&](const RouteWorker& worker) {
      RouteOption option{.target = worker.node, .requests = worker.requests};
      option.times = {.queue = worker.queue,
                      .compute = worker.rates.Prefill(tokens_, worker.chunk, worker.decoding)};
      choice_.options.push_back(option);
    };
    if (rules_.policy == RoutePolicy::kExpectedTtft) {
      for (const RouteWorker* worker : pool_[static_cast<size_t>(role)]) add(*worker);
    } else if (const RouteWorker* picked = Pick(role, [](const auto&) { return Seconds(0); })) {
      add(*picked);
    }
  }

  void Remember() {
    const RouteOption& chosen = choice_.chosen;
    if (chosen.prefill) turns_.last[static_cast<size_t>(WorkerRole::kPrefill)] = *chosen.prefill;
    for (const WorkerRole role : {WorkerRole::kReplica, WorkerRole::kDecode}) {
      for (const RouteWorker* worker : pool_[static_cast<size_t>(role)]) {
        if (worker->node == chosen.target) turns_.last[static_cast<size_t>(role)] = chosen.target;
      }
    }
  }

  const int64_t tokens_;
  const RouteRules& rules_;
  RouteTurns& turns_;
  std::array<std::vector<const RouteWorker*>, 3> pool_;  // By role
  RouteChoice choice_;
};

std::string TextOf(const RouteOption& option, const std::function<std::string(NodeId)>& name) {
  const std::string way =
      option.apart() ? Format("apart {}->", name(*option.prefill)) : std::string("whole ");
  return Format("{}{} ttft {:.2f} ms (queue {:.2f}, ready {:.2f}, compute {:.2f})", way,
                name(option.target), option.ttft().value * 1e3, option.times.queue.value * 1e3,
                option.times.ready.value * 1e3, option.times.compute.value * 1e3);
}

}  // namespace

const char* RoleName(WorkerRole role) {
  constexpr const char* kNames[] = {"replica", "prefill", "decode"};
  return kNames[static_cast<int>(role)];
}

Result<WorkerRole> ParseRole(const std::string& name) {
  for (const WorkerRole role : {WorkerRole::kReplica, WorkerRole::kPrefill, WorkerRole::kDecode}) {
    if (name == RoleName(role)) return role;
  }
  return Error{Code::kInvalidArgument,
               Format("'{}' is no role; there are replica, prefill and decode", name)};
}

const char* PolicyName(RoutePolicy policy) {
  constexpr const char* kNames[] = {"round-robin", "least-loaded", "expected-ttft"};
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

std::string RouteChoice::Text(const std::function<std::string(NodeId)>& name) const {
  std::string text = TextOf(chosen, name);
  for (const RouteOption& option : options) {
    if (option.prefill == chosen.prefill && option.target == chosen.target) continue;
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
      .transfer_per_token = rules.bytes_per_token / prefill.rates.write,
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
  return Choosing(prompt_tokens, rules, turns).Of(workers);
}

}  // namespace divisi
