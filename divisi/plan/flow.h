// Bytes that flow at a rate. These are total functions: no amount and no rate, however large or
// zero, divides by zero or overflows. What never ends is kNever.
#pragma once

#include <cmath>
#include <limits>

#include "divisi/core/units.h"

namespace divisi {

inline constexpr Seconds kNever = Seconds(std::numeric_limits<double>::infinity());

// A whole number of bytes; what is beyond the type's range, or infinite, becomes its largest value.
inline Bytes WholeBytes(double bytes) {
  constexpr double kMost = 0x1p63;
  if (!(bytes < kMost)) return Bytes(std::numeric_limits<int64_t>::max());
  return bytes > -kMost ? Bytes(std::llround(bytes)) : Bytes(std::numeric_limits<int64_t>::min());
}

// bytes * factor, as WholeBytes. Requires: neither is NaN.
inline Bytes Times(Bytes bytes, double factor) {
  return WholeBytes(static_cast<double>(bytes.value) * factor);
}

// What has flowed after `time`: 0 where nothing flows, even for ever.
inline Bytes Flowed(BytesPerSecond rate, Seconds time) {
  return rate.value == 0 ? Bytes(0) : WholeBytes(rate.value * time.value);
}

// bytes / rate; 0 for nothing to move, kNever at no rate.
inline Seconds TimeToMove(Bytes bytes, BytesPerSecond rate) {
  if (bytes.value <= 0) return Seconds(0);
  return rate.value > 0 ? bytes / rate : kNever;
}

// The rate that moves `bytes` within `time`: infinite where no time is left.
inline BytesPerSecond RateToMove(Bytes bytes, Seconds time) {
  if (bytes.value <= 0) return BytesPerSecond(0);
  return time.value > 0 ? bytes / time : BytesPerSecond(kNever.value);
}

}  // namespace divisi
