// The tensors that a checkpoint of a spec holds, by the names that the Hugging Face models of these
// families give them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "divisi/catalog/model_spec.h"

namespace divisi {

// kMlp holds what every token meets, shared experts too; kExpert the routed ones.
enum class ModelPart { kEmbedding, kAttention, kMlp, kRouter, kExpert, kNorm, kHead };
inline constexpr ModelPart kModelParts[] = {
    ModelPart::kEmbedding, ModelPart::kAttention, ModelPart::kMlp, ModelPart::kRouter,
    ModelPart::kExpert,    ModelPart::kNorm,      ModelPart::kHead};
// "embedding", "attention", "mlp", "router", "expert", "norm", "head".
const char* ModelPartName(ModelPart part);

struct ModelTensor {
  std::string name;
  std::vector<int64_t> shape;  // A weight matrix is [N, K].
  ModelPart part = ModelPart::kEmbedding;
};

// All of them, layer by layer; elements add up to spec.Parameters(). A tied head is not among them,
// nor are scales of quantised weights.
std::vector<ModelTensor> ModelTensors(const ModelSpec& spec);

// The product of its shape. Requires: no overflow, which ParseModelSpec's bounds promise.
int64_t Elements(const std::vector<int64_t>& shape);

}  // namespace divisi
