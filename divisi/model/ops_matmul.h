// Matrix product with weights where they lie: x [M, K] times rows of w [N, K].
//
// A tile is up to V::kTileRows rows of x by 4 rows of w, 16 lanes of partial sums each, all of K
// in one pass. Both operands are read along K, so weights need no repacking, and an output is one
// chain of additions whatever tile it falls into. Four rows of w stay in the first-level cache
// while x passes by; a weight comes from memory once.
#pragma once

#include "divisi/model/ops_kernels.h"
#include "divisi/model/ops_operands.h"

namespace divisi {

inline constexpr int kTileColumns = 4;

// Adds bias and what was there, and stores `columns` outputs of one row.
template <typename V>
inline void StoreOutputs(const MatMulBlock& block, int64_t row, int64_t column, int64_t columns,
                         const float* sums) {
  float* out = block.out + row * block.out_stride + column;
  for (int64_t n = 0; n < columns; ++n) {
    float sum = sums[n];
    if (block.bias != nullptr) sum += block.bias[column + n];
    if (block.add_to_out) sum += out[n];
    out[n] = sum;
  }
}

// kAhead rows of the next four of w, from the address `ahead` on, are fetched as the tile goes
// along K. Without it a product of few rows waits for memory and for arithmetic in turn. Fetching
// the place in the next row that is being read in this one beats fetching the next rows from their
// beginning on.
template <typename V, typename X, typename W, int kAhead, int kRows>
inline void MultiplyTile(const MatMulBlock& block, int64_t row, int64_t column, uintptr_t ahead) {
  static_assert(static_cast<int>(X::kWidth) == static_cast<int>(W::kWidth));
  const int64_t columns =
      block.columns - column < kTileColumns ? block.columns - column : kTileColumns;
  const std::byte* x = block.x + row * block.k * X::kBytes;
  const std::byte* w[kTileColumns];
  for (int n = 0; n < kTileColumns; ++n) {
    w[n] = block.w + (column + (n < columns ? n : 0)) * block.k * W::kBytes;
  }
  typename V::F acc[kRows * kTileColumns];
  for (auto& lanes : acc) lanes = V::Zero();
  int64_t k = 0;
  for (; k + X::kWidth <= block.k; k += X::kWidth) {
#pragma GCC unroll 4
    for (int n = 0; n < kAhead; ++n) {
      const uintptr_t address = ahead + (n * block.k + k) * W::kBytes;
      __builtin_prefetch(reinterpret_cast<const void*>(address));
    }
    typename W::Vector wv[kTileColumns];
#pragma GCC unroll 8
    for (int n = 0; n < kTileColumns; ++n) wv[n] = W::Load(w[n] + k * W::kBytes);
#pragma GCC unroll 8
    for (int m = 0; m < kRows; ++m) {
      const auto xv = X::Load(x + (m * block.k + k) * X::kBytes);
#pragma GCC unroll 8
      for (int n = 0; n < kTileColumns; ++n) {
        acc[m * kTileColumns + n] = MultiplyAdd<V>(acc[m * kTileColumns + n], xv, wv[n]);
      }
    }
  }
  if (k < block.k) {
    const int64_t rest = block.k - k;
    for (int m = 0; m < kRows; ++m) {
      const auto xv = LoadFirst<X>(x + (m * block.k + k) * X::kBytes, rest);
      for (int n = 0; n < kTileColumns; ++n) {
        const auto wv = LoadFirst<W>(w[n] + k * W::kBytes, rest);
        acc[m * kTileColumns + n] = MultiplyAdd<V>(acc[m * kTileColumns + n], xv, wv);
      }
    }
  }
  alignas(64) float sums[kRows * kTileColumns];
  V::template SumEach<kRows>(acc, sums);
  for (int m = 0; m < kRows; ++m) {
    StoreOutputs<V>(block, row + m, column, columns, sums + m * kTileColumns);
  }
}

// One tile of kFewest <= rows <= kRows.
template <typename V, typename X, typename W, int kAhead, int kFewest, int kRows>
inline void MultiplyRows(const MatMulBlock& block, int64_t row, int64_t column, int64_t rows,
                         uintptr_t ahead) {
  if constexpr (kRows > kFewest) {
    if (rows < kRows) {
      return MultiplyRows<V, X, W, kAhead, kFewest, kRows - 1>(block, row, column, rows, ahead);
    }
  }
  MultiplyTile<V, X, W, kAhead, kRows>(block, row, column, ahead);
}

// Bytes of w that stay in the first-level cache (32 or 48 KB) beside a tile's rows of x.
inline constexpr int64_t kResidentBytes = 24 << 10;

// `tiles` tiles of equal height: 8 rows are 4 + 4, not 6 + 2. So none is below half the full height
// unless there is one alone. Columns go in groups of `group`, a multiple of kTileColumns: a tile's
// rows of x come from the second-level cache once for all of a group.
template <typename V, typename X, typename W, int kAhead, int kFewest>
void MultiplyTiles(const MatMulBlock& block, int64_t tiles, int64_t group) {
  for (int64_t first = 0; first < block.columns; first += group) {
    const int64_t end = first + group < block.columns ? first + group : block.columns;
    for (int64_t tile = 0; tile < tiles; ++tile) {
      const int64_t row = block.rows * tile / tiles;
      const int64_t rows = block.rows * (tile + 1) / tiles - row;
      for (int64_t column = first; column < end; column += kTileColumns) {
        // Beyond the block's end lies the next block's beginning, or nothing, which does no harm:
        // an address there may be fetched, though a pointer there may not be formed.
        const int64_t next = column + group + tile * kAhead % kTileColumns;
        const uintptr_t ahead = reinterpret_cast<uintptr_t>(block.w) + next * block.k * W::kBytes;
        MultiplyRows<V, X, W, kAhead, kFewest, V::kTileRows>(block, row, column, rows, ahead);
      }
    }
  }
}

template <typename V, typename X, typename W>
void MatMulKernel(const MatMulBlock& block) {
  constexpr int kFewest = (V::kTileRows + 1) / 2;
  const int64_t tiles = (block.rows + V::kTileRows - 1) / V::kTileRows;
  if (tiles == 1) return MultiplyTiles<V, X, W, 4, 1>(block, tiles, kTileColumns);
  if (tiles <= 3) return MultiplyTiles<V, X, W, 2, kFewest>(block, tiles, kTileColumns);
  const int64_t quads = kResidentBytes / (kTileColumns * block.k * W::kBytes);
  MultiplyTiles<V, X, W, 1, kFewest>(block, tiles, kTileColumns * (quads > 1 ? quads : 1));
}

}  // namespace divisi
