// Counter-based random numbers: a draw is a pure function of (seed, stream, position), so a resumed
// or recomputed request draws the same numbers wherever and whenever it runs.
// Source: Philox4x32-10, Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3", SC 2011.
#pragma once

#include <array>
#include <cstdint>

namespace divisi {

// Ten rounds of Philox4x32 on a 128-bit counter under a 64-bit key.
std::array<uint32_t, 4> Philox4x32(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key);

// Uniform in [0, 1) with 53 random bits, for draw `position` of `stream` under `seed`.
double UniformAt(uint64_t seed, uint64_t stream, uint64_t position);

// 64 bits that no other process has, from the system: for names of processes and their requests,
// never for decisions.
uint64_t SystemRandom();

// A sequence of draws for simulations and tests: the same seed gives the same sequence everywhere
// (std:: distributions do not promise that).
class Random {
 public:
  explicit Random(uint64_t seed, uint64_t stream = 0) : seed_(seed), stream_(stream) {}

  uint64_t Next64();
  double Uniform();                            // [0, 1)
  int64_t Between(int64_t low, int64_t high);  // Inclusive at both ends. Requires: low <= high.
  double Normal();                             // Mean 0, variance 1.
  double Exponential(double mean);
  bool Chance(double probability);

 private:
  uint64_t seed_;
  uint64_t stream_;
  uint64_t position_ = 0;
};

}  // namespace divisi
