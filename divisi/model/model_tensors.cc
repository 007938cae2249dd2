#include "divisi/model/model_tensors.h"

#include <algorithm>
#include <functional>
#include <numeric>

namespace divisi {
namespace {

// Adds the tensors of one layer.
struct LayerTensors {
  std::vector<ModelTensor>& tensors;
  std::string prefix;  // "model.layers.3."

  void Matrix(std::string_view name, int64_t outputs, int64_t inputs, ModelPart part) {
    tensors.push_back({Format("{}{}.weight", prefix, name), {outputs, inputs}, part});
  }
  void Projection(std::string_view name, int64_t outputs, int64_t inputs, bool bias,
                  ModelPart part) {
    Matrix(name, outputs, inputs, part);
    if (bias) Vector(Format("{}.bias", name), outputs, part);
  }
  void Vector(std::string_view full_name, int64_t width, ModelPart part) {
    tensors.push_back({Format("{}{}", prefix, full_name), {width}, part});
  }
  void Norm(std::string_view name, int64_t width) {
    tensors.push_back({Format("{}{}.weight", prefix, name), {width}, ModelPart::kNorm});
  }
};

constexpr ModelPart kAttention = ModelPart::kAttention;
constexpr ModelPart kMlp = ModelPart::kMlp;

void AddGroupedAttention(const ModelSpec& spec, LayerTensors& add) {
  const int64_t q_width = static_cast<int64_t>(spec.heads) * spec.head_dim;
  const int64_t kv_width = static_cast<int64_t>(spec.kv_heads) * spec.head_dim;
  add.Projection("self_attn.q_proj", q_width, spec.hidden, spec.qkv_bias, kAttention);
  add.Projection("self_attn.k_proj", kv_width, spec.hidden, spec.qkv_bias, kAttention);
  add.Projection("self_attn.v_proj", kv_width, spec.hidden, spec.qkv_bias, kAttention);
  add.Projection("self_attn.o_proj", spec.hidden, q_width, spec.output_bias, kAttention);
  if (spec.qk_norm) {
    add.Norm("self_attn.q_norm", spec.head_dim);
    add.Norm("self_attn.k_norm", spec.head_dim);
  }
}

void AddLatentAttention(const ModelSpec& spec, const MlaSpec& mla, LayerTensors& add) {
  const int64_t heads = spec.heads;
  const int64_t queries = heads * (mla.nope_dim + mla.rope_dim);
  if (mla.query_rank > 0) {
    add.Matrix("self_attn.q_a_proj", mla.query_rank, spec.hidden, kAttention);
    add.Norm("self_attn.q_a_layernorm", mla.query_rank);
    add.Matrix("self_attn.q_b_proj", queries, mla.query_rank, kAttention);
  } else {
    add.Matrix("self_attn.q_proj", queries, spec.hidden, kAttention);
  }
  add.Matrix("self_attn.kv_a_proj_with_mqa", mla.latent_dim + mla.rope_dim, spec.hidden,
             kAttention);
  add.Norm("self_attn.kv_a_layernorm", mla.latent_dim);
  add.Matrix("self_attn.kv_b_proj", heads * (mla.nope_dim + mla.value_dim), mla.latent_dim,
             kAttention);
  add.Matrix("self_attn.o_proj", spec.hidden, heads * mla.value_dim, kAttention);
}

void AddExperts(const ModelSpec& spec, const MoeSpec& moe, LayerTensors& add) {
  // Mixtral's names: w1 is the gate, w3 goes up, w2 comes down.
  const bool mixtral = spec.family == "mixtral";
  const std::string block = mixtral ? "block_sparse_moe" : "mlp";
  const int64_t width = moe.expert_intermediate;
  add.Matrix(block + ".gate", moe.experts, spec.hidden, ModelPart::kRouter);
  if (moe.selection_bias) {
    add.Vector(block + ".gate.e_score_correction_bias", moe.experts, ModelPart::kRouter);
  }
  for (int expert = 0; expert < moe.experts; ++expert) {
    const std::string prefix = Format("{}.experts.{}.", block, expert);
    constexpr ModelPart kExpert = ModelPart::kExpert;
    add.Matrix(prefix + (mixtral ? "w1" : "gate_proj"), width, spec.hidden, kExpert);
    add.Matrix(prefix + (mixtral ? "w3" : "up_proj"), width, spec.hidden, kExpert);
    add.Matrix(prefix + (mixtral ? "w2" : "down_proj"), spec.hidden, width, kExpert);
  }
  if (moe.shared_intermediate == 0) return;
  add.Matrix("mlp.shared_experts.gate_proj", moe.shared_intermediate, spec.hidden, kMlp);
  add.Matrix("mlp.shared_experts.up_proj", moe.shared_intermediate, spec.hidden, kMlp);
  add.Matrix("mlp.shared_experts.down_proj", spec.hidden, moe.shared_intermediate, kMlp);
}

void AddDenseMlp(const ModelSpec& spec, LayerTensors& add) {
  add.Projection("mlp.gate_proj", spec.intermediate, spec.hidden, spec.mlp_bias, kMlp);
  add.Projection("mlp.up_proj", spec.intermediate, spec.hidden, spec.mlp_bias, kMlp);
  add.Projection("mlp.down_proj", spec.hidden, spec.intermediate, spec.mlp_bias, kMlp);
}

bool HasExperts(const ModelSpec& spec, int layer) {
  return spec.moe && !std::ranges::binary_search(spec.moe->dense_layers, layer);
}

void AddLayer(const ModelSpec& spec, int layer, std::vector<ModelTensor>& tensors) {
  LayerTensors add{tensors, Format("model.layers.{}.", layer)};
  add.Norm("input_layernorm", spec.hidden);
  if (spec.mla) {
    AddLatentAttention(spec, *spec.mla, add);
  } else {
    AddGroupedAttention(spec, add);
  }
  add.Norm("post_attention_layernorm", spec.hidden);
  if (HasExperts(spec, layer)) {
    AddExperts(spec, *spec.moe, add);
  } else {
    AddDenseMlp(spec, add);
  }
}

}  // namespace

const char* ModelPartName(ModelPart part) {
  switch (part) {
    case ModelPart::kEmbedding:
      return "embedding";
    case ModelPart::kAttention:
      return "attention";
    case ModelPart::kMlp:
      return "mlp";
    case ModelPart::kRouter:
      return "router";
    case ModelPart::kExpert:
      return "expert";
    case ModelPart::kNorm:
      return "norm";
    case ModelPart::kHead:
      return "head";
  }
  CHECK(false, "no part {}", static_cast<int>(part));
}

std::vector<ModelTensor> ModelTensors(const ModelSpec& spec) {
  std::vector<ModelTensor> tensors;
  tensors.push_back(
      {"model.embed_tokens.weight", {spec.vocab, spec.hidden}, ModelPart::kEmbedding});
  for (int layer = 0; layer < spec.layers; ++layer) AddLayer(spec, layer, tensors);
  tensors.push_back({"model.norm.weight", {spec.hidden}, ModelPart::kNorm});
  if (!spec.tie_embeddings) {
    tensors.push_back({"lm_head.weight", {spec.vocab, spec.hidden}, ModelPart::kHead});
  }
  return tensors;
}

int64_t Elements(const std::vector<int64_t>& shape) {
  return std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies());
}

}  // namespace divisi
