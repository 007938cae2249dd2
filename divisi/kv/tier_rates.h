// Rates as they were last measured: bytes over the time that moving them took, the older the less.
#pragma once

#include <cmath>

#include "divisi/core/units.h"

namespace divisi {

// A ratio of two sums in which a byte counts half after kHalf further ones: long moves weigh by
// their bytes, and a moment's stall fades with the traffic, not with the time.
class MeasuredRate {
 public:
  static constexpr double kHalf = 64.0 * (1 << 20);

  void Add(Bytes bytes, Seconds time) {
    const double keep = std::exp2(-static_cast<double>(bytes.value) / kHalf);
    bytes_ = bytes_ * keep + static_cast<double>(bytes.value);
    seconds_ = seconds_ * keep + time.value;
  }
  // 0 before the first measurement.
  BytesPerSecond rate() const { return BytesPerSecond(seconds_ > 0 ? bytes_ / seconds_ : 0); }

 private:
  double bytes_ = 0, seconds_ = 0;
};

// A rate that is forgotten when nothing moves for kForget: what was slow once and is not used for
// that must be tried again some time.
class RecentRate {
 public:
  static constexpr Seconds kForget{30};

  // moved: in all, so far; 0: not known.
  BytesPerSecond Of(Bytes moved, BytesPerSecond rate, Seconds now) {
    if (moved > moved_) {
      moved_ = moved;
      at_ = now;
    }
    return now - at_ < kForget ? rate : BytesPerSecond(0);
  }

 private:
  Bytes moved_;
  Seconds at_;
};

}  // namespace divisi
