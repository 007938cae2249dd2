// Checkpoints with random weights of any small shape, for tests of what spans libraries.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "divisi/core/json.h"
#include "divisi/core/random.h"
#include "divisi/model/checkpoint.h"

namespace divisi {

// A directory of its own under the system's temporary one, removed at the end.
class TemporaryDirectory {
 public:
  explicit TemporaryDirectory(const std::string& name);
  ~TemporaryDirectory();
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

struct RandomShape {
  std::string family = "qwen3";  // qwen3, qwen2 or llama
  int layers = 2;
  int hidden = 64;
  int heads = 4;
  int kv_heads = 2;
  int head_dim = 16;
  int intermediate = 96;
  int vocab = 200;
  int max_positions = 256;
  bool tie = true;
  bool attention_bias = false;  // llama: biases of q, k, v and o
  bool mlp_bias = false;        // llama
  Json rope_scaling;
  DataType stored = DataType::kBf16;
};

// A tensor to be written: its values are rounded to the checkpoint's type.
struct TensorValues {
  std::vector<int64_t> shape;
  std::vector<float> values;
};
using NamedTensors = std::map<std::string, TensorValues>;

Json RandomConfig(const RandomShape& shape);
// All tensors that the shape calls for, scaled so that activations stay near 1.
NamedTensors RandomTensors(const RandomShape& shape, uint64_t seed);
// Writes config.json and model.safetensors.
void WriteCheckpoint(const std::filesystem::path& directory, const Json& config,
                     const NamedTensors& tensors, DataType stored);
// All three.
void WriteRandomCheckpoint(const std::filesystem::path& directory, const RandomShape& shape,
                           uint64_t seed);

// The stored values of a tensor.
std::vector<double> Values(const TensorView& tensor);

}  // namespace divisi
