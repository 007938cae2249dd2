// AVX-512 with the bf16 dot product, the one instruction here that Highway 1.0.3 lacks. Compiled
// for AVX-512 and AVX512-BF16 (CMakeLists.txt); ops_avx2.cc says what may not be in such a file.
#include <immintrin.h>

#include "divisi/model/ops_lanes_highway.h"
#include "divisi/model/ops_table.h"

namespace divisi {
namespace {

struct Bf16DotLanes : HighwayLanes {
  struct Pairs {
    __m512i bits;
  };
  // 24 sums, 4 vectors of weights and one of activations in 32 registers.
  static constexpr int kTileRows = 6;

  static HWY_INLINE Pairs LoadPairs(const void* p) {
    return {hn::LoadU(U(), static_cast<const uint32_t*>(p)).raw};
  }
  static HWY_INLINE Pairs BroadcastPair(const void* p) {
    uint32_t pair;
    __builtin_memcpy(&pair, p, sizeof(pair));
    return {hn::Set(U(), pair).raw};
  }
  static HWY_INLINE Pairs EvenOnly(Pairs a) {
    return {hn::And(hn::Vec<U>{a.bits}, hn::Set(U(), 0xffffu)).raw};
  }
  // acc + odd * odd, rounded, + even * even, rounded; subnormals flushed.
  static HWY_INLINE F Dot(F acc, Pairs a, Pairs b) {
    const __m512 sum = _mm512_dpbf16_ps(acc.part[0].raw, reinterpret_cast<__m512bh>(a.bits),
                                        reinterpret_cast<__m512bh>(b.bits));
    return {{V{sum}}};
  }
};

}  // namespace

const Kernels kAvx512Bf16Kernels = MakeKernels<Bf16DotLanes>();

}  // namespace divisi
