// How many parameters a spec has and what it caches: sums over the tensors that model_tensors.h
// lists, which a test holds against each other.
#include "divisi/catalog/model_spec.h"

namespace divisi {
namespace {

int64_t LatentAttentionParameters(const ModelSpec& spec, const MlaSpec& mla) {
  const int64_t hidden = spec.hidden;
  const int64_t heads = spec.heads;
  const int64_t queries = heads * (mla.nope_dim + mla.rope_dim);
  int64_t count = mla.query_rank > 0
                      ? mla.query_rank * (hidden + queries) + mla.query_rank  // With its norm.
                      : hidden * queries;
  count += hidden * (mla.latent_dim + mla.rope_dim) + mla.latent_dim;  // With its norm.
  count += heads * (mla.nope_dim + mla.value_dim) * mla.latent_dim;
  return count + heads * mla.value_dim * hidden;
}

int64_t AttentionParameters(const ModelSpec& spec) {
  if (spec.mla) return LatentAttentionParameters(spec, *spec.mla);
  const int64_t hidden = spec.hidden;
  const int64_t q_width = static_cast<int64_t>(spec.heads) * spec.head_dim;
  const int64_t kv_width = static_cast<int64_t>(spec.kv_heads) * spec.head_dim;
  int64_t count = hidden * (2 * q_width + 2 * kv_width);
  if (spec.qkv_bias) count += q_width + 2 * kv_width;
  if (spec.output_bias) count += hidden;
  if (spec.qk_norm) count += 2 * spec.head_dim;
  return count;
}

int64_t DenseMlpParameters(const ModelSpec& spec) {
  int64_t count = int64_t{3} * spec.hidden * spec.intermediate;
  if (spec.mlp_bias) count += 2 * spec.intermediate + spec.hidden;
  return count;
}

// Of one layer, with `experts` of its routed ones.
int64_t ExpertLayerParameters(const ModelSpec& spec, const MoeSpec& moe, int64_t experts) {
  const int64_t hidden = spec.hidden;
  const int64_t router = moe.experts * (hidden + (moe.selection_bias ? 1 : 0));
  return router + 3 * hidden * (experts * moe.expert_intermediate + moe.shared_intermediate);
}

int64_t Count(const ModelSpec& spec, int64_t experts_of_a_layer) {
  const int64_t embedding = static_cast<int64_t>(spec.vocab) * spec.hidden;
  const int64_t norms = int64_t{2} * spec.hidden;
  const int expert_layers = spec.moe ? spec.moe->layers : 0;
  int64_t count = embedding * (spec.tie_embeddings ? 1 : 2) + spec.hidden;
  count += spec.layers * (AttentionParameters(spec) + norms);
  count += (spec.layers - expert_layers) * DenseMlpParameters(spec);
  if (!spec.moe) return count;
  return count + expert_layers * ExpertLayerParameters(spec, *spec.moe, experts_of_a_layer);
}

}  // namespace

int64_t ModelSpec::Parameters() const { return Count(*this, moe ? moe->experts : 0); }

int64_t ModelSpec::ActiveParameters() const {
  return Count(*this, moe ? moe->experts_per_token : 0);
}

Bytes ModelSpec::KvBytesPerToken(DataType kv_type) const {
  const int64_t elements =
      mla ? int64_t{mla->latent_dim} + mla->rope_dim : int64_t{2} * kv_heads * head_dim;
  return Bytes(layers * elements * ElementBytes(kv_type));
}

}  // namespace divisi
