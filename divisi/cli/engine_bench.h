// How fast the model runs, without scheduler or HTTP: prefills and decode steps of random tokens,
// each beside what the machine can do at the same moment.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "divisi/core/clock.h"
#include "divisi/model/machine_peaks.h"
#include "divisi/model/transformer.h"

namespace divisi {

struct EngineBenchOptions {
  std::vector<int64_t> prefill_tokens = {128, 512, 2048};
  std::vector<int64_t> decode_batches = {1, 8, 32};
  int64_t context = 512;  // Cached tokens per sequence of a decode step
  int rounds = 3;         // Each measured beside both peaks; medians are reported.
  Isa isa = Isa::kScalar;
  std::function<void(const std::string&)> progress;  // May be empty.
};

// One kind of step. Rates are medians of rounds, fractions medians of each round's own ratio.
struct EngineBenchPoint {
  bool prefill = false;
  int64_t batch = 1;
  int64_t tokens = 0;  // New tokens per sequence
  int64_t context = 0;
  double seconds = 0;  // Of one step
  double tokens_per_second = 0;
  double bytes_per_second = 0;  // Weights and KV that a step must read at least once
  double flops_per_second = 0;  // Multiplications and additions that the shapes call for
  double read_bandwidth = 0;    // What the machine gave, in the same rounds
  double matrix_peak = 0;
  double bandwidth_fraction = 0;
  double peak_fraction = 0;
  // tokens_per_second over what max(bytes / bandwidth, flops / peak) would allow.
  double roofline_fraction = 0;
};

// What one step costs at least.
struct StepCost {
  double bytes = 0;
  double flops = 0;
};
// Sequences of `tokens` new rows each after `context` cached ones; logits for one row each.
struct StepShape {
  int64_t batch = 1;
  int64_t tokens = 1;
  int64_t context = 0;
};
StepCost CostOfStep(const ModelSpec& spec, const KvLayout& layout, const StepShape& shape,
                    int64_t weight_element_bytes);

// Requires: model.max_positions() covers every prefill and context + kDecodeSteps.
// Errors: kResourceExhausted when KV pages or the buffer for reading do not fit.
inline constexpr int64_t kDecodeSteps = 4;
Result<std::vector<EngineBenchPoint>> RunEngineBench(Transformer& model, ThreadPool& pool,
                                                     const Clock& clock,
                                                     const EngineBenchOptions& options);

// {"isa", "threads", "points": [{"kind": "prefill" or "decode", "batch", "tokens", "context",
// "seconds", "tokens_per_second", "bytes_per_second", "flops_per_second",
// "read_bandwidth_bytes_per_second", "matrix_peak_flops_per_second", "bandwidth_fraction",
// "peak_fraction", "roofline_fraction"}]}
Json EngineBenchJson(const std::vector<EngineBenchPoint>& points, Isa isa, int threads);
std::string EngineBenchTable(const std::vector<EngineBenchPoint>& points);

}  // namespace divisi
