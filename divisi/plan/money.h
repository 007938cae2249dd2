// What requests cost: the price of the whole deployment over what it completes. Source: section
// 9.7.2, C_effective.
#pragma once

#include <algorithm>
#include <limits>

#include "divisi/core/units.h"

namespace divisi {

// In whatever currency the prices are given.
using Money = Quantity<struct MoneyTag, double>;
using MoneyPerHour = Quantity<struct MoneyPerHourTag, double>;

// What is completed: no more than arrives, no more than can be served.
inline PerSecond Completed(PerSecond arrivals, PerSecond service) {
  return std::min(arrivals, service);
}

// Cost of a thousand completed requests:  1000 price / (3600 rate).   Infinite where none is.
inline Money CostPerThousand(MoneyPerHour price, PerSecond completed) {
  constexpr double kSecondsPerHour = 3600;
  if (!(completed.value > 0)) return Money(std::numeric_limits<double>::infinity());
  return Money(1000 * price.value / (kSecondsPerHour * completed.value));
}

}  // namespace divisi
