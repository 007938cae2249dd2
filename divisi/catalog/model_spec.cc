#include "divisi/catalog/model_spec.h"

#include <algorithm>

#include "divisi/catalog/config_fields.h"
#include "divisi/catalog/expert_config.h"
#include "divisi/catalog/rope_config.h"

namespace divisi {
namespace {

// What a family implies without its config saying so. Source: transformers' configuration and
// modeling files of each family.
struct Family {
  const char* name;
  const char* architecture;  // where the config names none
  int default_head_dim;      // 0: hidden / heads
  bool qkv_bias;             // always, whatever the config says
  bool reads_attention_bias;
  bool reads_mlp_bias;
  bool qk_norm;
  ExpertKeys experts = ExpertKeys::kNone;
  bool latent_attention = false;
};
constexpr Family DeepSeekFamily(const char* name, const char* architecture) {
  return {.name = name,
          .architecture = architecture,
          .default_head_dim = 0,
          .qkv_bias = false,
          .reads_attention_bias = false,
          .reads_mlp_bias = false,
          .qk_norm = false,
          .experts = ExpertKeys::kDeepSeek,
          .latent_attention = true};
}
constexpr Family kFamilies[] = {
    {.name = "qwen3",
     .architecture = "Qwen3ForCausalLM",
     .default_head_dim = 128,
     .qkv_bias = false,
     .reads_attention_bias = true,
     .reads_mlp_bias = false,
     .qk_norm = true},
    {.name = "qwen2",
     .architecture = "Qwen2ForCausalLM",
     .default_head_dim = 0,
     .qkv_bias = true,
     .reads_attention_bias = false,
     .reads_mlp_bias = false,
     .qk_norm = false},
    {.name = "llama",
     .architecture = "LlamaForCausalLM",
     .default_head_dim = 0,
     .qkv_bias = false,
     .reads_attention_bias = true,
     .reads_mlp_bias = true,
     .qk_norm = false},
    {.name = "qwen3_moe",
     .architecture = "Qwen3MoeForCausalLM",
     .default_head_dim = 128,
     .qkv_bias = false,
     .reads_attention_bias = true,
     .reads_mlp_bias = false,
     .qk_norm = true,
     .experts = ExpertKeys::kQwen},
    {.name = "mixtral",
     .architecture = "MixtralForCausalLM",
     .default_head_dim = 0,
     .qkv_bias = false,
     .reads_attention_bias = false,
     .reads_mlp_bias = false,
     .qk_norm = false,
     .experts = ExpertKeys::kMixtral},
    DeepSeekFamily("deepseek_v2", "DeepseekV2ForCausalLM"),
    DeepSeekFamily("deepseek_v3", "DeepseekV3ForCausalLM"),
    DeepSeekFamily("kimi_k2", "DeepseekV3ForCausalLM"),
};

// Bounds: well beyond the largest published model, and so small that every product of them that
// Parameters and KvBytesPerToken form of a dense model fits int64_t: layers * 3 * hidden *
// intermediate <= 2^56, vocab * hidden <= 2^44, and heads * head_dim <= 2^22 fits int. Experts
// multiply once more, so ParseExperts bounds their product.
constexpr IntBounds kLayerBounds = {1, 1 << 12};
constexpr IntBounds kHiddenBounds = {1, 1 << 20};
constexpr IntBounds kHeadBounds = {1, 1 << 12};
constexpr IntBounds kHeadDimBounds = {2, 1 << 10};
constexpr IntBounds kIntermediateBounds = {1, 1 << 22};
constexpr IntBounds kVocabBounds = {1, 1 << 24};
constexpr IntBounds kPositionBounds = {1, 1 << 30};
constexpr size_t kMostEosIds = 1024;

Result<const Family*> FindFamily(const ConfigFields& fields) {
  ASSIGN_OR_RETURN(const std::string name, fields.Text("model_type", ""));
  std::string known;
  for (const Family& family : kFamilies) {
    if (name == family.name) return &family;
    known += Format("{}{}", known.empty() ? "; known are " : ", ", family.name);
  }
  if (name.empty()) return fields.Invalid("model_type", "is missing" + known);
  return fields.Unimplemented(
      "model_type", Format("{} is not supported{}", Json(name.substr(0, 60)).Dump(), known));
}

Result<std::string> ParseArchitecture(const ConfigFields& fields, const Family& family) {
  const Json* list = fields.Find("architectures");
  if (list == nullptr) return std::string(family.architecture);
  if (!list->is_array() || list->as_array().empty() || !list->as_array()[0].is_string()) {
    return fields.Invalid("architectures", "must be a list of names");
  }
  const std::string& name = list->as_array()[0].as_string();
  if (!name.ends_with("ForCausalLM")) {
    return fields.Unimplemented(
        "architectures", Format("names {}; only a causal language model (...ForCausalLM) can be "
                                "served",
                                Json(name.substr(0, 60)).Dump()));
  }
  return name;
}

Result<void> ParseShapes(const ConfigFields& fields, const Family& family, ModelSpec& spec) {
  ASSIGN_OR_RETURN(spec.layers, fields.RequiredInt("num_hidden_layers", kLayerBounds));
  ASSIGN_OR_RETURN(spec.hidden, fields.RequiredInt("hidden_size", kHiddenBounds));
  ASSIGN_OR_RETURN(spec.heads, fields.RequiredInt("num_attention_heads", kHeadBounds));
  ASSIGN_OR_RETURN(spec.intermediate, fields.RequiredInt("intermediate_size", kIntermediateBounds));
  ASSIGN_OR_RETURN(spec.vocab, fields.RequiredInt("vocab_size", kVocabBounds));
  ASSIGN_OR_RETURN(spec.max_positions,
                   fields.RequiredInt("max_position_embeddings", kPositionBounds));
  ASSIGN_OR_RETURN(const auto kv_heads, fields.OptionalInt("num_key_value_heads", kHeadBounds));
  spec.kv_heads = kv_heads.value_or(spec.heads);
  if (spec.heads % spec.kv_heads != 0) {
    return fields.Invalid("num_key_value_heads", Format("is {}, which does not divide "
                                                        "num_attention_heads, {}",
                                                        spec.kv_heads, spec.heads));
  }
  ASSIGN_OR_RETURN(const auto head_dim, fields.OptionalInt("head_dim", kHeadDimBounds));
  if (family.latent_attention) return {};  // Its heads have shapes of their own.
  if (!head_dim && family.default_head_dim == 0 && spec.hidden % spec.heads != 0) {
    return fields.Invalid("num_attention_heads",
                          Format("is {}, which does not divide hidden_size, {}, and head_dim is "
                                 "missing",
                                 spec.heads, spec.hidden));
  }
  spec.head_dim = head_dim.value_or(family.default_head_dim > 0 ? family.default_head_dim
                                                                : spec.hidden / spec.heads);
  // Rotary turns pairs of elements.
  if (spec.head_dim % 2 != 0 || spec.head_dim > kHeadDimBounds.most || spec.head_dim < 2) {
    return fields.Invalid(head_dim ? "head_dim" : "num_attention_heads",
                          Format("makes heads of {} elements; they must be even and from {} to {}",
                                 spec.head_dim, kHeadDimBounds.least, kHeadDimBounds.most));
  }
  return {};
}

Result<void> ParseBiases(const ConfigFields& fields, const Family& family, ModelSpec& spec) {
  spec.qk_norm = family.qk_norm;
  spec.qkv_bias = family.qkv_bias;
  if (family.reads_attention_bias) {
    ASSIGN_OR_RETURN(const bool bias, fields.Bool("attention_bias", false));
    spec.qkv_bias = spec.output_bias = bias;
  }
  if (family.reads_mlp_bias) {
    ASSIGN_OR_RETURN(spec.mlp_bias, fields.Bool("mlp_bias", false));
  }
  ASSIGN_OR_RETURN(spec.tie_embeddings, fields.Bool("tie_word_embeddings", false));
  return {};
}

// Errors: kUnimplemented when a layer attends to less than its whole past.
Result<void> CheckFullAttention(const ConfigFields& fields, int layers) {
  ASSIGN_OR_RETURN(const bool sliding, fields.Bool("use_sliding_window", false));
  if (sliding) {
    return fields.Unimplemented("use_sliding_window", "true is not supported; full attention is");
  }
  const Json* types = fields.Find("layer_types");
  if (types == nullptr) return {};
  if (!types->is_array()) return fields.Invalid("layer_types", "must be a list");
  if (types->as_array().size() != static_cast<size_t>(layers)) {
    return fields.Invalid("layer_types", Format("names {} layers, but num_hidden_layers is {}",
                                                types->as_array().size(), layers));
  }
  for (const Json& type : types->as_array()) {
    if (!type.is_string()) return fields.Invalid("layer_types", "must be a list of names");
    if (type.as_string() != "full_attention") {
      return fields.Unimplemented("layer_types",
                                  Format("names {}; only full_attention is supported",
                                         Json(type.as_string().substr(0, 60)).Dump()));
    }
  }
  return {};
}

// Two names of x * sigmoid(x).
constexpr std::string_view kActivations[] = {"silu", "swish"};

Result<void> CheckSupported(const ConfigFields& fields) {
  ASSIGN_OR_RETURN(const std::string activation, fields.Text("hidden_act", "silu"));
  if (std::ranges::find(kActivations, activation) == std::end(kActivations)) {
    return fields.Unimplemented("hidden_act", Format("{} is not supported; silu is",
                                                     Json(activation.substr(0, 60)).Dump()));
  }
  if (fields.Has("compression_config")) {
    return fields.Unimplemented("compression_config", "is not supported; quantization_config is");
  }
  return {};
}

Result<DataType> ParseStoredType(const ConfigFields& fields) {
  // "dtype" since transformers 4.56, "torch_dtype" before.
  const char* field = fields.Has("dtype") ? "dtype" : "torch_dtype";
  ASSIGN_OR_RETURN(const std::string name, fields.Text(field, DataTypeName(DataType::kBf16)));
  for (const DataType type : {DataType::kBf16, DataType::kF16, DataType::kF32}) {
    if (name == DataTypeName(type)) return type;
  }
  return fields.Unimplemented(field,
                              Format("{} is not supported; bfloat16, float16 and float32 are",
                                     Json(name.substr(0, 60)).Dump()));
}

Result<void> ParseSpecialTokens(const ConfigFields& fields, ModelSpec& spec) {
  const IntBounds ids = {0, spec.vocab - 1};
  ASSIGN_OR_RETURN(spec.bos_token_id, fields.OptionalInt("bos_token_id", ids));
  const Json* eos = fields.Find("eos_token_id");
  if (eos == nullptr) return {};
  if (!eos->is_array()) {
    ASSIGN_OR_RETURN(const auto id, fields.OptionalInt("eos_token_id", ids));
    spec.eos_token_ids.push_back(*id);
    return {};
  }
  if (eos->as_array().size() > kMostEosIds) {
    return fields.Invalid("eos_token_id", Format("lists more than {} ids", kMostEosIds));
  }
  for (const Json& id : eos->as_array()) {
    if (!id.is_int() || id.as_int() < ids.least || id.as_int() > ids.most) {
      return fields.Invalid("eos_token_id", Format("must list integers from 0 to {}", ids.most));
    }
    spec.eos_token_ids.push_back(static_cast<int>(id.as_int()));
  }
  return {};
}

}  // namespace

int64_t ElementBytes(DataType type) { return type == DataType::kF32 ? 4 : 2; }

const char* DataTypeName(DataType type) {
  switch (type) {
    case DataType::kBf16:
      return "bfloat16";
    case DataType::kF16:
      return "float16";
    case DataType::kF32:
      return "float32";
  }
  CHECK(false, "no data type {}", static_cast<int>(type));
}

Result<ModelSpec> ParseModelSpec(const Json& config) {
  if (!config.is_object()) {
    return Error{Code::kInvalidArgument,
                 Format("the config must be a JSON object, not {}", config.TypeName())};
  }
  const ConfigFields fields(config);
  ModelSpec spec;
  ASSIGN_OR_RETURN(const Family* family, FindFamily(fields));
  spec.family = family->name;
  ASSIGN_OR_RETURN(spec.architecture, ParseArchitecture(fields, *family));
  RETURN_IF_ERROR(CheckSupported(fields));
  RETURN_IF_ERROR(ParseShapes(fields, *family, spec));
  if (family->latent_attention) RETURN_IF_ERROR(ParseLatentAttention(fields, spec));
  if (family->experts != ExpertKeys::kNone) {
    RETURN_IF_ERROR(ParseExperts(fields, family->experts, spec));
  }
  RETURN_IF_ERROR(CheckFullAttention(fields, spec.layers));
  RETURN_IF_ERROR(ParseBiases(fields, *family, spec));
  ASSIGN_OR_RETURN(spec.norm_eps, fields.Number("rms_norm_eps", 1e-6, {1e-12, 1}));
  ASSIGN_OR_RETURN(const RopeConfig rope, ParseRopeConfig(fields, spec.max_positions));
  spec.rope_theta = rope.theta;
  spec.rope_scaling = rope.scaling;
  ASSIGN_OR_RETURN(spec.stored_type, ParseStoredType(fields));
  ASSIGN_OR_RETURN(spec.quantised, ParseQuantisation(fields));
  RETURN_IF_ERROR(ParseSpecialTokens(fields, spec));
  return spec;
}

}  // namespace divisi
