// Cuts the operations of a step into blocks for the thread pool. Which block an output falls into
// never changes it (docs/numerics.md), so cuts follow caches and threads alone.
#include "divisi/model/ops.h"

#include <algorithm>

#include "divisi/core/check.h"
#include "divisi/model/ops_kernels.h"
#include "divisi/model/ops_parallel.h"

namespace divisi {
namespace {

// Rows of activations that stay in a core's second-level cache (2 MB, 1 MB on older ones) while
// weights pass by.
constexpr int64_t kActivationBytes = 768 << 10;
// Weights of one task: long enough to stream, short enough that threads end together.
constexpr int64_t kTaskWeightBytes = 128 << 10;

int64_t ElementSize(ComputeType type) { return type == ComputeType::kBf16 ? 2 : 4; }

int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

Kernels::MatMul MatMulOf(const Kernels& kernels, ComputeType x, DataType w) {
  if (x == ComputeType::kBf16) {
    CHECK(w == DataType::kBf16, "bf16 compute takes bf16 weights, not {}", DataTypeName(w));
    return kernels.matmul_bf16_bf16;
  }
  switch (w) {
    case DataType::kBf16:
      return kernels.matmul_f32_bf16;
    case DataType::kF16:
      return kernels.matmul_f32_f16;
    case DataType::kF32:
      return kernels.matmul_f32_f32;
  }
  return nullptr;
}

}  // namespace

Ops::Ops(Isa isa, ThreadPool& pool) : isa_(isa), kernels_(&KernelsOf(isa)), pool_(&pool) {
  const std::vector<Isa> supported = SupportedIsas();
  CHECK(std::find(supported.begin(), supported.end(), isa) != supported.end(),
        "this machine lacks {}", IsaName(isa));
  scratch_.resize(static_cast<size_t>(pool.threads()));
}

void Ops::Embed(const WeightMatrix& table, std::span<const TokenId> tokens, Matrix out) {
  CHECK(out.rows == static_cast<int64_t>(tokens.size()) && out.cols == table.cols,
        "out [{}, {}] for {} tokens of {}", out.rows, out.cols, tokens.size(), table.cols);
  const auto kernel = table.type == DataType::kBf16  ? kernels_->embed_bf16
                      : table.type == DataType::kF16 ? kernels_->embed_f16
                                                     : kernels_->embed_f32;
  ForRows(*pool_, out.rows, out.cols, [&](int64_t row) {
    const TokenId token = tokens[static_cast<size_t>(row)];
    CHECK(token >= 0 && token < table.rows, "token {} of {}", token, table.rows);
    kernel(table.data + token * table.cols * ElementBytes(table.type), table.cols,
           out.data + row * out.cols);
  });
}

void Ops::RmsNorm(Matrix x, std::span<const float> gain, double eps, Activations out) {
  CHECK(x.rows == out.rows && x.cols == out.cols && static_cast<int64_t>(gain.size()) == x.cols,
        "x [{}, {}], out [{}, {}], gain [{}]", x.rows, x.cols, out.rows, out.cols, gain.size());
  const auto kernel =
      out.type == ComputeType::kBf16 ? kernels_->norm_to_bf16 : kernels_->norm_to_f32;
  ForRows(*pool_, x.rows, x.cols, [&](int64_t row) {
    kernel({.x = x.data + row * x.cols,
            .gain = gain.data(),
            .size = x.cols,
            .eps = static_cast<float>(eps),
            .out = out.data + row * out.cols * ElementSize(out.type)});
  });
}

void Ops::MatMul(const Activations& x, const WeightMatrix& w, Matrix out, MatMulOptions options) {
  CHECK(x.cols == w.cols && x.cols % 2 == 0 && out.rows == x.rows && out.cols == w.rows,
        "x [{}, {}], w [{}, {}], out [{}, {}]", x.rows, x.cols, w.rows, w.cols, out.rows, out.cols);
  CHECK(options.bias.empty() || static_cast<int64_t>(options.bias.size()) == w.rows,
        "bias of {} for {} outputs", options.bias.size(), w.rows);
  const Kernels::MatMul kernel = MatMulOf(*kernels_, x.type, w.type);
  if (x.rows == 0 || w.rows == 0) return;
  const int64_t x_row_bytes = x.cols * ElementSize(x.type);
  const int64_t w_row_bytes = w.cols * ElementBytes(w.type);
  const int64_t row_blocks = CeilDiv(x.rows * x_row_bytes, kActivationBytes);
  const int64_t quads = CeilDiv(w.rows, 4);
  const int64_t column_blocks =
      std::clamp<int64_t>(CeilDiv(w.rows * w_row_bytes, kTaskWeightBytes),
                          std::min(quads, kTasksPerThread * pool_->threads()), quads);
  RunFlushed(*pool_, row_blocks * column_blocks, [&](int64_t task, int) {
    const int64_t row_block = task / column_blocks;
    const int64_t column_block = task % column_blocks;
    const int64_t row = x.rows * row_block / row_blocks;
    const int64_t column = quads * column_block / column_blocks * 4;
    const int64_t column_end = std::min(w.rows, quads * (column_block + 1) / column_blocks * 4);
    kernel({.x = x.data + row * x_row_bytes,
            .rows = x.rows * (row_block + 1) / row_blocks - row,
            .w = w.data + column * w_row_bytes,
            .columns = column_end - column,
            .k = x.cols,
            .out = out.data + row * out.cols + column,
            .out_stride = out.cols,
            .bias = options.bias.empty() ? nullptr : options.bias.data() + column,
            .add_to_out = options.add_to_out});
  });
}

void Ops::SwiGlu(Matrix gate, Matrix up, Activations out) {
  CHECK(gate.rows == up.rows && gate.cols == up.cols && out.rows == up.rows && out.cols == up.cols,
        "gate [{}, {}], up [{}, {}], out [{}, {}]", gate.rows, gate.cols, up.rows, up.cols,
        out.rows, out.cols);
  const auto kernel =
      out.type == ComputeType::kBf16 ? kernels_->swiglu_to_bf16 : kernels_->swiglu_to_f32;
  ForRows(*pool_, gate.rows, gate.cols * 4, [&](int64_t row) {
    kernel(gate.data + row * gate.cols, up.data + row * up.cols, gate.cols,
           out.data + row * out.cols * ElementSize(out.type));
  });
}

}  // namespace divisi
