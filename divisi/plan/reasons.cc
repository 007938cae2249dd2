#include "divisi/plan/reasons.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <optional>

#include "divisi/core/format.h"
#include "divisi/plan/objective.h"

namespace divisi {
namespace {

std::string RequestRate(PerSecond rate) { return HumanNumber(rate.value); }

std::string Rates(const Candidate& candidate) {
  if (!candidate.prefill_rate) return "";
  std::string text = Format(" (prefill {}, decode {}", RequestRate(*candidate.prefill_rate),
                            RequestRate(*candidate.decode_rate));
  if (candidate.link_rate) text += Format(", link {}", RequestRate(*candidate.link_rate));
  return text + ")";
}

std::string Title(const Scenario& scenario, const Candidate& candidate) {
  return Format("{} with {}", SchemeName(candidate.scheme), DescribeCards(scenario, candidate));
}

std::string Shortfalls(const Candidate& candidate) {
  std::string text;
  for (const Shortfall& shortfall : candidate.shortfalls) {
    text += (text.empty() ? "" : "; ") + shortfall.reason;
  }
  return text;
}

std::string Deciding(const Scenario& scenario, const Candidate& chosen) {
  const PerSecond arrivals = scenario.workload.arrivals.LongTermRate();
  return Format("{} carries {} requests/s, limited by {}{}; {} arrive.", Title(scenario, chosen),
                RequestRate(chosen.throughput), BottleneckName(chosen.bottleneck), Rates(chosen),
                RequestRate(arrivals));
}

void ExplainBacklog(const Scenario& scenario, const Candidate& chosen,
                    std::vector<std::string>& why) {
  const auto& limit = scenario.objective.clear_by;
  if (!limit || !chosen.backlog.cleared || chosen.backlog.most == 0) return;
  std::string text = Format("The start's backlog of {} requests is gone at {:.1f} s",
                            HumanNumber(chosen.backlog.most), chosen.backlog.cleared->value);
  // Of its stages, the one that has least to spare.
  std::optional<PerSecond> least;
  double spare = 0;
  for (const StageLoad& stage : chosen.stages) {
    const ArrivalSchedule arrivals = ArrivalsAt(scenario, stage.class_work);
    const auto needed = RateToClear(arrivals, scenario.startup, *limit);
    if (!needed || !(needed->value > 0)) continue;
    const double more = stage.rate / *needed - 1;
    if (least && more >= spare) continue;
    least = needed;
    spare = more;
  }
  if (least) {
    text += Format("; to be gone by {:.4g} s takes {} requests/s: it ", limit->value,
                   RequestRate(*least));
    text += spare < 0 ? Format("lacks {:.0f} %", -100 * spare)
                      : Format("has {:.0f} % more", 100 * spare);
  }
  why.push_back(text + ".");
}

// What later uses of a state save by the pool, its detour paid.
void ExplainReuse(const Scenario& scenario, const std::vector<Candidate>& candidates,
                  std::vector<std::string>& why) {
  if (!scenario.pool || !(scenario.pool->reuses > 0)) return;
  const auto of = [&](Scheme scheme) {
    return std::ranges::find(candidates, scheme, &Candidate::scheme);
  };
  const auto direct = of(Scheme::kPdDirect);
  const auto pool = of(Scheme::kPdPool);
  if (direct == candidates.end() || pool == candidates.end()) return;
  const double reuses = scenario.pool->reuses;
  const Seconds saved = direct->ttft + direct->reuse - pool->ttft - pool->reuse;
  why.push_back(
      Format("A later use of a state reads it from the pool in {} instead of computing it "
             "again in {}: with {:.3g} a request the pool {} {}, its own detour paid.",
             HumanSeconds(pool->reuse / reuses), HumanSeconds(direct->reuse / reuses), reuses,
             saved.value >= 0 ? "saves" : "loses", HumanSeconds(Seconds(std::abs(saved.value)))));
}

// Why `other` is not chosen.
std::string Against(const Scenario& scenario, const Candidate& chosen, const Candidate& other) {
  if (!other.meets_objective) {
    return Format("{} misses: {}.", Title(scenario, other), Shortfalls(other));
  }
  if (other.ideal) {
    return Format(
        "{} would carry {} requests/s if prefill hid wholly behind the memory traffic of "
        "decode: a bound, not a promise. Measure mixed steps and set chunked_overlap to "
        "compare it.",
        Title(scenario, other), RequestRate(other.throughput));
  }
  const double more = chosen.throughput / other.throughput - 1;
  if (std::abs(more) > 1e-3) {
    return Format("{} carries {} requests/s, {:.1f} % less.", Title(scenario, other),
                  RequestRate(other.throughput), 100 * more / (1 + more));
  }
  const bool reused = chosen.reuse.value > 0 || other.reuse.value > 0;
  const Seconds later = other.ttft + other.reuse - chosen.ttft - chosen.reuse;
  std::string text =
      Format("{} carries as much, but {} {} later", Title(scenario, other),
             reused ? "the first tokens of a request and of those that use its state come, all "
                      "together,"
                    : "its first token comes",
             HumanSeconds(later));
  if (other.transfer > chosen.transfer) {
    text += Format(" and it moves {} a request over the link, not {}", HumanBytes(other.transfer),
                   HumanBytes(chosen.transfer));
  }
  return text + ".";
}

// What a change alters: a number of the scenario, times `factor`.
struct Knob {
  std::string name;
  double least, most;  // Factors
  std::function<void(Scenario&, double)> turn;
  std::function<std::string(const Scenario&, double)> describe;
};

void ScaleEfficiency(Scenario& scenario, double factor) {
  const auto scale = [&](double& fraction) { fraction = std::min(1.0, fraction * factor); };
  for (CardGroup& group : scenario.groups) {
    scale(group.efficiency.prefill_compute);
    scale(group.efficiency.prefill_memory);
    scale(group.efficiency.decode_compute);
    for (auto& point : group.efficiency.decode_memory.points) scale(point.fraction);
  }
}

void ScaleArrivals(ArrivalSchedule& arrivals, double factor) {
  for (auto& part : arrivals.parts) part.rate = part.rate * factor;
}

Tokens Scaled(Tokens tokens, double factor, int64_t least) {
  const auto scaled = std::llround(static_cast<double>(tokens.value) * factor);
  return Tokens(std::max<int64_t>(least, scaled));
}

Knob EfficiencyKnob(const Scenario& scenario) {
  double most = 0;
  for (const CardGroup& group : scenario.groups) {
    most = std::max(most, group.efficiency.prefill_compute);
  }
  return {"efficiency of every card", 0.1, 1 / most, ScaleEfficiency,
          [](const Scenario& s, double) {
            return Format("prefill at {:.3g} of the peak on {}",
                          s.groups.front().efficiency.prefill_compute, s.groups.front().name);
          }};
}

Knob LinkKnob() {
  return {"link bandwidth", 0.01, 100,
          [](Scenario& s, double factor) {
            s.link.bandwidth = s.link.bandwidth * factor;
            if (s.pool) s.pool->link.bandwidth = s.pool->link.bandwidth * factor;
          },
          [](const Scenario& s, double) { return HumanRate(s.link.bandwidth); }};
}

// The factor is that of the tokens to compute.
Knob PrefixKnob() {
  return {"tokens to prefill", 0.02, 1,
          [](Scenario& s, double factor) {
            for (RequestClass& request : s.workload.classes) {
              request.cached_prefill = request.input - Scaled(request.NewTokens(), factor, 1);
            }
          },
          [](const Scenario& s, double) {
            const RequestClass& request = s.workload.classes.front();
            return Format("{} of {} tokens cached", request.cached_prefill.value,
                          request.input.value);
          }};
}

Knob OutputKnob() {
  return {"output length", 0.01, 100,
          [](Scenario& s, double factor) {
            for (RequestClass& request : s.workload.classes) {
              request.output = Scaled(request.output, factor, 1);
            }
          },
          [](const Scenario& s, double) {
            return Format("{} tokens", s.workload.classes.front().output.value);
          }};
}

Knob ArrivalKnob() {
  return {"arrival rate", 0.01, 100,
          [](Scenario& s, double factor) {
            ScaleArrivals(s.workload.arrivals, factor);
            for (RequestClass& request : s.workload.classes) {
              if (request.arrivals) ScaleArrivals(*request.arrivals, factor);
            }
          },
          [](const Scenario& s, double) {
            return Format("{} requests/s", RequestRate(s.workload.arrivals.LongTermRate()));
          }};
}

// Whether `best` of a changed scenario is another decision than `today`: another scheme or verdict,
// or a split by which today's loses more than a hundredth. Of many cards nearly every change moves
// one or two, which decides nothing.
bool Alters(const Scenario& changed, const Candidate& today, const Candidate& best) {
  constexpr double kLoss = 0.01;
  if (best.scheme != today.scheme || best.meets_objective != today.meets_objective) return true;
  if (best.prefill_workers == today.prefill_workers) return false;
  const Candidate kept = Evaluator(changed).Evaluate(today.scheme, today.prefill_workers);
  return kept.meets_objective != best.meets_objective ||
         kept.throughput < best.throughput * (1 - kLoss);
}

// Nothing where the turn of a knob made no scenario.
std::optional<Candidate> BestOf(const Scenario& changed) {
  auto candidates = CompareCandidates(changed);
  if (!candidates) return std::nullopt;
  return std::move(candidates->front());
}

// From factor 1 towards `end` until the decision changes.
std::optional<Flip> FlipTowards(const Scenario& scenario, const Candidate& chosen, const Knob& knob,
                                double end) {
  constexpr double kStep = 1.05;
  constexpr double kExact = 1e-4;
  const auto alters = [&](double factor) {
    Scenario changed = scenario;
    knob.turn(changed, factor);
    const auto best = BestOf(changed);
    return best && Alters(changed, chosen, *best);
  };
  const double step = end > 1 ? kStep : 1 / kStep;
  const auto inside = [&](double factor) { return end > 1 ? factor <= end : factor >= end; };
  double before = 1;
  double after = step;
  while (inside(after) && !alters(after)) {
    before = after;
    after *= step;
  }
  if (!inside(after)) return std::nullopt;
  while (std::abs(after / before - 1) > kExact) {
    const double middle = std::sqrt(before * after);
    (alters(middle) ? after : before) = middle;
  }
  Scenario changed = scenario;
  knob.turn(changed, after);
  const auto best = BestOf(changed);
  if (!best) return std::nullopt;
  const char* objective = best->meets_objective == chosen.meets_objective ? ""
                          : chosen.meets_objective ? ", and nothing meets the objective"
                                                   : ", and the objective is met";
  return Flip{.what = knob.name,
              .factor = after,
              .to = knob.describe(changed, after),
              .then = Title(changed, *best) + (best->ideal ? " (an ideal bound)" : "") + objective};
}

Scenario WithWorkers(const Scenario& scenario, size_t group, int workers) {
  Scenario less = scenario;
  CardGroup& changed = less.groups[group];
  const int cards = workers * changed.CardsPerWorker();
  if (less.price_per_hour) {
    const auto all = [](const Scenario& s) {
      return std::accumulate(s.groups.begin(), s.groups.end(), 0.0,
                             [](double sum, const CardGroup& g) { return sum + g.count; });
    };
    const double before = all(less);
    *less.price_per_hour *= (before - (changed.count - cards)) / before;
  }
  changed.count = cards;
  return less;
}

// A bound that nothing real reaches is no reason to give cards away.
bool Meets(const Candidate& candidate) { return candidate.meets_objective && !candidate.ideal; }

SmallerSet Judge(const Scenario& scenario) {
  SmallerSet set{.price_per_hour = scenario.PricePerHour()};
  for (const CardGroup& group : scenario.groups) set.cards.push_back(group.count);
  const auto candidates = CompareCandidates(scenario);
  if (!candidates) {
    set.reason = "no cards are left";
    return set;
  }
  const Candidate& best = candidates->front();
  set.meets_objective = Meets(best);
  const std::string title = Title(scenario, best);
  const std::string rate = RequestRate(best.throughput);
  set.reason =
      set.meets_objective ? Format("{} carries {} requests/s", title, rate)
      : best.meets_objective
          ? Format("only the ideal bound of {}, {} requests/s, meets the objective", title, rate)
          : Format("{} misses: {}", title, Shortfalls(best));
  return set;
}

bool Meets(const Scenario& scenario) {
  const auto candidates = CompareCandidates(scenario);
  return candidates && Meets(candidates->front());
}

// The fewest workers of the group that still do, the other groups staying.
int FewestWorkers(const Scenario& scenario, size_t group) {
  int low = -1;
  int high = scenario.groups[group].Workers();
  while (high - low > 1) {
    const int middle = low + (high - low) / 2;
    (Meets(WithWorkers(scenario, group, middle)) ? high : low) = middle;
  }
  return high;
}

}  // namespace

std::vector<std::string> ExplainChoice(const Scenario& scenario,
                                       const std::vector<Candidate>& candidates) {
  const Candidate& chosen = candidates.front();
  std::vector<std::string> why = {Deciding(scenario, chosen)};
  ExplainBacklog(scenario, chosen, why);
  ExplainReuse(scenario, candidates, why);
  if (!chosen.meets_objective) {
    why.push_back(
        Format("Nothing meets the objective; this comes nearest: {}.", Shortfalls(chosen)));
  }
  for (size_t i = 1; i < candidates.size(); ++i) {
    why.push_back(Against(scenario, chosen, candidates[i]));
  }
  return why;
}

std::vector<Flip> FindFlips(const Scenario& scenario, const Candidate& chosen) {
  std::vector<Flip> flips;
  for (const Knob& knob :
       {EfficiencyKnob(scenario), LinkKnob(), PrefixKnob(), OutputKnob(), ArrivalKnob()}) {
    for (const double end : {knob.least, knob.most}) {
      if (end == 1) continue;
      if (auto flip = FlipTowards(scenario, chosen, knob, end)) flips.push_back(std::move(*flip));
    }
  }
  return flips;
}

std::vector<SmallerSet> TrySmallerSets(const Scenario& scenario) {
  std::vector<SmallerSet> sets;
  if (!Meets(scenario)) return sets;
  std::vector<size_t> dearest(scenario.groups.size());
  std::iota(dearest.begin(), dearest.end(), size_t{0});
  std::stable_sort(dearest.begin(), dearest.end(), [&](size_t a, size_t b) {
    return scenario.groups[a].price_per_hour > scenario.groups[b].price_per_hour;
  });
  Scenario least = scenario;
  for (const size_t group : dearest) {
    const int fewest = FewestWorkers(least, group);
    if (fewest == least.groups[group].Workers()) continue;
    least = WithWorkers(least, group, fewest);
    sets.push_back(Judge(least));
  }
  for (const size_t group : dearest) {
    const int workers = least.groups[group].Workers();
    if (workers > 0) sets.push_back(Judge(WithWorkers(least, group, workers - 1)));
  }
  return sets;
}

}  // namespace divisi
