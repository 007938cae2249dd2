#include "divisi/plan/candidate.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "divisi/core/check.h"
#include "divisi/core/format.h"
#include "divisi/plan/objective.h"
#include "divisi/plan/waiting.h"

namespace divisi {
namespace {

constexpr double kInfinite = std::numeric_limits<double>::infinity();

bool HasPools(Scheme scheme) { return scheme == Scheme::kPdDirect || scheme == Scheme::kPdPool; }

// Workers of one role in one group, and the share of the role's requests that they serve.
struct Part {
  size_t group = 0;
  int workers = 0;
  double share = 0;
};

// A pool: parts that serve, in proportion to their rates.
struct Pool {
  std::vector<Part> parts;
  PerSecond rate;
  int workers = 0;
};

template <typename RateOf>
Pool MakePool(size_t groups, const Split& workers, RateOf rate_of) {
  Pool pool;
  for (size_t i = 0; i < groups; ++i) {
    const PerSecond rate = rate_of(i) * workers[i];
    if (!(rate.value > 0)) continue;
    pool.parts.push_back({i, workers[i], rate.value});
    pool.rate += rate;
    pool.workers += workers[i];
  }
  for (Part& part : pool.parts) part.share /= pool.rate.value;
  return pool;
}

// Mean over parts and classes, by the shares of both, and the square of the coefficient of
// variation.
struct Mean {
  double mean = 0;
  double variation = 0;
};
template <typename ValueOf>
Mean MeanOver(const Scenario& scenario, const Pool& pool, ValueOf value_of) {
  double sum = 0, squares = 0, weights = 0;
  for (const Part& part : pool.parts) {
    for (size_t c = 0; c < scenario.workload.classes.size(); ++c) {
      const double weight = part.share * scenario.workload.classes[c].weight;
      const double value = value_of(part.group, c);
      sum += weight * value;
      squares += weight * value * value;
      weights += weight;
    }
  }
  if (!(weights > 0)) return {};
  const double mean = sum / weights;
  return {mean, mean > 0 ? std::max(0.0, squares / weights / (mean * mean) - 1) : 0};
}

// Service times differ between classes and cards: the wait of fixed service, times 1 + their
// variation (exact for one server).
Seconds Wait(PerSecond arrivals, const ServerPool& pool, double variation) {
  return WaitOfFixedService(arrivals, pool) * (1 + variation);
}

// The evaluation of one candidate, part by part.
class Evaluation {
 public:
  Evaluation(const Evaluator& evaluator, Scheme scheme)
      : evaluator_(evaluator),
        scenario_(evaluator.scenario()),
        arrivals_(scenario_.workload.arrivals.LongTermRate()) {
    candidate_.scheme = scheme;
  }

  Candidate Replicas() {
    Split all;
    for (const CardGroup& group : scenario_.groups) all.push_back(group.Workers());
    candidate_.prefill_workers = all;
    const bool chunked = candidate_.scheme == Scheme::kReplicasChunked;
    const Pool pool = MakePool(all.size(), all, [&](size_t i) {
      const WorkerCost& worker = evaluator_.workers()[i];
      if (!worker.as_replica.Fits()) return PerSecond(0);
      return Rate(chunked ? worker.mixed_busy : worker.prefill_busy + worker.decode_busy);
    });
    candidate_.throughput = pool.rate;
    candidate_.bottleneck = Bottleneck::kReplicas;
    candidate_.ideal = chunked && evaluator_.decodes() && !scenario_.chunked_overlap;
    ReplicaTimes(pool, chunked);
    ReplicaMemory();
    return Finish();
  }

  Candidate Pools(const Split& split) {
    candidate_.prefill_workers = split;
    const size_t groups = scenario_.groups.size();
    Split rest;
    for (size_t i = 0; i < groups; ++i) rest.push_back(scenario_.groups[i].Workers() - split[i]);
    const std::vector<SplitType> types = evaluator_.SplitTypes();
    const Pool prefill = MakePool(groups, split, [&](size_t i) { return types[i].prefill; });
    const Pool decode = MakePool(groups, rest, [&](size_t i) { return types[i].decode; });
    PoolsRates(prefill, decode);
    PoolsTimes(prefill, decode);
    PoolsMemory(split, rest);
    if (candidate_.scheme == Scheme::kPdPool && scenario_.pool) FillPool(*scenario_.pool);
    return Finish();
  }

 private:
  const ClassCost& Cost(size_t group, size_t c) const {
    return evaluator_.workers()[group].classes[c];
  }
  double Calls(size_t c) const {
    return static_cast<double>(scenario_.workload.classes[c].DecodeCalls().value);
  }

  // Mean step over the steps of all requests.
  template <typename StepOf>
  std::optional<Seconds> MeanStep(const Pool& pool, StepOf step_of) const {
    if (!evaluator_.decodes()) return std::nullopt;
    const Mean steps =
        MeanOver(scenario_, pool, [&](size_t g, size_t c) { return Calls(c) * step_of(g, c); });
    const Mean calls = MeanOver(scenario_, pool, [&](size_t, size_t c) { return Calls(c); });
    if (!(calls.mean > 0)) return std::nullopt;
    return Seconds(steps.mean / calls.mean);
  }

  // Records a stage of rate `rate` where request c takes work_of(group, c) of a worker's time.
  template <typename WorkOf>
  void AddStage(const Pool& pool, PerSecond rate, WorkOf work_of) {
    StageLoad stage{.rate = rate};
    double mean = 0;
    for (size_t c = 0; c < scenario_.workload.classes.size(); ++c) {
      double work = 0;
      for (const Part& part : pool.parts) work += part.share * work_of(part.group, c);
      stage.class_work.push_back(work);
      mean += work * scenario_.workload.classes[c].weight / scenario_.TotalWeight();
    }
    for (double& work : stage.class_work) work = mean > 0 ? work / mean : 1;
    candidate_.stages.push_back(std::move(stage));
  }

  void ReplicaTimes(const Pool& pool, bool chunked) {
    const auto first = [&](size_t g, size_t c) {
      const ClassCost& cost = Cost(g, c);
      return (chunked ? cost.FirstTokenByChunks() : cost.prefill_busy).value;
    };
    candidate_.ttft_prefill = Seconds(MeanOver(scenario_, pool, first).mean);
    const auto work = [&](size_t g, size_t c) {
      const ClassCost& cost = Cost(g, c);
      return (chunked ? cost.mixed_busy : cost.prefill_busy + cost.decode_busy).value;
    };
    const Mean busy = MeanOver(scenario_, pool, work);
    AddStage(pool, pool.rate, work);
    if (pool.workers > 0) {
      candidate_.prefill_wait = Wait(arrivals_, {pool.workers, pool.rate}, busy.variation);
    }
    candidate_.tpot = MeanStep(pool, [&](size_t g, size_t c) { return Cost(g, c).Step().value; });
    candidate_.tpot_at_arrival = MeanStep(pool, [&](size_t g, size_t c) {
      return Cost(g, c).Step().value / (chunked ? 1 : LeftByPrefill(pool, g));
    });
  }

  // Fraction of a worker's time that prompts leave to decode at the arrival rate: a step waits for
  // every prompt that falls into it. Source: section 9.2.3, the 16 steps that a prompt holds up.
  double LeftByPrefill(const Pool& pool, size_t group) const {
    for (const Part& part : pool.parts) {
      if (part.group != group) continue;
      const double rate = arrivals_.value * part.share / part.workers;
      const double left = 1 - rate * evaluator_.workers()[group].prefill_busy.value;
      return left > 0 ? left : 0;
    }
    return 1;
  }

  void ReplicaMemory() {
    for (size_t i = 0; i < scenario_.groups.size(); ++i) {
      candidate_.decode_memory.push_back(evaluator_.workers()[i].as_replica);
      NoteFit(i, scenario_.groups[i].Workers(), evaluator_.workers()[i].as_replica, "replica");
    }
  }

  void PoolsRates(const Pool& prefill, const Pool& decode) {
    candidate_.prefill_rate = prefill.rate;
    candidate_.decode_rate = decode.rate;
    const PerSecond link = evaluator_.LinkRate(candidate_.scheme);
    if (std::isfinite(link.value)) candidate_.link_rate = link;
    candidate_.throughput = std::min({prefill.rate, decode.rate, link});
    candidate_.bottleneck = candidate_.throughput == decode.rate    ? Bottleneck::kDecode
                            : candidate_.throughput == prefill.rate ? Bottleneck::kPrefill
                                                                    : Bottleneck::kLink;
  }

  // Crossings of the link by one request's state before decode has it.
  double Crossings() const { return candidate_.scheme == Scheme::kPdPool ? 2 : 1; }
  const LinkSpec& Link() const {
    const bool pooled = candidate_.scheme == Scheme::kPdPool && scenario_.pool;
    return pooled ? scenario_.pool->link : scenario_.link;
  }

  void PoolsTimes(const Pool& prefill, const Pool& decode) {
    const auto prefill_work = [&](size_t g, size_t c) { return Cost(g, c).prefill_busy.value; };
    const Mean first = MeanOver(scenario_, prefill, prefill_work);
    AddStage(prefill, prefill.rate, prefill_work);
    candidate_.ttft_prefill = Seconds(first.mean);
    if (prefill.workers > 0) {
      candidate_.prefill_wait = Wait(arrivals_, {prefill.workers, prefill.rate}, first.variation);
    }
    TransferTimes();
    const auto decode_work = [&](size_t g, size_t c) { return Cost(g, c).decode_busy.value; };
    const Mean busy = MeanOver(scenario_, decode, decode_work);
    AddStage(decode, decode.rate, decode_work);
    if (decode.workers > 0) {
      const double slots = std::floor(scenario_.workload.decode_batch) * decode.workers;
      candidate_.decode_wait =
          Wait(arrivals_, {static_cast<int>(std::min(slots, 1e6)), decode.rate}, busy.variation);
    }
    candidate_.tpot = candidate_.tpot_at_arrival =
        MeanStep(decode, [&](size_t g, size_t c) { return Cost(g, c).Step().value; });
  }

  void TransferTimes() {
    double time = 0, weights = 0, squares = 0;
    for (const RequestClass& request : scenario_.workload.classes) {
      const Bytes bytes = TransferOf(scenario_, request);
      const Seconds crossing =
          bytes.value > 0 ? Link().launch + bytes / Link().bandwidth : Seconds(0);
      const double all = crossing.value * Crossings();
      time += request.weight * all;
      squares += request.weight * all * all;
      weights += request.weight;
    }
    candidate_.ttft_transfer = Seconds(time / weights);
    if (!candidate_.link_rate) return;
    const double mean = time / weights;
    const double variation = mean > 0 ? std::max(0.0, squares / weights / (mean * mean) - 1) : 0;
    candidate_.link_wait = Wait(arrivals_, {1, *candidate_.link_rate}, variation);
    const Pool link{.parts = {{.share = 1}}, .rate = *candidate_.link_rate, .workers = 1};
    AddStage(link, link.rate, [&](size_t, size_t c) {
      const Bytes bytes = TransferOf(scenario_, scenario_.workload.classes[c]);
      return static_cast<double>(bytes.value);
    });
  }

  void PoolsMemory(const Split& prefill, const Split& decode) {
    for (size_t i = 0; i < scenario_.groups.size(); ++i) {
      const WorkerCost& worker = evaluator_.workers()[i];
      candidate_.prefill_memory.push_back(worker.as_prefill);
      candidate_.decode_memory.push_back(worker.as_decode);
      NoteFit(i, prefill[i], worker.as_prefill, "prefill");
      NoteFit(i, decode[i], worker.as_decode, "decode");
    }
  }

  // A pool without a capacity is not a limit.
  void FillPool(const StatePool& pool) {
    Bytes most;
    for (const RequestClass& request : scenario_.workload.classes) {
      most = std::max(most, TransferOf(scenario_, request));
    }
    if (pool.capacity.value == 0 || most.value == 0) return;
    candidate_.pool_states = pool.capacity.value / most.value;
    if (*candidate_.pool_states > 0) return;
    candidate_.throughput = PerSecond(0);
    candidate_.fit_problem += Format("{}a state of {} is beyond the pool's {}",
                                     candidate_.fit_problem.empty() ? "" : "; ", HumanBytes(most),
                                     HumanBytes(pool.capacity));
  }

  std::string Remedy(const MemoryNeed& need) const {
    const double room = static_cast<double>((need.capacity - need.weights - need.buffers).value) *
                        scenario_.workload.decode_batch /
                        static_cast<double>(std::max<int64_t>(1, need.state.value));
    if (need.state.value == 0 || room < 1) return "give a worker more cards";
    return Format("a decode_batch of {} would fit", std::floor(room));
  }

  void NoteFit(size_t group, int workers, const MemoryNeed& need, const char* role) {
    if (workers == 0 || need.Fits()) return;
    candidate_.fit_problem +=
        Format("{}{} ({} needs {} of {} on a card: weights {}, states {}, buffers {}; {})",
               candidate_.fit_problem.empty() ? "" : "; ", scenario_.groups[group].name, role,
               HumanBytes(need.Total()), HumanBytes(need.capacity), HumanBytes(need.weights),
               HumanBytes(need.state), HumanBytes(need.buffers), Remedy(need));
  }

  void Traffic() {
    if (!HasPools(candidate_.scheme)) return;
    double bytes = 0;
    for (const RequestClass& request : scenario_.workload.classes) {
      const double reads =
          candidate_.scheme == Scheme::kPdPool && scenario_.pool ? scenario_.pool->reuses : 0;
      bytes += request.weight * static_cast<double>(TransferOf(scenario_, request).value) *
               (Crossings() + reads);
    }
    candidate_.transfer = Bytes(std::llround(bytes / scenario_.TotalWeight()));
    candidate_.link_at_arrival = candidate_.transfer * arrivals_;
    candidate_.link_at_saturation = candidate_.transfer * candidate_.throughput;
  }

  void JudgeEvidence() {
    for (size_t i = 0; i < scenario_.groups.size(); ++i) {
      if (scenario_.groups[i].count == 0) continue;
      const WorkerCost& worker = evaluator_.workers()[i];
      candidate_.evidence = std::max({i == 0 ? Evidence::kGiven : candidate_.evidence,
                                      worker.prefill_evidence, worker.decode_evidence});
    }
  }

  Candidate Finish() {
    candidate_.fits = candidate_.throughput.value > 0;
    // Where nothing is served, no first token ever comes.
    if (!candidate_.fits) candidate_.ttft_prefill = Seconds(kInfinite);
    candidate_.ttft = candidate_.ttft_prefill + candidate_.ttft_transfer;
    if (scenario_.pool) {
      const bool pooled = candidate_.scheme == Scheme::kPdPool;
      const Seconds read = candidate_.ttft_transfer / Crossings();
      candidate_.reuse = (pooled ? read : candidate_.ttft_prefill) * scenario_.pool->reuses;
    }
    Traffic();
    JudgeEvidence();
    JudgeObjective(scenario_, candidate_);
    return std::move(candidate_);
  }

  const Evaluator& evaluator_;
  const Scenario& scenario_;
  PerSecond arrivals_;
  Candidate candidate_;
};

}  // namespace

const char* BottleneckName(Bottleneck bottleneck) {
  constexpr const char* kNames[] = {"prefill", "decode", "link", "replicas"};
  return kNames[static_cast<int>(bottleneck)];
}

Evaluator::Evaluator(const Scenario& scenario) : scenario_(scenario) {
  for (const CardGroup& group : scenario.groups) workers_.push_back(CostOfWorker(scenario, group));
  double bytes = 0;
  for (const RequestClass& request : scenario.workload.classes) {
    if (request.DecodeCalls().value > 0) decodes_ = true;
    bytes += request.weight * static_cast<double>(TransferOf(scenario, request).value);
  }
  transfer_ = Bytes(std::llround(bytes / scenario.TotalWeight()));
}

std::vector<SplitType> Evaluator::SplitTypes() const {
  std::vector<SplitType> types;
  for (size_t i = 0; i < workers_.size(); ++i) {
    const WorkerCost& worker = workers_[i];
    types.push_back({.count = scenario_.groups[i].Workers(),
                     .prefill = worker.as_prefill.Fits() ? Rate(worker.prefill_busy) : PerSecond(0),
                     .decode = worker.as_decode.Fits() ? Rate(worker.decode_busy) : PerSecond(0)});
  }
  return types;
}

PerSecond Evaluator::LinkRate(Scheme scheme) const {
  if (transfer_.value == 0) return PerSecond(kInfinite);
  if (scheme == Scheme::kPdDirect) return scenario_.link.bandwidth / transfer_;
  const LinkSpec& link = scenario_.pool ? scenario_.pool->link : scenario_.link;
  const double reads = 2 + (scenario_.pool ? scenario_.pool->reuses : 0);
  return (link.bandwidth / transfer_) / reads;
}

Candidate Evaluator::Evaluate(Scheme scheme, const Split& split) const {
  Evaluation evaluation(*this, scheme);
  if (!HasPools(scheme)) return evaluation.Replicas();
  CHECK(decodes_ && split.size() == workers_.size(), "{} of {} groups", split.size(),
        workers_.size());
  return evaluation.Pools(split);
}

}  // namespace divisi
