#include "divisi/model/sampler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>

#include "divisi/core/random.h"

namespace divisi {
namespace {

using ::testing::ElementsAre;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

std::vector<float> RandomLogits(Random& random, size_t size, double spread) {
  std::vector<float> logits(size);
  for (float& x : logits) x = static_cast<float>(spread * random.Normal());
  return logits;
}

// The naive twin: penalties by counting, a full sort, double precision. Gives each token's
// probability of being drawn.
std::vector<double> NaiveProbabilities(std::span<const float> logits,
                                       std::span<const TokenId> tokens, size_t prompt_length,
                                       const SamplingParams& params) {
  const size_t size = logits.size();
  std::vector<double> x(logits.begin(), logits.end());
  for (const auto& [token, bias] : params.logit_bias) x[token] += bias;
  for (size_t t = 0; t < size; ++t) {
    const auto id = static_cast<TokenId>(t);
    const auto output = tokens.subspan(prompt_length);
    const auto count = std::count(output.begin(), output.end(), id);
    if (std::count(tokens.begin(), tokens.end(), id) > 0) {
      x[t] = x[t] > 0 ? x[t] / params.repetition_penalty : x[t] * params.repetition_penalty;
    }
    x[t] -= params.frequency_penalty * static_cast<double>(count);
    if (count > 0) x[t] -= params.presence_penalty;
  }
  std::vector<size_t> order(size);
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return x[a] > x[b]; });
  std::vector<double> weight(size, 0.0);
  for (size_t t = 0; t < size; ++t) weight[t] = std::exp((x[t] - x[order[0]]) / params.temperature);

  size_t kept = size;
  while (kept > 1 && weight[order[kept - 1]] < params.min_p) --kept;
  if (params.top_k > 0) kept = std::min(kept, static_cast<size_t>(params.top_k));
  double total = 0;
  for (size_t i = 0; i < kept; ++i) total += weight[order[i]];
  if (params.top_p < 1) {
    double sum = 0;
    for (size_t i = 0; i < kept; ++i) {
      sum += weight[order[i]];
      if (sum >= params.top_p * total) {
        kept = i + 1;
        total = sum;
      }
    }
  }
  std::vector<double> probabilities(size, 0.0);
  for (size_t i = 0; i < kept; ++i) probabilities[order[i]] = weight[order[i]] / total;
  return probabilities;
}

// Draws with `draws` seeds and holds the counts against the naive probabilities: nothing outside
// the kept set, and a chi-square statistic within 6 deviations of its mean.
void ExpectDraws(std::span<const float> logits, std::span<const TokenId> tokens,
                 size_t prompt_length, SamplingParams params, int draws) {
  const std::vector<double> expected = NaiveProbabilities(logits, tokens, prompt_length, params);
  std::vector<int> counts(logits.size());
  for (int i = 0; i < draws; ++i) {
    params.seed = static_cast<uint64_t>(i) + 1;
    ++counts[SampleToken(logits, tokens, prompt_length, params)->token];
  }
  double chi_square = 0, rare_expected = 0, rare_count = 0;
  int cells = 0;
  for (size_t t = 0; t < logits.size(); ++t) {
    if (expected[t] == 0) {
      EXPECT_EQ(counts[t], 0) << "token " << t << " is filtered, and was drawn";
      continue;
    }
    const double mean = expected[t] * draws;
    if (mean < 5) {  // Too rare for a cell of its own.
      rare_expected += mean;
      rare_count += counts[t];
      continue;
    }
    chi_square += (counts[t] - mean) * (counts[t] - mean) / mean;
    ++cells;
  }
  if (rare_expected >= 5) {
    chi_square += (rare_count - rare_expected) * (rare_count - rare_expected) / rare_expected;
    ++cells;
  } else {
    EXPECT_LE(rare_count, 40);
  }
  EXPECT_LE(chi_square, cells + 6 * std::sqrt(2.0 * cells) + 6);
}

TEST(SampleToken, GreedyTakesTheBestAndTheLowerIdOfATie) {
  std::vector<float> logits(5000, -1.0f);
  logits[4200] = logits[1300] = 7.5f;
  const SamplingParams greedy{.temperature = 0};
  EXPECT_EQ(SampleToken(logits, {}, 0, greedy)->token, 1300);
  logits[1300] = 7.0f;
  EXPECT_EQ(SampleToken(logits, {}, 0, greedy)->token, 4200);
  logits[0] = 9.0f;
  EXPECT_EQ(SampleToken(logits, {}, 0, {.temperature = 1e-6})->token, 0);
}

TEST(SampleToken, DrawsInProportionToProbability) {
  Random random(1);
  const std::vector<float> logits = RandomLogits(random, 50, 1.5);
  for (const double temperature : {0.3, 1.0, 2.0}) {
    SCOPED_TRACE(temperature);
    ExpectDraws(logits, {}, 0, {.temperature = temperature}, 8000);
  }
}

TEST(SampleToken, DrawsFromEveryBlockOfALargeVocabulary) {
  Random random(2);
  ExpectDraws(RandomLogits(random, 2500, 1.0), {}, 0, {}, 20000);
}

TEST(SampleToken, EachFilterKeepsWhatItsTwinKeeps) {
  Random random(3);
  const std::vector<float> logits = RandomLogits(random, 3000, 3.0);
  const SamplingParams cases[] = {
      {.top_k = 1},
      {.top_k = 7},
      {.top_k = 2999},
      {.top_k = 100000},
      {.top_p = 0.01},
      {.top_p = 0.5},
      {.top_p = 0.97},
      {.min_p = 1.0},
      {.min_p = 0.05},
      {.temperature = 0.5, .top_p = 0.8, .top_k = 20},
      {.top_p = 0.9, .min_p = 0.02},
      {.temperature = 1.7, .top_p = 0.7, .top_k = 300, .min_p = 0.01},
      {.temperature = 5.0, .top_p = 0.999},
  };
  for (size_t i = 0; i < std::size(cases); ++i) {
    SCOPED_TRACE(i);
    ExpectDraws(logits, {}, 0, cases[i], 2000);
  }
}

// Random parameters against the twin, with few draws each: a wrong cut shows as a token outside it.
TEST(SampleToken, RandomFiltersStayInsideTheirTwins) {
  for (uint64_t seed = 0; seed < 150; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed, 4);
    const size_t size = static_cast<size_t>(random.Between(1, 3000));
    const std::vector<float> logits = RandomLogits(random, size, 0.1 + 4 * random.Uniform());
    std::vector<TokenId> tokens(static_cast<size_t>(random.Between(0, 40)));
    for (TokenId& token : tokens) {
      token = static_cast<TokenId>(
          random.Between(0, static_cast<int64_t>(std::min<size_t>(size, 30)) - 1));
    }
    const auto prompt = static_cast<size_t>(random.Between(0, static_cast<int64_t>(tokens.size())));
    SamplingParams params{.temperature = 0.05 + 2 * random.Uniform()};
    if (random.Chance(0.5)) params.top_p = 0.05 + 0.95 * random.Uniform();
    if (random.Chance(0.5)) params.top_k = static_cast<int>(random.Between(1, 200));
    if (random.Chance(0.5)) params.min_p = 0.3 * random.Uniform();
    if (random.Chance(0.5)) params.presence_penalty = 4 * random.Uniform() - 2;
    if (random.Chance(0.5)) params.frequency_penalty = 4 * random.Uniform() - 2;
    if (random.Chance(0.5)) params.repetition_penalty = 0.5 + 2 * random.Uniform();
    if (random.Chance(0.3))
      params.logit_bias = {{0, 3.0f}, {static_cast<TokenId>(size - 1), -50.0f}};
    const auto expected = NaiveProbabilities(logits, tokens, prompt, params);
    for (uint64_t draw = 0; draw < 60; ++draw) {
      params.seed = draw;
      const TokenId token = SampleToken(logits, tokens, prompt, params)->token;
      ASSERT_GT(expected[token], 0) << "token " << token;
    }
  }
}

TEST(SampleToken, TopKKeepsExactlyKOfEqualLogits) {
  const std::vector<float> logits(3000, 1.25f);
  std::map<TokenId, int> drawn;
  for (uint64_t seed = 0; seed < 500; ++seed) {
    ++drawn[SampleToken(logits, {}, 0, {.top_k = 3, .seed = seed})->token];
  }
  EXPECT_EQ(drawn.size(), 3u);
  EXPECT_EQ(drawn.begin()->first, 0);
  EXPECT_EQ(drawn.rbegin()->first, 2);
}

TEST(SampleToken, TopPCutsEqualLogitsByIdAndFarOnesWhole) {
  const std::vector<float> equal(3000, 1.25f);
  int above_half = 0;
  for (uint64_t seed = 0; seed < 500; ++seed) {
    const TokenId token = SampleToken(equal, {}, 0, {.top_p = 0.25, .seed = seed})->token;
    EXPECT_LT(token, 750);
    above_half += token >= 375 ? 1 : 0;
  }
  EXPECT_NEAR(above_half, 250, 60);
  // 40 nats behind the best: weights that are in no histogram bucket of their own.
  std::vector<float> far(3000, -40.0f);
  far[2000] = 0.0f;
  for (const double top_p : {0.5, 0.999, 1 - 1e-15}) {
    for (uint64_t seed = 0; seed < 50; ++seed) {
      EXPECT_EQ(SampleToken(far, {}, 0, {.top_p = top_p, .seed = seed})->token, 2000);
    }
  }
}

TEST(SampleToken, PenaltiesFollowTheirDefinitions) {
  // Prompt {0, 1}, output {1, 2, 2}: repetition sees 0, 1, 2; presence and frequency see 1, 2.
  const std::vector<TokenId> tokens = {0, 1, 1, 2, 2};
  const std::vector<float> logits = {2.0f, -1.0f, 3.0f, 0.5f};
  const auto best = [&](SamplingParams params) {
    params.temperature = 0;
    return SampleToken(logits, tokens, 2, params)->token;
  };
  EXPECT_EQ(best({}), 2);
  EXPECT_EQ(best({.presence_penalty = 0.9}), 2);    // 3 - 0.9 > 2
  EXPECT_EQ(best({.presence_penalty = 1.1}), 0);    // 3 - 1.1 < 2; the prompt's 0 is untouched
  EXPECT_EQ(best({.frequency_penalty = 0.6}), 0);   // 3 - 2 * 0.6 < 2
  EXPECT_EQ(best({.frequency_penalty = 0.4}), 2);   // 3 - 2 * 0.4 > 2
  EXPECT_EQ(best({.repetition_penalty = 7}), 3);    // 2/7, -7, 3/7 < 0.5
  EXPECT_EQ(best({.repetition_penalty = 0.2}), 2);  // 10, -0.2, 15
  EXPECT_EQ(best({.logit_bias = {{1, 100.0f}}}), 1);
  EXPECT_EQ(best({.logit_bias = {{2, -100.0f}, {-1, 5.0f}, {4, 5.0f}}}), 0);
  // The bias comes before the penalties: (-1 + 3.5) / 2 = 1.25 < 3 / 2.
  EXPECT_EQ(best({.repetition_penalty = 2, .logit_bias = {{1, 3.5f}}}), 2);
  EXPECT_EQ(best({.repetition_penalty = 2, .logit_bias = {{1, 4.5f}}}), 1);
}

TEST(SampleToken, ResumedRequestDrawsTheSame) {
  Random random(5);
  std::vector<TokenId> first = {3, 1, 4}, second = first;
  const SamplingParams params{.temperature = 1.3, .presence_penalty = 0.4, .seed = 99};
  std::vector<std::vector<float>> steps;
  for (int i = 0; i < 40; ++i) steps.push_back(RandomLogits(random, 300, 1.0));
  for (const auto& logits : steps) {
    first.push_back(SampleToken(logits, first, 3, params)->token);
  }
  second.assign(first.begin(), first.begin() + 20);  // 17 tokens came from the log.
  for (size_t i = 17; i < steps.size(); ++i) {
    second.push_back(SampleToken(steps[i], second, 3, params)->token);
  }
  EXPECT_EQ(second, first);
  // Another seed, or another position, is another draw.
  SamplingParams other = params;
  other.seed = 100;
  std::vector<TokenId> third = {3, 1, 4};
  for (const auto& logits : steps) third.push_back(SampleToken(logits, third, 3, other)->token);
  EXPECT_NE(third, first);
}

TEST(SampleToken, SurvivesLogitsThatAreNotNumbers) {
  std::vector<float> logits(2000, kNan);
  const SamplingParams cases[] = {
      {.temperature = 0}, {},
      {.top_p = 0.5},     {.top_k = 5},
      {.min_p = 0.5},     {.top_p = 0.9, .top_k = 50, .min_p = 0.1, .top_logprobs = 3}};
  for (const SamplingParams& params : cases) {
    EXPECT_FALSE(SampleToken(logits, {}, 0, params).has_value());
  }
  EXPECT_FALSE(ScoreToken(logits, 7, 3).has_value());
  logits[1500] = -3.0f;
  logits[7] = -kInfinity;
  for (const SamplingParams& params : cases) {
    EXPECT_EQ(SampleToken(logits, {}, 0, params)->token, 1500);
  }
  logits[1999] = kInfinity;
  for (const SamplingParams& params : cases) {
    EXPECT_EQ(SampleToken(logits, {}, 0, params)->token, 1999);
  }
}

TEST(ScoreToken, GivesLogSoftmaxAndTheBest) {
  Random random(6);
  const std::vector<float> logits = RandomLogits(random, 4000, 4.0);
  double sum = 0;
  for (const float x : logits) sum += std::exp(static_cast<double>(x));
  const SampledToken scored = *ScoreToken(logits, 17, 3);
  EXPECT_EQ(scored.token, 17);
  EXPECT_NEAR(*scored.logprob, logits[17] - std::log(sum), 2e-6);
  std::vector<TokenId> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(),
            [&](TokenId a, TokenId b) { return logits[a] > logits[b]; });
  ASSERT_EQ(scored.top.size(), 3u);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(scored.top[i].token, order[i]);
    EXPECT_NEAR(scored.top[i].logprob, logits[order[i]] - std::log(sum), 2e-6);
  }
}

TEST(ScoreToken, LogprobsAreOfTheRawLogits) {
  const std::vector<float> logits = {1.0f, 2.0f, 0.0f};
  const double log_sum = std::log(std::exp(1.0) + std::exp(2.0) + 1.0);
  const SampledToken sampled =
      *SampleToken(logits, {}, 0,
                   {.temperature = 0.1, .top_k = 1, .top_logprobs = 1, .logit_bias = {{2, 50.0f}}});
  EXPECT_EQ(sampled.token, 2);
  EXPECT_NEAR(*sampled.logprob, -log_sum, 1e-6);
  ASSERT_EQ(sampled.top.size(), 1u);
  EXPECT_EQ(sampled.top[0].token, 1);
  EXPECT_FALSE(SampleToken(logits, {}, 0, {.temperature = 0})->logprob.has_value());
}

}  // namespace
}  // namespace divisi
