#include "divisi/plan/split.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <utility>

#include "divisi/core/check.h"

namespace divisi {
namespace {

// The most that the slower pool can reach when cards of the open types may be divided: a bound on
// what whole cards reach. Types with the greatest prefill per decode given up go first, the last of
// them in part.
class Bound {
 public:
  explicit Bound(const std::vector<SplitType>& open) {
    for (const SplitType& type : open) {
      decode_ += type.count * type.decode.value;
      if (type.prefill.value > 0) open_.push_back(type);
    }
    std::stable_sort(open_.begin(), open_.end(), [](const SplitType& a, const SplitType& b) {
      return a.decode / a.prefill < b.decode / b.prefill;
    });
  }

  // prefill, decode: rates of what is chosen already.
  double operator()(double prefill, double decode) const {
    decode += decode_;
    for (const SplitType& type : open_) {
      if (prefill >= decode) break;
      const double cards = CardsToCross(type, decode - prefill);
      prefill += cards * type.prefill.value;
      decode -= cards * type.decode.value;
    }
    return std::min(prefill, decode);
  }

  // What some split of whole cards reaches, the open types being all.
  double Reached() const {
    double prefill = 0, decode = decode_;
    double reached = 0;
    for (const SplitType& type : open_) {
      const double cards = std::floor(CardsToCross(type, decode - prefill));
      prefill += cards * type.prefill.value;
      decode -= cards * type.decode.value;
      reached = std::max(reached, std::min(prefill, decode));
      const double further = std::min(prefill + type.prefill.value, decode - type.decode.value);
      if (cards < type.count) reached = std::max(reached, further);
    }
    return reached;
  }

 private:
  // Cards of the type, in parts of one too, after which prefill is ahead by no more than 0.
  static double CardsToCross(const SplitType& type, double decode_ahead) {
    const double each = type.prefill.value + type.decode.value;
    if (decode_ahead <= 0) return 0;
    return std::min<double>(type.count, decode_ahead / each);
  }

  std::vector<SplitType> open_;  // Those that can prefill.
  double decode_ = 0;            // Of every open card.
};

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

// The counts of 0 to `count` whose bound is at least `enough`, as [first, last]; empty where the
// first is greater. The bound is the value of a linear program, so concave in one count: these are
// a run, whose ends are found by bisection. Only few of many cards are in it.
template <typename BoundOf>
std::pair<int, int> CountsAbove(int count, double enough, const BoundOf& bound_of) {
  const auto first_that = [](int from, int to, const auto& holds) {
    while (from < to) {
      const int middle = from + (to - from) / 2;
      holds(middle) ? to = middle : from = middle + 1;
    }
    return from;
  };
  const int peak =
      first_that(0, count, [&](int cards) { return bound_of(cards + 1) <= bound_of(cards); });
  if (bound_of(peak) < enough) return {1, 0};
  const auto above = [&](int cards) { return bound_of(cards) >= enough; };
  return {first_that(0, peak, above),
          first_that(peak + 1, count + 1, [&](int cards) { return !above(cards); }) - 1};
}

// The division of divisible cards, the one type that it divides rounded down or up: its slower pool
// lacks at most one card's rate of what whole cards can reach.
Split RoundedSplit(const std::vector<SplitType>& types) {
  std::vector<size_t> order;
  Split split(types.size(), 0);
  PoolRates rates = RatesOf(types, split);
  for (size_t i = 0; i < types.size(); ++i) {
    if (types[i].prefill.value > 0) order.push_back(i);
  }
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return types[a].decode / types[a].prefill < types[b].decode / types[b].prefill;
  });
  for (const size_t i : order) {
    const SplitType& type = types[i];
    const double each = (type.prefill + type.decode).value;
    const double cross = std::max(0.0, (rates.decode - rates.prefill).value / each);
    split[i] = static_cast<int>(std::min<double>(type.count, std::floor(cross)));
    rates = RatesOf(types, split);
    if (split[i] == type.count) continue;
    ++split[i];
    const PoolRates more = RatesOf(types, split);
    if (more.Slower() <= rates.Slower()) --split[i];
    break;
  }
  return split;
}

// types: a half. others: the other half. enough: a choice whose bound is less is left out. Empty
// where more than kMostChoices would have to be kept.
Layers Frontiers(std::span<const SplitType> types, std::span<const SplitType> others,
                 double enough) {
  Layers layers = {{Point{}}};
  for (size_t t = 0; t < types.size(); ++t) {
    const SplitType& type = types[t];
    std::vector<SplitType> open(others.begin(), others.end());
    open.insert(open.end(), types.begin() + static_cast<std::ptrdiff_t>(t) + 1, types.end());
    const Bound bound(open);
    std::vector<Point> next;
    for (size_t i = 0; i < layers.back().size(); ++i) {
      const Point& from = layers.back()[i];
      const auto point_of = [&](int cards) {
        return Point{from.prefill + cards * type.prefill.value,
                     from.decode + (type.count - cards) * type.decode.value, cards, i};
      };
      const auto [least, most] = CountsAbove(type.count, enough, [&](int cards) {
        const Point point = point_of(cards);
        return bound(point.prefill, point.decode);
      });
      if (next.size() + static_cast<size_t>(most - least + 1) > kMostChoices) return {};
      for (int cards = most; cards >= least; --cards) next.push_back(point_of(cards));
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

Split ChoiceOf(const Layers& first, const Layers& second, const Pair& pair) {
  Split split;
  AppendChoice(first, pair.first, split);
  AppendChoice(second, pair.second, split);
  return split;
}

// Looks at the pair of these points; best is the best so far.
void Consider(const Layers& first, const Layers& second, Pair pair, Pair& best) {
  const Point& a = first.back()[pair.first];
  const Point& b = second.back()[pair.second];
  const double prefill = a.prefill + b.prefill;
  const double decode = a.decode + b.decode;
  pair.slower = std::min(prefill, decode);
  pair.faster = std::max(prefill, decode);
  const bool equal = pair.slower == best.slower && pair.faster == best.faster;
  const bool better = equal ? ChoiceOf(first, second, pair) > ChoiceOf(first, second, best)
                            : pair.slower > best.slower ||
                                  (pair.slower == best.slower && pair.faster > best.faster);
  if (better) best = pair;
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
  // Sums in another order differ by rounding, far less than this.
  constexpr double kRounding = 1e-9;
  const double enough = Bound(types).Reached() * (1 - kRounding);
  const Layers first = Frontiers(all.subspan(0, half), all.subspan(half), enough);
  const Layers second = Frontiers(all.subspan(half), all.subspan(0, half), enough);
  if (first.empty() || second.empty()) return RoundedSplit(types);
  const std::vector<Point>& partners = second.back();
  Pair best;
  for (size_t i = 0; i < first.back().size(); ++i) {
    const Point& a = first.back()[i];
    // Along partners prefill falls and decode rises: the best lies where the sums cross.
    const auto crossing = std::partition_point(
        partners.begin(), partners.end(),
        [&](const Point& b) { return a.prefill + b.prefill > a.decode + b.decode; });
    const auto at = static_cast<size_t>(crossing - partners.begin());
    if (at > 0) Consider(first, second, {i, at - 1}, best);
    if (at < partners.size()) Consider(first, second, {i, at}, best);
  }
  return ChoiceOf(first, second, best);
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
