#include "tests/random_checkpoint.h"

#include <unistd.h>

#include <bit>
#include <cmath>
#include <cstring>

#include "divisi/core/check.h"
#include "divisi/core/file.h"
#include "divisi/core/format.h"
#include "divisi/model/safetensors_writer.h"

namespace divisi {
namespace {

// To nearest, ties to even; values here are finite.
uint16_t ToBf16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  return static_cast<uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

// To nearest, ties to even, for |value| < 65504; under 2^-14 to a multiple of 2^-24.
uint16_t ToHalf(float value) {
  const uint16_t sign = std::signbit(value) ? 0x8000 : 0;
  const double magnitude = std::abs(static_cast<double>(value));
  int exponent = 0;
  std::frexp(magnitude, &exponent);
  exponent = std::max(exponent - 1, -14);  // magnitude = m * 2^exponent, 1 <= m < 2 if normal
  const double steps = std::nearbyint(std::ldexp(magnitude, 10 - exponent));
  // Adding, not joining: a mantissa rounded up to 2^11 carries into the exponent.
  const int base = steps >= 1024 ? (exponent + 15) << 10 : 0;
  return static_cast<uint16_t>(sign + base + static_cast<int>(steps) - (steps >= 1024 ? 1024 : 0));
}

double FromHalf(uint16_t bits) {
  const int exponent = (bits >> 10) & 31;
  const int mantissa = bits & 1023;
  const double magnitude =
      exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(1024 + mantissa, exponent - 25);
  return (bits & 0x8000) != 0 ? -magnitude : magnitude;
}

std::string Encode(const std::vector<float>& values, DataType type) {
  std::string bytes;
  for (const float value : values) {
    if (type == DataType::kF32) {
      bytes.append(reinterpret_cast<const char*>(&value), 4);
    } else {
      const uint16_t bits = type == DataType::kBf16 ? ToBf16(value) : ToHalf(value);
      bytes.append(reinterpret_cast<const char*>(&bits), 2);
    }
  }
  return bytes;
}

// Draws tensors one after another.
struct TensorSource {
  Random random;
  NamedTensors tensors;

  void Matrix(const std::string& name, int64_t rows, int64_t cols, double scale = 1) {
    TensorValues& tensor = tensors[name];
    tensor.shape = {rows, cols};
    const double deviation = scale / std::sqrt(static_cast<double>(cols));
    for (int64_t i = 0; i < rows * cols; ++i) {
      tensor.values.push_back(static_cast<float>(deviation * random.Normal()));
    }
  }
  void Vector(const std::string& name, int64_t size, double mean) {
    TensorValues& tensor = tensors[name];
    tensor.shape = {size};
    for (int64_t i = 0; i < size; ++i) {
      tensor.values.push_back(static_cast<float>(mean + 0.2 * random.Normal()));
    }
  }
};

void AddLayer(TensorSource& source, const RandomShape& shape, int layer) {
  const std::string prefix = Format("model.layers.{}.", layer);
  const int64_t hidden = shape.hidden;
  const int64_t queries = int64_t{shape.heads} * shape.head_dim;
  const int64_t keys = int64_t{shape.kv_heads} * shape.head_dim;
  source.Vector(prefix + "input_layernorm.weight", hidden, 1);
  source.Vector(prefix + "post_attention_layernorm.weight", hidden, 1);
  source.Matrix(prefix + "self_attn.q_proj.weight", queries, hidden, 2);
  source.Matrix(prefix + "self_attn.k_proj.weight", keys, hidden, 2);
  source.Matrix(prefix + "self_attn.v_proj.weight", keys, hidden);
  source.Matrix(prefix + "self_attn.o_proj.weight", hidden, queries);
  source.Matrix(prefix + "mlp.gate_proj.weight", shape.intermediate, hidden);
  source.Matrix(prefix + "mlp.up_proj.weight", shape.intermediate, hidden);
  source.Matrix(prefix + "mlp.down_proj.weight", hidden, shape.intermediate);
  if (shape.family == "qwen3") {
    source.Vector(prefix + "self_attn.q_norm.weight", shape.head_dim, 1.5);
    source.Vector(prefix + "self_attn.k_norm.weight", shape.head_dim, 1.5);
  }
  if (shape.family == "qwen2" || shape.attention_bias) {
    source.Vector(prefix + "self_attn.q_proj.bias", queries, 0);
    source.Vector(prefix + "self_attn.k_proj.bias", keys, 0);
    source.Vector(prefix + "self_attn.v_proj.bias", keys, 0);
  }
  if (shape.attention_bias) source.Vector(prefix + "self_attn.o_proj.bias", hidden, 0);
  if (shape.mlp_bias) {
    source.Vector(prefix + "mlp.gate_proj.bias", shape.intermediate, 0);
    source.Vector(prefix + "mlp.up_proj.bias", shape.intermediate, 0);
    source.Vector(prefix + "mlp.down_proj.bias", hidden, 0);
  }
}

}  // namespace

TemporaryDirectory::TemporaryDirectory(const std::string& name)
    : path_(std::filesystem::temp_directory_path() / Format("divisi-{}-{}", name, getpid())) {
  std::filesystem::remove_all(path_);
  std::filesystem::create_directories(path_);
}

TemporaryDirectory::~TemporaryDirectory() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

Json RandomConfig(const RandomShape& shape) {
  const bool qwen3 = shape.family == "qwen3", llama = shape.family == "llama";
  Json config = Json::MakeObject();
  config.Set("architectures", Json::Array{qwen3   ? "Qwen3ForCausalLM"
                                          : llama ? "LlamaForCausalLM"
                                                  : "Qwen2ForCausalLM"});
  config.Set("model_type", shape.family);
  config.Set("hidden_act", "silu");
  config.Set("hidden_size", shape.hidden);
  config.Set("num_hidden_layers", shape.layers);
  config.Set("num_attention_heads", shape.heads);
  config.Set("num_key_value_heads", shape.kv_heads);
  if (shape.family != "qwen2") config.Set("head_dim", shape.head_dim);
  config.Set("intermediate_size", shape.intermediate);
  config.Set("vocab_size", shape.vocab);
  config.Set("max_position_embeddings", shape.max_positions);
  config.Set("rms_norm_eps", 1e-5);
  config.Set("rope_theta", 10000.0);
  config.Set("rope_scaling", shape.rope_scaling);
  config.Set("tie_word_embeddings", shape.tie);
  config.Set("torch_dtype", DataTypeName(shape.stored));
  if (shape.family != "qwen2") config.Set("attention_bias", shape.attention_bias);
  if (llama) config.Set("mlp_bias", shape.mlp_bias);
  return config;
}

NamedTensors RandomTensors(const RandomShape& shape, uint64_t seed) {
  TensorSource source{.random = Random(seed), .tensors = {}};
  source.Matrix("model.embed_tokens.weight", shape.vocab, shape.hidden, 2);
  for (int layer = 0; layer < shape.layers; ++layer) AddLayer(source, shape, layer);
  source.Vector("model.norm.weight", shape.hidden, 1);
  if (!shape.tie) source.Matrix("lm_head.weight", shape.vocab, shape.hidden, 2);
  return std::move(source.tensors);
}

void WriteCheckpoint(const std::filesystem::path& directory, const Json& config,
                     const NamedTensors& tensors, DataType stored) {
  std::vector<TensorSlot> slots;
  std::string data;
  for (const auto& [name, tensor] : tensors) {
    slots.push_back({.name = name, .type = stored, .shape = tensor.shape});
    data += Encode(tensor.values, stored);
  }
  const std::string file = SafetensorsHeader(slots) + data;
  const auto weights = WriteFileAtomic(directory / "model.safetensors", file);
  CHECK(weights.ok(), "{}", weights.error().message);
  const auto written = WriteFileAtomic(directory / "config.json", config.Dump());
  CHECK(written.ok(), "{}", written.error().message);
}

void WriteRandomCheckpoint(const std::filesystem::path& directory, const RandomShape& shape,
                           uint64_t seed) {
  WriteCheckpoint(directory, RandomConfig(shape), RandomTensors(shape, seed), shape.stored);
}

std::vector<double> Values(const TensorView& tensor) {
  std::vector<double> values;
  const int64_t width = ElementBytes(tensor.type);
  for (size_t at = 0; at < tensor.bytes.size(); at += static_cast<size_t>(width)) {
    uint32_t bits = 0;
    std::memcpy(&bits, tensor.bytes.data() + at, static_cast<size_t>(width));
    if (tensor.type == DataType::kF16) {
      values.push_back(FromHalf(static_cast<uint16_t>(bits)));
    } else {
      values.push_back(std::bit_cast<float>(tensor.type == DataType::kBf16 ? bits << 16 : bits));
    }
  }
  return values;
}

}  // namespace divisi
