#include "divisi/net/transport.h"

#include <poll.h>

#include <algorithm>
#include <cmath>

namespace divisi {

std::vector<TransportEvent> WaitForEvents(Transport& transport, Seconds timeout) {
  auto events = transport.Poll();
  if (!events.empty() || timeout.value <= 0 || !transport.Arm()) return events;
  double seconds = timeout.value;
  if (const auto timer = transport.NextTimer()) seconds = std::min(seconds, timer->value);
  // An hour: poll counts in int milliseconds, and the caller asks again.
  const double milliseconds = std::ceil(1000 * std::clamp(seconds, 0.0, 3600.0));
  pollfd wait{.fd = transport.fd(), .events = POLLIN};
  (void)poll(&wait, 1, static_cast<int>(milliseconds));  // Interrupted: returns early.
  return transport.Poll();
}

}  // namespace divisi
