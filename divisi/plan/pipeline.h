// Micro-batches that follow each other through stages on resources of their own: while one is with
// the experts, the next is in attention or on the link.
#pragma once

#include <vector>

#include "divisi/core/result.h"
#include "divisi/core/units.h"

namespace divisi {

// Equal micro-batches, each of which takes `stages` one after another.
struct Pipeline {
  std::vector<Seconds> stages;  // Of one micro-batch.
  double micro_batches = 1;     // q

  // One at a time: q (t_1 + t_2 + ...).
  Seconds Serial() const;
  // Alternating: t_1 + t_2 + ... + (q - 1) max(t_1, t_2, ...): the first fills the pipeline, then
  // one leaves it each time the longest stage ends. Exact for equal micro-batches. Source:
  // section 9.3.4 (two stages: t_A + t_F + (q - 1) max), section 9.4.3 (three stages).
  Seconds Overlapped() const;
};

// By what factor the stages marked in `slowed` may slow down until the pipeline takes as long as
// the serial run did without slowing; infinity where they take no time, 1 where there is no gain.
// Source: section 9.4.3. Requires: as many marks as stages.
double ToleratedSlowdown(const Pipeline& pipeline, const std::vector<bool>& slowed);

// Errors: kInvalidArgument for no stage, a negative time, or a sum of zero; kOutOfRange for a
// number of micro-batches that is not whole or outside 1 .. 2^40.
Result<void> CheckPipeline(const Pipeline& pipeline);

}  // namespace divisi
