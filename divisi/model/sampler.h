// From logits to a token: penalties, temperature, top-k, top-p, min-p, and a draw that depends on
// (seed, position) alone, so that a request resumed anywhere draws the same numbers.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "divisi/core/ids.h"

namespace divisi {

// Meanings and defaults are the OpenAI API's, and vLLM's for what that lacks.
struct SamplingParams {
  double temperature = 1;          // 0: greedy
  double top_p = 1;                // (0, 1]
  int top_k = 0;                   // 0: no limit
  double min_p = 0;                // [0, 1], relative to the most probable token
  double presence_penalty = 0;     // [-2, 2], over output tokens
  double frequency_penalty = 0;    // [-2, 2], over output tokens
  double repetition_penalty = 1;   // > 0, over prompt and output tokens
  uint64_t seed = 0;
  int top_logprobs = -1;           // -1: no logprobs; 0: the chosen token's; k: also the k best
  std::vector<std::pair<TokenId, float>> logit_bias;
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
SampledToken SampleToken(std::span<const float> logits, std::span<const TokenId> tokens,
                         size_t prompt_length, const SamplingParams& params);

// The logprob of `token` and the `top` best of these logits.
SampledToken ScoreToken(std::span<const float> logits, TokenId token, int top);

}  // namespace divisi
