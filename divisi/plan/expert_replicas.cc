#include "divisi/plan/expert_replicas.h"

#include <algorithm>
#include <cmath>

#include "divisi/plan/checks.h"

namespace divisi {
namespace {

constexpr double kMostExperts = 0x1p20;

// Experts of one card: `whole` with all rows, `halved` with part of them.
Result<Work> CardWork(const ReplicaPlan& plan, double whole, double halved, double part) {
  ASSIGN_OR_RETURN(const Bytes all,
                   ExpertTraffic(plan.shape, plan.tile, static_cast<double>(plan.rows)));
  ASSIGN_OR_RETURN(const Bytes some, ExpertTraffic(plan.shape, plan.tile, part));
  ASSIGN_OR_RETURN(const Bytes bytes,
                   BytesOf({"traffic of a card", whole * static_cast<double>(all.value) +
                                                     halved * static_cast<double>(some.value)}));
  const double rows = whole * static_cast<double>(plan.rows) + halved * part;
  return Work{.flops = plan.shape.Compute(rows), .bytes = bytes};
}

Result<void> CheckPlan(const ReplicaPlan& plan) {
  RETURN_IF_ERROR(RequirePositive({{"computing rate", plan.card.compute.value},
                                   {"memory bandwidth", plan.card.memory.value},
                                   {"bandwidth of the link", plan.link.bandwidth.value}}));
  RETURN_IF_ERROR(RequireBetween({"launch seconds", plan.link.launch.value}, 0, 3600));
  const auto hot = static_cast<double>(plan.hot_experts);
  RETURN_IF_ERROR(RequireBetween({"hot experts", hot}, 1, kMostExperts));
  RETURN_IF_ERROR(RequireBetween({"copies", static_cast<double>(plan.copies)}, 1, hot));
  return RequireBetween({"receiving cards", static_cast<double>(plan.receivers)}, 1, kMostExperts);
}

}  // namespace

Result<Bytes> ExpertTraffic(const ExpertShape& shape, const GemmTile& tile, double rows) {
  RETURN_IF_ERROR(CheckShape(shape));
  RETURN_IF_ERROR(RequireBetween({"rows of a tile", tile.rows}, 1, 0x1p20));
  RETURN_IF_ERROR(RequireBetween({"columns of a tile", tile.columns}, 1, 0x1p20));
  RETURN_IF_ERROR(RequireBetween({"rows of an expert", rows}, 0, kMostExpertRows));
  const double hidden = shape.hidden;
  const double width = shape.width;
  const double row_elements = std::ceil(2 * width / tile.columns) * hidden +
                              std::ceil(hidden / tile.columns) * width + 2 * width + hidden;
  const double readings = std::ceil(rows / tile.rows);
  return BytesOf({"traffic of an expert", readings * static_cast<double>(shape.Weights().value) +
                                              rows * row_elements * shape.activation_bytes});
}

std::optional<double> ReplicaOutcome::PayBackBatches() const {
  if (!fits || saving.value <= 0) return std::nullopt;
  return std::floor(copy_time / saving) + 1;
}

Result<ReplicaOutcome> WeighReplicas(const ReplicaPlan& plan) {
  RETURN_IF_ERROR(CheckPlan(plan));
  const auto hot = static_cast<double>(plan.hot_experts);
  const auto copies = static_cast<double>(plan.copies);
  const double fullest = std::ceil(copies / static_cast<double>(plan.receivers));
  const auto kept = static_cast<double>(plan.rows / 2);
  const double given = static_cast<double>(plan.rows) - kept;

  ReplicaOutcome outcome;
  ASSIGN_OR_RETURN(outcome.before, CardWork(plan, hot, 0, 0));
  ASSIGN_OR_RETURN(outcome.after, CardWork(plan, hot - copies, copies, kept));
  ASSIGN_OR_RETURN(const Work receiving, CardWork(plan, 0, fullest, given));
  outcome.before_time = TimeOf(outcome.before, plan.card);
  const StageTime source = TimeOf(outcome.after, plan.card);
  const StageTime receiver = TimeOf(receiving, plan.card);
  outcome.after_time = source.Total() >= receiver.Total() ? source : receiver;
  outcome.saving = outcome.before_time.Total() - outcome.after_time.Total();

  const Bytes weights = plan.shape.Weights();
  outcome.copied = weights * plan.copies;
  outcome.copy_time =
      SerialTransfers{.payload = outcome.copied, .launches = copies}.Total(plan.link);
  outcome.needed = weights * static_cast<int64_t>(fullest);
  outcome.fits = outcome.needed <= plan.room;
  return outcome;
}

}  // namespace divisi
