// What a scenario may be: every number has its bounds here, so that no plan meets another.
#include <algorithm>
#include <cmath>

#include "divisi/core/format.h"
#include "divisi/plan/scenario.h"

namespace divisi {
namespace {

// Beyond these nothing real is described, and sums and products would leave the range of 64 bits or
// of doubles.
constexpr int64_t kMostTokens = int64_t{1} << 30;
constexpr int kMostCards = 100000;
constexpr double kMostBatch = 1e6;
constexpr size_t kMostGroups = 16;
constexpr size_t kMostClasses = 64;
constexpr double kMostBytes = 0x1p60;
constexpr double kMostBandwidth = 1e18;
constexpr double kMostPeak = 1e21;
constexpr double kMostSeconds = 1e9;  // 30 years
constexpr double kMostRate = 1e9;     // Requests per second
constexpr double kMostWeight = 1e9;
constexpr double kMostPrice = 1e12;
constexpr double kMostQueryFlops = 1e18;
constexpr double kLeastFraction = 1e-6;
// Changes of the arrival rate that a plan follows: a plan walks through them some thousand times.
constexpr double kMostChanges = 2000;

Error Bad(std::string_view key, std::string_view what) {
  return {Code::kInvalidArgument, Format("{}: {}", key, what)};
}

struct Range {
  double least = 0;
  double most = 0;
  const char* unit = "";
};
// Of NaN too.
Result<void> CheckWithin(std::string_view key, double value, const Range& range) {
  if (value >= range.least && value <= range.most) return {};
  return Bad(key, Format("{}{}; from {} to {}", value, range.unit, range.least, range.most));
}

constexpr Range kBandwidths = {1, kMostBandwidth, " B/s"};
constexpr Range kPeaks = {1, kMostPeak, " FLOP/s"};
constexpr Range kTimes = {0, kMostSeconds, " s"};
constexpr Range kRates = {0, kMostRate, " requests/s"};
constexpr Range kPrices = {0, kMostPrice, ""};

Result<void> CheckFraction(std::string_view key, double fraction) {
  if (fraction >= kLeastFraction && fraction <= 1) return {};
  return Bad(key, Format("{} is not a fraction of the peak, above 0 (from {}) and up to 1",
                         fraction, kLeastFraction));
}

Result<void> CheckEfficiency(const std::string& key, const Efficiency& efficiency) {
  RETURN_IF_ERROR(CheckFraction(key + ".prefill_compute", efficiency.prefill_compute));
  RETURN_IF_ERROR(CheckFraction(key + ".prefill_memory", efficiency.prefill_memory));
  RETURN_IF_ERROR(CheckFraction(key + ".decode_compute", efficiency.decode_compute));
  const auto& points = efficiency.decode_memory.points;
  if (points.empty()) return Bad(key + ".decode_memory", "has no points");
  for (size_t i = 0; i < points.size(); ++i) {
    RETURN_IF_ERROR(CheckFraction(key + ".decode_memory", points[i].fraction));
    if (i > 0 && !(points[i].batch > points[i - 1].batch)) {
      return Bad(key + ".decode_memory", "batches must rise from point to point");
    }
  }
  return {};
}

Result<void> CheckGroup(const CardGroup& group, const ModelSpec& model) {
  const std::string key = Format("groups.{}", group.name);
  if (group.count < 0 || group.count > kMostCards) {
    return Bad(key + ".count", Format("{} cards; from 0 to {}", group.count, kMostCards));
  }
  const double compute = group.card.bf16_peak.value;
  if (!(compute > 0) || !(group.card.memory_bandwidth.value > 0) || group.card.memory.value <= 0) {
    return Bad(key,
               Format("card {} needs a computing peak, a memory bandwidth and a memory above 0",
                      group.card.name));
  }
  RETURN_IF_ERROR(CheckWithin(key + ".bf16", compute, kPeaks));
  RETURN_IF_ERROR(CheckWithin(key + ".fp8", group.card.fp8_peak.value, {0, kMostPeak, " FLOP/s"}));
  RETURN_IF_ERROR(
      CheckWithin(key + ".memory_bandwidth", group.card.memory_bandwidth.value, kBandwidths));
  if (group.tensor_parallel < 1 || group.expert_parallel < 1) {
    return Bad(key, "tensor_parallel and expert_parallel are at least 1");
  }
  if (group.count % group.CardsPerWorker() != 0) {
    return Bad(key + ".count", Format("{} cards do not make whole workers of {}", group.count,
                                      group.CardsPerWorker()));
  }
  if (group.expert_parallel > 1 && !model.moe) {
    return Bad(key + ".expert_parallel", "the model has no experts");
  }
  if (model.moe && model.moe->experts % group.CardsPerWorker() != 0) {
    return Bad(key, Format("{} experts do not divide among {} cards", model.moe->experts,
                           group.CardsPerWorker()));
  }
  RETURN_IF_ERROR(CheckWithin(key + ".price_per_hour", group.price_per_hour, kPrices));
  return CheckEfficiency(key + ".efficiency", group.efficiency);
}

Result<void> CheckSchedule(const std::string& key, const ArrivalSchedule& schedule) {
  if (schedule.parts.empty() || schedule.parts.front().from.value != 0) {
    return Bad(key, "the first part starts at 0 s");
  }
  RETURN_IF_ERROR(CheckWithin(key + ".period", schedule.period.value, kTimes));
  for (size_t i = 0; i < schedule.parts.size(); ++i) {
    const auto& part = schedule.parts[i];
    RETURN_IF_ERROR(CheckWithin(key + ".rate", part.rate.value, kRates));
    RETURN_IF_ERROR(CheckWithin(key + ".from", part.from.value, kTimes));
    if (i > 0 && !(part.from > schedule.parts[i - 1].from)) {
      return Bad(key, "times must rise from part to part");
    }
    if (schedule.period.value > 0 && part.from >= schedule.period) {
      return Bad(key, "a part starts after the period has ended");
    }
  }
  return {};
}

Result<void> CheckClass(const RequestClass& request) {
  const std::string key = Format("workload.{}", request.name);
  if (!(request.weight >= 1 / kMostWeight && request.weight <= kMostWeight)) {
    return Bad(key + ".weight", Format("{}; a share above 0, from {} to {}", request.weight,
                                       1 / kMostWeight, kMostWeight));
  }
  if (request.input.value < 1 || request.input.value > kMostTokens) {
    return Bad(key + ".input_tokens", Format("{}; from 1 to {}", request.input.value, kMostTokens));
  }
  if (request.output.value < 1 || request.output.value > kMostTokens) {
    return Bad(key + ".output_tokens",
               Format("{}; from 1 (nothing is decoded) to {}", request.output.value, kMostTokens));
  }
  for (const auto& [name, cached] : {std::pair{"cached_prefill_tokens", request.cached_prefill},
                                     std::pair{"cached_decode_tokens", request.cached_decode}}) {
    if (cached.value >= 0 && cached < request.input) continue;
    return Bad(Format("{}.{}", key, name),
               Format("{}; from 0 to {}: the last token is always computed", cached.value,
                      request.input.value - 1));
  }
  if (request.arrivals) return CheckSchedule(key + ".arrivals", *request.arrivals);
  return {};
}

Result<void> CheckObjective(const Scenario& scenario) {
  const Objective& objective = scenario.objective;
  for (const auto& [name, limit] :
       {std::pair{"clear_by", objective.clear_by}, std::pair{"ttft", objective.ttft},
        std::pair{"tpot", objective.tpot}}) {
    if (limit && !(limit->value > 0)) {
      return Bad(Format("objective.{}", name), "is not a time above 0 s");
    }
    if (limit) RETURN_IF_ERROR(CheckWithin(Format("objective.{}", name), limit->value, kTimes));
  }
  return {};
}

Result<void> CheckLink(const std::string& key, const LinkSpec& link) {
  if (!(link.bandwidth.value > 0)) {
    return Bad(key + ".bandwidth", "is not above 0; write for example 25 GB/s or 200 Gbit/s");
  }
  RETURN_IF_ERROR(CheckWithin(key + ".bandwidth", link.bandwidth.value, kBandwidths));
  return CheckWithin(key + ".launch", link.launch.value, kTimes);
}

// Bytes of the model and of all states must be countable.
Result<void> CheckSizes(const Scenario& scenario) {
  const ModelCost model(scenario.model, scenario.storage);
  const double weights = (model.dense_params + model.head_params + model.embedding_params +
                          model.expert_params * model.experts * model.expert_layers) *
                         scenario.storage.weight_bytes;
  if (!(weights <= kMostBytes)) {
    return Bad("model", Format("its weights take {} bytes; up to {}", weights, kMostBytes));
  }
  auto token = static_cast<double>(model.state_per_token.value);
  if (scenario.state) {
    RETURN_IF_ERROR(
        CheckWithin("state.query_flops", scenario.state->query_flops, {0, kMostQueryFlops, ""}));
    token = std::max(token, static_cast<double>(scenario.state->bytes_per_token.value));
  }
  for (const RequestClass& request : scenario.workload.classes) {
    const auto tokens = static_cast<double>((request.input + request.output).value);
    const double states = token * tokens * scenario.workload.decode_batch;
    if (states <= kMostBytes) continue;
    return Bad(Format("workload.{}", request.name),
               Format("{} states of {} tokens take {} bytes; up to {}: lower decode_batch or the "
                      "tokens",
                      scenario.workload.decode_batch, tokens, states, kMostBytes));
  }
  return {};
}

// Changes of the rate within `time`.
double ChangesWithin(const ArrivalSchedule& schedule, Seconds time) {
  const auto parts = static_cast<double>(schedule.parts.size());
  if (schedule.period.value <= 0) return parts;
  return parts * std::max(1.0, std::ceil(time / schedule.period));
}

Result<void> CheckChanges(const Scenario& scenario) {
  const Workload& workload = scenario.workload;
  Seconds time = std::max(scenario.Horizon(), workload.arrivals.period);
  for (const RequestClass& request : workload.classes) {
    if (request.arrivals) time = std::max(time, request.arrivals->period);
  }
  double changes = ChangesWithin(workload.arrivals, time);
  for (const RequestClass& request : workload.classes) {
    if (request.arrivals) changes += ChangesWithin(*request.arrivals, time);
  }
  if (changes <= kMostChanges) return {};
  return Bad("workload.arrivals",
             Format("the rate changes {} times within {} s, as far as the plan looks; up to {}: "
                    "give fewer parts, a longer period or an earlier deadline",
                    changes, time.value, kMostChanges));
}

}  // namespace

Result<void> CheckScenario(const Scenario& scenario) {
  if (scenario.groups.empty()) return Bad("groups", "there are no cards");
  if (scenario.groups.size() > kMostGroups) {
    return Bad("groups", Format("more than {} groups", kMostGroups));
  }
  for (const CardGroup& group : scenario.groups) {
    RETURN_IF_ERROR(CheckGroup(group, scenario.model));
  }
  if (std::ranges::all_of(scenario.groups, [](const CardGroup& g) { return g.count == 0; })) {
    return Bad("groups", "there are no cards");
  }
  const Workload& workload = scenario.workload;
  if (workload.classes.empty()) return Bad("workload", "there are no requests");
  if (workload.classes.size() > kMostClasses) {
    return Bad("workload.classes", Format("more than {} classes", kMostClasses));
  }
  RETURN_IF_ERROR(CheckSchedule("workload.arrivals", workload.arrivals));
  for (const RequestClass& request : workload.classes) RETURN_IF_ERROR(CheckClass(request));
  if (!(workload.decode_batch >= 1 && workload.decode_batch <= kMostBatch)) {
    return Bad("workload.decode_batch",
               Format("{}; from 1 to {}", workload.decode_batch, kMostBatch));
  }
  RETURN_IF_ERROR(CheckLink("link", scenario.link));
  if (scenario.pool) RETURN_IF_ERROR(CheckLink("pool.link", scenario.pool->link));
  const auto& overlap = scenario.chunked_overlap;
  if (overlap && !(*overlap >= 0 && *overlap <= 1)) {
    return Bad("chunked_overlap", Format("{} is not a fraction from 0 to 1", *overlap));
  }
  if (scenario.pool) RETURN_IF_ERROR(CheckWithin("pool.reuses", scenario.pool->reuses, {0, 1e6}));
  RETURN_IF_ERROR(CheckWithin("startup", scenario.startup.value, kTimes));
  if (scenario.price_per_hour) {
    RETURN_IF_ERROR(CheckWithin("price.per_hour", *scenario.price_per_hour, kPrices));
  }
  RETURN_IF_ERROR(CheckSizes(scenario));
  RETURN_IF_ERROR(CheckObjective(scenario));
  return CheckChanges(scenario);
}

}  // namespace divisi
