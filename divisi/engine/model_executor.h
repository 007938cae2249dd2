// The executor that holds the model: runs a plan's slices as one batch of the transformer, draws
// the next tokens, scores prompts.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>

#include "divisi/core/clock.h"
#include "divisi/engine/executor.h"
#include "divisi/model/kv_pages.h"
#include "divisi/model/ops.h"
#include "divisi/model/transformer.h"

namespace divisi {

// How many KV pages fit into `memory`.
int64_t PagesThatFit(const KvLayout& layout, Bytes memory);

class ModelExecutor final : public Executor {
 public:
  struct Options {
    std::filesystem::path directory;  // Of the checkpoint.
    ComputeType compute = ComputeType::kBf16;
    int threads = 1;
    std::optional<Isa> isa;     // The fastest that this machine runs, by default.
    int64_t max_model_len = 0;  // Longest sequence; 0: what the model's config allows.
    Bytes kv_memory;            // Holds at least one sequence of max_model_len.
    // Logits of a step are computed and used in parts of about this size: a scored prompt of 2048
    // tokens over a vocabulary of 152k would need 1.2 GB at once. Large enough that reading the
    // head's weights again for each part (0.3 GB, for 440 rows of logits) does not count.
    Bytes logits_memory{int64_t{256} << 20};
    // Copies the matrices to huge pages (Transformer::CopyWeights) rather than using the mapping.
    bool copy_weights = false;
    // Called as weights are mapped or copied. May be empty.
    std::function<void(Bytes done, Bytes total)> progress;
  };

  // How long each part of Load took.
  struct LoadTimes {
    Seconds open;     // Headers read and checked, tensors found, rotary table made.
    Seconds map;      // Weights mapped or copied; from disk, where they are not cached.
    Seconds warm_up;  // A first step, so that no request pays for first touches.
    Seconds Total() const { return open + map + warm_up; }
  };

  // clock is used during Load only.
  // Errors: those of Checkpoint::Open, Transformer::Load and KvPages::Create; kInvalidArgument for
  // a max_model_len beyond the model's positions, kv_memory that holds less than one sequence, or
  // an isa that this machine lacks.
  static Result<std::unique_ptr<ModelExecutor>> Load(const Options& options, const Clock& clock);
  ~ModelExecutor() override;

  std::vector<SliceResult> Execute(const StepPlan& plan) override;

  const ModelSpec& spec() const;
  const Checkpoint& checkpoint() const;
  Isa isa() const;
  int threads() const;
  int64_t max_model_len() const;
  KvPages& pages();
  const LoadTimes& load_times() const;

 private:
  struct State;
  explicit ModelExecutor(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace divisi
