#include "divisi/plan/activation_transfer.h"

#include <limits>

#include "divisi/plan/checks.h"

namespace divisi {

Result<SerialTransfers> ActivationTransfers(const ActivationRoute& route, double tokens) {
  RETURN_IF_ERROR(RequirePositive({{"layers", route.layers},
                                   {"hidden", route.hidden},
                                   {"bytes of an activation", route.element_bytes},
                                   {"transfers per layer", route.per_layer},
                                   {"tokens", tokens}}));
  const double launches = route.layers * route.per_layer;
  ASSIGN_OR_RETURN(const Bytes payload,
                   BytesOf({"payload of the activations",
                            launches * route.hidden * route.element_bytes * tokens}));
  return SerialTransfers{.payload = payload, .launches = launches};
}

Seconds BreakEvenLaunch(Bytes state, const SerialTransfers& step, BytesPerSecond bandwidth) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  if (step.payload >= state) return Seconds(-kInfinity);
  if (step.launches <= 1) return Seconds(kInfinity);
  return (state - step.payload) / bandwidth / (step.launches - 1);
}

}  // namespace divisi
