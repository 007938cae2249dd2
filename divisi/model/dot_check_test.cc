#include "divisi/model/dot_check.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "divisi/model/ops.h"

namespace divisi {
namespace {

float FromBf16(const std::byte* at) {
  uint16_t half;
  std::memcpy(&half, at, sizeof(half));
  const uint32_t bits = static_cast<uint32_t>(half) << 16;
  float x;
  std::memcpy(&x, &bits, sizeof(x));
  return x;
}

enum class Rule { kDefined, kEvenFirst, kRoundedOnce };

// The dot product by one rule, its 16 lanes added in the defined tree.
template <Rule rule>
void MatMulBy(const MatMulBlock& block) {
  for (int64_t m = 0; m < block.rows; ++m) {
    for (int64_t n = 0; n < block.columns; ++n) {
      const std::byte* x = block.x + m * block.k * 2;
      const std::byte* w = block.w + n * block.k * 2;
      float lanes[16] = {};
      for (int64_t i = 0; i < block.k; i += 2) {
        float& lane = lanes[i / 2 % 16];
        const float even = FromBf16(x + 2 * i), odd = FromBf16(x + 2 * i + 2);
        const float even_w = FromBf16(w + 2 * i), odd_w = FromBf16(w + 2 * i + 2);
        if (rule == Rule::kDefined) lane = std::fma(even, even_w, std::fma(odd, odd_w, lane));
        if (rule == Rule::kEvenFirst) lane = std::fma(odd, odd_w, std::fma(even, even_w, lane));
        if (rule == Rule::kRoundedOnce) {
          lane = static_cast<float>(static_cast<double>(even) * even_w +
                                    static_cast<double>(odd) * odd_w + lane);
        }
      }
      float sums[4];
      for (int b = 0; b < 4; ++b) {
        const float* four = lanes + 4 * b;
        sums[b] = (four[0] + four[2]) + (four[1] + four[3]);
      }
      block.out[m * block.out_stride + n] = (sums[0] + sums[2]) + (sums[1] + sums[3]);
    }
  }
}

TEST(DotCheck, HoldsForEveryIsaThatIsOffered) {
  for (const Isa isa : SupportedIsas()) {
    EXPECT_TRUE(KeepsDotRule(KernelsOf(isa).matmul_bf16_bf16)) << IsaName(isa);
  }
}

TEST(DotCheck, TellsOtherRulesFromTheDefinedOne) {
  EXPECT_TRUE(KeepsDotRule(MatMulBy<Rule::kDefined>));
  EXPECT_FALSE(KeepsDotRule(MatMulBy<Rule::kEvenFirst>));
  EXPECT_FALSE(KeepsDotRule(MatMulBy<Rule::kRoundedOnce>));
}

}  // namespace
}  // namespace divisi
