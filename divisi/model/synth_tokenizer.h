// Tokenizer and generation files for a checkpoint of random weights: bytes as tokens, no merges.
#pragma once

#include "divisi/catalog/model_spec.h"
#include "divisi/core/json.h"

namespace divisi {

// The three special tokens take the last ids of the vocabulary.
struct SynthTokens {
  int end_of_text = 0;  // "<|endoftext|>"
  int im_start = 0;     // "<|im_start|>"
  int im_end = 0;       // "<|im_end|>", the end of a turn
};

// Errors: kOutOfRange when the vocabulary can't hold 256 bytes and the special tokens.
Result<SynthTokens> SynthTokensOf(const ModelSpec& spec);

// tokenizer.json. Ids 0 to 255 are the bytes in GPT-2's alphabet; the ids up to the special tokens
// are a space and letters that spell the id, so that sampling them gives harmless text. Encoding
// never gives those, since there are no merges. Pre-tokenizer and normaliser are Qwen2's.
Json SynthTokenizer(const SynthTokens& tokens);
// tokenizer_config.json, with a plain ChatML template.
Json SynthTokenizerConfig(const SynthTokens& tokens, int max_positions);
// generation_config.json.
Json SynthGenerationConfig(const SynthTokens& tokens);

}  // namespace divisi
