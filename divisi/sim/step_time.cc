#include "divisi/sim/step_time.h"

namespace divisi {

Seconds StepTime(const SimDevice& device, const StepPlan& plan) {
  const ModelCost& model = device.model;
  Work work{.bytes = model.WeightsRead(static_cast<double>(plan.tokens))};
  for (const StepSlice& slice : plan.slices) {
    if (IsDecode(slice)) {
      work.flops += model.DecodeStep(1, static_cast<double>(slice.start)).flops;
      work.bytes += model.State(Tokens(slice.start));
      continue;
    }
    work.flops += model.Prefill(Tokens(slice.count), Tokens(slice.start)).flops;
    if (!slice.sample) work.flops -= Flops(2 * model.head_params);
  }
  return device.step + TimeOf(work, device.rates).Total();
}

}  // namespace divisi
