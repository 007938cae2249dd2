#include "divisi/catalog/expert_config.h"

#include <algorithm>

namespace divisi {
namespace {

constexpr IntBounds kExpertBounds = {1, 1 << 12};
constexpr IntBounds kWidthBounds = {1, 1 << 22};
constexpr IntBounds kRankBounds = {1, 1 << 16};
constexpr IntBounds kHeadPartBounds = {1, 1 << 9};  // Two of them are within a head's bounds.

// Ten times the largest published models: all experts of all layers (DeepSeek V3 has 14,848), and
// all parameters, so that sums of parameters and bytes stay far from 2^63.
constexpr int64_t kMostExperts = int64_t{1} << 18;
constexpr double kMostParameters = 0x1p56;

// Layers of a list in the config: each one's index, from 0.
Result<std::vector<int>> LayerList(const ConfigFields& fields, std::string_view name, int layers) {
  std::vector<int> list;
  const Json* member = fields.Find(name);
  if (member == nullptr) return list;
  if (!member->is_array()) return fields.Invalid(name, "must be a list of layers");
  for (const Json& layer : member->as_array()) {
    if (!layer.is_int() || layer.as_int() < 0 || layer.as_int() >= layers) {
      return fields.Invalid(name, Format("must list layers from 0 to {}", layers - 1));
    }
    list.push_back(static_cast<int>(layer.as_int()));
  }
  return list;
}

// Layer l has experts where mlp_only_layers does not name it and decoder_sparse_step divides l + 1.
Result<void> ParseQwen(const ConfigFields& fields, ModelSpec& spec) {
  MoeSpec& moe = *spec.moe;
  const char* experts = fields.Has("num_experts") ? "num_experts" : "num_local_experts";
  ASSIGN_OR_RETURN(moe.experts, fields.RequiredInt(experts, kExpertBounds));
  ASSIGN_OR_RETURN(moe.expert_intermediate,
                   fields.RequiredInt("moe_intermediate_size", kWidthBounds));
  ASSIGN_OR_RETURN(const auto step, fields.OptionalInt("decoder_sparse_step", {1, spec.layers}));
  ASSIGN_OR_RETURN(const auto dense, LayerList(fields, "mlp_only_layers", spec.layers));
  for (int layer = 0; layer < spec.layers; ++layer) {
    const bool listed = std::ranges::find(dense, layer) != dense.end();
    if (listed || (layer + 1) % step.value_or(1) != 0) moe.dense_layers.push_back(layer);
  }
  return {};
}

// Every layer has experts, as wide as intermediate_size.
Result<void> ParseMixtral(const ConfigFields& fields, ModelSpec& spec) {
  if (fields.Has("sliding_window")) {
    return fields.Unimplemented("sliding_window", "is not supported; full attention is");
  }
  ASSIGN_OR_RETURN(spec.moe->experts, fields.RequiredInt("num_local_experts", kExpertBounds));
  spec.moe->expert_intermediate = spec.intermediate;
  return {};
}

// The first first_k_dense_replace layers are dense; shared experts make one wide MLP.
Result<void> ParseDeepSeek(const ConfigFields& fields, ModelSpec& spec) {
  MoeSpec& moe = *spec.moe;
  ASSIGN_OR_RETURN(moe.experts, fields.RequiredInt("n_routed_experts", kExpertBounds));
  ASSIGN_OR_RETURN(moe.expert_intermediate,
                   fields.RequiredInt("moe_intermediate_size", kWidthBounds));
  ASSIGN_OR_RETURN(const auto shared, fields.OptionalInt("n_shared_experts", {0, 64}));
  const int64_t shared_width = int64_t{shared.value_or(0)} * moe.expert_intermediate;
  if (shared_width > kWidthBounds.most) {
    return fields.Invalid("n_shared_experts", Format("makes an MLP {} wide; at most {} is",
                                                     shared_width, kWidthBounds.most));
  }
  moe.shared_intermediate = static_cast<int>(shared_width);
  ASSIGN_OR_RETURN(const auto step, fields.OptionalInt("moe_layer_freq", {1, spec.layers}));
  if (step.value_or(1) != 1) {
    return fields.Unimplemented("moe_layer_freq", Format("{} is not supported; 1 is", *step));
  }
  ASSIGN_OR_RETURN(const auto dense, fields.OptionalInt("first_k_dense_replace", {0, spec.layers}));
  for (int layer = 0; layer < dense.value_or(0); ++layer) moe.dense_layers.push_back(layer);
  const char* usual = spec.family == "deepseek_v2" ? "greedy" : "noaux_tc";
  ASSIGN_OR_RETURN(const std::string method, fields.Text("topk_method", usual));
  moe.selection_bias = method == "noaux_tc";
  return {};
}

// Errors: kInvalidArgument where the experts are more, or the parameters, than is bounded.
Result<void> CheckSize(const ConfigFields& fields, const ModelSpec& spec) {
  const MoeSpec& moe = *spec.moe;
  const int64_t experts = int64_t{moe.experts} * moe.layers;
  const double parameters =
      static_cast<double>(experts) * 3.0 * spec.hidden * moe.expert_intermediate;
  if (experts <= kMostExperts && parameters <= kMostParameters) return {};
  return fields.Invalid(
      "num_hidden_layers",
      Format("{} with {} experts each makes {} experts of {:g} parameters; at "
             "most {} of {:g} in all are taken",
             moe.layers, moe.experts, experts, 3.0 * spec.hidden * moe.expert_intermediate,
             kMostExperts, kMostParameters));
}

// Bits of one weight under quantization_config.config_groups.group_0.weights.num_bits.
Result<QuantisedWeights> ParseCompressedTensors(const Json& config, const ConfigFields& fields) {
  const Json* weights = &config;
  for (const char* key : {"config_groups", "group_0", "weights"}) {
    weights = weights->Find(key);
    if (weights == nullptr || !weights->is_object()) {
      return fields.Invalid("config_groups", "has no group_0 with weights");
    }
  }
  const ConfigFields inner(*weights, fields.Name("config_groups.group_0.weights."));
  ASSIGN_OR_RETURN(const int bits, inner.RequiredInt("num_bits", {1, 16}));
  ASSIGN_OR_RETURN(const std::string kind, inner.Text("type", "int"));
  if (kind != "int" && kind != "float") return inner.Invalid("type", "must be int or float");
  return QuantisedWeights{.type = Format("{}{}", kind == "int" ? "int" : "fp", bits),
                          .bytes = bits / 8.0};
}

}  // namespace

Result<void> ParseExperts(const ConfigFields& fields, ExpertKeys keys, ModelSpec& spec) {
  spec.moe.emplace();
  MoeSpec& moe = *spec.moe;
  if (keys == ExpertKeys::kQwen) RETURN_IF_ERROR(ParseQwen(fields, spec));
  if (keys == ExpertKeys::kMixtral) RETURN_IF_ERROR(ParseMixtral(fields, spec));
  if (keys == ExpertKeys::kDeepSeek) RETURN_IF_ERROR(ParseDeepSeek(fields, spec));
  moe.layers = spec.layers - static_cast<int>(moe.dense_layers.size());
  ASSIGN_OR_RETURN(moe.experts_per_token,
                   fields.RequiredInt("num_experts_per_tok", {1, moe.experts}));
  return CheckSize(fields, spec);
}

Result<void> ParseLatentAttention(const ConfigFields& fields, ModelSpec& spec) {
  MlaSpec mla;
  ASSIGN_OR_RETURN(const auto query_rank, fields.OptionalInt("q_lora_rank", kRankBounds));
  mla.query_rank = query_rank.value_or(0);
  ASSIGN_OR_RETURN(mla.latent_dim, fields.RequiredInt("kv_lora_rank", kRankBounds));
  ASSIGN_OR_RETURN(mla.rope_dim, fields.RequiredInt("qk_rope_head_dim", kHeadPartBounds));
  ASSIGN_OR_RETURN(mla.nope_dim, fields.RequiredInt("qk_nope_head_dim", kHeadPartBounds));
  ASSIGN_OR_RETURN(mla.value_dim, fields.RequiredInt("v_head_dim", kHeadPartBounds));
  if (mla.rope_dim % 2 != 0) {
    return fields.Invalid("qk_rope_head_dim", Format("is {}; rotary turns pairs of elements, so "
                                                     "it must be even",
                                                     mla.rope_dim));
  }
  ASSIGN_OR_RETURN(const bool bias, fields.Bool("attention_bias", false));
  if (bias) return fields.Unimplemented("attention_bias", "true is not supported; false is");
  spec.head_dim = mla.nope_dim + mla.rope_dim;
  spec.mla = mla;
  return {};
}

Result<std::optional<QuantisedWeights>> ParseQuantisation(const ConfigFields& fields) {
  const Json* config = fields.Find("quantization_config");
  if (config == nullptr) return std::optional<QuantisedWeights>();
  if (!config->is_object()) return fields.Invalid("quantization_config", "must be an object");
  const ConfigFields inner(*config, "quantization_config.");
  ASSIGN_OR_RETURN(const std::string method, inner.Text("quant_method", ""));
  if (method == "fp8") return std::optional(QuantisedWeights{.type = "fp8", .bytes = 1});
  if (method == "compressed-tensors") {
    ASSIGN_OR_RETURN(auto weights, ParseCompressedTensors(*config, inner));
    return std::optional(std::move(weights));
  }
  return inner.Unimplemented("quant_method",
                             Format("{} is not supported; quantised weights may be fp8 or "
                                    "compressed-tensors",
                                    Json(method.substr(0, 60)).Dump()));
}

}  // namespace divisi
