#include "divisi/model/sampler.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>

#include "divisi/core/check.h"
#include "divisi/core/random.h"
#include "divisi/model/fixed_math.h"

namespace divisi {
namespace {

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();
constexpr uint64_t kDrawStream = 0;

// Logits are summarised block by block: 4 KiB, so that the second look at a block finds it in L1.
constexpr size_t kBlock = 1024;
constexpr size_t kLanes = 16;
static_assert(kBlock % kLanes == 0);

// Not-a-number to -infinity, +infinity to the largest float. The order of operands matters: both
// comparisons are false for NaN.
float Clean(float x) {
  x = kMinusInfinity < x ? x : kMinusInfinity;
  return x < std::numeric_limits<float>::max() ? x : std::numeric_limits<float>::max();
}

// e^x for x <= 0, relative error below 3e-7; 0 under -86. Without branches or calls, so that loops
// over it become vector code, and without fused operations, so that every machine gets the same
// bits.
//   e^x = 2^n e^r,  n = round(x / ln 2),  |r| <= ln(2) / 2,  e^r by its Taylor series to r^6.
// ln 2 is split in two so that n * high is exact (Cody and Waite, 1980).
inline float ExpNegative(float x) {
  const float y = x < -86.0f ? -86.0f : x;
  constexpr float kRound = 12582912.0f;  // 1.5 * 2^23: adding it leaves round(t) in the low bits.
  const float shifted = y * 1.44269504f + kRound;
  const float n = shifted - kRound;
  const float r = (y - n * 0.693359375f) + n * 2.12194440e-4f;
  float p = 1.0f / 720;
  p = p * r + 1.0f / 120;
  p = p * r + 1.0f / 24;
  p = p * r + 1.0f / 6;
  p = p * r + 0.5f;
  p = p * r + 1.0f;
  p = p * r + 1.0f;
  const uint32_t bits = std::bit_cast<uint32_t>(p) + (std::bit_cast<uint32_t>(shifted) << 23);
  return x < -86.0f ? 0.0f : std::bit_cast<float>(bits);
}

// A block's values, cleaned, padded with -infinity: loops over it have a fixed length, which lets
// the compiler turn them into vector code.
using Block = std::array<float, kBlock>;

// Adds lane by lane, then the lanes in a fixed tree.
float Sum(const Block& values) {
  std::array<float, kLanes> lanes{};
  for (size_t i = 0; i < kBlock; i += kLanes) {
    for (size_t l = 0; l < kLanes; ++l) lanes[l] += values[i + l];
  }
  for (size_t width = kLanes / 2; width > 0; width /= 2) {
    for (size_t l = 0; l < width; ++l) lanes[l] += lanes[l + width];
  }
  return lanes[0];
}

float Max(const Block& values) {
  std::array<float, kLanes> lanes;
  lanes.fill(kMinusInfinity);
  for (size_t i = 0; i < kBlock; i += kLanes) {
    for (size_t l = 0; l < kLanes; ++l) {
      lanes[l] = lanes[l] < values[i + l] ? values[i + l] : lanes[l];
    }
  }
  return *std::max_element(lanes.begin(), lanes.end());
}

// e^((x - max) / T) of each value.
void ToWeights(Block& values, float max, float inverse_temperature) {
  for (size_t i = 0; i < kBlock; ++i) {
    values[i] = ExpNegative((values[i] - max) * inverse_temperature);
  }
}

// One vector of logits, seen block by block.
struct Summary {
  std::span<const float> logits;
  std::vector<float> block_max;
  float max = kMinusInfinity;

  size_t blocks() const { return block_max.size(); }
  void Load(size_t b, Block& block) const {
    const size_t size = std::min(kBlock, logits.size() - b * kBlock);
    const float* x = logits.data() + b * kBlock;
    if (size == kBlock) {
      for (size_t i = 0; i < kBlock; ++i) block[i] = Clean(x[i]);
      return;
    }
    block.fill(kMinusInfinity);
    for (size_t i = 0; i < size; ++i) block[i] = Clean(x[i]);
  }
};

Summary Summarise(std::span<const float> logits) {
  Summary summary{.logits = logits};
  summary.block_max.resize((logits.size() + kBlock - 1) / kBlock);
  Block block;
  for (size_t b = 0; b < summary.blocks(); ++b) {
    summary.Load(b, block);
    summary.block_max[b] = Max(block);
    summary.max = std::max(summary.max, summary.block_max[b]);
  }
  return summary;
}

// Sum of e^((x - max) / T) over all. Requires: max is finite.
double Mass(const Summary& summary, float inverse_temperature) {
  double total = 0;
  Block block;
  for (size_t b = 0; b < summary.blocks(); ++b) {
    summary.Load(b, block);
    ToWeights(block, summary.max, inverse_temperature);
    total += Sum(block);
  }
  return total;
}

// Requires: some token is possible.
TokenId Best(const Summary& summary) {
  Block block;
  for (size_t b = 0; b < summary.blocks(); ++b) {
    if (summary.block_max[b] != summary.max) continue;
    summary.Load(b, block);
    const auto found = std::find(block.begin(), block.end(), summary.max);
    return static_cast<TokenId>(b * kBlock + static_cast<size_t>(found - block.begin()));
  }
  CHECK(false, "the largest logit is in no block");
}

// A token and its place in the order that all filters cut: logit, then lower id.
struct Candidate {
  float logit = kMinusInfinity;
  TokenId token = std::numeric_limits<TokenId>::max();

  bool Before(const Candidate& other) const {
    return logit > other.logit || (logit == other.logit && token < other.token);
  }
};
bool RanksBefore(const Candidate& a, const Candidate& b) { return a.Before(b); }

// The `limit` best tokens (all, where limit is 0) with logits of at least `floor`, in no order.
// Holds at most twice the limit: when full, the worse half is dropped and the floor rises.
std::vector<Candidate> Select(const Summary& summary, size_t limit, float floor) {
  std::vector<Candidate> kept;
  if (limit == 0 || limit > summary.logits.size()) limit = summary.logits.size();
  const size_t capacity = std::max<size_t>(2 * limit, 64);
  Block block;
  for (size_t b = 0; b < summary.blocks(); ++b) {
    if (summary.block_max[b] < floor) continue;
    summary.Load(b, block);
    for (size_t i = 0; i < kBlock; ++i) {
      const float logit = block[i];
      if (logit < floor || logit == kMinusInfinity) continue;
      kept.push_back({.logit = logit, .token = static_cast<TokenId>(b * kBlock + i)});
      if (kept.size() < capacity) continue;
      std::nth_element(kept.begin(), kept.begin() + limit - 1, kept.end(), RanksBefore);
      kept.resize(limit);
      floor = kept[limit - 1].logit;
    }
  }
  if (kept.size() > limit) {
    std::nth_element(kept.begin(), kept.begin() + limit - 1, kept.end(), RanksBefore);
    kept.resize(limit);
  }
  return kept;
}

double Weight(const Candidate& candidate, float max, float inverse_temperature) {
  return ExpNegative((candidate.logit - max) * inverse_temperature);
}

// The last of the fewest best candidates whose weights reach `mass`; the worst where all together
// do not. A quickselect that counts weight instead of elements: linear in the candidates.
Candidate WeightedCut(std::vector<Candidate>& candidates, double mass, float max,
                      float inverse_temperature) {
  auto begin = candidates.begin();
  auto end = candidates.end();
  constexpr ptrdiff_t kSortedTail = 32;
  while (end - begin > kSortedTail) {
    const auto middle = begin + (end - begin) / 2;
    std::nth_element(begin, middle, end, RanksBefore);
    double upper = 0;
    for (auto it = begin; it != middle; ++it) upper += Weight(*it, max, inverse_temperature);
    if (upper >= mass) {
      end = middle;
    } else {
      mass -= upper;
      begin = middle;
    }
  }
  std::sort(begin, end, RanksBefore);
  for (auto it = begin; it != end; ++it) {
    mass -= Weight(*it, max, inverse_temperature);
    if (mass <= 0) return *it;
  }
  return *(end - 1);
}

// A block's logits, and the weights of its tokens up to `cut`; 0 for the others.
void LoadKept(const Summary& summary, size_t b, const Candidate& cut, float inverse_temperature,
              Block& logits, Block& weights) {
  summary.Load(b, logits);
  weights = logits;
  ToWeights(weights, summary.max, inverse_temperature);
  const int32_t cut_index = static_cast<int32_t>(
      std::clamp<int64_t>(cut.token - static_cast<int64_t>(b * kBlock), -1, kBlock));
  for (int32_t i = 0; i < static_cast<int32_t>(kBlock); ++i) {
    const int32_t above = logits[i] > cut.logit ? -1 : 0;
    const int32_t at = logits[i] == cut.logit ? -1 : 0;
    const int32_t in_order = i <= cut_index ? -1 : 0;
    const int32_t kept = above | (at & in_order);  // All bits or none.
    weights[i] = std::bit_cast<float>(std::bit_cast<int32_t>(weights[i]) & kept);
  }
}

// Where a token's weight lies in a histogram: by distance from the best in nats, 64 buckets each,
// what is beyond 32 nats (e^-32, below 1e-8 of any cut even if all tokens lie there) in the last.
// A lower logit never has a lower bucket.
constexpr float kBucketsPerNat = 64;
constexpr int32_t kBuckets = 2048;

using BlockBuckets = std::array<int32_t, kBlock>;
void FindBuckets(const Block& logits, float max, float inverse_temperature, BlockBuckets& buckets) {
  constexpr float kLast = kBuckets - 1;
  for (size_t i = 0; i < kBlock; ++i) {
    const float bucket = (max - logits[i]) * inverse_temperature * kBucketsPerNat;
    buckets[i] = static_cast<int32_t>(bucket < kLast ? bucket : kLast);
  }
}

// The last of the fewest best tokens, among those up to `cut`, that hold `fraction` of their mass.
// A histogram finds the one bucket where the mass is reached; only its tokens are ranked.
Candidate MassCut(const Summary& summary, const Candidate& cut, double fraction,
                  float inverse_temperature) {
  Block logits, weights;
  BlockBuckets buckets;
  std::vector<double> masses(kBuckets);
  double total = 0;
  for (size_t b = 0; b < summary.blocks(); ++b) {
    if (summary.block_max[b] < cut.logit) continue;
    LoadKept(summary, b, cut, inverse_temperature, logits, weights);
    FindBuckets(logits, summary.max, inverse_temperature, buckets);
    for (size_t i = 0; i < kBlock; ++i) masses[static_cast<size_t>(buckets[i])] += weights[i];
  }
  for (const double mass : masses) total += mass;
  double missing = fraction * total;
  int32_t chosen = 0;
  for (int32_t bucket = 0; bucket < kBuckets; ++bucket) {
    const double mass = masses[static_cast<size_t>(bucket)];
    if (mass == 0) continue;
    chosen = bucket;  // The last with any mass, where rounding keeps the sum short.
    if (mass >= missing) break;
    missing -= mass;
  }
  std::vector<Candidate> candidates;
  for (size_t b = 0; b < summary.blocks(); ++b) {
    if (summary.block_max[b] < cut.logit) continue;
    summary.Load(b, logits);
    FindBuckets(logits, summary.max, inverse_temperature, buckets);
    for (size_t i = 0; i < kBlock; ++i) {
      if (buckets[i] != chosen || logits[i] == kMinusInfinity) continue;
      const Candidate candidate{.logit = logits[i], .token = static_cast<TokenId>(b * kBlock + i)};
      if (!cut.Before(candidate)) candidates.push_back(candidate);
    }
  }
  return WeightedCut(candidates, missing, summary.max, inverse_temperature);
}

// The last token that min_p, top_k and top_p leave; by default (no filter) after every token.
// Requires: the summary's max is finite.
Candidate Cut(const Summary& summary, const SamplingParams& params, float inverse_temperature) {
  Candidate cut;
  if (params.min_p > 0) {
    // weight < min_p  <=>  logit < max + T ln(min_p)
    cut.logit = summary.max + static_cast<float>(FixedLog(params.min_p) / inverse_temperature);
  }
  const bool limits_mass = params.top_p < 1;
  if (params.top_k <= 0 || static_cast<size_t>(params.top_k) >= summary.logits.size()) {
    return limits_mass ? MassCut(summary, cut, params.top_p, inverse_temperature) : cut;
  }
  std::vector<Candidate> kept = Select(summary, static_cast<size_t>(params.top_k), cut.logit);
  if (!limits_mass) return *std::max_element(kept.begin(), kept.end(), RanksBefore);
  double total = 0;
  for (const Candidate& candidate : kept) {
    total += Weight(candidate, summary.max, inverse_temperature);
  }
  return WeightedCut(kept, params.top_p * total, summary.max, inverse_temperature);
}

// The token at fraction `uniform` of the mass up to `cut`, tokens in order of id.
TokenId Draw(const Summary& summary, const Candidate& cut, float inverse_temperature,
             double uniform) {
  Block logits, weights;
  std::vector<double> masses(summary.blocks());
  double total = 0;
  for (size_t b = 0; b < summary.blocks(); ++b) {
    if (summary.block_max[b] < cut.logit) continue;
    LoadKept(summary, b, cut, inverse_temperature, logits, weights);
    masses[b] = Sum(weights);
    total += masses[b];
  }
  // The last with any mass, where rounding carries the target past the end.
  double target = uniform * total;
  size_t chosen = 0;
  for (size_t b = 0; b < summary.blocks(); ++b) {
    if (masses[b] == 0) continue;
    chosen = b;
    if (target < masses[b]) break;
    target -= masses[b];
  }
  LoadKept(summary, chosen, cut, inverse_temperature, logits, weights);
  size_t last = 0;
  for (size_t i = 0; i < kBlock; ++i) {
    if (weights[i] == 0) continue;
    last = i;
    if (target < weights[i]) break;
    target -= weights[i];
  }
  return static_cast<TokenId>(chosen * kBlock + last);
}

bool ChangesLogits(const SamplingParams& params) {
  return params.presence_penalty != 0 || params.frequency_penalty != 0 ||
         params.repetition_penalty != 1 || !params.logit_bias.empty();
}

void Repeat(std::span<const TokenId> tokens, const SamplingParams& params,
            std::vector<float>& logits) {
  if (params.repetition_penalty == 1) return;
  const float penalty = static_cast<float>(params.repetition_penalty);
  std::vector<bool> seen(logits.size());
  for (const TokenId token : tokens) {
    if (seen[token]) continue;
    seen[token] = true;
    logits[token] = logits[token] > 0 ? logits[token] / penalty : logits[token] * penalty;
  }
}

void PenaliseOutput(std::span<const TokenId> output, const SamplingParams& params,
                    std::vector<float>& logits) {
  if (params.presence_penalty == 0 && params.frequency_penalty == 0) return;
  std::vector<int32_t> counts(logits.size());
  for (const TokenId token : output) ++counts[token];
  for (const TokenId token : output) {
    if (counts[token] == 0) continue;  // Done at an earlier occurrence.
    logits[token] -=
        static_cast<float>(params.frequency_penalty * counts[token] + params.presence_penalty);
    counts[token] = 0;
  }
}

std::vector<float> Changed(std::span<const float> logits, std::span<const TokenId> tokens,
                           size_t prompt_length, const SamplingParams& params) {
  std::vector<float> changed(logits.begin(), logits.end());
  for (const auto& [token, bias] : params.logit_bias) {
    if (token >= 0 && static_cast<size_t>(token) < changed.size()) changed[token] += bias;
  }
  for (const TokenId token : tokens) {
    CHECK(token >= 0 && static_cast<size_t>(token) < changed.size(), "token {}", token);
  }
  Repeat(tokens, params, changed);
  PenaliseOutput(tokens.subspan(prompt_length), params, changed);
  return changed;
}

std::optional<TokenId> Choose(std::span<const float> logits, size_t position,
                              const SamplingParams& params) {
  const Summary summary = Summarise(logits);
  if (summary.max == kMinusInfinity) return std::nullopt;
  if (params.temperature < kGreedyTemperature) return Best(summary);
  const float inverse_temperature = static_cast<float>(1 / params.temperature);
  const Candidate cut = Cut(summary, params, inverse_temperature);
  return Draw(summary, cut, inverse_temperature, UniformAt(params.seed, kDrawStream, position));
}

}  // namespace

std::optional<SampledToken> SampleToken(std::span<const float> logits,
                                        std::span<const TokenId> tokens, size_t prompt_length,
                                        const SamplingParams& params) {
  CHECK(!logits.empty());
  CHECK(prompt_length <= tokens.size(), "prompt {} of {}", prompt_length, tokens.size());
  CHECK(params.temperature >= 0 && params.top_p > 0 && params.min_p >= 0 && params.min_p <= 1 &&
        params.repetition_penalty > 0);
  std::vector<float> changed;
  if (ChangesLogits(params)) changed = Changed(logits, tokens, prompt_length, params);
  const std::optional<TokenId> token =
      Choose(changed.empty() ? logits : std::span<const float>(changed), tokens.size(), params);
  if (!token) return std::nullopt;
  if (params.top_logprobs < 0) return SampledToken{.token = *token};
  return ScoreToken(logits, *token, params.top_logprobs);
}

std::optional<SampledToken> ScoreToken(std::span<const float> logits, TokenId token, int top) {
  CHECK(token >= 0 && static_cast<size_t>(token) < logits.size(), "token {}", token);
  const Summary summary = Summarise(logits);
  if (summary.max == kMinusInfinity) return std::nullopt;
  SampledToken scored{.token = token};
  const double log_sum = static_cast<double>(summary.max) + std::log(Mass(summary, 1));
  scored.logprob = static_cast<float>(Clean(logits[token]) - log_sum);
  if (top <= 0) return scored;
  std::vector<Candidate> best = Select(summary, static_cast<size_t>(top), kMinusInfinity);
  std::sort(best.begin(), best.end(), RanksBefore);
  for (const Candidate& candidate : best) {
    scored.top.push_back(
        {.token = candidate.token, .logprob = static_cast<float>(candidate.logit - log_sum)});
  }
  return scored;
}

}  // namespace divisi
