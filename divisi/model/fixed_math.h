// Logarithm, power, sine and cosine that give the same bits on every machine. A C library's differ
// from version to version and, by the processor it runs on, within one; what decides a token may
// not. Built of operations that IEEE 754 rounds correctly: + - * / and fused multiply-add.
//
// Error: below 4 units of the last place of a double for log and exp of moderate arguments, below
// 1e-15 for sine and cosine. Requires: the default rounding mode, no -ffast-math.
#pragma once

namespace divisi {

// Natural logarithm. Requires: x is finite and at least 2^-1022.
double FixedLog(double x);

// e^x. Requires: |x| <= 700.
double FixedExp(double x);

struct SineCosine {
  double sine = 0;
  double cosine = 1;
};
// Requires: 0 <= x <= 2^31.
SineCosine FixedSineCosine(double x);

}  // namespace divisi
