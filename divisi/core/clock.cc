#include "divisi/core/clock.h"

#include <chrono>

namespace divisi {

Seconds SteadyClock::Now() const {
  return Seconds(
      std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count());
}

double UnixSeconds() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

}  // namespace divisi
