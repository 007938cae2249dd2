// Whether kernels keep the rule of the bf16 dot product (docs/numerics.md). One of them rests on a
// processor's instruction, whose rounding vendors describe in words: a processor that rounds
// otherwise must not compute tokens, so its kernels are left out (SupportedIsas).
#pragma once

#include "divisi/model/ops_kernels.h"

namespace divisi {

// Compares 1,024 fixed dot products of 64 terms with the scalar kernels', bit for bit: terms near 1
// that cancel, terms around the smallest normal number, terms of all magnitudes. About 1 ms.
bool KeepsDotRule(Kernels::MatMul matmul_bf16_bf16);

}  // namespace divisi
