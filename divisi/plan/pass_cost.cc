#include "divisi/plan/pass_cost.h"

#include <cmath>

#include "divisi/core/check.h"
#include "divisi/plan/expert_reuse.h"

namespace divisi {
namespace {

struct AttentionCost {
  double params = 0;        // Of one layer.
  double prefill_pair = 0;  // Operations of one layer.
  double decode_pair = 0;
  double query = 0;
  double state_elements = 0;  // Per token and layer.
};

AttentionCost CountGqa(const ModelSpec& spec) {
  const double hidden = spec.hidden;
  const double queries = static_cast<double>(spec.heads) * spec.head_dim;
  const double keys = static_cast<double>(spec.kv_heads) * spec.head_dim;
  return {.params = hidden * (2 * queries + 2 * keys),
          .prefill_pair = 4 * queries,
          .decode_pair = 4 * queries,
          .state_elements = 2 * keys};
}

// Prompts are computed with keys and values written out. Decode either stays in the latent space,
// where each head meets latent + rope and gathers latents, or reads what was written out.
AttentionCost CountMla(const ModelSpec& spec, const MlaSpec& mla, StateForm form) {
  const double hidden = spec.hidden;
  const double heads = spec.heads;
  const double key_dim = mla.nope_dim + mla.rope_dim;
  const double query_in = mla.query_rank > 0 ? mla.query_rank : hidden;
  const double query_down = mla.query_rank > 0 ? hidden * mla.query_rank : 0;
  const double kv_up = heads * (mla.nope_dim + mla.value_dim) * mla.latent_dim;
  AttentionCost cost;
  cost.params = query_down + query_in * heads * key_dim + hidden * (mla.latent_dim + mla.rope_dim) +
                kv_up + heads * mla.value_dim * hidden;
  cost.prefill_pair = 2 * heads * (key_dim + mla.value_dim);
  if (form == StateForm::kExpanded) {
    cost.decode_pair = cost.prefill_pair;
    cost.state_elements = heads * (key_dim + mla.value_dim);
    return cost;
  }
  cost.decode_pair = 2 * heads * (2.0 * mla.latent_dim + mla.rope_dim);
  cost.query = 2 * kv_up;
  cost.state_elements = mla.latent_dim + mla.rope_dim;
  return cost;
}

Bytes Stored(double elements, double element_bytes) {
  return Bytes(std::llround(elements * element_bytes));
}

}  // namespace

ModelCost::ModelCost(const ModelSpec& spec, Storage how, StateForm form) : storage(how) {
  CHECK(spec.layers > 0 && spec.hidden > 0 && spec.vocab > 0, "{} layers of {}, vocabulary {}",
        spec.layers, spec.hidden, spec.vocab);
  layers = spec.layers;
  hidden = spec.hidden;
  const AttentionCost attention = spec.mla ? CountMla(spec, *spec.mla, form) : CountGqa(spec);
  const double width = spec.hidden;
  const MoeSpec moe = spec.moe.value_or(MoeSpec{});
  experts = moe.experts;
  experts_per_token = moe.experts_per_token;
  expert_layers = moe.layers;
  expert_params = 3 * width * moe.expert_intermediate;
  dense_params = layers * attention.params + (layers - moe.layers) * 3 * width * spec.intermediate +
                 moe.layers * width * (3.0 * moe.shared_intermediate + moe.experts);
  head_params = embedding_params = width * spec.vocab;
  prefill_pair_flops = layers * attention.prefill_pair;
  decode_pair_flops = layers * attention.decode_pair;
  query_flops = layers * attention.query;
  state_per_token = Stored(layers * attention.state_elements, how.kv_bytes);
}

double ModelCost::ExpectedExperts(double tokens) const {
  if (experts == 0) return 0;
  return ExpectedDistinctExperts(experts, experts_per_token, tokens);
}

Bytes ModelCost::ResidentWeights() const {
  return Stored(
      dense_params + expert_params * experts * expert_layers + head_params + embedding_params,
      storage.weight_bytes);
}

Bytes ModelCost::ResidentExperts() const {
  return Stored(expert_params * experts * expert_layers, storage.weight_bytes);
}

Work ModelCost::ExpertPart(double tokens) const {
  return {.flops = Flops(2 * expert_params * experts_per_token * expert_layers * tokens),
          .bytes = Stored(expert_params * ExpectedExperts(tokens) * expert_layers,
                          storage.weight_bytes)};
}

Bytes ModelCost::WeightsRead(double tokens) const {
  return Stored(
      dense_params + head_params + expert_params * ExpectedExperts(tokens) * expert_layers,
      storage.weight_bytes);
}

Work ModelCost::Prefill(Tokens new_tokens, Tokens cached) const {
  const auto added = static_cast<double>(new_tokens.value);
  const auto before = static_cast<double>(cached.value);
  const double pairs = ((before + added) * (before + added) - before * before) / 2;
  return {.flops = Flops(2 * ActiveParams() * added + prefill_pair_flops * pairs + 2 * head_params),
          .bytes = WeightsRead(added)};
}

Work ModelCost::DecodeStep(double batch, double context) const {
  const double token_flops = 2 * (ActiveParams() + head_params) + decode_pair_flops * context;
  const double state = batch * context * static_cast<double>(state_per_token.value);
  return {.flops = Flops(batch * token_flops),
          .bytes = WeightsRead(batch) + Bytes(std::llround(state))};
}

}  // namespace divisi
