// One routed expert of a mixture-of-experts layer: three matrices (gate, up, down) between the
// hidden width and the expert's own. Counts of section 9.3.2: P_e = 3 h f parameters, W_e bytes of
// weights, 2 P_e operations for each row of input.
#pragma once

#include <cmath>

#include "divisi/core/result.h"
#include "divisi/core/units.h"

namespace divisi {

// Rows that one expert may be asked to take: with the widest shape below, the bytes of rows stay
// under 2^62.
inline constexpr double kMostExpertRows = 0x1p40;

struct ExpertShape {
  double hidden = 0;        // h
  double width = 0;         // f
  double weight_bytes = 2;  // Of one element; int4 is half a byte.
  double activation_bytes = 2;

  double Params() const { return 3 * hidden * width; }
  Bytes Weights() const { return Bytes(std::llround(Params() * weight_bytes)); }
  // Input or output of `rows` rows.
  Bytes Rows(double rows) const { return Bytes(std::llround(rows * hidden * activation_bytes)); }
  Flops Compute(double rows) const { return Flops(2 * rows * Params()); }
};

// Errors: kOutOfRange for widths outside 1 .. 2^17 and elements outside 1/16 .. 8 bytes.
Result<void> CheckShape(const ExpertShape& shape);

}  // namespace divisi
