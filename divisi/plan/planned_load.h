// The load that a scenario assumes, as requests one by one: so that a benchmark sends what was
// planned for.
#pragma once

#include <cstdint>
#include <vector>

#include "divisi/core/result.h"
#include "divisi/plan/scenario.h"

namespace divisi {

struct LoadRequest {
  Seconds arrival;
  size_t request_class = 0;
  Tokens input;
  Tokens output;
  Tokens shared;  // Prefix that requests of the class have in common: the longer cached one.
};

struct LoadOptions {
  Seconds duration{60};
  uint64_t seed = 1;
};

inline constexpr int64_t kMostLoadRequests = 10'000'000;

// Poisson arrivals of each class at its rate over time, in order of time. Seeded: the same options
// give the same load. Errors: kOutOfRange for more than kMostLoadRequests expected.
Result<std::vector<LoadRequest>> PlannedLoad(const Scenario& scenario, const LoadOptions& options);

}  // namespace divisi
