// How many cards of each type prefill, the rest decoding, so that the slower pool is as fast as can
// be. Exact for any number of types and cards.
#pragma once

#include <vector>

#include "divisi/core/units.h"

namespace divisi {

// Cards of one type. A rate of 0: the type cannot serve in that pool (the model does not fit).
struct SplitType {
  int count = 0;
  PerSecond prefill;  // Requests that one card prefills.
  PerSecond decode;   // Requests that one card decodes.
};

// Cards of each type that prefill, in the order of the types.
using Split = std::vector<int>;

// Rates of the two pools. Source: section 9.2.3; derivations "Pools".
struct PoolRates {
  PerSecond prefill;
  PerSecond decode;
  PerSecond Slower() const { return prefill < decode ? prefill : decode; }
};
PoolRates RatesOf(const std::vector<SplitType>& types, const Split& split);

// The split with the greatest min(sum x_i p_i, sum (n_i - x_i) d_i). Where several have it, the one
// whose faster pool is faster, then the one with more prefill cards of the earlier types. A type
// that cannot serve in one pool is in the other; its cards may then count for nothing.
//
// Both pools' rates are sums over types, so of the splits of a few types only those matter that no
// other beats in both rates. The types are divided into two halves, each half's frontier is built
// type by type, and for every point of one the best partner on the other is found by bisection:
// along a frontier one rate rises as the other falls. A choice is kept only if divisible cards of
// the types still open could take it to what a rounded division of all cards reaches: 4 types of
// 250 cards have 4e9 splits, of which some hundred are looked at.
//
// Where more than kMostChoices would have to be kept for one type (many types of hundreds of nearly
// like cards), it is the rounded division itself: at most one card's rate below the best.
inline constexpr size_t kMostChoices = 4000;
Split BestSplit(const std::vector<SplitType>& types);

// Every split, earlier types varying slowest; empty where there are more than `most`.
std::vector<Split> AllSplits(const std::vector<SplitType>& types, size_t most);

}  // namespace divisi
