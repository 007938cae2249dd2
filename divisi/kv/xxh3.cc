#include "divisi/kv/xxh3.h"

#include <xxhash.h>
#ifdef __x86_64__
#include <xxh_x86dispatch.h>  // The widest vectors that the processor has: three times the rate.
#endif

#include <new>

namespace divisi {
namespace {

XXH3_state_t* State(std::byte* at) { return std::launder(reinterpret_cast<XXH3_state_t*>(at)); }

const XXH3_state_t* State(const std::byte* at) {
  return std::launder(reinterpret_cast<const XXH3_state_t*>(at));
}

}  // namespace

uint64_t Xxh3(std::span<const std::byte> bytes, uint64_t seed) {
  return XXH3_64bits_withSeed(bytes.data(), bytes.size(), seed);
}

Xxh3Stream::Xxh3Stream() {
  static_assert(sizeof(XXH3_state_t) <= sizeof state_ && alignof(XXH3_state_t) <= 64);
  XXH3_64bits_reset(new (state_.data()) XXH3_state_t);
}

void Xxh3Stream::Update(std::span<const std::byte> bytes) {
  XXH3_64bits_update(State(state_.data()), bytes.data(), bytes.size());
}

uint64_t Xxh3Stream::Sum() const { return XXH3_64bits_digest(State(state_.data())); }

}  // namespace divisi
