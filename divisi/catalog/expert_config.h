// The parts of a config.json that mixtures of experts and latent attention add, and quantisation.
// Source: transformers' configuration files of the families, and the published configs.
#pragma once

#include "divisi/catalog/config_fields.h"
#include "divisi/catalog/model_spec.h"

namespace divisi {

// Whose names a config gives to what its experts are.
enum class ExpertKeys { kNone, kQwen, kMixtral, kDeepSeek };

// Fills spec.moe. Requires: layers, hidden and intermediate are read.
// Errors: kInvalidArgument for a missing, absurd or contradictory field, by name; kUnimplemented
// for a layer pattern or a kind of selection that Divisi lacks.
Result<void> ParseExperts(const ConfigFields& fields, ExpertKeys keys, ModelSpec& spec);

// Fills spec.mla and head_dim. Requires: heads are read. Errors: as above.
Result<void> ParseLatentAttention(const ConfigFields& fields, ModelSpec& spec);

// What quantization_config says; nullopt without one. Errors: kInvalidArgument for one that is
// malformed; kUnimplemented for a method other than fp8 and compressed-tensors.
Result<std::optional<QuantisedWeights>> ParseQuantisation(const ConfigFields& fields);

}  // namespace divisi
