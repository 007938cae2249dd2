#include "divisi/plan/waiting.h"

#include <cmath>
#include <limits>

#include "divisi/core/check.h"

namespace divisi {

double Utilisation(PerSecond arrivals, const ServerPool& pool) {
  CHECK(pool.servers > 0, "{} servers", pool.servers);
  return pool.rate.value > 0 ? arrivals / pool.rate : std::numeric_limits<double>::infinity();
}

double ErlangC(PerSecond arrivals, const ServerPool& pool) {
  const double rho = Utilisation(arrivals, pool);
  if (rho >= 1) return 1;
  // Erlang B by its recurrence, which neither overflows nor cancels, then C from B.
  const double load = rho * pool.servers;
  double blocked = 1;
  for (int k = 1; k <= pool.servers; ++k) blocked = load * blocked / (k + load * blocked);
  return blocked / (1 - rho * (1 - blocked));
}

Seconds WaitOfRandomService(PerSecond arrivals, const ServerPool& pool) {
  if (Utilisation(arrivals, pool) >= 1) return Seconds(std::numeric_limits<double>::infinity());
  return Seconds(ErlangC(arrivals, pool) / (pool.rate - arrivals).value);
}

Seconds WaitOfFixedService(PerSecond arrivals, const ServerPool& pool) {
  const double rho = Utilisation(arrivals, pool);
  if (rho <= 0) return Seconds(0);
  const double k = pool.servers;
  const double correction = (1 - rho) * (k - 1) * (std::sqrt(4 + 5 * k) - 2) / (16 * rho * k);
  const Seconds random = WaitOfRandomService(arrivals, pool);
  return rho >= 1 ? random : random * 0.5 * (1 + correction);
}

double WaitsLonger(Seconds time, double waiting, Seconds mean) {
  if (time.value < 0) return 1;
  if (!std::isfinite(mean.value)) return 1;
  if (mean.value <= 0 || waiting <= 0) return 0;
  return waiting * std::exp(-time.value * waiting / mean.value);
}

}  // namespace divisi
