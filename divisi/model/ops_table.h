// Fills a table of kernels for one lanes type.
#pragma once

#include "divisi/model/ops_attention_kernel.h"
#include "divisi/model/ops_matmul.h"
#include "divisi/model/ops_rows.h"

namespace divisi {

template <typename V>
constexpr Kernels MakeKernels() {
  return Kernels{
      .matmul_bf16_bf16 = &MatMulKernel<V, Bf16Pairs<V>, Bf16Pairs<V>>,
      .matmul_f32_bf16 = &MatMulKernel<V, F32Singles<V>, Bf16Singles<V>>,
      .matmul_f32_f16 = &MatMulKernel<V, F32Singles<V>, F16Singles<V>>,
      .matmul_f32_f32 = &MatMulKernel<V, F32Singles<V>, F32Singles<V>>,
      .embed_bf16 = &EmbedKernel<V, Bf16Singles<V>>,
      .embed_f16 = &EmbedKernel<V, F16Singles<V>>,
      .embed_f32 = &EmbedKernel<V, F32Singles<V>>,
      .norm_to_bf16 = &NormKernel<V, uint16_t>,
      .norm_to_f32 = &NormKernel<V, float>,
      .swiglu_to_bf16 = &SwiGluKernel<V, uint16_t>,
      .swiglu_to_f32 = &SwiGluKernel<V, float>,
      .rotate = &RotateKernel<V>,
      .round_to_bf16 = &RoundKernel<V>,
      .attention_bf16 = &AttentionEntry<V, Bf16Pairs<V>>,
      .attention_f32 = &AttentionEntry<V, F32Singles<V>>,
      .dot_peak = &DotPeakKernel<V>,
      .read_peak = &ReadPeakKernel<V>,
  };
}

}  // namespace divisi
