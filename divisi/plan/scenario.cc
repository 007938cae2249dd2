#include "divisi/plan/scenario.h"

#include <algorithm>
#include <cmath>

#include "divisi/core/format.h"

namespace divisi {
namespace {

// Beyond these nothing real is described, and products would leave the range of 64 bits.
constexpr int64_t kMostTokens = int64_t{1} << 30;
constexpr int kMostCards = 100000;
constexpr double kMostBatch = 1e6;
constexpr size_t kMostGroups = 16;
constexpr size_t kMostClasses = 64;

Error Bad(std::string_view key, std::string_view what) {
  return {Code::kInvalidArgument, Format("{}: {}", key, what)};
}

Result<void> CheckFraction(std::string_view key, double fraction) {
  if (fraction > 0 && fraction <= 1) return {};
  return Bad(key, Format("{} is not a fraction of the peak, above 0 and up to 1", fraction));
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
  if (!(group.price_per_hour >= 0)) return Bad(key + ".price_per_hour", "is negative");
  return CheckEfficiency(key + ".efficiency", group.efficiency);
}

Result<void> CheckSchedule(const std::string& key, const ArrivalSchedule& schedule) {
  if (schedule.parts.empty() || schedule.parts.front().from.value != 0) {
    return Bad(key, "the first part starts at 0 s");
  }
  for (size_t i = 0; i < schedule.parts.size(); ++i) {
    const auto& part = schedule.parts[i];
    if (!(part.rate.value >= 0) || !std::isfinite(part.rate.value)) {
      return Bad(key, Format("a rate of {} requests/s", part.rate.value));
    }
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
  if (!(request.weight > 0) || !std::isfinite(request.weight)) {
    return Bad(key + ".weight", Format("{}; a share above 0", request.weight));
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
  }
  return {};
}

Result<void> CheckLink(const std::string& key, const LinkSpec& link) {
  if (link.bandwidth.value > 0 && std::isfinite(link.bandwidth.value)) return {};
  return Bad(key + ".bandwidth", "is not above 0; write for example 25 GB/s or 200 Gbit/s");
}

}  // namespace

const char* EvidenceName(Evidence evidence) {
  constexpr const char* kNames[] = {"given", "calibrated", "derived", "extrapolated"};
  return kNames[static_cast<int>(evidence)];
}

const char* SchemeName(Scheme scheme) {
  constexpr const char* kNames[] = {"replicas", "replicas-chunked", "pd-direct", "pd-pool"};
  return kNames[static_cast<int>(scheme)];
}

double EfficiencyCurve::At(double batch) const {
  if (batch <= points.front().batch) return points.front().fraction;
  for (size_t i = 1; i < points.size(); ++i) {
    const Point& a = points[i - 1];
    const Point& b = points[i];
    if (batch > b.batch) continue;
    return a.fraction + (b.fraction - a.fraction) * (batch - a.batch) / (b.batch - a.batch);
  }
  return points.back().fraction;
}

bool EfficiencyCurve::Extrapolates(double batch) const {
  return points.size() > 1 && (batch < points.front().batch || batch > points.back().batch);
}

double Scenario::PricePerHour() const {
  if (price_per_hour) return *price_per_hour;
  double sum = 0;
  for (const CardGroup& group : groups) sum += group.count * group.price_per_hour;
  return sum;
}

double Scenario::TotalWeight() const {
  double sum = 0;
  for (const RequestClass& request : workload.classes) sum += request.weight;
  return sum;
}

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
  if (!(scenario.startup.value >= 0)) return Bad("startup", "is negative");
  if (!(scenario.PricePerHour() >= 0)) return Bad("price_per_hour", "is negative");
  return CheckObjective(scenario);
}

}  // namespace divisi
