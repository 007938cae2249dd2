// The forward pass of a dense decoder: embedding, layers of grouped-query attention and SwiGLU,
// final norm, head. Weights stay in the checkpoint's mapping.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "divisi/model/checkpoint.h"
#include "divisi/model/ops.h"

namespace divisi {

// A run of one sequence's tokens in a step.
struct ForwardSequence {
  std::span<const TokenId> tokens;  // At positions start, start + 1, ...
  int64_t start = 0;
  std::span<const BlockId> pages;   // Pages of positions [0, start + tokens.size()).
  int64_t logits_rows = 1;          // Logits of the last this many tokens; 0: none.
};

class Transformer {
 public:
  // checkpoint outlives this.
  // max_positions: the longest sequence that will be run.
  // Errors: kNotFound or kDataLoss for a missing or misshapen tensor, by name.
  static Result<Transformer> Load(const Checkpoint& checkpoint, ComputeType compute,
                                  int64_t max_positions);
  Transformer(Transformer&&) noexcept;
  Transformer& operator=(Transformer&&) noexcept;
  ~Transformer();

  const ModelSpec& spec() const;
  ComputeType compute() const;
  KvLayout kv_layout() const;

  // Runs all sequences as one batch and writes their K and V into `pages`.
  // Returns logits [R, V] f32, R the sum of logits_rows, sequence by sequence; valid until the next
  // call.
  // Requires: token ids below spec().vocab; pages of different sequences differ where written.
  std::span<const float> Forward(std::span<const ForwardSequence> batch, KvPages& pages, Ops& ops);

 private:
  struct State;
  explicit Transformer(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace divisi
