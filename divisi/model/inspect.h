// What `divisi model inspect` says about a checkpoint or a config: sizes by part, KV per token, and
// what serving it takes. As JSON, whose fields are listed at InspectionJson, and as text.
#pragma once

#include <string>
#include <vector>

#include "divisi/core/json.h"
#include "divisi/model/checkpoint.h"

namespace divisi {

// The tensors of one part that are stored in one type.
struct WeightGroup {
  std::string part;  // ModelPartName, or "other": tensors that the family doesn't use
  std::string type;  // "BF16": the name that the files use; "fp8" where quantised
  int64_t tensors = 0;
  int64_t parameters = 0;
  Bytes bytes;
};

struct Inspection {
  ModelSpec spec;
  std::vector<WeightGroup> groups;    // In the order of ModelPart, "other" last.
  std::vector<std::string> problems;  // Missing and misshapen tensors: what keeps it from serving.
};

// Of the weights that are there; of a quantised checkpoint, those that its config calls for.
Inspection Inspect(const Checkpoint& checkpoint);
// Of the weights that a config calls for, in its stored type.
Inspection InspectSpec(const ModelSpec& spec);

Bytes WeightBytes(const Inspection& inspection);

// A load to serve and the machine to do it.
struct ServeLoad {
  int64_t sequences = 1;
  int64_t tokens = 1;  // Of each sequence, prompt and output together.
  DataType kv_type = DataType::kBf16;
  Bytes machine;  // Its memory.
};

// KV of all the load's sequences at their full length.
// Errors: kOutOfRange for more than 2^60 bytes; ask for fewer sequences or tokens.
Result<Bytes> KvBytes(const ModelSpec& spec, const ServeLoad& load);

// An object of
//   family, architecture, layers, hidden, heads, kv_heads, head_dim, intermediate, vocab,
//   max_positions, rope_theta, tie_embeddings, qkv_bias, output_bias, mlp_bias, qk_norm,
//   stored_type, eos_token_ids: as ModelSpec
//   rope_scaling: {type, factor, original_max_positions}, or null
//   mla: {query_rank, latent_dim, rope_dim, nope_dim, value_dim}, or null
//   moe: {experts, experts_per_token, expert_intermediate, shared_intermediate, layers}, or null
//   quantised: {type, bytes}, or null
//   parameters, active_parameters, weight_bytes: in total; those that one token meets
//   weights: [{part, dtype, tensors, parameters, bytes}]
//   kv_bytes_per_token: {bfloat16, float32}
//   serve: {sequences, tokens, kv_dtype, weight_bytes, kv_bytes, total_bytes, machine_bytes, fits,
//     supported}: weights and KV, without the program's own buffers; whether it can be served
//   problems: [text]
// Requires: KvBytes of the load gives a number.
Json InspectionJson(const Inspection& inspection, const ServeLoad& load);

// The same as a page for people, with the same requirement.
std::string InspectionText(const Inspection& inspection, const ServeLoad& load);

// [{"name", "dtype", "shape", "bytes"}], by name.
Json TensorsJson(const Checkpoint& checkpoint);
// One line each.
std::string TensorsText(const Checkpoint& checkpoint);

}  // namespace divisi
