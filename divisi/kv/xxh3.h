// XXH3-64, by xxHash, which xxh3.cc alone includes: check sums, and the chain hash of Dynamo.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace divisi {

uint64_t Xxh3(std::span<const std::byte> bytes, uint64_t seed = 0);

// The same of bytes that come in pieces, with seed 0.
class Xxh3Stream {
 public:
  Xxh3Stream();
  Xxh3Stream(const Xxh3Stream&) = delete;
  Xxh3Stream& operator=(const Xxh3Stream&) = delete;

  void Update(std::span<const std::byte> bytes);
  uint64_t Sum() const;

 private:
  alignas(64) std::array<std::byte, 576> state_;
};

}  // namespace divisi
