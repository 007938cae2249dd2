#include "divisi/model/transformer_weights.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "divisi/core/half.h"
#include "divisi/model/servable.h"

namespace divisi {
namespace {

std::vector<float> ToFloats(const TensorView& tensor) {
  const int64_t width = ElementBytes(tensor.type);
  std::vector<float> values(tensor.bytes.size() / static_cast<size_t>(width));
  if (tensor.type == DataType::kF32) {
    std::memcpy(values.data(), tensor.bytes.data(), tensor.bytes.size());
    return values;
  }
  for (size_t i = 0; i < values.size(); ++i) {
    uint16_t bits = 0;
    std::memcpy(&bits, tensor.bytes.data() + 2 * i, 2);
    values[i] = tensor.type == DataType::kBf16 ? Bf16ToFloat(bits) : HalfToFloat(bits);
  }
  return values;
}

// Reads tensors until one fails; then keeps the first error and gives empty ones, so that a layer
// reads as a list.
class TensorReader {
 public:
  TensorReader(const Checkpoint& checkpoint, ComputeType compute)
      : checkpoint_(&checkpoint), compute_(compute) {
    const auto& tensors = checkpoint.tensors();
    const bool bare =
        !tensors.contains("model.embed_tokens.weight") && tensors.contains("embed_tokens.weight");
    prefix_ = bare ? "" : "model.";
  }

  // `name` is below the decoder: "norm.weight" is "model.norm.weight".
  WeightMatrix Matrix(const std::string& name, int64_t rows, int64_t cols) {
    return MatrixAt(prefix_ + name, rows, cols);
  }
  WeightMatrix MatrixAt(const std::string& full_name, int64_t rows, int64_t cols) {
    Result<TensorView> tensor = Get(full_name, {rows, cols});
    if (!tensor) return {};
    if (compute_ == ComputeType::kBf16 && tensor->type != DataType::kBf16) {
      Fail({.code = Code::kUnimplemented,
            .message = Format("tensor {} is {}; computing in bfloat16 needs bfloat16 weights: "
                              "use --dtype float32",
                              full_name, DataTypeName(tensor->type))});
      return {};
    }
    return {.data = tensor->bytes.data(), .type = tensor->type, .rows = rows, .cols = cols};
  }

  std::vector<float> Vector(const std::string& name, int64_t size) {
    Result<TensorView> tensor = Get(prefix_ + name, {size});
    return tensor ? ToFloats(*tensor) : std::vector<float>{};
  }
  std::vector<float> VectorIf(bool present, const std::string& name, int64_t size) {
    return present ? Vector(name, size) : std::vector<float>{};
  }

  Result<void> status() const {
    if (error_) return *error_;
    return {};
  }

 private:
  Result<TensorView> Get(const std::string& full_name, std::vector<int64_t> shape) {
    Result<TensorView> tensor = checkpoint_->Get(full_name, std::move(shape));
    if (!tensor) Fail(tensor.error());
    return tensor;
  }
  void Fail(Error error) {
    if (!error_) error_ = std::move(error);
  }

  const Checkpoint* checkpoint_;
  ComputeType compute_;
  std::string prefix_;
  std::optional<Error> error_;
};

AttentionWeights LoadAttention(TensorReader& reader, const ModelSpec& spec,
                               const std::string& layer) {
  const int64_t hidden = spec.hidden;
  const int64_t queries = int64_t{spec.heads} * spec.head_dim;
  const int64_t keys = int64_t{spec.kv_heads} * spec.head_dim;
  const std::string self = layer + "self_attn.";
  return {
      .norm = reader.Vector(layer + "input_layernorm.weight", hidden),
      .query = reader.Matrix(self + "q_proj.weight", queries, hidden),
      .key = reader.Matrix(self + "k_proj.weight", keys, hidden),
      .value = reader.Matrix(self + "v_proj.weight", keys, hidden),
      .output = reader.Matrix(self + "o_proj.weight", hidden, queries),
      .query_bias = reader.VectorIf(spec.qkv_bias, self + "q_proj.bias", queries),
      .key_bias = reader.VectorIf(spec.qkv_bias, self + "k_proj.bias", keys),
      .value_bias = reader.VectorIf(spec.qkv_bias, self + "v_proj.bias", keys),
      .output_bias = reader.VectorIf(spec.output_bias, self + "o_proj.bias", hidden),
      .query_norm = reader.VectorIf(spec.qk_norm, self + "q_norm.weight", spec.head_dim),
      .key_norm = reader.VectorIf(spec.qk_norm, self + "k_norm.weight", spec.head_dim),
  };
}

MlpWeights LoadMlp(TensorReader& reader, const ModelSpec& spec, const std::string& layer) {
  const int64_t hidden = spec.hidden;
  const int64_t width = spec.intermediate;
  const std::string prefix = layer + "mlp.";
  return {
      .norm = reader.Vector(layer + "post_attention_layernorm.weight", hidden),
      .gate = reader.Matrix(prefix + "gate_proj.weight", width, hidden),
      .up = reader.Matrix(prefix + "up_proj.weight", width, hidden),
      .down = reader.Matrix(prefix + "down_proj.weight", hidden, width),
      .gate_bias = reader.VectorIf(spec.mlp_bias, prefix + "gate_proj.bias", width),
      .up_bias = reader.VectorIf(spec.mlp_bias, prefix + "up_proj.bias", width),
      .down_bias = reader.VectorIf(spec.mlp_bias, prefix + "down_proj.bias", hidden),
  };
}

// The kernels' pairs of elements: every width that is summed over, and a head's halves.
Result<void> CheckWidths(const ModelSpec& spec) {
  for (const auto& [name, width] : {std::pair{"hidden_size", spec.hidden},
                                    {"intermediate_size", spec.intermediate},
                                    {"head_dim", spec.head_dim}}) {
    if (width % 2 == 0) continue;
    return Error{.code = Code::kUnimplemented,
                 .message = Format("{} is {}; only even widths are supported", name, width)};
  }
  return {};
}

std::vector<WeightMatrix*> Matrices(TransformerWeights& weights) {
  std::vector<WeightMatrix*> all = {&weights.embedding};
  for (LayerWeights& layer : weights.layers) {
    AttentionWeights& attention = layer.attention;
    MlpWeights& mlp = layer.mlp;
    all.insert(all.end(), {&attention.query, &attention.key, &attention.value, &attention.output,
                           &mlp.gate, &mlp.up, &mlp.down});
  }
  all.push_back(&weights.head);
  return all;
}

int64_t BytesOf(const WeightMatrix& matrix) {
  return matrix.rows * matrix.cols * ElementBytes(matrix.type);
}

// A part of a matrix, and where it goes.
struct CopyTask {
  const std::byte* from = nullptr;
  std::byte* to = nullptr;
  int64_t bytes = 0;
};

}  // namespace

Result<HugeMemory> CopyMatrices(TransformerWeights& weights, ThreadPool& pool,
                                const std::function<void(Bytes done, Bytes total)>& progress) {
  constexpr int64_t kAlign = 4096;  // So that rows start where cache lines do.
  constexpr int64_t kTaskBytes = int64_t{4} << 20;
  constexpr int64_t kTasksBetweenReports = 64;
  std::map<const std::byte*, int64_t> place;  // Offset of each matrix: a tied head has the same.
  int64_t total = 0;
  const std::vector<WeightMatrix*> matrices = Matrices(weights);
  for (const WeightMatrix* matrix : matrices) {
    if (!place.emplace(matrix->data, total).second) continue;
    total += (BytesOf(*matrix) + kAlign - 1) / kAlign * kAlign;
  }
  ASSIGN_OR_RETURN(HugeMemory memory, HugeMemory::Reserve(Bytes(total), "a copy of the weights"));
  std::vector<CopyTask> tasks;
  std::set<const std::byte*> planned;
  for (WeightMatrix* matrix : matrices) {
    std::byte* to = memory.data() + place.at(matrix->data);
    const int64_t bytes = planned.insert(matrix->data).second ? BytesOf(*matrix) : 0;
    for (int64_t at = 0; at < bytes; at += kTaskBytes) {
      tasks.push_back({matrix->data + at, to + at, std::min(kTaskBytes, bytes - at)});
    }
    matrix->data = to;
  }
  progress(Bytes(0), Bytes(total));
  const auto count = static_cast<int64_t>(tasks.size());
  for (int64_t first = 0; first < count; first += kTasksBetweenReports) {
    const int64_t end = std::min(count, first + kTasksBetweenReports);
    pool.Run(end - first, [&](int64_t i, int) {
      const CopyTask& task = tasks[static_cast<size_t>(first + i)];
      std::memcpy(task.to, task.from, static_cast<size_t>(task.bytes));
    });
    progress(Bytes(total * end / count), Bytes(total));
  }
  return memory;
}

Result<TransformerWeights> LoadTransformerWeights(const Checkpoint& checkpoint,
                                                  ComputeType compute) {
  const ModelSpec& spec = checkpoint.spec();
  RETURN_IF_ERROR(CheckServable(spec));
  RETURN_IF_ERROR(CheckWidths(spec));
  TensorReader reader(checkpoint, compute);
  TransformerWeights weights;
  weights.embedding = reader.Matrix("embed_tokens.weight", spec.vocab, spec.hidden);
  for (int i = 0; i < spec.layers; ++i) {
    const std::string layer = Format("layers.{}.", i);
    weights.layers.push_back(
        {.attention = LoadAttention(reader, spec, layer), .mlp = LoadMlp(reader, spec, layer)});
  }
  weights.norm = reader.Vector("norm.weight", spec.hidden);
  weights.head = spec.tie_embeddings ? weights.embedding
                                     : reader.MatrixAt("lm_head.weight", spec.vocab, spec.hidden);
  RETURN_IF_ERROR(reader.status());
  return weights;
}

}  // namespace divisi
