// The weights of a dense decoder, found in a checkpoint under Hugging Face's names: matrices stay
// in its mapping, gains and biases (a few KiB a layer) are copied to f32.
//
// What families differ in is values of the spec: an absent bias or norm is an empty vector.
#pragma once

#include <functional>
#include <vector>

#include "divisi/core/huge_memory.h"
#include "divisi/core/thread_pool.h"
#include "divisi/model/checkpoint.h"
#include "divisi/model/ops.h"

namespace divisi {

// Grouped-query attention; A = heads * Dh, C = kv_heads * Dh.
struct AttentionWeights {
  std::vector<float> norm;                                           // [H], before the projections
  WeightMatrix query, key, value;                                    // [A, H], [C, H], [C, H]
  WeightMatrix output;                                               // [H, A]
  std::vector<float> query_bias, key_bias, value_bias, output_bias;  // Or empty
  std::vector<float> query_norm, key_norm;                           // [Dh] or empty
};

// down(silu(gate(x)) * up(x))
struct MlpWeights {
  std::vector<float> norm;                           // [H], before the projections
  WeightMatrix gate, up, down;                       // [F, H], [F, H], [H, F]
  std::vector<float> gate_bias, up_bias, down_bias;  // Or empty
};

struct LayerWeights {
  AttentionWeights attention;
  MlpWeights mlp;
};

struct TransformerWeights {
  WeightMatrix embedding;  // [V, H]
  std::vector<LayerWeights> layers;
  std::vector<float> norm;  // [H]
  WeightMatrix head;        // [V, H]; the embedding where tied
};

// checkpoint outlives the result. Names may lack the "model." prefix, as those of a bare decoder
// saved without its head do. Where the spec ties the head, a stored lm_head is ignored.
// Errors: those of CheckServable; kNotFound or kDataLoss for a missing or misshapen tensor, by
// name; kUnimplemented for matrices that are not bf16 in bf16 compute (the remedy: --dtype
// float32), and for odd widths.
Result<TransformerWeights> LoadTransformerWeights(const Checkpoint& checkpoint,
                                                  ComputeType compute);

// Copies the matrices into memory of their own, which they then refer to, and returns it. A file's
// mapping lies on 4 KiB pages; reading a decode step's weights from huge ones was a third faster
// here. Calls progress(done, total) as it goes, and at least once.
// Errors: kResourceExhausted when the system refuses; the weights then are as they were.
Result<HugeMemory> CopyMatrices(TransformerWeights& weights, ThreadPool& pool,
                                const std::function<void(Bytes done, Bytes total)>& progress);

}  // namespace divisi
