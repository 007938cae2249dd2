#include "divisi/model/model_tensors.h"

#include <functional>
#include <numeric>

namespace divisi {
namespace {

// Adds the weight [outputs, inputs] and, where asked, the bias of one projection.
struct LayerTensors {
  std::vector<ModelTensor>& tensors;
  std::string prefix;  // "model.layers.3."

  void Projection(std::string_view name, int64_t outputs, int64_t inputs, bool bias,
                  ModelPart part) {
    tensors.push_back({Format("{}{}.weight", prefix, name), {outputs, inputs}, part});
    if (bias) tensors.push_back({Format("{}{}.bias", prefix, name), {outputs}, part});
  }
  void Norm(std::string_view name, int64_t width) {
    tensors.push_back({Format("{}{}.weight", prefix, name), {width}, ModelPart::kNorm});
  }
};

void AddLayer(const ModelSpec& spec, int layer, std::vector<ModelTensor>& tensors) {
  LayerTensors add{tensors, Format("model.layers.{}.", layer)};
  const int64_t q_width = static_cast<int64_t>(spec.heads) * spec.head_dim;
  const int64_t kv_width = static_cast<int64_t>(spec.kv_heads) * spec.head_dim;
  add.Norm("input_layernorm", spec.hidden);
  constexpr ModelPart kAttention = ModelPart::kAttention;
  add.Projection("self_attn.q_proj", q_width, spec.hidden, spec.qkv_bias, kAttention);
  add.Projection("self_attn.k_proj", kv_width, spec.hidden, spec.qkv_bias, kAttention);
  add.Projection("self_attn.v_proj", kv_width, spec.hidden, spec.qkv_bias, kAttention);
  add.Projection("self_attn.o_proj", spec.hidden, q_width, spec.output_bias, kAttention);
  if (spec.qk_norm) {
    add.Norm("self_attn.q_norm", spec.head_dim);
    add.Norm("self_attn.k_norm", spec.head_dim);
  }
  add.Norm("post_attention_layernorm", spec.hidden);
  constexpr ModelPart kMlp = ModelPart::kMlp;
  add.Projection("mlp.gate_proj", spec.intermediate, spec.hidden, spec.mlp_bias, kMlp);
  add.Projection("mlp.up_proj", spec.intermediate, spec.hidden, spec.mlp_bias, kMlp);
  add.Projection("mlp.down_proj", spec.hidden, spec.intermediate, spec.mlp_bias, kMlp);
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
