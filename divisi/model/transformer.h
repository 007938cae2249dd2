// The forward pass of a dense decoder: embedding, layers of grouped-query attention and SwiGLU,
// final norm, head. Weights stay in the checkpoint's mapping unless CopyWeights is called.
//
// The residual stream and all sums are f32; what enters a matrix product is rounded to the compute
// type. Logits of a row are a function of its sequence's tokens up to it, bit for bit: neither the
// rest of the batch, nor the cuts of a prefill, nor which rows' logits are asked for change them.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "divisi/model/checkpoint.h"
#include "divisi/model/ops.h"

namespace divisi {

// A run of one sequence's tokens in a step.
struct ForwardSequence {
  std::span<const TokenId> tokens;  // At positions start, start + 1, ...; at least one.
  int64_t start = 0;
  std::span<const BlockId> pages;  // Pages of positions [0, start + tokens.size()), perhaps more.
  int64_t logits_rows = 1;         // Logits of the last this many tokens; 0: none.
};

class Transformer {
 public:
  // checkpoint outlives this.
  // max_positions: the longest sequence that will be run.
  // Errors: those of LoadTransformerWeights.
  static Result<Transformer> Load(const Checkpoint& checkpoint, ComputeType compute,
                                  int64_t max_positions);
  Transformer(Transformer&&) noexcept;
  Transformer& operator=(Transformer&&) noexcept;
  ~Transformer();

  // Moves the matrices out of the checkpoint's mapping: CopyMatrices. Tokens do not change.
  Result<void> CopyWeights(ThreadPool& pool,
                           const std::function<void(Bytes done, Bytes total)>& progress);

  const ModelSpec& spec() const;
  ComputeType compute() const;
  int64_t max_positions() const;
  KvLayout kv_layout() const;

  // Runs all sequences as one batch and writes their K and V into `pages`. Returns R, the sum of
  // logits_rows: how many rows, sequence by sequence, Logits can now be asked for.
  // Requires: token ids below spec().vocab; positions below max_positions; K and V of [0, start) in
  // the pages when a layer reads them; pages of different sequences differ where written.
  // before_attention: called with each layer before K and V of [0, start) in it are read, so that
  // they may come while the step runs. May be empty.
  using LayerHook = std::function<void(int layer)>;
  int64_t Run(std::span<const ForwardSequence> batch, KvPages& pages, Ops& ops,
              const LayerHook& before_attention = {});

  // Logits [rows, V] f32 of rows [first, first + rows) of the last Run; valid until the next call.
  // A long prompt's logits at once can be larger than the model: ask in parts.
  std::span<const float> Logits(int64_t first, int64_t rows, Ops& ops);

  // Both: logits [R, V] of all rows asked for; valid until the next call.
  std::span<const float> Forward(std::span<const ForwardSequence> batch, KvPages& pages, Ops& ops);

 private:
  struct State;
  explicit Transformer(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace divisi
