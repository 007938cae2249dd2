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
  // Erlang B as the inverse of a sum whose terms are all positive: 1 / B = 1 + N / a + N (N - 1) /
  // a^2
  // + ..., then C from B. Only as many terms as count: past B = 1e-300 nobody waits.
  constexpr double kNobody = 1e300;
  const double inverse_load = 1 / (rho * pool.servers);
  double term = 1, sum = 1;
  for (int left = pool.servers; left > 0 && sum < kNobody; --left) {
    const double factor = left * inverse_load;
    term *= factor;
    sum += term;
    // The rest is less than term / (1 - factor), factors falling.
    if (factor < 1 && term < sum * (1 - factor) * 1e-17) break;
  }
  const double blocked = 1 / sum;
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
