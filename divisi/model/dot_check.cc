#include "divisi/model/dot_check.h"

#include <cstring>
#include <vector>

#include "divisi/core/random.h"
#include "divisi/model/flush_subnormals.h"

namespace divisi {
namespace {

constexpr int64_t kRows = 32;
constexpr int64_t kTerms = 64;

// Bit patterns of bf16: sign, 8 bits of exponent, 7 of fraction.
std::vector<uint16_t> Operands(uint64_t seed) {
  // Exponents of products, with 127 for 1: near 1; around 2^-126; up to 2^106, sums stay finite.
  constexpr struct { int64_t low, high; } kExponents[] = {{119, 135}, {56, 72}, {0, 180}};
  Random random(seed, 0);
  std::vector<uint16_t> bits;
  for (int64_t row = 0; row < kRows; ++row) {
    const auto [low, high] = kExponents[row % 3];
    for (int64_t i = 0; i < kTerms; ++i) {
      bits.push_back(static_cast<uint16_t>(
          random.Between(0, 1) << 15 | random.Between(low, high) << 7 | random.Between(0, 127)));
    }
  }
  return bits;
}

std::vector<float> Products(Kernels::MatMul matmul) {
  const std::vector<uint16_t> x = Operands(1), w = Operands(2);
  std::vector<float> out(kRows * kRows);
  const FlushSubnormals flush;
  matmul({.x = reinterpret_cast<const std::byte*>(x.data()),
          .rows = kRows,
          .w = reinterpret_cast<const std::byte*>(w.data()),
          .columns = kRows,
          .k = kTerms,
          .out = out.data(),
          .out_stride = kRows});
  return out;
}

}  // namespace

bool KeepsDotRule(Kernels::MatMul matmul_bf16_bf16) {
  const std::vector<float> expected = Products(kScalarKernels.matmul_bf16_bf16);
  const std::vector<float> actual = Products(matmul_bf16_bf16);
  return std::memcmp(actual.data(), expected.data(), expected.size() * sizeof(float)) == 0;
}

}  // namespace divisi
