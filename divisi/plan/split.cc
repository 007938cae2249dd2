#include "divisi/plan/split.h"

#include <algorithm>
#include <span>
#include <utility>

#include "divisi/core/check.h"

namespace divisi {
namespace {

// One undominated choice for the types so far.
struct Point {
  double prefill = 0;
  double decode = 0;
  int cards = 0;      // Of the last type that prefill.
  size_t before = 0;  // The point of the layer before that this one extends.
};

// The frontiers after each type of a half; the first holds the empty choice.
using Layers = std::vector<std::vector<Point>>;

// Keeps points that no other beats in both rates: prefill falling, decode rising. Among equals the
// first in the order of generation stays, which has more prefill cards of the earlier types.
void KeepFrontier(std::vector<Point>& points) {
  std::stable_sort(points.begin(), points.end(), [](const Point& a, const Point& b) {
    return a.prefill != b.prefill ? a.prefill > b.prefill : a.decode > b.decode;
  });
  size_t kept = 0;
  for (const Point& point : points) {
    if (kept > 0 && point.decode <= points[kept - 1].decode) continue;
    points[kept++] = point;
  }
  points.resize(kept);
}

Layers Frontiers(std::span<const SplitType> types) {
  Layers layers = {{Point{}}};
  for (const SplitType& type : types) {
    std::vector<Point> next;
    next.reserve(layers.back().size() * static_cast<size_t>(type.count + 1));
    for (size_t i = 0; i < layers.back().size(); ++i) {
      const Point& from = layers.back()[i];
      for (int cards = type.count; cards >= 0; --cards) {
        next.push_back({from.prefill + cards * type.prefill.value,
                        from.decode + (type.count - cards) * type.decode.value, cards, i});
      }
    }
    KeepFrontier(next);
    layers.push_back(std::move(next));
  }
  return layers;
}

void AppendChoice(const Layers& layers, size_t point, Split& split) {
  std::vector<int> reversed;
  for (size_t layer = layers.size() - 1; layer > 0; --layer) {
    reversed.push_back(layers[layer][point].cards);
    point = layers[layer][point].before;
  }
  split.insert(split.end(), reversed.rbegin(), reversed.rend());
}

struct Pair {
  size_t first = 0, second = 0;
  double slower = -1, faster = -1;
};

void Consider(const Point& a, const Point& b, Pair candidate, Pair& best) {
  const double prefill = a.prefill + b.prefill;
  const double decode = a.decode + b.decode;
  candidate.slower = std::min(prefill, decode);
  candidate.faster = std::max(prefill, decode);
  const bool better = candidate.slower > best.slower ||
                      (candidate.slower == best.slower && candidate.faster > best.faster);
  if (better) best = candidate;
}

}  // namespace

PoolRates RatesOf(const std::vector<SplitType>& types, const Split& split) {
  CHECK(types.size() == split.size(), "{} types, {} counts", types.size(), split.size());
  PoolRates rates;
  for (size_t i = 0; i < types.size(); ++i) {
    rates.prefill += split[i] * types[i].prefill;
    rates.decode += (types[i].count - split[i]) * types[i].decode;
  }
  return rates;
}

Split BestSplit(const std::vector<SplitType>& types) {
  const std::span<const SplitType> all(types);
  const size_t half = types.size() / 2;
  const Layers first = Frontiers(all.subspan(0, half));
  const Layers second = Frontiers(all.subspan(half));
  const std::vector<Point>& partners = second.back();
  Pair best;
  for (size_t i = 0; i < first.back().size(); ++i) {
    const Point& a = first.back()[i];
    // Along partners prefill falls and decode rises: the best lies where the sums cross.
    const auto crossing = std::partition_point(
        partners.begin(), partners.end(),
        [&](const Point& b) { return a.prefill + b.prefill > a.decode + b.decode; });
    const auto at = static_cast<size_t>(crossing - partners.begin());
    if (at > 0) Consider(a, partners[at - 1], {i, at - 1}, best);
    if (at < partners.size()) Consider(a, partners[at], {i, at}, best);
  }
  Split split;
  AppendChoice(first, best.first, split);
  AppendChoice(second, best.second, split);
  return split;
}

std::vector<Split> AllSplits(const std::vector<SplitType>& types, size_t most) {
  size_t count = 1;
  for (const SplitType& type : types) {
    count *= static_cast<size_t>(type.count) + 1;
    if (count > most) return {};
  }
  std::vector<Split> all;
  Split split(types.size(), 0);
  for (size_t i = 0; i < count; ++i) {
    all.push_back(split);
    for (size_t type = types.size(); type-- > 0;) {
      if (split[type]++ < types[type].count) break;
      split[type] = 0;
    }
  }
  return all;
}

}  // namespace divisi
