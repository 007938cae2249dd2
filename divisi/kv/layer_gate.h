// Between who loads a prefix's KV layer by layer and who computes with it: computing waits until
// the layer that it is about to read is there, and goes on while the next ones come.
//
// One load, one gate. Layers only ever open, and failing is for good; of the two the first counts
// for a layer: what had opened before the failure stays open. Safe from any thread.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>

#include "divisi/core/units.h"

namespace divisi {

class LayerGate {
 public:
  // most: how long, from now on, anybody waits here at all: who computes does so on the thread that
  // would hear of a load that is past its time.
  explicit LayerGate(Seconds most = Seconds(86400));

  // Layers [0, layers) may be read. Fewer than are open already changes nothing.
  void Open(int layers);
  // No further layer will open: whoever waits for one stops waiting.
  void Fail();

  // Until `layer` is open, `most` and the gate's own time at the longest.  False: it failed, or it
  // is too late.
  bool Wait(int layer, Seconds most);

  int opened() const;
  bool failed() const;

  struct Waiting {
    int64_t waits = 0;  // Calls that did not find their layer open.
    Seconds waited;     // In all of them: what loading added to computing.
    int64_t in_vain = 0;
    int64_t now = 0;  // Under way
  };
  Waiting waiting() const;

 private:
  const Seconds until_;  // A steady clock's time
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  // Guarded by mutex_.
  int opened_ = 0;
  bool failed_ = false;
  Waiting waiting_;
};

}  // namespace divisi
