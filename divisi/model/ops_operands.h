// What a product's operands are, over any lanes type V: pairs of bf16, which the dot product takes
// as they are, or single numbers, promoted to f32 and multiplied one at a time.
//   kWidth   elements in one vector        kStep    elements of one lane in one vector
//   kBytes   of one element
#pragma once

#include <cstdint>
#include <cstring>

namespace divisi {

template <typename V>
struct Bf16Pairs {
  using Vector = typename V::Pairs;
  static constexpr int kWidth = 32;
  static constexpr int kStep = 2;
  static constexpr int kBytes = 2;
  static Vector Load(const void* p) { return V::LoadPairs(p); }
  static Vector Broadcast(const void* p) { return V::BroadcastPair(p); }
};

template <typename V>
struct Bf16Singles {
  using Vector = typename V::F;
  static constexpr int kWidth = 16;
  static constexpr int kStep = 1;
  static constexpr int kBytes = 2;
  static Vector Load(const void* p) { return V::LoadBf16(p); }
};

template <typename V>
struct F16Singles {
  using Vector = typename V::F;
  static constexpr int kWidth = 16;
  static constexpr int kStep = 1;
  static constexpr int kBytes = 2;
  static Vector Load(const void* p) { return V::LoadF16(p); }
};

template <typename V>
struct F32Singles {
  using Vector = typename V::F;
  static constexpr int kWidth = 16;
  static constexpr int kStep = 1;
  static constexpr int kBytes = 4;
  static Vector Load(const void* p) { return V::Load(p); }
  static Vector Broadcast(const void* p) {
    float x;
    std::memcpy(&x, p, sizeof(x));
    return V::Set(x);
  }
};

template <typename V>
inline typename V::F MultiplyAdd(typename V::F acc, typename V::F a, typename V::F b) {
  return V::Fma(a, b, acc);
}
template <typename V>
inline typename V::F MultiplyAdd(typename V::F acc, typename V::Pairs a, typename V::Pairs b) {
  return V::Dot(acc, a, b);
}

// The first `count` elements at p, then zeros; reads nothing beyond them.
template <typename Operand>
inline typename Operand::Vector LoadFirst(const void* p, int64_t count) {
  alignas(64) unsigned char padded[64] = {};
  std::memcpy(padded, p, static_cast<size_t>(count) * Operand::kBytes);
  return Operand::Load(padded);
}

}  // namespace divisi
