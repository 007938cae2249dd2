// The weights of a dense decoder, found in a checkpoint under Hugging Face's names: matrices stay
// in its mapping, gains and biases (a few KiB a layer) are copied to f32.
//
// What families differ in is values of the spec: an absent bias or norm is an empty vector.
#pragma once

#include <vector>

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
// Errors: kNotFound or kDataLoss for a missing or misshapen tensor, by name; kUnimplemented for
// matrices that are not bf16 in bf16 compute (the remedy: --dtype float32), and for odd widths.
Result<TransformerWeights> LoadTransformerWeights(const Checkpoint& checkpoint,
                                                  ComputeType compute);

}  // namespace divisi
