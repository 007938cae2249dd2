// What this machine can do at most, measured: the denominators of every speed claim.
// Measure them beside the thing measured, in the same run: clocks and neighbours change.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "divisi/core/clock.h"
#include "divisi/core/huge_memory.h"
#include "divisi/core/thread_pool.h"
#include "divisi/model/ops.h"

namespace divisi {

// Memory to read that no cache holds: 1 GiB by default, on huge pages where the system gives them.
class ReadBuffer {
 public:
  static constexpr int64_t kBytes = int64_t{1} << 30;
  // Errors: kResourceExhausted when the system refuses.
  static Result<ReadBuffer> Create(int64_t bytes = kBytes);

  // Bytes per second of passes over all of it by the pool's threads: one pass, and more until
  // `least` has gone by.
  double MeasureBandwidth(Isa isa, ThreadPool& pool, const Clock& clock,
                          Seconds least = Seconds(0)) const;

 private:
  explicit ReadBuffer(HugeMemory memory) : memory_(std::move(memory)) {}
  HugeMemory memory_;
};

// Flops per second (a multiplication and an addition are two) of bf16 dot products on registers, as
// `isa`'s kernels do them, by all of the pool's threads for `least`.
double MeasureMatrixPeak(Isa isa, ThreadPool& pool, const Clock& clock,
                         Seconds least = Seconds(0.02));

}  // namespace divisi
