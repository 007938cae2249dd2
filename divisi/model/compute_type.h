// What a model is computed in, and how a user says so.
#pragma once

#include <string_view>

#include "divisi/catalog/model_spec.h"

namespace divisi {

// What activations and KV are rounded to; sums are f32 in both.
enum class ComputeType { kBf16, kF32 };

// "bfloat16", "float32".
const char* ComputeTypeName(ComputeType type);

// The one of that name; "auto" is bfloat16 for weights stored as such, float32 for others.
// Requires: one of these three.
ComputeType ChooseComputeType(std::string_view dtype, DataType stored);

}  // namespace divisi
