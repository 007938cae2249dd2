// Rows of the busiest card of an expert-parallel group. Experts lie in order over the cards, as
// many on each. The larger the group, the fewer experts of a card even each other out and the more
// cards are waited for: the same expert vanishes at EP8 and rules at EP256.
#pragma once

#include <cstdint>
#include <vector>

#include "divisi/core/result.h"
#include "divisi/plan/expert_reuse.h"

namespace divisi {

struct CardRows {
  double busiest = 0;
  double mean = 0;
  double Ratio() const { return busiest / mean; }
};

// One expert takes `hot_rows` rows, the others share the rest evenly:
//   rows of its card = hot + (E / EP - 1) (n k - hot) / (E - 1)
// Exact, in fractions of rows; the busiest card is another where the expert is colder than the
// mean. Source: section 9.4.1, figure 9-21. Errors: those of CheckBatch; kInvalidArgument for an EP
// that does not divide the experts and for rows that no choice of distinct experts makes.
Result<CardRows> HotCardRows(const RoutedBatch& batch, double hot_rows, int64_t ep);

// `batches` batches whose tokens choose distinct experts evenly and on their own.
struct RandomRouting {
  int64_t batches = 1000;
  uint64_t seed = 1;
};

// Per EP size the mean over batches of the busiest card's rows to the mean card's. The sizes see
// the same batches. Source: section 9.4.1, figure 9-22. Errors: as above; kOutOfRange for more than
// 10^8 draws and sums together (some seconds).
Result<std::vector<double>> RandomBusiestRatios(const RoutedBatch& batch,
                                                const std::vector<int64_t>& ep_sizes,
                                                const RandomRouting& routing);

}  // namespace divisi
