// The seam between deciding and computing: the scheduler says what one step runs, an executor runs
// it. The real one holds the model; the simulated one takes modelled time and makes tokens by
// hashing the pages it was given.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "divisi/core/result.h"
#include "divisi/engine/request.h"

namespace divisi {

class LayerGate;

// Tokens [start, start + count) of one sequence, run in one step.
struct StepSlice {
  const Sequence* sequence = nullptr;  // Valid until the step is committed.
  int64_t start = 0;
  int64_t count = 0;
  std::span<const BlockId> blocks;  // Pages of [0, start + count), in order.
  bool sample = false;              // The slice ends at the sequence's last token: draw the next.
  // Set while pages before `start` are still being filled, layer by layer: a layer's attention
  // waits for it. Outlives the step.
  LayerGate* gate = nullptr;
};

// Whether a slice is a decode, and not (a part of) a prompt, new or computed again.
inline bool IsDecode(const StepSlice& slice) {
  return slice.sample && slice.count == 1 && slice.sequence->OutputTokens() > 0;
}

struct StepPlan {
  std::vector<StepSlice> slices;
  int64_t tokens = 0;  // Sum of counts.
};

// One per slice, in the same order.
struct SliceResult {
  std::optional<SampledToken> sampled;  // Where the slice asked for one.
  // For requests with prompt_logprobs >= 0: one for each token of the slice that has a next prompt
  // token, scoring that next token.
  std::vector<SampledToken> prompt_scores;
  // Set where the sequence can't go on; the rest then says nothing. Other slices are not affected.
  std::optional<Error> failure;
  // Its gate failed: pages of its prefix never came. The rest says nothing.
  bool lost = false;
};

class Executor {
 public:
  virtual ~Executor() = default;
  virtual std::vector<SliceResult> Execute(const StepPlan& plan) = 0;
};

}  // namespace divisi
