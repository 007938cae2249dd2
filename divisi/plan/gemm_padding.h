// A grouped GEMM runs the matrices of several experts in one launch and pads the rows of each to
// whole tiles. Padded rows cost arithmetic and belong to no token.
#pragma once

#include <cstdint>
#include <span>

#include "divisi/core/result.h"

namespace divisi {

// Rows computed, over all experts.
struct PaddedRows {
  int64_t useful = 0;
  int64_t non_empty = 0;  // Each expert that has rows, up to whole tiles.
  int64_t all = 0;        // So, and each expert without rows takes one tile.
  int64_t largest = 0;    // Each expert takes as many tiles as the fullest.
};

// Source: section 9.4.3.
// Errors: kInvalidArgument for no expert, no row at all or a negative number; kOutOfRange for a
// tile outside 1 .. 2^20, more than 2^20 experts or more than 2^40 rows of one.
Result<PaddedRows> PadToTiles(std::span<const int64_t> rows, int64_t tile);

}  // namespace divisi
