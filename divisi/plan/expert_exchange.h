// Lower bounds on the three steps of an expert layer whose attention and experts are apart:
// dispatch rows to the experts' cards, compute, combine the results back. A bound counts payload
// and rates only: no launches, no queues, no late arrival.
#pragma once

#include <string>
#include <vector>

#include "divisi/core/result.h"
#include "divisi/core/units.h"
#include "divisi/plan/stage.h"

namespace divisi {

// Rows from source i (a card of attention) to group j (a card of experts): a_ij, not negative,
// fractions allowed. Each crosses as dispatch_bytes (d_D) and comes back as combine_bytes (d_C),
// without merging rows of one token.
struct ExpertExchange {
  std::vector<std::vector<double>> rows;  // [source][group], each source as many groups.
  Bytes dispatch_bytes;
  Bytes combine_bytes;

  std::vector<double> GroupRows() const;  // m_j
  // The fullest group to the mean one. Source: section 9.4.1, s_expert.
  double Skew() const;
};

// Rows of each group, drawn evenly from `sources` sources.
ExpertExchange EvenSources(const std::vector<double>& group_rows, int sources, Bytes row_bytes);

struct CardLinks {
  BytesPerSecond send;
  BytesPerSecond receive;
};

// A place that all traffic between these cards crosses: `bandwidth` in each direction.
struct SharedCut {
  BytesPerSecond bandwidth;
  std::vector<size_t> sources;
  std::vector<size_t> groups;
};

struct ExchangeNetwork {
  std::vector<CardLinks> sources;
  std::vector<CardLinks> groups;
  std::vector<SharedCut> cuts;
};

// Alike cards and one cut around all of them.
ExchangeNetwork UniformNetwork(size_t sources, size_t groups, BytesPerSecond card,
                               BytesPerSecond cut);

struct ExpertGroupWork {
  DeviceRates rates;  // C_r, B_r
  Flops row_flops;
  Bytes weights;  // W_r that a group reads; 0 leaves reading out.
};

struct ExpertLayerBounds {
  Seconds dispatch;
  Seconds compute;
  Seconds combine;
  // With a barrier of the whole batch between the steps.
  Seconds Serial() const { return dispatch + compute + combine; }
};

// Both exchanges: T_X >= max over senders, receivers and cuts of their bytes over their bandwidth;
// combine runs the other way. Compute: max over groups of max(F_r / C_r, W_r / B_r).
// Source: section 9.4.1, equations of V_ij and T_X.
// Errors: kInvalidArgument for a matrix, network or rate that does not fit or is not positive.
Result<ExpertLayerBounds> BoundExpertLayer(const ExpertExchange& exchange,
                                           const ExchangeNetwork& network,
                                           const ExpertGroupWork& work);

}  // namespace divisi
