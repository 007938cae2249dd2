// The forward pass once more, as plain loops in double precision over whole sequences: no kernels,
// no pages, no batch. What the real one is held against for shapes that have no golden file.
#pragma once

#include <vector>

#include "divisi/core/ids.h"
#include "divisi/model/checkpoint.h"

namespace divisi {

// Logits [S, V] of every position of one sequence.
// Source: the Hugging Face model descriptions of Llama, Qwen2 and Qwen3; RoFormer (Su et al. 2021)
// in its half-split form; Llama 3.1's frequency scaling as its model card gives it.
std::vector<std::vector<double>> ReferenceLogits(const Checkpoint& checkpoint,
                                                 const std::vector<TokenId>& tokens);

}  // namespace divisi
