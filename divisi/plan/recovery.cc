#include "divisi/plan/recovery.h"

#include <algorithm>

#include "divisi/core/check.h"

namespace divisi {

Recovery RecoveryOf(const Interrupted& request) {
  CHECK(request.prompt.value >= 1 && request.logged.value >= 0 &&
            request.logged <= request.returned && request.checkpoint.value >= 0,
        "{} prompt, {} of {} logged, {} saved", request.prompt.value, request.logged.value,
        request.returned.value, request.checkpoint.value);
  const Tokens known = request.prompt + request.logged;
  Recovery recovery;
  recovery.rebuilt = recovery.last = known - Tokens(1);
  recovery.reused = std::min(request.checkpoint, recovery.rebuilt);
  recovery.replayed = recovery.rebuilt - recovery.reused;
  recovery.regenerated = request.returned - request.logged;
  return recovery;
}

RecoveryTime TimeOf(const Recovery& recovery, const ModelCost& model, const DeviceRates& rates) {
  RecoveryTime time;
  if (recovery.replayed.value > 0) {
    time.replay = TimeOf(model.Prefill(recovery.replayed, recovery.reused), rates).Total();
  }
  const auto context = static_cast<double>(recovery.rebuilt.value);
  time.last_step = TimeOf(model.DecodeStep(1, context), rates).Total();
  // The step above makes the first of them, and the mean context grows with the others.
  const auto steps = static_cast<double>(recovery.regenerated.value);
  if (steps > 0) {
    const double mean_context = context + (steps + 1) / 2;
    time.regenerate = TimeOf(model.DecodeStep(1, mean_context), rates).Total() * steps;
  }
  return time;
}

}  // namespace divisi
