// From logits to a token: bias, penalties, temperature, min-p, top-k, top-p, and a draw that
// depends on (seed, position) alone, so that a request resumed anywhere draws the same numbers.
//
// The steps and their order are vLLM's (v1/sample/sampler.py): logit_bias; repetition, frequency
// and presence penalties; greedy choice if the temperature is 0; else temperature, min_p, top_k,
// top_p over what min_p and top_k left; draw. Logprobs are of the raw logits, before any of these.
//
// Tokens rank by logit, ties by lower id, so each filter keeps a prefix of one order and together
// they are a single cut in it. Nothing is sorted in full: a vocabulary of 152k costs a pass or two.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "divisi/core/ids.h"

namespace divisi {

// Below this a temperature means greedy; vLLM's bound, and far above where 1/T loses meaning.
inline constexpr double kGreedyTemperature = 1e-5;

// Meanings and defaults are the OpenAI API's, and vLLM's for what that lacks.
struct SamplingParams {
  double temperature = 1;        // [0, inf); under kGreedyTemperature: greedy
  double top_p = 1;              // (0, 1]: the fewest best tokens that hold this probability
  int top_k = 0;                 // The k best, exactly k where logits tie; 0: no limit
  double min_p = 0;              // [0, 1], relative to the most probable token
  double presence_penalty = 0;   // [-2, 2], over output tokens: subtracted once
  double frequency_penalty = 0;  // [-2, 2], over output tokens: subtracted per occurrence
  double repetition_penalty =
      1;  // > 0, over prompt and output: divides logits > 0, multiplies others
  uint64_t seed = 0;
  int top_logprobs = -1;  // -1: no logprobs; 0: the chosen token's; k: also the k best
  std::vector<std::pair<TokenId, float>> logit_bias;  // Added; ids outside the vocabulary ignored.
};

struct TokenLogprob {
  TokenId token = 0;
  float logprob = 0;
};

struct SampledToken {
  TokenId token = 0;
  // Of the unmodified distribution (softmax of the raw logits), where asked for.
  std::optional<float> logprob;
  std::vector<TokenLogprob> top;  // Best first, ties to the lower id.
};

// tokens: prompt then output so far, prompt_length of them prompt. The draw's position is
// tokens.size(). Ties in greedy choice go to the lower id.
// Any bits are allowed as logits: not-a-number counts as -infinity (never drawn) and +infinity as
// the largest float. Empty where no token is possible: a model whose output is no numbers.
// Requires: logits not empty, tokens below logits.size(), params in the ranges above.
std::optional<SampledToken> SampleToken(std::span<const float> logits,
                                        std::span<const TokenId> tokens, size_t prompt_length,
                                        const SamplingParams& params);

// The logprob of `token` and the `top` best of these logits; empty as SampleToken.
// Requires: 0 <= token < logits.size().
std::optional<SampledToken> ScoreToken(std::span<const float> logits, TokenId token, int top);

}  // namespace divisi
