#include "divisi/plan/startup.h"

#include <cmath>

#include "divisi/plan/flow.h"

namespace divisi {

double StepsToPay(Seconds longer_start, Seconds saved_per_step) {
  if (longer_start.value <= 0) return 0;
  return saved_per_step.value > 0 ? longer_start / saved_per_step : kNever.value;
}

double FirstStepThatGains(Seconds longer_start, Seconds saved_per_step) {
  return std::floor(StepsToPay(longer_start, saved_per_step)) + 1;
}

}  // namespace divisi
