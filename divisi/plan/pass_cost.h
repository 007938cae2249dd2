// The work of one pass over a model: operations and bytes, counted from its shapes. Every time in a
// plan starts here.
//
// Counting rules (docs/planner.md, "How work is counted"): a multiplication and an addition are two
// operations; norms, rotations and softmax are left out; attention is causal, so a prompt meets
// half of its square; logits are computed for a prompt's last token only; a pass reads all weights
// that it uses once, and of the embedding table nothing; resident weights hold the embedding and
// the head.
#pragma once

#include "divisi/catalog/model_spec.h"
#include "divisi/core/units.h"

namespace divisi {

// How weights and KV are stored; bytes of one element. int4 is half a byte.
struct Storage {
  double weight_bytes = 2;
  double kv_bytes = 2;
};

// Operations and bytes of memory traffic.
struct Work {
  Flops flops;
  Bytes bytes;
};

// How a model's state is kept and used.
//   kOwn       what the model's attention caches: K and V per head, or the latent of MLA
//   kExpanded  MLA with K and V of every head written out (for comparison)
enum class StateForm { kOwn, kExpanded };

// What planning needs of a model: counts of parameters and operations, not shapes. Parameters of
// one kind are summed over layers; norms and biases are left out.
struct ModelCost {
  ModelCost(const ModelSpec& spec, Storage storage, StateForm form = StateForm::kOwn);

  // Matrices that every token meets: attention, dense MLPs, shared experts, routers.
  double dense_params = 0;
  // One routed expert of one layer, and how many there are.
  double expert_params = 0;
  int experts = 0;
  int experts_per_token = 0;
  int expert_layers = 0;
  double head_params = 0;       // V * H
  double embedding_params = 0;  // V * H; counted again where tied, as servers hold it.
  int layers = 0;
  int hidden = 0;

  // Operations of one query token with one earlier position, over all layers: scores and values.
  double prefill_pair_flops = 0;
  double decode_pair_flops = 0;
  // Operations per query token over all layers by which compact MLA brings queries into the latent
  // space and values back; 0 for other attention. They are as many as those that would write K and
  // V of the token out, which dense_params holds and a compact step leaves out: so a step of a
  // model with MLA does not count them again, and a model that takes over such a state adds them.
  double query_flops = 0;

  Bytes state_per_token;  // All layers.
  Storage storage;

  // Parameters that one token's arithmetic meets, head left out.
  double ActiveParams() const {
    return dense_params + expert_params * experts_per_token * expert_layers;
  }
  // Distinct experts that `tokens` tokens of one pass meet in a layer, each choosing its
  // experts_per_token evenly and on its own: E (1 - (1 - k/E)^M). Source: section 9.3.3.
  double ExpectedExperts(double tokens) const;

  // Weights held in memory, and of them the routed experts'. Source: section 9.2.3.
  Bytes ResidentWeights() const;
  Bytes ResidentExperts() const;
  // Weights that one pass of `tokens` tokens reads: dense ones, the head, the experts it meets.
  Bytes WeightsRead(double tokens) const;

  // The routed experts' part of a pass of `tokens` tokens.
  Work ExpertPart(double tokens) const;
  // `new_tokens` of one prompt after `cached` ones. Of state no bytes are counted: a prompt writes
  // and rereads its own as it goes, all of it little beside the weights' arithmetic.
  //   flops = 2 active new + pair ((cached + new)^2 - cached^2) / 2 + 2 head
  Work Prefill(Tokens new_tokens, Tokens cached) const;
  // One step of `batch` sequences with `context` cached tokens each on average.
  //   flops = batch (2 (active + head) + pair context)
  Work DecodeStep(double batch, double context) const;
  // State of `tokens` tokens of one sequence.
  Bytes State(Tokens tokens) const { return state_per_token * tokens.value; }
};

}  // namespace divisi
