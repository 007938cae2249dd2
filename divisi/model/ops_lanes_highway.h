// 16 lanes of f32 in one or two vector registers; ops_lanes_scalar.h says what each function means.
// Included only by files that are compiled for one instruction set: HighwayLanes is a different
// type in each, hence the unnamed namespace.
#pragma once

#include <hwy/highway.h>

#include <cstdint>

namespace divisi {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

struct HighwayLanes {
  using D = hn::CappedTag<float, 16>;
  using U = hn::RebindToUnsigned<D>;
  using I = hn::RebindToSigned<D>;
  using Halves = hn::Rebind<uint16_t, D>;
  using V = hn::Vec<D>;
  static constexpr int kLanes = HWY_MAX_BYTES >= 64 ? 16 : 8;  // In one register
  static constexpr int kParts = 16 / kLanes;
  static_assert(HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3, "built for an unknown target");

  struct F {
    V part[kParts];
  };
  struct Pairs {
    F even, odd;  // Unpacked once where loaded, because a tile uses each several times.
  };
  // 4 columns of unpacked pairs take 8 registers and each row 4: five rows fill 32, and AVX2's 16
  // half-size ones hold one.
  static constexpr int kTileRows = kParts == 1 ? 5 : 1;

  template <typename Fn>
  static HWY_INLINE F Each(Fn fn) {
    F out;
    for (int i = 0; i < kParts; ++i) out.part[i] = fn(i);
    return out;
  }
  template <typename T>
  static const T* At(const void* p, int part) {
    return static_cast<const T*>(p) + part * kLanes;
  }

  static HWY_INLINE F Zero() {
    return Each([](int) { return hn::Zero(D()); });
  }
  static HWY_INLINE F Set(float x) {
    return Each([=](int) { return hn::Set(D(), x); });
  }
  static HWY_INLINE F Load(const void* p) {
    return Each([=](int i) { return hn::LoadU(D(), At<float>(p, i)); });
  }
  static HWY_INLINE void Store(F a, void* p) {
    for (int i = 0; i < kParts; ++i)
      hn::StoreU(a.part[i], D(), static_cast<float*>(p) + i * kLanes);
  }
  static HWY_INLINE F Add(F a, F b) {
    return Each([&](int i) { return hn::Add(a.part[i], b.part[i]); });
  }
  static HWY_INLINE F Sub(F a, F b) {
    return Each([&](int i) { return hn::Sub(a.part[i], b.part[i]); });
  }
  static HWY_INLINE F Mul(F a, F b) {
    return Each([&](int i) { return hn::Mul(a.part[i], b.part[i]); });
  }
  static HWY_INLINE F Div(F a, F b) {
    return Each([&](int i) { return hn::Div(a.part[i], b.part[i]); });
  }
  static HWY_INLINE F Fma(F a, F b, F c) {
    return Each([&](int i) { return hn::MulAdd(a.part[i], b.part[i], c.part[i]); });
  }
  static HWY_INLINE F Max(F a, F b) {
    return Each(
        [&](int i) { return hn::IfThenElse(hn::Gt(a.part[i], b.part[i]), a.part[i], b.part[i]); });
  }
  static HWY_INLINE F FirstLanes(F a, int n, F b) {
    return Each([&](int i) {
      const int here = n - i * kLanes;
      const size_t lanes = static_cast<size_t>(here < 0 ? 0 : here < kLanes ? here : kLanes);
      return hn::IfThenElse(hn::FirstN(D(), lanes), a.part[i], b.part[i]);
    });
  }
  static HWY_INLINE F ZeroBelow(F x, float limit, F y) {
    const V bound = hn::Set(D(), limit);
    return Each([&](int i) { return hn::IfThenElseZero(hn::Ge(x.part[i], bound), y.part[i]); });
  }
  static HWY_INLINE F PowerOfTwo(F t) {
    const auto one = hn::Set(U(), 0x3f800000u);
    return Each([&](int i) {
      return hn::BitCast(D(), hn::Add(hn::ShiftLeft<23>(hn::BitCast(U(), t.part[i])), one));
    });
  }
  static HWY_INLINE F RoundToBf16(F a) {
    return Each([&](int i) {
      const auto bits = hn::BitCast(U(), a.part[i]);
      const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(U(), 1));
      const auto up = hn::Add(hn::Add(bits, hn::Set(U(), 0x7fff)), odd);
      const V rounded = hn::BitCast(D(), hn::And(up, hn::Set(U(), 0xffff0000u)));
      const V nan = hn::BitCast(D(), hn::Set(U(), 0x7fc00000u));
      return hn::IfThenElse(hn::Eq(a.part[i], a.part[i]), rounded, nan);
    });
  }
  static HWY_INLINE void StoreBf16(F a, uint16_t* p) {
    for (int i = 0; i < kParts; ++i) {
      const auto high = hn::BitCast(I(), hn::ShiftRight<16>(hn::BitCast(U(), a.part[i])));
      hn::StoreU(hn::DemoteTo(Halves(), high), Halves(), p + i * kLanes);
    }
  }
  static HWY_INLINE F LoadBf16(const void* p) {
    return Each([=](int i) {
      const auto bits = hn::PromoteTo(U(), hn::LoadU(Halves(), At<uint16_t>(p, i)));
      return hn::BitCast(D(), hn::ShiftLeft<16>(bits));
    });
  }
  static HWY_INLINE F LoadF16(const void* p) {
    using H = hn::Rebind<hwy::float16_t, D>;
    return Each([=](int i) {
      return hn::PromoteTo(D(), hn::BitCast(H(), hn::LoadU(Halves(), At<uint16_t>(p, i))));
    });
  }

  template <typename Bits>
  static HWY_INLINE Pairs Unpack(Bits bits) {
    const auto high = hn::Set(U(), 0xffff0000u);
    return {Each([&](int i) { return hn::BitCast(D(), hn::ShiftLeft<16>(bits(i))); }),
            Each([&](int i) { return hn::BitCast(D(), hn::And(bits(i), high)); })};
  }
  static HWY_INLINE Pairs LoadPairs(const void* p) {
    return Unpack([=](int i) { return hn::LoadU(U(), At<uint32_t>(p, i)); });
  }
  static HWY_INLINE Pairs BroadcastPair(const void* p) {
    uint32_t pair;
    __builtin_memcpy(&pair, p, sizeof(pair));
    return Unpack([=](int) { return hn::Set(U(), pair); });
  }
  static HWY_INLINE Pairs EvenOnly(Pairs a) { return {a.even, Zero()}; }
  static HWY_INLINE F Dot(F acc, Pairs a, Pairs b) {
    return Fma(a.even, b.even, Fma(a.odd, b.odd, acc));
  }

  static HWY_INLINE float Sum(F a) {
    const F four[4] = {a, a, a, a};
    float out[4];
    SumEach<1>(four, out);
    return out[0];
  }
  static HWY_INLINE float MaxLane(F a) {
    V max = a.part[0];
    if constexpr (kParts == 2) max = hn::Max(max, a.part[1]);
    return hn::GetLane(hn::MaxOfLanes(D(), max));
  }

  // Four vectors into one whose block b holds, for each of them, the sum of its block b.
  static HWY_INLINE V SumBlocks(V a, V b, V c, V d) {
    const hn::RepartitionToWide<U> wide;
    const V ab = hn::Add(hn::InterleaveLower(D(), a, b), hn::InterleaveUpper(D(), a, b));
    const V cd = hn::Add(hn::InterleaveLower(D(), c, d), hn::InterleaveUpper(D(), c, d));
    const auto ab64 = hn::BitCast(wide, ab);
    const auto cd64 = hn::BitCast(wide, cd);
    return hn::Add(hn::BitCast(D(), hn::InterleaveLower(wide, ab64, cd64)),
                   hn::BitCast(D(), hn::InterleaveUpper(wide, ab64, cd64)));
  }
  // From the block sums of two quads: one register: (0 + 2) and (1 + 3) of x, then of y; two
  // registers: all of x, then of y.
  static HWY_INLINE V SumHalves(F x, F y) {
    if constexpr (kParts == 1) {
      return hn::Add(hn::ConcatLowerLower(D(), y.part[0], x.part[0]),
                     hn::ConcatUpperUpper(D(), y.part[0], x.part[0]));
    } else {
      const V a = hn::Add(x.part[0], x.part[1]);
      const V b = hn::Add(y.part[0], y.part[1]);
      return hn::Add(hn::ConcatLowerLower(D(), b, a), hn::ConcatUpperUpper(D(), b, a));
    }
  }
  static HWY_INLINE F SumQuad(const F* a) {
    return Each(
        [&](int i) { return SumBlocks(a[0].part[i], a[1].part[i], a[2].part[i], a[3].part[i]); });
  }
  template <int kQuads>
  static HWY_INLINE void SumEach(const F* a, float* out) {
    constexpr size_t kOut = 4 * kQuads;
    alignas(64) float sums[(kQuads + 3) / 4 * 16];
    if constexpr (kParts == 1) {
#pragma GCC unroll 8
      for (int quad = 0; quad < kQuads; quad += 4) {
        const F q0 = SumQuad(a + 4 * quad);
        const F q1 = quad + 1 < kQuads ? SumQuad(a + 4 * quad + 4) : q0;
        const F q2 = quad + 2 < kQuads ? SumQuad(a + 4 * quad + 8) : q0;
        const F q3 = quad + 3 < kQuads ? SumQuad(a + 4 * quad + 12) : q0;
        const V x = SumHalves(q0, q2);
        const V y = SumHalves(q1, q3);
        const V even = hn::OddEvenBlocks(hn::SwapAdjacentBlocks(y), x);
        const V odd = hn::OddEvenBlocks(y, hn::SwapAdjacentBlocks(x));
        hn::Store(hn::Add(even, odd), D(), sums + 4 * quad);
      }
    } else {
#pragma GCC unroll 8
      for (int quad = 0; quad < kQuads; quad += 2) {
        const F q0 = SumQuad(a + 4 * quad);
        const F q1 = quad + 1 < kQuads ? SumQuad(a + 4 * quad + 4) : q0;
        hn::Store(SumHalves(q0, q1), D(), sums + 4 * quad);
      }
    }
    __builtin_memcpy(out, sums, kOut * sizeof(float));
  }
};

}  // namespace
}  // namespace divisi
