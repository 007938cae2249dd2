// The clock seam: whatever decides takes its time from a Clock, so that tests and the simulator
// can run it on a virtual one.
#pragma once

#include "divisi/core/units.h"

namespace divisi {

class Clock {
 public:
  virtual ~Clock() = default;
  // Seconds since an arbitrary origin; never runs backwards.
  virtual Seconds Now() const = 0;
};

// The machine's monotonic clock.
class SteadyClock final : public Clock {
 public:
  Seconds Now() const override;
};

// Stands still until moved.
class ManualClock final : public Clock {
 public:
  Seconds Now() const override { return now_; }
  void Advance(Seconds by) { now_ += by; }

 private:
  Seconds now_;
};

// Seconds since the Unix epoch: for timestamps shown to people and `created` fields, never for
// durations.
double UnixSeconds();

}  // namespace divisi
