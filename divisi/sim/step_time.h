// What a step takes on a device by the cost model: the roofline of its slices' work.
#pragma once

#include "divisi/engine/executor.h"
#include "divisi/plan/pass_cost.h"
#include "divisi/plan/stage.h"

namespace divisi {

struct SimDevice {
  ModelCost model;
  DeviceRates rates;  // Efficiency included
  Seconds step{0};    // Of every step, besides
};

Seconds StepTime(const SimDevice& device, const StepPlan& plan);

}  // namespace divisi
