// What a step waited at its gates for prefixes that were still being read: no part of what its
// tokens take to compute.
#pragma once

#include <span>

#include "divisi/engine/executor.h"
#include "divisi/kv/layer_gate.h"

namespace divisi {

// Executed, and not yet committed. A gate belongs to one step.
inline Seconds WaitedAtGates(const StepPlan& plan) {
  Seconds waited;
  for (const StepSlice& slice : plan.slices) {
    if (slice.gate != nullptr) waited += slice.gate->waiting().waited;
  }
  return waited;
}

// Whether a slice's prefix never came, so that the step's time says nothing.
inline bool AnyLost(std::span<const SliceResult> results) {
  for (const SliceResult& result : results) {
    if (result.lost) return true;
  }
  return false;
}

}  // namespace divisi
