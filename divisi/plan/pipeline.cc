#include "divisi/plan/pipeline.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "divisi/core/check.h"
#include "divisi/core/format.h"
#include "divisi/plan/checks.h"

namespace divisi {
namespace {

struct Stages {
  Seconds sum;
  Seconds longest;
  void Add(Seconds stage) {
    sum += stage;
    longest = std::max(longest, stage);
  }
};

Stages Total(const std::vector<Seconds>& stages) {
  Stages total;
  for (const Seconds stage : stages) total.Add(stage);
  return total;
}

}  // namespace

Seconds Pipeline::Serial() const { return Total(stages).sum * micro_batches; }

Seconds Pipeline::Overlapped() const {
  const Stages total = Total(stages);
  return total.sum + total.longest * (micro_batches - 1);
}

double ToleratedSlowdown(const Pipeline& pipeline, const std::vector<bool>& slowed) {
  CHECK(slowed.size() == pipeline.stages.size());
  Stages slow, steady;
  for (size_t i = 0; i < slowed.size(); ++i) (slowed[i] ? slow : steady).Add(pipeline.stages[i]);
  if (slow.sum.value == 0) return std::numeric_limits<double>::infinity();
  // slow.sum f + steady.sum + (q - 1) max(slow.longest f, steady.longest) = serial, which grows
  // with f: first as if the slowed stage were the longest, else as if it were not.
  const double later = pipeline.micro_batches - 1;
  const Seconds left = pipeline.Serial() - steady.sum;
  const double factor = left / (slow.sum + slow.longest * later);
  if (slow.longest * factor >= steady.longest) return factor;
  return (left - steady.longest * later) / slow.sum;
}

Result<void> CheckPipeline(const Pipeline& pipeline) {
  for (const Seconds stage : pipeline.stages) {
    if (!(stage.value >= 0) || !std::isfinite(stage.value)) {
      return Error{Code::kInvalidArgument,
                   Format("a stage takes {} s; it must be finite and not negative", stage.value)};
    }
  }
  RETURN_IF_ERROR(RequirePositive({{"the sum of the stages", Total(pipeline.stages).sum.value}}));
  if (pipeline.micro_batches != std::floor(pipeline.micro_batches)) {
    return Error{Code::kOutOfRange,
                 Format("{} micro-batches; take a whole number", pipeline.micro_batches)};
  }
  return RequireBetween({"micro-batches", pipeline.micro_batches}, 1, 0x1p40);
}

}  // namespace divisi
