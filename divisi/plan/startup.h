// What a longer start buys. The backlog that gathers meanwhile is in plan/backlog.h.
// Source: section 9.6.1.
#pragma once

#include "divisi/core/units.h"

namespace divisi {

// Steps after which what each saves has paid for a start that takes longer, as when execution
// graphs are captured:  N = T_s / d.  One more gains. Steps are counted, not tokens: a step saves
// once, whatever its batch. Infinite where nothing is saved, unless there is nothing to pay.
double StepsToPay(Seconds longer_start, Seconds saved_per_step);

// The first step at which the sum saved is above the cost.
double FirstStepThatGains(Seconds longer_start, Seconds saved_per_step);

}  // namespace divisi
