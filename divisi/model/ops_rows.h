// Kernels that walk a row once: embedding, RMS normalisation, SwiGLU, rotation, rounding.
// Reductions are 16 lanes by index, then V::Sum.
#pragma once

#include "divisi/model/ops_kernels.h"
#include "divisi/model/ops_operands.h"

namespace divisi {

// Calls fn(index, lanes) over a row, 16 at a time; the last may be shorter.
template <typename Fn>
inline void ForEachVector(int64_t size, Fn fn) {
  int64_t i = 0;
  for (; i + 16 <= size; i += 16) fn(i, 16);
  if (i < size) fn(i, static_cast<int>(size - i));
}

template <typename V>
inline typename V::F LoadLanes(const float* p, int lanes) {
  return lanes == 16 ? V::Load(p) : LoadFirst<F32Singles<V>>(p, lanes);
}

template <typename V>
inline void StoreLanes(typename V::F a, float* p, int lanes) {
  if (lanes == 16) return V::Store(a, p);
  alignas(64) float full[16];
  V::Store(a, full);
  std::memcpy(p, full, static_cast<size_t>(lanes) * sizeof(float));
}

template <typename V>
inline void StoreLanes(typename V::F a, uint16_t* p, int lanes) {
  const typename V::F rounded = V::RoundToBf16(a);
  if (lanes == 16) return V::StoreBf16(rounded, p);
  alignas(64) uint16_t full[16];
  V::StoreBf16(rounded, full);
  std::memcpy(p, full, static_cast<size_t>(lanes) * sizeof(uint16_t));
}

// e^x to within 2 units of the last place for -87.3 <= x <= 88; 0 below.
// x = n ln 2 + r with |r| <= ln 2 / 2; the Taylor polynomial of degree 7 leaves 3e-9 of e^r.
template <typename V>
inline typename V::F Exp(typename V::F x) {
  constexpr float kLowest = -87.3f;  // e^kLowest is still a normal number.
  const auto clamped = V::Max(x, V::Set(kLowest));
  const auto magic = V::Set(12582912.0f);  // 1.5 * 2^23: adding it rounds to an integer.
  const auto t = V::Fma(clamped, V::Set(1.44269504f), magic);
  const auto n = V::Sub(t, magic);
  // ln 2 in two parts, the first with low bits zero so that n times it is exact.
  auto r = V::Fma(n, V::Set(-0.693359375f), clamped);
  r = V::Fma(n, V::Set(2.12194440e-4f), r);
  auto p = V::Set(1.0f / 5040);
  p = V::Fma(p, r, V::Set(1.0f / 720));
  p = V::Fma(p, r, V::Set(1.0f / 120));
  p = V::Fma(p, r, V::Set(1.0f / 24));
  p = V::Fma(p, r, V::Set(1.0f / 6));
  p = V::Fma(p, r, V::Set(0.5f));
  p = V::Fma(p, r, V::Set(1.0f));
  p = V::Fma(p, r, V::Set(1.0f));
  return V::ZeroBelow(x, kLowest, V::Mul(p, V::PowerOfTwo(t)));
}

// Both types of stored number take this; Single is one of the *Singles.
template <typename V, typename Single>
void EmbedKernel(const std::byte* row, int64_t size, float* out) {
  ForEachVector(size, [&](int64_t i, int lanes) {
    const std::byte* p = row + i * Single::kBytes;
    StoreLanes<V>(lanes == 16 ? Single::Load(p) : LoadFirst<Single>(p, lanes), out + i, lanes);
  });
}

// 1 / sqrt(mean(x^2) + eps).
template <typename V>
inline float InverseRms(const float* x, int64_t size, float eps) {
  auto acc = V::Zero();
  ForEachVector(size, [&](int64_t i, int lanes) {
    const auto a = LoadLanes<V>(x + i, lanes);
    acc = V::Fma(a, a, acc);
  });
  const float mean = V::Sum(acc) / static_cast<float>(size);
  return 1.0f / __builtin_sqrtf(mean + eps);
}

template <typename V, typename Out>
void NormKernel(const NormRow& row) {
  const auto inverse = V::Set(InverseRms<V>(row.x, row.size, row.eps));
  Out* out = static_cast<Out*>(row.out);
  ForEachVector(row.size, [&](int64_t i, int lanes) {
    const auto scaled = V::Mul(LoadLanes<V>(row.x + i, lanes), inverse);
    StoreLanes<V>(V::Mul(scaled, LoadLanes<V>(row.gain + i, lanes)), out + i, lanes);
  });
}

template <typename V, typename Out>
void SwiGluKernel(const float* gate, const float* up, int64_t size, void* result) {
  Out* out = static_cast<Out*>(result);
  ForEachVector(size, [&](int64_t i, int lanes) {
    const auto g = LoadLanes<V>(gate + i, lanes);
    // e^-g is kept finite: at g = -88 the quotient is 5e-37, at -inf it would be not-a-number.
    const auto limited = V::Max(g, V::Set(-88.0f));
    const auto e = Exp<V>(V::Sub(V::Zero(), limited));
    const auto silu = V::Div(limited, V::Add(V::Set(1.0f), e));
    StoreLanes<V>(V::Mul(silu, LoadLanes<V>(up + i, lanes)), out + i, lanes);
  });
}

template <typename V>
void RotateKernel(const RotaryHead& head) {
  const int64_t size = 2 * head.half_dim;
  if (head.gain != nullptr) {
    const auto inverse = V::Set(InverseRms<V>(head.x, size, head.eps));
    ForEachVector(size, [&](int64_t i, int lanes) {
      const auto scaled = V::Mul(LoadLanes<V>(head.x + i, lanes), inverse);
      StoreLanes<V>(V::Mul(scaled, LoadLanes<V>(head.gain + i, lanes)), head.x + i, lanes);
    });
  }
  ForEachVector(head.half_dim, [&](int64_t i, int lanes) {
    const auto low = LoadLanes<V>(head.x + i, lanes);
    const auto high = LoadLanes<V>(head.x + head.half_dim + i, lanes);
    const auto cosine = LoadLanes<V>(head.cosine + i, lanes);
    const auto sine = LoadLanes<V>(head.sine + i, lanes);
    StoreLanes<V>(V::Sub(V::Mul(low, cosine), V::Mul(high, sine)), head.x + i, lanes);
    StoreLanes<V>(V::Add(V::Mul(high, cosine), V::Mul(low, sine)), head.x + head.half_dim + i,
                  lanes);
  });
}

template <typename V>
void RoundKernel(const float* x, int64_t size, uint16_t* out) {
  ForEachVector(size, [&](int64_t i, int lanes) {
    StoreLanes<V>(LoadLanes<V>(x + i, lanes), out + i, lanes);
  });
}

template <typename V>
float DotPeakKernel(int64_t rounds) {
  typename V::F acc[kPeakChains];
  for (auto& lanes : acc) lanes = V::Zero();
  alignas(64) uint32_t ones[32];
  for (uint32_t& pair : ones) pair = 0x3f803f80u;
  volatile const uint32_t* hidden = ones;
  ones[0] = hidden[0];
  const auto x = V::LoadPairs(ones);
  const auto y = V::LoadPairs(ones + 16);
  for (int64_t round = 0; round < rounds; ++round) {
#pragma GCC unroll 32
    for (int i = 0; i < kPeakChains; ++i) acc[i] = V::Dot(acc[i], x, y);
  }
  float total = 0;
  for (auto& lanes : acc) total += V::Sum(lanes);
  return total;
}

template <typename V>
float ReadPeakKernel(const std::byte* data, int64_t bytes) {
  typename V::F sums[8];
  for (auto& lanes : sums) lanes = V::Zero();
  for (int64_t i = 0; i < bytes; i += 512) {
#pragma GCC unroll 8
    for (int j = 0; j < 8; ++j) sums[j] = V::Add(sums[j], V::Load(data + i + 64 * j));
  }
  float total = 0;
  for (auto& lanes : sums) total += V::Sum(lanes);
  return total;
}

}  // namespace divisi
