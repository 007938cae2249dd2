// Row-wise operations and matrix products: against naive twins in double, the same bits on every
// instruction set, and a row's bits independent of what it is computed with.
#include "divisi/model/ops.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "divisi/core/random.h"

namespace divisi {
namespace {

uint16_t Bf16Bits(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, sizeof(bits));
  return static_cast<uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}
float FromBf16(uint16_t half) {
  const uint32_t bits = static_cast<uint32_t>(half) << 16;
  float x;
  std::memcpy(&x, &bits, sizeof(x));
  return x;
}
// Exact for |x| with at most 11 significant bits and an exponent that f16 has.
uint16_t F16Bits(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, sizeof(bits));
  const uint32_t sign = (bits >> 16) & 0x8000;
  if ((bits & 0x7fffffff) == 0) return static_cast<uint16_t>(sign);
  const int exponent = static_cast<int>((bits >> 23) & 255) - 127 + 15;
  if (exponent <= 0) {  // Subnormal: a multiple of 2^-24.
    return static_cast<uint16_t>(sign | static_cast<uint32_t>(std::fabs(x) * 0x1p24f));
  }
  return static_cast<uint16_t>(sign | (static_cast<uint32_t>(exponent) << 10) |
                               ((bits >> 13) & 0x3ff));
}

// Numbers stored as `type`, `skew` bytes away from alignment.
struct Stored {
  std::vector<std::byte> bytes;
  std::vector<float> values;
  int64_t skew = 0;
  DataType type = DataType::kF32;

  Stored(DataType t, std::vector<float> wanted, int64_t skew_bytes = 0)
      : values(std::move(wanted)), skew(skew_bytes), type(t) {
    bytes.resize(values.size() * static_cast<size_t>(ElementBytes(t)) + static_cast<size_t>(skew));
    for (size_t i = 0; i < values.size(); ++i) {
      std::byte* at = bytes.data() + skew + i * static_cast<size_t>(ElementBytes(t));
      if (t == DataType::kF32) {
        std::memcpy(at, &values[i], 4);
        continue;
      }
      const uint16_t bits = t == DataType::kBf16 ? Bf16Bits(values[i]) : F16Bits(values[i]);
      std::memcpy(at, &bits, 2);
      if (t == DataType::kBf16) values[i] = FromBf16(bits);
    }
  }
  std::byte* data() { return bytes.data() + skew; }
  WeightMatrix Weights(int64_t rows, int64_t cols) { return {data(), type, rows, cols}; }
  Activations Rows(int64_t rows, int64_t cols) {
    return {data(), type == DataType::kBf16 ? ComputeType::kBf16 : ComputeType::kF32, rows, cols};
  }
};

enum class Range { kOrdinary, kWild };

// Values that every type holds exactly (8 significant bits). Wild ones reach subnormals and 1e30 in
// f32 and bf16.
std::vector<float> Values(Random& random, int64_t count, Range range = Range::kOrdinary) {
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) {
    const int exponent = static_cast<int>(range == Range::kOrdinary ? random.Between(-6, 1)
                                                                    : random.Between(-140, 30));
    value = std::ldexp(static_cast<float>(random.Between(-255, 255)), exponent - 7);
  }
  return values;
}

std::vector<float> RunMatMul(Isa isa, int threads, const Activations& x, const WeightMatrix& w,
                             const std::vector<float>& bias, bool add, float initial = 0.25f) {
  ThreadPool pool(threads);
  Ops ops(isa, pool);
  std::vector<float> out(static_cast<size_t>(x.rows * w.rows), initial);
  ops.MatMul(x, w, {out.data(), x.rows, w.rows}, {.bias = bias, .add_to_out = add});
  return out;
}

struct TypePair {
  DataType x, w;
};
constexpr TypePair kTypePairs[] = {{DataType::kBf16, DataType::kBf16},
                                   {DataType::kF32, DataType::kBf16},
                                   {DataType::kF32, DataType::kF16},
                                   {DataType::kF32, DataType::kF32}};

TEST(MatMul, IsWithinRoundingOfTheTwinInDouble) {
  Random random(1);
  for (const TypePair types : kTypePairs) {
    for (int round = 0; round < 12; ++round) {
      const int64_t m = random.Between(1, 9), n = random.Between(1, 21);
      const int64_t k = 2 * random.Between(1, 150);
      Stored x(types.x, Values(random, m * k)), w(types.w, Values(random, n * k));
      const std::vector<float> bias = Values(random, n);
      for (const Isa isa : SupportedIsas()) {
        const auto out = RunMatMul(isa, 2, x.Rows(m, k), w.Weights(n, k), bias, true);
        for (int64_t i = 0; i < m * n; ++i) {
          double sum = 0, magnitude = 0.25 + std::fabs(bias[static_cast<size_t>(i % n)]);
          for (int64_t j = 0; j < k; ++j) {
            const double product =
                static_cast<double>(x.values[static_cast<size_t>(i / n * k + j)]) *
                w.values[static_cast<size_t>(i % n * k + j)];
            sum += product;
            magnitude += std::fabs(product);
          }
          sum += bias[static_cast<size_t>(i % n)] + 0.25;
          // Each of a lane's k/16 + 6 roundings errs by at most 2^-24 of the magnitude so far.
          const double bound = (static_cast<double>(k) / 16 + 6 + 2) * 0x1p-24 * magnitude;
          ASSERT_NEAR(out[static_cast<size_t>(i)], sum, bound)
              << IsaName(isa) << " m " << m << " n " << n << " k " << k << " at " << i;
        }
      }
    }
  }
}

TEST(MatMul, GivesTheSameBitsOnEveryIsa) {
  Random random(2);
  for (const TypePair types : kTypePairs) {
    for (int round = 0; round < 40; ++round) {
      const int64_t m = random.Between(1, 70), n = random.Between(1, 40);
      const int64_t k = 2 * random.Between(1, 100);
      const Range range =
          types.w != DataType::kF16 && random.Chance(0.5) ? Range::kWild : Range::kOrdinary;
      Stored x(types.x, Values(random, m * k, range));
      Stored w(types.w, Values(random, n * k, range), random.Between(0, 63));
      const std::vector<float> bias = Values(random, n);
      const auto expected = RunMatMul(Isa::kScalar, 1, x.Rows(m, k), w.Weights(n, k), bias, true);
      for (const Isa isa : SupportedIsas()) {
        const auto out = RunMatMul(isa, static_cast<int>(random.Between(1, 3)), x.Rows(m, k),
                                   w.Weights(n, k), bias, true);
        ASSERT_EQ(std::memcmp(out.data(), expected.data(), out.size() * 4), 0)
            << IsaName(isa) << " m " << m << " n " << n << " k " << k << " round " << round;
      }
    }
  }
}

TEST(MatMul, RowDoesNotDependOnTheRowsBesideIt) {
  Random random(3);
  constexpr int64_t kRows = 400, kColumns = 37, kDepth = 1026;  // Two blocks of rows
  for (const TypePair types : kTypePairs) {
    Stored x(types.x, Values(random, kRows * kDepth)),
        w(types.w, Values(random, kColumns * kDepth));
    const Isa isa = SupportedIsas().back();
    const auto all =
        RunMatMul(isa, 2, x.Rows(kRows, kDepth), w.Weights(kColumns, kDepth), {}, false);
    for (int round = 0; round < 20; ++round) {
      const int64_t first = random.Between(0, kRows - 1);
      const int64_t rows = random.Between(1, std::min<int64_t>(kRows - first, 33));
      Activations part = x.Rows(rows, kDepth);
      part.data += first * kDepth * ElementBytes(types.x);
      const auto out = RunMatMul(isa, 1, part, w.Weights(kColumns, kDepth), {}, false);
      ASSERT_EQ(std::memcmp(out.data(), all.data() + first * kColumns, out.size() * 4), 0)
          << "rows " << first << " + " << rows;
    }
  }
}

TEST(MatMul, SubnormalsCountAsZero) {
  // 2^-140 is subnormal in f32 and bf16; 2^-80 squared is below the smallest normal number.
  for (const float value : {0x1p-140f, 0x1p-80f}) {
    Stored x(DataType::kBf16, std::vector<float>(64, value));
    Stored w(DataType::kBf16, std::vector<float>(64, value == 0x1p-140f ? 0x1p100f : value));
    for (const Isa isa : SupportedIsas()) {
      const auto out = RunMatMul(isa, 1, x.Rows(1, 64), w.Weights(1, 64), {}, false);
      EXPECT_EQ(out[0], 0.0f) << IsaName(isa);
    }
  }
}

TEST(Embed, CopiesRowsOfEveryType) {
  Random random(4);
  constexpr int64_t kVocab = 11, kHidden = 70;
  const std::vector<TokenId> tokens = {3, 0, 10, 3};
  for (const DataType type : {DataType::kBf16, DataType::kF16, DataType::kF32}) {
    Stored table(type, Values(random, kVocab * kHidden), 1);
    for (const Isa isa : SupportedIsas()) {
      ThreadPool pool(2);
      Ops ops(isa, pool);
      std::vector<float> out(tokens.size() * kHidden);
      ops.Embed(table.Weights(kVocab, kHidden), tokens, {out.data(), 4, kHidden});
      for (size_t i = 0; i < out.size(); ++i) {
        const size_t token = static_cast<size_t>(tokens[i / kHidden]);
        ASSERT_EQ(out[i], table.values[token * kHidden + i % kHidden]) << IsaName(isa) << " " << i;
      }
    }
  }
}

TEST(Embed, ReadsF16AtItsLimits) {
  const std::vector<float> limits = {65504.0f, -65504.0f, 0x1p-14f, 0x1p-24f, -0x1.8p-23f, 0.0f};
  Stored table(DataType::kF16, limits);
  for (const Isa isa : SupportedIsas()) {
    ThreadPool pool(1);
    Ops ops(isa, pool);
    std::vector<float> out(limits.size());
    const TokenId token = 0;
    ops.Embed(table.Weights(1, 6), {&token, 1}, {out.data(), 1, 6});
    EXPECT_EQ(out, limits) << IsaName(isa);
  }
}

// Runs fn(ops, out) for each isa and output type; all isas must give the scalar one's bytes.
template <typename Fn>
void ExpectSameBits(int64_t rows, int64_t cols, Fn fn) {
  for (const ComputeType type : {ComputeType::kBf16, ComputeType::kF32}) {
    std::vector<std::byte> expected;
    for (const Isa isa : SupportedIsas()) {
      ThreadPool pool(2);
      Ops ops(isa, pool);
      std::vector<std::byte> out(static_cast<size_t>(rows * cols * 4));
      fn(ops, Activations{out.data(), type, rows, cols});
      if (expected.empty()) expected = out;
      ASSERT_EQ(out, expected) << IsaName(isa) << " [" << rows << ", " << cols << "]";
    }
  }
}

TEST(RmsNorm, IsWithinRoundingOfTheTwinInDouble) {
  Random random(5);
  for (const int64_t cols : {2, 16, 70, 1024}) {
    std::vector<float> x = Values(random, 3 * cols);
    const std::vector<float> gain = Values(random, cols);
    for (const Isa isa : SupportedIsas()) {
      ThreadPool pool(1);
      Ops ops(isa, pool);
      std::vector<float> out(x.size());
      ops.RmsNorm({x.data(), 3, cols}, gain, 1e-6,
                  {reinterpret_cast<std::byte*>(out.data()), ComputeType::kF32, 3, cols});
      for (size_t i = 0; i < x.size(); ++i) {
        const size_t row = i / static_cast<size_t>(cols), col = i % static_cast<size_t>(cols);
        double squares = 0;
        for (int64_t j = 0; j < cols; ++j) {
          squares += std::pow(x[row * static_cast<size_t>(cols) + static_cast<size_t>(j)], 2.0);
        }
        const double expected =
            x[i] / std::sqrt(squares / static_cast<double>(cols) + 1e-6) * gain[col];
        // cols/16 + 6 roundings in the sum, halved by the root, and five more.
        const double bound = (static_cast<double>(cols) / 32 + 8) * 0x1p-24;
        ASSERT_NEAR(out[i], expected, bound * std::fabs(expected)) << IsaName(isa) << " " << i;
      }
    }
  }
}

TEST(RmsNorm, GivesTheSameBitsOnEveryIsa) {
  Random random(6);
  for (int round = 0; round < 30; ++round) {
    const int64_t rows = random.Between(1, 20), cols = random.Between(1, 1100);
    std::vector<float> x =
        Values(random, rows * cols, round % 2 == 0 ? Range::kOrdinary : Range::kWild);
    for (float& value : x) value = value > 1e15f ? 1.0f : value;  // Squares stay finite.
    for (float& value : x) value = value < -1e15f ? -1.0f : value;
    const std::vector<float> gain = Values(random, cols);
    ExpectSameBits(rows, cols, [&](Ops& ops, Activations out) {
      ops.RmsNorm({x.data(), rows, cols}, gain, 1e-5, out);
    });
  }
}

TEST(SwiGlu, IsWithinRoundingOfTheTwinInDouble) {
  std::vector<float> gate, up;
  for (double x = -87; x <= 87; x += 0.0137) gate.push_back(static_cast<float>(x));
  up.assign(gate.size(), 1.5f);
  const int64_t size = static_cast<int64_t>(gate.size());
  for (const Isa isa : SupportedIsas()) {
    ThreadPool pool(1);
    Ops ops(isa, pool);
    std::vector<float> out(gate.size());
    ops.SwiGlu({gate.data(), 1, size}, {up.data(), 1, size},
               {reinterpret_cast<std::byte*>(out.data()), ComputeType::kF32, 1, size});
    for (size_t i = 0; i < out.size(); ++i) {
      const double expected = gate[i] / (1 + std::exp(-static_cast<double>(gate[i]))) * 1.5;
      // e^x within 2 units, three more roundings.
      ASSERT_NEAR(out[i], expected, 5 * 0x1p-23 * std::fabs(expected)) << "at " << gate[i];
    }
  }
}

TEST(SwiGlu, StaysFiniteAndKeepsItsBitsEverywhere) {
  Random random(7);
  for (int round = 0; round < 30; ++round) {
    const int64_t rows = random.Between(1, 5), cols = random.Between(1, 300);
    std::vector<float> gate = Values(random, rows * cols, Range::kWild);
    std::vector<float> up = Values(random, rows * cols);
    gate[0] = -1e30f;
    ExpectSameBits(rows, cols, [&](Ops& ops, Activations out) {
      ops.SwiGlu({gate.data(), rows, cols}, {up.data(), rows, cols}, out);
      if (out.type != ComputeType::kF32) return;
      float first;
      std::memcpy(&first, out.data, sizeof(first));
      EXPECT_NEAR(first, 0.0f, 1e-30f);
    });
  }
}

TEST(Rounding, GoesToTheNearestEvenBf16) {
  // 1 + 2^-8 lies between 1 and 1 + 2^-7: ties go to the even one; a little more goes up.
  std::vector<float> x = {1 + 0x1p-8f, 1 + 0x3p-8f, 1 + 0x1p-8f + 0x1p-20f, -1 - 0x1p-8f};
  const std::vector<float> expected = {1, 1 + 0x4p-8f, 1 + 0x1p-7f, -1};
  for (const Isa isa : SupportedIsas()) {
    ThreadPool pool(1);
    Ops ops(isa, pool);
    for (size_t i = 0; i < x.size(); ++i) {
      // The norm of a single value is its sign, so the gain arrives unchanged at the rounding.
      const float value = x[i] < 0 ? -4.0f : 4.0f;
      std::vector<float> row = {value};
      const std::vector<float> scaled = {std::fabs(x[i])};
      uint16_t out = 0;
      ops.RmsNorm({row.data(), 1, 1}, scaled, 0,
                  {reinterpret_cast<std::byte*>(&out), ComputeType::kBf16, 1, 1});
      EXPECT_EQ(FromBf16(out), expected[i]) << IsaName(isa) << " " << x[i];
    }
  }
}

TEST(IsaTest, ChosenByNameOrTheFastest) {
  EXPECT_EQ(ChooseIsa("auto").value(), SupportedIsas().back());
  EXPECT_EQ(ChooseIsa("scalar").value(), Isa::kScalar);
  const auto unknown = ChooseIsa("neon");
  ASSERT_FALSE(unknown.ok());
  EXPECT_EQ(unknown.error().code, Code::kInvalidArgument);
  EXPECT_NE(unknown.error().message.find("it runs scalar"), std::string::npos);
}

}  // namespace
}  // namespace divisi
