#include "divisi/model/fixed_math.h"

#include <bit>
#include <cmath>
#include <cstdint>

namespace divisi {
namespace {

// ln 2 and pi / 2 in parts (Cody and Waite, 1980): each part is the double nearest to what those
// before it leave.
constexpr double kLn2[] = {0x1.62e42fefa39efp-1, 0x1.abc9e3b39803fp-56};
constexpr double kHalfPi[] = {0x1.921fb54442d18p+0, 0x1.1a62633145c07p-54, -0x1.f1976b7ed8fbcp-110};
constexpr double kRound = 0x1.8p52;  // Adding it rounds to an integer, for |x| < 2^51.

double RoundToInteger(double x) { return (x + kRound) - kRound; }

}  // namespace

// x = 2^n m with m in [sqrt(1/2), sqrt(2)); ln m = 2 atanh(s) = 2 (s + s^3/3 + ...) for
// s = (m - 1) / (m + 1), |s| < 0.172: the term of s^25 is below 1e-20.
double FixedLog(double x) {
  const uint64_t bits = std::bit_cast<uint64_t>(x);
  constexpr uint64_t kHalfRootBits = std::bit_cast<uint64_t>(0x1.6a09e667f3bcdp-1);
  const int64_t n = static_cast<int64_t>(bits - kHalfRootBits) >> 52;
  const double m = std::bit_cast<double>(bits - (static_cast<uint64_t>(n) << 52));
  const double s = (m - 1) / (m + 1);
  const double square = s * s;
  double series = 0;
  for (int power = 23; power >= 3; power -= 2) series = (series + 1.0 / power) * square;
  const double log_m = std::fma(2 * s, series, 2 * s);
  return std::fma(static_cast<double>(n), kLn2[0],
                  std::fma(static_cast<double>(n), kLn2[1], log_m));
}

// e^x = 2^n e^r with |r| <= ln(2) / 2, by the Taylor series: the term of r^15 is below 1e-19.
double FixedExp(double x) {
  const double n = RoundToInteger(x * (1 / kLn2[0]));
  const double r = std::fma(-n, kLn2[1], std::fma(-n, kLn2[0], x));
  double sum = 1;
  for (int k = 14; k >= 1; --k) sum = 1 + sum * r / k;
  const uint64_t exponent = static_cast<uint64_t>(static_cast<int64_t>(n) + 1023) << 52;
  return sum * std::bit_cast<double>(exponent);
}

// x = n pi/2 + r with |r| <= pi/4, the first subtraction exact; the series' next terms are below
// 1e-18.
SineCosine FixedSineCosine(double x) {
  const double n = RoundToInteger(x * (1 / kHalfPi[0]));
  double r = std::fma(-n, kHalfPi[0], x);
  r = std::fma(-n, kHalfPi[1], r);
  r = std::fma(-n, kHalfPi[2], r);
  const double square = r * r;
  constexpr double kSine[] = {
      -1.0 / 6,        1.0 / 120,        -1.0 / 5040,          1.0 / 362880,
      -1.0 / 39916800, 1.0 / 6227020800, -1.0 / 1307674368000, 1.0 / 355687428096000};
  constexpr double kCosine[] = {
      -1.0 / 2,       1.0 / 24,        -1.0 / 720,         1.0 / 40320,
      -1.0 / 3628800, 1.0 / 479001600, -1.0 / 87178291200, 1.0 / 20922789888000};
  double sine = 0, cosine = 0;
  for (int k = 7; k >= 0; --k) {
    sine = (sine + kSine[k]) * square;
    cosine = (cosine + kCosine[k]) * square;
  }
  sine = std::fma(r, sine, r);
  cosine += 1;
  switch (static_cast<int64_t>(n) & 3) {
    case 0:
      return {sine, cosine};
    case 1:
      return {cosine, -sine};
    case 2:
      return {-sine, -cosine};
    default:
      return {-cosine, sine};
  }
}

}  // namespace divisi
