// Moving a worker's state while it runs, and resharding its weights. Source: section 9.6.2.
#pragma once

#include "divisi/core/units.h"

namespace divisi {

// State that grows while it is copied.
struct GrowingState {
  Bytes bytes;            // V: when copying begins
  BytesPerSecond growth;  // g

  // A decode worker: `batch` sequences of `context` cached tokens on average, each one token longer
  // after every step of `step` seconds.   g = batch / step * bytes per token
  struct Decode {
    double batch = 0;
    double context = 0;
    Seconds step;
    Bytes state_per_token;
  };
  static GrowingState Of(const Decode& decode);

  // Until a copy at `link` has caught up:  V / (B - g).   kNever where B <= g, unless there is
  // nothing to copy.
  Seconds CatchUp(BytesPerSecond link) const;
  // What is added, and copied too, until then:  g V / (B - g).
  Bytes AddedMeanwhile(BytesPerSecond link) const;
};

// A change of parallelism: weights move, then groups, graphs and admission are prepared, one after
// another.
struct Resharding {
  Bytes moved;          // Over the link, or by the busiest sender of a fabric.
  Seconds preparation;  // What does not overlap the transfer, in all.

  Seconds Transfer(BytesPerSecond link) const;
  Seconds Total(BytesPerSecond link) const { return Transfer(link) + preparation; }
};

}  // namespace divisi
