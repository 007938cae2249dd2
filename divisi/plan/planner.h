// The comparison of deployments: which one carries a workload, and why.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "divisi/plan/candidate.h"

namespace divisi {

// The rates of one split of the cards between prefill and decode: a cell of the grid.
struct SplitRates {
  Split prefill_workers;
  PerSecond prefill, decode;
  PerSecond throughput;  // With the link.
};

// A change that would alter the decision.
struct Flip {
  std::string what;   // "decode efficiency", "link bandwidth"
  double factor = 1;  // Of today's value
  std::string to;     // "x0.92 (0.46 of the peak)"
  std::string then;   // What is chosen then, or that the objective fails
};

// A set with fewer cards, and what becomes of the objective.
struct SmallerSet {
  std::vector<int> cards;  // Per group
  double price_per_hour = 0;
  bool meets_objective = false;
  std::string reason;  // Of the best candidate: how it meets, or what it misses.
};

struct Plan {
  // The best candidate of each scheme, best first.
  std::vector<Candidate> candidates;
  // Every split of the scheme pd-direct; empty where there are more than kMostGrid.
  std::vector<SplitRates> grid;
  std::vector<std::string> why;  // Sentences
  std::vector<Flip> flips;
  std::vector<SmallerSet> smaller;  // Each step towards the smallest that meets, then what fails.

  const Candidate& chosen() const { return candidates.front(); }
};

inline constexpr size_t kMostGrid = 20000;

// Compares every scheme that applies, each at its best split. Pure: the same scenario, the same
// plan. Errors: those of CheckScenario.
Result<Plan> MakePlan(const Scenario& scenario);

// Its parts. The candidates alone, best first: for sweeps.
Result<std::vector<Candidate>> CompareCandidates(const Scenario& scenario);
// Every split of pd-direct, the earlier groups' cards varying slowest; empty where nothing is
// decoded or there are more than kMostGrid.
std::vector<SplitRates> GridOf(const Evaluator& evaluator);

// "4 A100-80GB-SXM prefill, 4 H20 decode": cards by role; "idle" are those whose memory does not
// hold theirs.
std::string DescribeCards(const Scenario& scenario, const Candidate& candidate);

}  // namespace divisi
