// Rotary tables: the scaling rules against published values and their own limits.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "divisi/model/ops.h"

namespace divisi {
namespace {

// The frequency of pair i: the angle of position 1 (below pi for every rule here).
double Frequency(const RopeTable& table, int i) {
  const size_t at = static_cast<size_t>(table.half_dim + i);
  return std::atan2(table.sine[at], table.cosine[at]);
}

TEST(Rope, PlainTableHoldsCosAndSinOfPositionTimesFrequency) {
  ModelSpec spec;
  spec.head_dim = 8;
  spec.rope_theta = 10000;
  const RopeTable table = MakeRopeTable(spec, 1000);
  for (int64_t position : {0, 1, 17, 999}) {
    for (int i = 0; i < 4; ++i) {
      const double angle = static_cast<double>(position) * std::pow(10000.0, -i / 4.0);
      const size_t at = static_cast<size_t>(position * 4 + i);
      EXPECT_EQ(table.cosine[at], static_cast<float>(std::cos(angle)));
      EXPECT_EQ(table.sine[at], static_cast<float>(std::sin(angle)));
    }
  }
}

TEST(Rope, LinearDividesPositions) {
  ModelSpec spec;
  spec.head_dim = 8;
  const RopeTable plain = MakeRopeTable(spec, 10);
  spec.rope_scaling.kind = RopeScaling::Kind::kLinear;
  spec.rope_scaling.factor = 4;
  const RopeTable table = MakeRopeTable(spec, 40);
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_NEAR(table.cosine[36 * 4 + i], plain.cosine[9 * 4 + i], 1e-7);
    EXPECT_NEAR(table.sine[36 * 4 + i], plain.sine[9 * 4 + i], 1e-7);
  }
}

TEST(Rope, Llama3KeepsShortWavesAndSlowsLongOnes) {
  ModelSpec spec;
  spec.head_dim = 128;
  spec.rope_theta = 500000;
  const RopeTable plain = MakeRopeTable(spec, 2);
  spec.rope_scaling = {.kind = RopeScaling::Kind::kLlama3,
                       .factor = 8,
                       .original_max_positions = 8192,
                       .low_freq_factor = 1,
                       .high_freq_factor = 4};
  const RopeTable table = MakeRopeTable(spec, 2);
  for (int i = 0; i < 64; ++i) {
    const double frequency = std::pow(500000.0, -i / 64.0);
    const double waves = 8192 * frequency / (2 * M_PI);  // Over the original context
    const double ratio = Frequency(table, i) / Frequency(plain, i);
    const double keep = std::clamp((waves - 1) / 3, 0.0, 1.0);
    EXPECT_NEAR(ratio, keep + (1 - keep) / 8, 1e-6) << i;
  }
}

ModelSpec DeepSeekV3Rotary() {
  ModelSpec spec;
  spec.head_dim = 64;
  spec.rope_theta = 10000;
  spec.rope_scaling = {.kind = RopeScaling::Kind::kYarn,
                       .factor = 40,
                       .original_max_positions = 4096,
                       .beta_fast = 32,
                       .beta_slow = 1,
                       .mscale = 1,
                       .mscale_all_dim = 1};
  return spec;
}

TEST(Rope, YarnGivesDeepSeekV3Frequencies) {
  // Computed from the rule in double for d = 64, theta = 1e4, factor 40, 4096 original positions:
  // ramp from pair 10 to pair 23.
  const std::pair<int, double> golden[] = {
      {0, 1},       {1, 7.498942093e-1},  {10, 5.623413252e-2}, {11, 3.900692657e-2},
      {16, 5.5e-3}, {22, 1.778279410e-4}, {23, 3.333803580e-5}, {31, 3.333803580e-6}};
  const RopeTable table = MakeRopeTable(DeepSeekV3Rotary(), 2);
  for (const auto& [pair, frequency] : golden) {
    // f32 cos and sin leave 2^-24 of the angle at most 1.
    EXPECT_NEAR(Frequency(table, pair), frequency, 1e-7 * frequency + 1e-10) << pair;
  }
}

TEST(Rope, YarnScalesAmplitudeByItsFactor) {
  ModelSpec spec = DeepSeekV3Rotary();
  EXPECT_FLOAT_EQ(MakeRopeTable(spec, 1).cosine[0], 1);
  spec.rope_scaling.mscale_all_dim = 0;
  EXPECT_FLOAT_EQ(MakeRopeTable(spec, 1).cosine[0], static_cast<float>(0.1 * std::log(40.0) + 1));
  spec.rope_scaling.attention_factor = 1.25;
  EXPECT_FLOAT_EQ(MakeRopeTable(spec, 1).cosine[0], 1.25f);
}

TEST(Rope, YarnWithoutTruncationKeepsTheFractionalRamp) {
  ModelSpec spec = DeepSeekV3Rotary();
  spec.rope_scaling.truncate = false;
  const RopeTable table = MakeRopeTable(spec, 2);
  const auto channel = [](double rotations) {
    return 64 * std::log(4096 / (2 * M_PI * rotations)) / (2 * std::log(10000.0));
  };
  const double ramp = (16 - channel(32)) / (channel(1) - channel(32));
  EXPECT_NEAR(Frequency(table, 16), 0.01 * (1 - ramp + ramp / 40), 1e-9);
}

// Found on one machine, expected on all: FNV-1a over the bits of a table that takes every function.
TEST(Rope, TableHasTheBitsItAlwaysHad) {
  ModelSpec spec = DeepSeekV3Rotary();
  spec.rope_scaling.mscale_all_dim = 0;
  const RopeTable table = MakeRopeTable(spec, 2000);
  uint64_t digest = 0xcbf29ce484222325;
  for (const std::vector<float>* values : {&table.cosine, &table.sine}) {
    for (const float x : *values) {
      digest = (digest ^ std::bit_cast<uint32_t>(x)) * 0x100000001b3;
    }
  }
  EXPECT_EQ(digest, 898385301224260105u);
}

}  // namespace
}  // namespace divisi
