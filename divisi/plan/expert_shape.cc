#include "divisi/plan/expert_shape.h"

#include "divisi/plan/checks.h"

namespace divisi {

Result<void> CheckShape(const ExpertShape& shape) {
  constexpr double kWidest = 0x1p17;
  RETURN_IF_ERROR(RequireBetween({"hidden", shape.hidden}, 1, kWidest));
  RETURN_IF_ERROR(RequireBetween({"expert width", shape.width}, 1, kWidest));
  RETURN_IF_ERROR(RequireBetween({"bytes of a weight", shape.weight_bytes}, 1.0 / 16, 8));
  return RequireBetween({"bytes of an activation", shape.activation_bytes}, 1.0 / 16, 8);
}

}  // namespace divisi
