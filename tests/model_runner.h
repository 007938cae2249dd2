// A model with pages and kernels of its own, for tests that drive the transformer directly.
#pragma once

#include <filesystem>
#include <memory>
#include <span>
#include <vector>

#include "divisi/core/thread_pool.h"
#include "divisi/model/transformer.h"

namespace divisi {

struct ModelRunner {
  struct Options {
    ComputeType compute = ComputeType::kF32;
    Isa isa = SupportedIsas().back();
    int threads = 1;
    int64_t max_positions = 0;  // 0: the model's
    int64_t pages = 0;          // 0: for one sequence of max_positions
  };
  ModelRunner(const std::filesystem::path& directory, const Options& options);

  // Runs one sequence's `tokens` from `start` on, on pages 0, 1, ...; logits of the last `rows`.
  std::vector<float> Run(std::span<const TokenId> tokens, int64_t start, int64_t rows);

  int64_t vocab() const { return model.spec().vocab; }

  Checkpoint checkpoint;
  ThreadPool pool;
  Ops ops;
  Transformer model;
  KvPages pages;
  std::vector<BlockId> identity;  // 0, 1, ...
};

}  // namespace divisi
