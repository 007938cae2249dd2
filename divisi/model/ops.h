// The arithmetic of a transformer step, the same bits on every machine.
//
// Rules that make a row's result a function of its own inputs (docs/numerics.md):
//  - A dot product over K runs 16 lanes wide: lane l of step j takes elements 32j + 2l + 1 and then
//    32j + 2l (each a fused multiply-add into f32, subnormals flushed, which is what the
//    AVX512-BF16 dot product does); lanes are then added in one fixed tree. f32 inputs: lane l
//    takes element 16j + l. Row count, tile, thread and instruction set change none of this.
//  - Attention walks positions in fixed chunks from position 0.
//  - Every other reduction uses 16 lanes by index and the same tree.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "divisi/core/result.h"
#include "divisi/core/thread_pool.h"
#include "divisi/model/kv_pages.h"

namespace divisi {

// Instruction sets with kernels of their own, slowest first. All give the same bits.
enum class Isa { kScalar, kAvx2, kAvx512, kAvx512Bf16 };
const char* IsaName(Isa isa);
// Those this machine runs, slowest first; never empty. kAvx512Bf16 is left out where the
// processor's dot product rounds otherwise than the rule (dot_check.h).
std::vector<Isa> SupportedIsas();
// The one of that name; "auto" is the fastest that this machine runs.
// Errors: kInvalidArgument for one that it does not run, naming those that it does.
Result<Isa> ChooseIsa(std::string_view name);

// A weight matrix used where it lies: [rows = N, cols = K] row-major, any alignment.
struct WeightMatrix {
  const std::byte* data = nullptr;
  DataType type = DataType::kBf16;
  int64_t rows = 0;
  int64_t cols = 0;
};

// Activations [rows = T, cols] row-major in the compute type: bf16 (uint16_t bits) or f32.
struct Activations {
  std::byte* data = nullptr;
  ComputeType type = ComputeType::kBf16;
  int64_t rows = 0;
  int64_t cols = 0;
};

// f32 matrix [rows, cols], row-major.
struct Matrix {
  float* data = nullptr;
  int64_t rows = 0;
  int64_t cols = 0;
};

// Consecutive rows of a step that belong to one sequence.
struct SequenceRows {
  int64_t first_row = 0;
  int64_t rows = 0;
  int64_t start = 0;               // Position of the first row.
  std::span<const BlockId> pages;  // Pages of positions [0, start + rows), in order.
};

// Where a step's rows leave their keys and values, and find those before them.
struct KvLayer {
  KvPages& pages;
  int layer = 0;
  std::span<const SequenceRows> sequences;
};

// A step's projections, and where its queries go once rotated.
struct QkvRows {
  Matrix q;           // [T, heads*Dh]
  Matrix k;           // [T, kv_heads*Dh]
  Matrix v;           // [T, kv_heads*Dh]
  Activations q_out;  // [T, heads*Dh]
};

// Angles of rotary embedding: cos and sin [max_positions, Dh/2], YaRN's attention factor included.
struct RopeTable {
  std::vector<float> cosine;
  std::vector<float> sine;
  int64_t positions = 0;
  int half_dim = 0;
};
RopeTable MakeRopeTable(const ModelSpec& spec, int64_t positions);

struct Kernels;

// One thread at a time calls an Ops; it spreads the work over the pool.
class Ops {
 public:
  // Requires: isa is among SupportedIsas(). pool outlives this.
  Ops(Isa isa, ThreadPool& pool);

  Isa isa() const { return isa_; }

  // out[t] = table[tokens[t]]. Requires: 0 <= tokens[t] < table.rows.
  void Embed(const WeightMatrix& table, std::span<const TokenId> tokens, Matrix out);

  // out[t] = x[t] / sqrt(mean(x[t]^2) + eps) * gain, in f32, rounded once.   x [T, H], gain [H].
  void RmsNorm(Matrix x, std::span<const float> gain, double eps, Activations out);

  // out[T, N] = x[T, K] w[N, K]^T (+ bias[N]) (+ out, where add_to_out). In bf16 compute, w must be
  // bf16; in f32 compute, any type. bias may be empty. Requires: K is even.
  struct MatMulOptions {
    std::span<const float> bias;
    bool add_to_out = false;
  };
  void MatMul(const Activations& x, const WeightMatrix& w, Matrix out, MatMulOptions options);

  // out = silu(gate) * up.   All [T, F].
  void SwiGlu(Matrix gate, Matrix up, Activations out);

  // Per head: RMS-normalises q and k where gains are given, rotates both by the row's position
  // (half-split form), writes q to q_out rounded, and k, v to the sequences' pages of the layer.
  struct QkvOptions {
    std::span<const float> q_gain;  // [Dh] or empty
    std::span<const float> k_gain;  // [Dh] or empty
    double eps = 1e-6;
  };
  void StoreQkv(const QkvRows& rows, const RopeTable& rope, const QkvOptions& options,
                const KvLayer& kv);

  // Causal attention of the step's rows over their pages; scale Dh^-1/2.  q, out [T, heads*Dh].
  // Requires: StoreQkv of the same rows and layer was done.
  void Attention(const Activations& q, const KvLayer& kv, Activations out);

 private:
  Isa isa_;
  const Kernels* kernels_;
  ThreadPool* pool_;
  std::vector<std::vector<float>> scratch_;  // Of attention, one per thread.
};

}  // namespace divisi
