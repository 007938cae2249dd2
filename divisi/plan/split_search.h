// The split of a scheme with two pools that serves a scenario best.
#pragma once

#include "divisi/plan/candidate.h"

namespace divisi {

// Whether a is the better answer: one that meets the objective; then one that is not an ideal
// bound; then more throughput (a thousandth apart counts as equal), an earlier first token (with
// those of later requests that use the state), less traffic.
bool IsBetter(const Candidate& a, const Candidate& b);

// The split of the greatest throughput (BestSplit). Where it misses a limit of TTFT or TPOT, all
// splits are searched, if they are few enough: a slower one may answer sooner. Of those that meet
// the objective the one of the greatest throughput, and within a thousandth of it of the earliest
// first token.
// Requires: scheme is kPdDirect or kPdPool; evaluator.decodes().
Candidate BestOfSplits(const Evaluator& evaluator, Scheme scheme);

}  // namespace divisi
