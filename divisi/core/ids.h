// Names of things that several libraries speak about.
#pragma once

#include <compare>
#include <cstdint>

namespace divisi {

using TokenId = int32_t;     // An entry of the model's vocabulary.
using BlockId = int32_t;     // A page of KV in one worker's pool: 0 .. pages - 1.
using RequestId = uint64_t;  // Unique within a process's life; never reused.

// One life of a process: a worker that comes back has another id.
struct NodeId {
  uint64_t value = 0;
  friend auto operator<=>(const NodeId&, const NodeId&) = default;
};

// Tokens of one KV page. Also the lanes of one 512-bit vector of f32, which the attention kernel
// relies on (docs/numerics.md).
inline constexpr int kBlockTokens = 16;

// Pages that hold `tokens` tokens of one sequence. Requires: tokens >= 0.
constexpr int64_t PagesFor(int64_t tokens) { return (tokens + kBlockTokens - 1) / kBlockTokens; }

}  // namespace divisi
