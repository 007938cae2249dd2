// The services whose rates startup and cost compare: those that are given, or the deployments that
// the planner finds on two kinds of cards.
#pragma once

#include <string>
#include <vector>

#include "divisi/cli/calc.h"

namespace divisi {

struct ServiceRate {
  std::string name;
  PerSecond rate;  // Requests per second at saturation.
};

// --rates, and what they are derived from where it is empty.
std::vector<CalcInput> ServiceInputs();

// For --help: how rates are derived.
extern const char* const kServiceFormula;

// As --rates gives them, named "1", "2"...; else one for each scheme that applies, at its best
// split
// ("pd-direct", "replicas-chunked", "replicas"), by CompareCandidates.
// Errors: those of the catalogue and of CheckScenario.
Result<std::vector<ServiceRate>> ServiceRatesOf(const CalcValues& values);

}  // namespace divisi
