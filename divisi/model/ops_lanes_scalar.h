// 16 lanes of f32 in plain C++: the definition that the vector versions must match bit for bit.
//
// A lanes type has
//   F       16 floats                    Pairs   16 pairs of bf16, 32 consecutive elements
// and the static functions below. ops_lanes_highway.h gives the same names over vector registers.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#include "divisi/core/half.h"

namespace divisi {

struct ScalarLanes {
  struct F {
    float v[16];
  };
  struct Pairs {
    F even, odd;  // Lane l: elements 2l and 2l + 1.
  };
  // Outputs of one tile of a matrix product: registers decide.
  static constexpr int kTileRows = 4;

  static float FromBits(uint32_t bits) { return __builtin_bit_cast(float, bits); }
  static uint32_t ToBits(float x) { return __builtin_bit_cast(uint32_t, x); }

  template <typename Fn>
  static F Each(Fn fn) {
    F out;
    for (int i = 0; i < 16; ++i) out.v[i] = fn(i);
    return out;
  }

  static F Zero() { return Set(0); }
  static F Set(float x) {
    return Each([&](int) { return x; });
  }
  static F Load(const void* p) {
    F out;
    std::memcpy(out.v, p, sizeof(out.v));
    return out;
  }
  static void Store(F a, void* p) { std::memcpy(p, a.v, sizeof(a.v)); }
  static F Add(F a, F b) {
    return Each([&](int i) { return a.v[i] + b.v[i]; });
  }
  static F Sub(F a, F b) {
    return Each([&](int i) { return a.v[i] - b.v[i]; });
  }
  static F Mul(F a, F b) {
    return Each([&](int i) { return a.v[i] * b.v[i]; });
  }
  static F Div(F a, F b) {
    return Each([&](int i) { return a.v[i] / b.v[i]; });
  }
  // a * b + c, rounded once.
  static F Fma(F a, F b, F c) {
    return Each([&](int i) { return std::fma(a.v[i], b.v[i], c.v[i]); });
  }
  // b where either is not-a-number.
  static F Max(F a, F b) {
    return Each([&](int i) { return a.v[i] > b.v[i] ? a.v[i] : b.v[i]; });
  }
  // Lanes below n from a, the others from b.
  static F FirstLanes(F a, int n, F b) {
    return Each([&](int i) { return i < n ? a.v[i] : b.v[i]; });
  }
  // y where x >= limit, else 0.
  static F ZeroBelow(F x, float limit, F y) {
    return Each([&](int i) { return x.v[i] >= limit ? y.v[i] : 0.0f; });
  }
  // 2^n where the low bits of t's pattern hold n (t = n + 1.5 * 2^23).
  static F PowerOfTwo(F t) {
    return Each([&](int i) { return FromBits((ToBits(t.v[i]) << 23) + 0x3f800000u); });
  }
  // To the nearest bf16, ties to even, as f32. Not-a-number stays one.
  static F RoundToBf16(F a) {
    return Each([&](int i) {
      const uint32_t bits = ToBits(a.v[i]);
      if (a.v[i] != a.v[i]) return FromBits(0x7fc00000u);
      return FromBits((bits + 0x7fffu + ((bits >> 16) & 1)) & 0xffff0000u);
    });
  }
  // Requires: a holds bf16 values (RoundToBf16).
  static void StoreBf16(F a, uint16_t* p) {
    for (int i = 0; i < 16; ++i) p[i] = static_cast<uint16_t>(ToBits(a.v[i]) >> 16);
  }
  static F LoadBf16(const void* p) {
    uint16_t bits[16];
    std::memcpy(bits, p, sizeof(bits));
    return Each([&](int i) { return FromBits(static_cast<uint32_t>(bits[i]) << 16); });
  }
  static F LoadF16(const void* p) {
    uint16_t bits[16];
    std::memcpy(bits, p, sizeof(bits));
    return Each([&](int i) { return HalfToFloat(bits[i]); });
  }

  static Pairs LoadPairs(const void* p) {
    uint32_t bits[16];
    std::memcpy(bits, p, sizeof(bits));
    return {Each([&](int i) { return FromBits(bits[i] << 16); }),
            Each([&](int i) { return FromBits(bits[i] & 0xffff0000u); })};
  }
  static Pairs BroadcastPair(const void* p) {
    uint32_t bits;
    std::memcpy(&bits, p, sizeof(bits));
    return {Set(FromBits(bits << 16)), Set(FromBits(bits & 0xffff0000u))};
  }
  static Pairs EvenOnly(Pairs a) { return {a.even, Zero()}; }
  // acc + a.odd * b.odd, rounded, + a.even * b.even, rounded: what vdpbf16ps does.
  static F Dot(F acc, Pairs a, Pairs b) { return Fma(a.even, b.even, Fma(a.odd, b.odd, acc)); }

  // The fixed tree: within each block of four lanes (0 + 2) + (1 + 3), then over the blocks'
  // sums (0 + 2) + (1 + 3).
  static float Sum(F a) {
    float block[4];
    for (int b = 0; b < 4; ++b) {
      block[b] = (a.v[4 * b] + a.v[4 * b + 2]) + (a.v[4 * b + 1] + a.v[4 * b + 3]);
    }
    return (block[0] + block[2]) + (block[1] + block[3]);
  }
  // Requires: no lane is not-a-number.
  static float MaxLane(F a) {
    float max = a.v[0];
    for (int i = 1; i < 16; ++i) max = a.v[i] > max ? a.v[i] : max;
    return max;
  }
  // Sums of 4 * kQuads vectors.
  template <int kQuads>
  static void SumEach(const F* a, float* out) {
    for (int i = 0; i < 4 * kQuads; ++i) out[i] = Sum(a[i]);
  }
};

}  // namespace divisi
