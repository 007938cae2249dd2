// One deployment of a scenario's cards, with every figure by which it is judged.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "divisi/plan/scenario.h"
#include "divisi/plan/split.h"
#include "divisi/plan/worker_cost.h"

namespace divisi {

// What ends the rise of a deployment's rate.
enum class Bottleneck { kPrefill, kDecode, kLink, kReplicas };
const char* BottleneckName(Bottleneck bottleneck);  // "prefill", "decode", "link", "replicas"

// Why a candidate falls short of the objective.
struct Shortfall {
  enum class Kind {
    kDoesNotFit,   // At any count: memory.
    kTooSlow,      // At any count: one request alone misses the limit.
    kTooFewCards,  // More copies of the set would do.
  };
  Kind kind = Kind::kTooFewCards;
  std::string reason;  // A clause with its figures: "4.17 requests/s clear the backlog at 62.5 s".
};

// What requests pass through: its rate of mean requests, and each class's work there in mean ones.
struct StageLoad {
  PerSecond rate;
  std::vector<double> class_work;
};

struct Candidate {
  Scheme scheme = Scheme::kReplicas;
  Split prefill_workers;  // Per group; all of them where every worker does both stages.

  // Requests per second. A stage that the scheme or the workload lacks is absent.
  std::optional<PerSecond> prefill_rate;
  std::optional<PerSecond> decode_rate;
  std::optional<PerSecond> link_rate;
  PerSecond throughput;
  Bottleneck bottleneck = Bottleneck::kReplicas;

  std::vector<StageLoad> stages;

  // Mean time to the first token of a request that meets no other, and its parts; then the mean
  // waits at the arrival rate (waiting.h), infinite where the arrivals are not below a rate.
  Seconds ttft;
  Seconds ttft_prefill;
  Seconds ttft_transfer;
  Seconds prefill_wait;  // Of a worker, where it does both.
  Seconds link_wait;
  Seconds decode_wait;
  Seconds TtftAtArrival() const { return ttft + prefill_wait + link_wait + decode_wait; }
  // Until the first tokens of the later requests that use this one's state (StatePool::reuses), all
  // together: each reads the state from the pool, or prefills again where the scheme has none.
  Seconds reuse;
  // Mean time per output token: (end - first token) / (output - 1). At the arrival rate, steps of
  // workers that prefill in between are longer.
  std::optional<Seconds> tpot;
  std::optional<Seconds> tpot_at_arrival;
  // Fraction of requests within the limits of TTFT and TPOT at the arrival rate; 1 without limits.
  double slo_share = 1;

  std::vector<MemoryNeed> prefill_memory;  // Of one card per group; empty where the role is unused.
  std::vector<MemoryNeed> decode_memory;   // Or of a worker that does both.
  bool fits = true;
  std::string fit_problem;  // Cards that cannot take their part, and what they lack.

  // States of the largest class that the pool holds at once. Absent: the scheme has no pool.
  std::optional<int64_t> pool_states;
  Bytes transfer;  // Per request over the link, mean over classes.
  BytesPerSecond link_at_arrival;
  BytesPerSecond link_at_saturation;  // At `throughput`.
  Backlog backlog;                    // In mean requests, of the stage that clears last.

  // In the scenario's currency. Per request within the limits: the share of them alone pays.
  double cost_per_1000 = 0;  // At the arrival rate, or at `throughput` where that is less.
  double cost_per_1000_at_saturation = 0;
  double cost_per_1000_within_slo = 0;

  // Copies of the whole set; absent: no number does.
  std::optional<int> copies_to_hold;
  std::optional<int> copies_to_clear;  // By the deadline; as to_hold where there is none.
  std::vector<Shortfall> shortfalls;
  bool meets_objective = false;

  Evidence evidence = Evidence::kDerived;  // Of the rates and times.
  // A bound that nothing real reaches: prefill wholly hidden behind decode's memory traffic. Chosen
  // only where no other candidate meets the objective.
  bool ideal = false;
};

// The workers' costs that evaluations of one scenario share. Refers to the scenario.
class Evaluator {
 public:
  // Requires: CheckScenario(scenario) is good. scenario outlives this.
  explicit Evaluator(const Scenario& scenario);

  const Scenario& scenario() const { return scenario_; }
  const std::vector<WorkerCost>& workers() const { return workers_; }
  // Whether anything is decoded, so that prefill and decode can be apart.
  bool decodes() const { return decodes_; }
  // For BestSplit: workers per group, with a rate of 0 where a role does not fit.
  std::vector<SplitType> SplitTypes() const;
  PerSecond LinkRate(Scheme scheme) const;  // Infinite where nothing moves.

  // split: prefill workers per group, of schemes with two pools; ignored by the others.
  Candidate Evaluate(Scheme scheme, const Split& split) const;

 private:
  const Scenario& scenario_;
  std::vector<WorkerCost> workers_;
  bool decodes_ = false;
  Bytes transfer_;  // Of one crossing, mean over classes.
};

}  // namespace divisi
