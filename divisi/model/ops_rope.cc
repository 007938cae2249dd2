// Tables of rotary angles, with the context extensions that configs name.
#include <algorithm>
#include <cmath>
#include <numbers>

#include "divisi/core/check.h"
#include "divisi/model/fixed_math.h"
#include "divisi/model/ops.h"

namespace divisi {
namespace {

using Frequencies = std::vector<double>;  // Radians per position, one per pair of channels.

// Low frequencies are slowed by the factor, high ones kept, those between blended by wavelength.
// Source: the Llama 3.1 model card's rope_type "llama3".
void ScaleLlama3(const RopeScaling& scaling, Frequencies& frequencies) {
  const double longest = scaling.original_max_positions / scaling.low_freq_factor;
  const double shortest = scaling.original_max_positions / scaling.high_freq_factor;
  for (double& frequency : frequencies) {
    const double wavelength = 2 * std::numbers::pi / frequency;
    if (wavelength < shortest) continue;
    if (wavelength > longest) {
      frequency /= scaling.factor;
      continue;
    }
    const double keep = (scaling.original_max_positions / wavelength - scaling.low_freq_factor) /
                        (scaling.high_freq_factor - scaling.low_freq_factor);
    frequency = (1 - keep) * frequency / scaling.factor + keep * frequency;
  }
}

// Source: Peng et al., "YaRN: Efficient Context Window Extension", 2023, section 3.2.
void ScaleYarn(const RopeScaling& scaling, double theta, Frequencies& frequencies) {
  const double dims = 2.0 * static_cast<double>(frequencies.size());
  const auto channel_of = [&](double rotations) {
    return dims * FixedLog(scaling.original_max_positions / (2 * std::numbers::pi * rotations)) /
           (2 * FixedLog(theta));
  };
  double low = channel_of(scaling.beta_fast);
  double high = channel_of(scaling.beta_slow);
  if (scaling.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, dims - 1);
  if (low == high) high += 0.001;
  for (size_t i = 0; i < frequencies.size(); ++i) {
    const double ramp = std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
    frequencies[i] *= (1 - ramp) + ramp / scaling.factor;
  }
}

// What YaRN multiplies cos and sin by.
double YarnAttentionFactor(const RopeScaling& scaling) {
  if (scaling.attention_factor) return *scaling.attention_factor;
  const auto growth = [&](double mscale) {
    return scaling.factor <= 1 ? 1.0 : 0.1 * mscale * FixedLog(scaling.factor) + 1;
  };
  if (scaling.mscale != 0 && scaling.mscale_all_dim != 0) {
    return growth(scaling.mscale) / growth(scaling.mscale_all_dim);
  }
  return growth(1);
}

}  // namespace

RopeTable MakeRopeTable(const ModelSpec& spec, int64_t positions) {
  CHECK(spec.head_dim > 0 && spec.head_dim % 2 == 0 && positions >= 0, "head_dim {}, positions {}",
        spec.head_dim, positions);
  RopeTable table;
  table.positions = positions;
  table.half_dim = spec.head_dim / 2;
  const double log_theta = FixedLog(spec.rope_theta);
  Frequencies frequencies(static_cast<size_t>(table.half_dim));
  for (size_t i = 0; i < frequencies.size(); ++i) {
    // theta^(-2i / Dh).
    frequencies[i] = FixedExp(-2.0 * static_cast<double>(i) / spec.head_dim * log_theta);
  }
  double amplitude = 1;
  switch (spec.rope_scaling.kind) {
    case RopeScaling::Kind::kNone:
      break;
    case RopeScaling::Kind::kLinear:
      for (double& frequency : frequencies) frequency /= spec.rope_scaling.factor;
      break;
    case RopeScaling::Kind::kLlama3:
      ScaleLlama3(spec.rope_scaling, frequencies);
      break;
    case RopeScaling::Kind::kYarn:
      ScaleYarn(spec.rope_scaling, spec.rope_theta, frequencies);
      amplitude = YarnAttentionFactor(spec.rope_scaling);
      break;
  }
  table.cosine.reserve(frequencies.size() * static_cast<size_t>(positions));
  table.sine.reserve(frequencies.size() * static_cast<size_t>(positions));
  for (int64_t position = 0; position < positions; ++position) {
    for (const double frequency : frequencies) {
      const auto [sine, cosine] = FixedSineCosine(static_cast<double>(position) * frequency);
      table.cosine.push_back(static_cast<float>(amplitude * cosine));
      table.sine.push_back(static_cast<float>(amplitude * sine));
    }
  }
  return table;
}

}  // namespace divisi
