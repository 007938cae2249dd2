// Shapes of published models that tests of this folder compute with, written out so that a test
// shows what it counts. The catalogue has them too, read from configs.
#pragma once

#include "divisi/catalog/model_spec.h"

namespace divisi {

inline ModelSpec ExampleQwen3_8B() {
  ModelSpec spec;
  spec.family = "qwen3";
  spec.layers = 36;
  spec.hidden = 4096;
  spec.heads = 32;
  spec.kv_heads = 8;
  spec.head_dim = 128;
  spec.intermediate = 12288;
  spec.vocab = 151936;
  spec.max_positions = 40960;
  return spec;
}

inline ModelSpec ExampleQwen3_235B() {
  ModelSpec spec;
  spec.family = "qwen3_moe";
  spec.layers = 94;
  spec.hidden = 4096;
  spec.heads = 64;
  spec.kv_heads = 4;
  spec.head_dim = 128;
  spec.intermediate = 12288;
  spec.vocab = 151936;
  spec.max_positions = 40960;
  spec.moe =
      MoeSpec{.experts = 128, .experts_per_token = 8, .expert_intermediate = 1536, .layers = 94};
  return spec;
}

inline ModelSpec ExampleDeepSeekV3() {
  ModelSpec spec;
  spec.family = "deepseek_v3";
  spec.layers = 61;
  spec.hidden = 7168;
  spec.heads = 128;
  spec.kv_heads = 128;
  spec.head_dim = 192;
  spec.intermediate = 18432;
  spec.vocab = 129280;
  spec.max_positions = 163840;
  spec.mla = MlaSpec{
      .query_rank = 1536, .latent_dim = 512, .rope_dim = 64, .nope_dim = 128, .value_dim = 128};
  spec.moe = MoeSpec{.experts = 256,
                     .experts_per_token = 8,
                     .expert_intermediate = 2048,
                     .shared_intermediate = 2048,
                     .layers = 58};
  return spec;
}

}  // namespace divisi
