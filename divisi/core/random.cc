#include "divisi/core/random.h"

#include <cmath>
#include <numbers>
#include <random>

#include "divisi/core/check.h"

namespace divisi {
namespace {

uint64_t Draw64(uint64_t seed, uint64_t stream, uint64_t position) {
  const auto words =
      Philox4x32({static_cast<uint32_t>(position), static_cast<uint32_t>(position >> 32),
                  static_cast<uint32_t>(stream), static_cast<uint32_t>(stream >> 32)},
                 {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)});
  return (static_cast<uint64_t>(words[1]) << 32) | words[0];
}

double ToUnit(uint64_t bits) { return static_cast<double>(bits >> 11) * 0x1.0p-53; }

}  // namespace

std::array<uint32_t, 4> Philox4x32(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t low = 0xD2511F53ull * counter[0];
    const uint64_t high = 0xCD9E8D57ull * counter[2];
    counter = {static_cast<uint32_t>(high >> 32) ^ counter[1] ^ key[0], static_cast<uint32_t>(high),
               static_cast<uint32_t>(low >> 32) ^ counter[3] ^ key[1], static_cast<uint32_t>(low)};
    key[0] += 0x9E3779B9u;
    key[1] += 0xBB67AE85u;
  }
  return counter;
}

double UniformAt(uint64_t seed, uint64_t stream, uint64_t position) {
  return ToUnit(Draw64(seed, stream, position));
}

uint64_t Random::Next64() { return Draw64(seed_, stream_, position_++); }

double Random::Uniform() { return ToUnit(Next64()); }

int64_t Random::Between(int64_t low, int64_t high) {
  CHECK(low <= high);
  const uint64_t span = static_cast<uint64_t>(high) - static_cast<uint64_t>(low) + 1;
  if (span == 0) return static_cast<int64_t>(Next64());
  // The bias of the remainder is below span / 2^64, far under what a test could see.
  return static_cast<int64_t>(static_cast<uint64_t>(low) + Next64() % span);
}

double Random::Normal() {
  const double radius = std::sqrt(-2 * std::log(1 - Uniform()));
  return radius * std::cos(2 * std::numbers::pi * Uniform());
}

double Random::Exponential(double mean) { return -mean * std::log(1 - Uniform()); }

bool Random::Chance(double probability) { return Uniform() < probability; }

uint64_t SystemRandom() {
  std::random_device device;
  return (static_cast<uint64_t>(device()) << 32) | device();
}

}  // namespace divisi
