// A whole checkpoint directory of random weights: what `divisi model synth` writes.
#pragma once

#include <filesystem>

#include "divisi/core/json.h"
#include "divisi/model/synth.h"

namespace divisi {

struct SynthCheckpointOptions {
  SynthOptions weights;
  // Whose tokenizer files are copied; empty: bytes as tokens (synth_tokenizer.h).
  std::filesystem::path tokenizer_directory;
};

// Writes config.json, generation_config.json, tokenizer.json, tokenizer_config.json and the weights
// into `directory`, which exists. config.json comes last: with it the directory is whole. It is
// `config` with the type of the weights, and with the end and begin tokens of the tokenizer.
// Errors: those of ParseModelSpec, SynthTokensOf, Tokenizer::Load and FileWriter; kInvalidArgument
// when the tokenizer has ids beyond the config's vocabulary.
Result<void> WriteSynthCheckpoint(const Json& config, const std::filesystem::path& directory,
                                  const SynthCheckpointOptions& options, ThreadPool& pool);

}  // namespace divisi
