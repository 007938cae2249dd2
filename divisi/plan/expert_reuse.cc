#include "divisi/plan/expert_reuse.h"

#include <algorithm>
#include <cmath>

#include "divisi/core/format.h"
#include "divisi/plan/checks.h"

namespace divisi {

double ExpectedDistinctExperts(double experts, double experts_per_token, double tokens) {
  return experts * (1 - std::pow(1 - experts_per_token / experts, tokens));
}

Result<ExpertUse> UseOf(const ExpertShape& shape, const RoutedBatch& batch, double distinct,
                        const DeviceRates& device) {
  RETURN_IF_ERROR(CheckShape(shape));
  RETURN_IF_ERROR(CheckBatch(batch));
  RETURN_IF_ERROR(RequirePositive({{"distinct experts", distinct},
                                   {"computing rate", device.compute.value},
                                   {"memory bandwidth", device.memory.value}}));
  ASSIGN_OR_RETURN(const Bytes read, ExpertMemory(shape, distinct, 1));
  return ExpertUse{
      .distinct = distinct,
      .rows_each = batch.Assignments() / distinct,
      .read = read,
      .time = TimeOf({.flops = shape.Compute(batch.Assignments()), .bytes = read}, device)};
}

double EvenDistinctExperts(const RoutedBatch& batch) {
  return std::min(static_cast<double>(batch.experts), batch.Assignments());
}

double HotDistinctExperts(const RoutedBatch& batch) {
  return static_cast<double>(batch.experts_per_token);
}

Result<Bytes> ExpertMemory(const ExpertShape& shape, double experts, double layers) {
  return BytesOf(
      {"weights of the experts", static_cast<double>(shape.Weights().value) * experts * layers});
}

Result<void> CheckBatch(const RoutedBatch& batch) {
  constexpr double kMostTokens = 0x1p40;
  constexpr double kMostExperts = 0x1p20;
  RETURN_IF_ERROR(RequireBetween({"tokens", static_cast<double>(batch.tokens)}, 1, kMostTokens));
  RETURN_IF_ERROR(RequireBetween({"experts", static_cast<double>(batch.experts)}, 1, kMostExperts));
  const auto chosen = static_cast<double>(batch.experts_per_token);
  RETURN_IF_ERROR(RequireBetween({"experts per token", chosen}, 1, kMostExperts));
  if (batch.experts_per_token <= batch.experts) return {};
  return Error{Code::kInvalidArgument,
               Format("each token chooses {} of {} experts; experts per token may not exceed "
                      "experts",
                      batch.experts_per_token, batch.experts)};
}

}  // namespace divisi
