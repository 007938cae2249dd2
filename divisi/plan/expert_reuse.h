// How many experts a batch meets, and so how many bytes of weights a layer reads: rows that meet
// the same expert share one reading of its weights. The count of experts says what must be held,
// the count of assignments what must be computed, the distinct experts of a batch what must be
// read.
#pragma once

#include <cstdint>

#include "divisi/core/result.h"
#include "divisi/core/units.h"
#include "divisi/plan/expert_shape.h"
#include "divisi/plan/stage.h"

namespace divisi {

// A batch of one layer: each of `tokens` tokens (M) chooses `experts_per_token` (K) distinct
// experts out of `experts` (E).
struct RoutedBatch {
  int64_t tokens = 0;
  int64_t experts_per_token = 0;
  int64_t experts = 0;

  double Assignments() const {
    return static_cast<double>(tokens) * static_cast<double>(experts_per_token);
  }
};

// Distinct experts that the batch meets when each token chooses evenly and on its own:
//   E[U] = E (1 - (1 - K/E)^M)
// Source: section 9.3.3, equation of E[U]. Requires: experts > 0.
double ExpectedDistinctExperts(double experts, double experts_per_token, double tokens);

// One way of choosing, seen from the layer.
struct ExpertUse {
  double distinct = 0;   // Experts met.
  double rows_each = 0;  // Mean rows of one that is met.
  Bytes read;            // Weights, once each.
  StageTime time;        // Reading and computing on one device.
};

// What the layer costs when the batch meets `distinct` experts. Computing does not depend on it.
// Errors: those of CheckShape and CheckBatch; kOutOfRange for bytes beyond 2^62.
Result<ExpertUse> UseOf(const ExpertShape& shape, const RoutedBatch& batch, double distinct,
                        const DeviceRates& device);

// The two ends of choosing: as many experts as there can be, and as few.
double EvenDistinctExperts(const RoutedBatch& batch);  // min(E, M K)
double HotDistinctExperts(const RoutedBatch& batch);   // K: all tokens choose the same.

// `experts` experts of each of `layers` layers. Errors: kOutOfRange beyond 2^62 bytes.
Result<Bytes> ExpertMemory(const ExpertShape& shape, double experts, double layers);

// Errors: kOutOfRange for counts that are not within 1 .. 2^40 tokens and 1 .. 2^20 experts;
// kInvalidArgument for more experts per token than experts.
Result<void> CheckBatch(const RoutedBatch& batch);

}  // namespace divisi
