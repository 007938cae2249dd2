// The seam between what a step computes and how an instruction set computes it: one table of
// kernels per Isa. A kernel does a block of work on one thread; ops.cc cuts a step into blocks.
//
// The bodies are templates over 16 lanes of f32 (ops_lanes_scalar.h, ops_lanes_highway.h), compiled
// once per instruction set by ops_scalar.cc, ops_avx2.cc, ops_avx512.cc and ops_avx512_bf16.cc. A
// table's kernels differ in speed only: the bits are the same (docs/numerics.md).
//
// Kernels run with subnormals flushed (ops.cc, FlushSubnormals).
#pragma once

#include <cstddef>
#include <cstdint>

#include "divisi/core/ids.h"

namespace divisi {

enum class Isa;  // ops.h

// out[m][n] = x[m] . w[n] (+ bias[n]) (+ out[m][n]) for a block of rows of x and of w.
struct MatMulBlock {
  const std::byte* x = nullptr;  // [rows, k], contiguous
  int64_t rows = 0;
  const std::byte* w = nullptr;  // [columns, k], contiguous, any alignment
  int64_t columns = 0;
  int64_t k = 0;         // Even.
  float* out = nullptr;  // [rows, columns], rows out_stride floats apart
  int64_t out_stride = 0;
  const float* bias = nullptr;  // [columns] or null
  bool add_to_out = false;
};

// One row of RMS normalisation; out is bf16 bits or f32.
struct NormRow {
  const float* x = nullptr;
  const float* gain = nullptr;
  int64_t size = 0;
  float eps = 0;
  void* out = nullptr;
};

// One head of one token: optional RMS normalisation, then rotation, in place.
struct RotaryHead {
  float* x = nullptr;             // [2 * half_dim]
  const float* gain = nullptr;    // [2 * half_dim] or null
  const float* cosine = nullptr;  // [half_dim]
  const float* sine = nullptr;    // [half_dim]
  int64_t half_dim = 0;
  float eps = 0;
};

// Attention of a block of one sequence's rows, for the query heads that share one kv head.
// A query vector is one (row, head): vector v is row v / group, head v % group.
struct AttentionBlock {
  const std::byte* q = nullptr;  // First row, first head of the group: [rows, group, Dh]
  std::byte* out = nullptr;      // The same shape and stride
  int64_t row_bytes = 0;         // From one row of q or out to the next
  int64_t rows = 0;
  int64_t group = 0;
  int64_t head_dim = 0;
  int64_t start = 0;                // Position of the first row
  const BlockId* pages = nullptr;   // Of positions [0, start + rows)
  const std::byte* keys = nullptr;  // K of (page 0, layer, head); V lies right behind it
  int64_t page_bytes = 0;
  float scale = 1;
  float* scratch = nullptr;  // AttentionScratchFloats, any alignment
};
// A block's query vectors at most, and what it needs to work.
inline constexpr int64_t kAttentionVectors = 96;
// Those of them that share one pass over a chunk of K and V.
inline constexpr int kQueryTile = 6;
int64_t AttentionScratchFloats(int64_t vectors, int64_t head_dim);
// Positions that one round of the online softmax takes.
inline constexpr int64_t kAttentionChunk = 4 * kBlockTokens;

struct Kernels {
  using MatMul = void (*)(const MatMulBlock&);
  MatMul matmul_bf16_bf16;  // x type, w type
  MatMul matmul_f32_bf16;
  MatMul matmul_f32_f16;
  MatMul matmul_f32_f32;
  void (*embed_bf16)(const std::byte* row, int64_t size, float* out);
  void (*embed_f16)(const std::byte* row, int64_t size, float* out);
  void (*embed_f32)(const std::byte* row, int64_t size, float* out);
  void (*norm_to_bf16)(const NormRow&);
  void (*norm_to_f32)(const NormRow&);
  void (*swiglu_to_bf16)(const float* gate, const float* up, int64_t size, void* out);
  void (*swiglu_to_f32)(const float* gate, const float* up, int64_t size, void* out);
  void (*rotate)(const RotaryHead&);
  void (*round_to_bf16)(const float* x, int64_t size, uint16_t* out);
  void (*attention_bf16)(const AttentionBlock&);
  void (*attention_f32)(const AttentionBlock&);
  // `rounds` rounds of kPeakChains independent 16-lane bf16 dot products on registers; returns
  // something of their sum, so that none is left out.
  float (*dot_peak)(int64_t rounds);
  // Adds up all of data, as f32, in order to read it. Requires: bytes % 512 == 0.
  float (*read_peak)(const std::byte* data, int64_t bytes);
};
inline constexpr int kPeakChains = 24;

extern const Kernels kScalarKernels;
extern const Kernels kAvx2Kernels;
extern const Kernels kAvx512Kernels;
extern const Kernels kAvx512Bf16Kernels;
const Kernels& KernelsOf(Isa isa);

}  // namespace divisi
