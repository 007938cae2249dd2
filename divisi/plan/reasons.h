// Why a plan chose what it chose: sentences with the deciding figures, the changes that would alter
// the choice, and what fewer cards would do.
#pragma once

#include <string>
#include <vector>

#include "divisi/plan/planner.h"

namespace divisi {

// candidates: best first; at least one.
std::vector<std::string> ExplainChoice(const Scenario& scenario,
                                       const std::vector<Candidate>& candidates);

// For each of efficiency, link bandwidth, tokens to prefill, output length and arrival rate, in
// both directions: the nearest value at which another scheme is best, another split by more than a
// hundredth, or the objective is lost or won. Found by steps of a twentieth and bisection between
// the last two, so a choice that wins within less than a step is passed over. Nothing where no
// value within the range alters anything.
std::vector<Flip> FindFlips(const Scenario& scenario, const Candidate& chosen);

// Takes cards away, dearest first, as long as some scheme still meets the objective; then one
// worker less of each group, with the reason that it fails. An ideal bound does not count as
// meeting it. Empty where the whole set does not meet it.
std::vector<SmallerSet> TrySmallerSets(const Scenario& scenario);

}  // namespace divisi
