// Rotary embedding's part of a config.json, in its two spellings: rope_theta beside rope_scaling
// {"type" or "rope_type", ...}, and one rope_parameters object that holds both (transformers 5).
#pragma once

#include "divisi/catalog/config_fields.h"
#include "divisi/catalog/model_spec.h"

namespace divisi {

struct RopeConfig {
  double theta = 10000;
  RopeScaling scaling;
};

// max_positions: max_position_embeddings, from which an absent yarn factor follows.
// Errors: kInvalidArgument for a missing, absurd or contradictory field, by name; kUnimplemented
// for a rope type other than default, linear, llama3 and yarn. Source: transformers'
// modeling_rope_utils: which fields each type has and their defaults.
Result<RopeConfig> ParseRopeConfig(const ConfigFields& config, int max_positions);

}  // namespace divisi
