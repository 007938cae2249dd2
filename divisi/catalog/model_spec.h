// What a model is, read from its Hugging Face config.json: shapes and the choices that change
// arithmetic. No weights. Planner, simulator and server all take a model as this.
//
// Families: Qwen3 (per-head q/k norms), Qwen2 and 2.5 (q/k/v biases), Llama 3 (scaled rotary);
// with experts: Qwen3-MoE, Mixtral, and with latent attention DeepSeek V2, V3, R1 and Kimi K2. A
// new family is a new set of values here, not a new class. Which of them can be served:
// CheckServable (model/servable.h); planning takes them all.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "divisi/core/json.h"
#include "divisi/core/units.h"

namespace divisi {

// How a number is stored.
enum class DataType { kBf16, kF16, kF32 };
int64_t ElementBytes(DataType type);
// "bfloat16", "float16", "float32": the names that config.json uses.
const char* DataTypeName(DataType type);

// How rotary frequencies are changed for contexts beyond the trained one.
struct RopeScaling {
  enum class Kind { kNone, kLinear, kLlama3, kYarn };
  Kind kind = Kind::kNone;
  double factor = 1;
  double original_max_positions = 0;  // kLlama3, kYarn
  double low_freq_factor = 1;         // kLlama3
  double high_freq_factor = 4;        // kLlama3
  double beta_fast = 32;              // kYarn
  double beta_slow = 1;               // kYarn
  bool truncate = true;               // kYarn
  std::optional<double> attention_factor;
  double mscale = 0;          // kYarn; 0 where the config names none
  double mscale_all_dim = 0;  // kYarn
};

// Multi-head latent attention (DeepSeek): keys and values of all heads come from one latent vector,
// which with a rotary part is all that is cached.
// Source: DeepSeek-V2, arXiv:2405.04434, section 2.1.
struct MlaSpec {
  int query_rank = 0;  // q_lora_rank; 0: queries are projected directly.
  int latent_dim = 0;  // kv_lora_rank, cached
  int rope_dim = 0;    // qk_rope_head_dim, cached once for all heads
  int nope_dim = 0;    // qk_nope_head_dim
  int value_dim = 0;   // v_head_dim
};

// A mixture of experts: which layers have one, and what a token meets there.
// Source: transformers' modeling files of qwen3_moe, mixtral, deepseek_v2 and deepseek_v3.
struct MoeSpec {
  int experts = 0;                // E, routed ones of a layer
  int experts_per_token = 0;      // k
  int expert_intermediate = 0;    // Width of one routed expert
  int shared_intermediate = 0;    // Width of the shared expert(s) together; 0: none
  int layers = 0;                 // Layers that have experts; the others have a dense MLP.
  std::vector<int> dense_layers;  // Those others, ascending, from 0.
  // A bias per expert that steers which are chosen and weighs nothing (DeepSeek V3).
  bool selection_bias = false;
};

// Weights stored in fewer bits than stored_type; their scales are not counted.
struct QuantisedWeights {
  std::string type;  // "fp8", "int4"
  double bytes = 1;  // Of one element of a projection or an expert; the rest is in stored_type.
};

struct ModelSpec {
  std::string family;        // config.json's model_type: "qwen3", "qwen2", "llama", ...
  std::string architecture;  // architectures[0]
  int layers = 0;
  int hidden = 0;        // H
  int heads = 0;         // query heads
  int kv_heads = 0;      // divides heads
  int head_dim = 0;      // Dh; need not be hidden / heads. With mla: of a query, nope + rope.
  int intermediate = 0;  // F, the MLP's width
  int vocab = 0;         // V, rows of the embedding
  int max_positions = 0;
  double norm_eps = 1e-6;
  double rope_theta = 10000;
  RopeScaling rope_scaling;
  bool tie_embeddings = false;  // lm_head is the embedding
  bool qkv_bias = false;        // q, k and v projections add a bias (Qwen2)
  bool output_bias = false;     // o_proj adds a bias (Llama with attention_bias)
  bool mlp_bias = false;        // gate, up and down add a bias (Llama with mlp_bias)
  bool qk_norm = false;         // q and k are RMS-normalised per head before rotary (Qwen3)
  std::optional<MlaSpec> mla;   // Absent: grouped-query attention of heads, kv_heads, head_dim.
  std::optional<MoeSpec> moe;   // Absent: every layer has the dense MLP.
  DataType stored_type = DataType::kBf16;  // torch_dtype / dtype
  std::optional<QuantisedWeights> quantised;
  std::vector<int> eos_token_ids;
  std::optional<int> bos_token_id;

  // Weights in total: embeddings, layers, norms, all experts; the tied head counts once. Layers for
  // predicting several tokens at once (MTP), which some checkpoints append, do not count.
  int64_t Parameters() const;
  // Those that one token meets: of the experts, the chosen and the shared.
  int64_t ActiveParameters() const;
  // What is cached of one token over all layers: K and V together, or the latent and rotary part.
  Bytes KvBytesPerToken(DataType kv_type) const;
};

// Reads a config.json.
// Errors: kInvalidArgument for a missing, mistyped, absurd or contradictory field, which the
// message names; kUnimplemented for a family, an activation or a feature (sliding window in use,
// unknown kind of quantisation or rope) that Divisi lacks, naming what it has.
Result<ModelSpec> ParseModelSpec(const Json& config);

}  // namespace divisi
