#include "divisi/cli/plan_rows.h"

#include <cmath>
#include <optional>

#include "divisi/core/format.h"

namespace divisi {
namespace {

std::string Number(double value) { return std::isfinite(value) ? HumanNumber(value) : "-"; }
template <typename Quantity>
std::string Number(const std::optional<Quantity>& value) {
  return value ? Number(value->value) : "-";
}
std::string Time(Seconds time) {
  return std::isfinite(time.value) ? HumanSeconds(time) : std::string("never");
}
std::string Count(const std::optional<int>& count) {
  return count ? Format("{}", *count) : std::string("none");
}

std::vector<PlanRow> RateRows() {
  return {
      {"requests/s", [](const Candidate& c) { return Number(c.throughput.value); },
       "what the deployment completes at most: the least of its pools' and link's rates"},
      {"  limited by", [](const Candidate& c) { return BottleneckName(c.bottleneck); },
       "the pool or link that this rate is of"},
      {"  prefill", [](const Candidate& c) { return Number(c.prefill_rate); },
       "requests/s that the prefill workers take"},
      {"  decode", [](const Candidate& c) { return Number(c.decode_rate); },
       "requests/s that the decode workers finish"},
      {"  link", [](const Candidate& c) { return Number(c.link_rate); },
       "requests/s whose states the link carries"},
      {"TTFT alone", [](const Candidate& c) { return c.fits ? Time(c.ttft) : std::string("-"); },
       "to the first token of a request that meets no other: prefill, then transfer"},
      {"TTFT at arrivals",
       [](const Candidate& c) { return c.fits ? Time(c.TtftAtArrival()) : std::string("-"); },
       "the same plus mean waits at the arrival rate (M/D/k)"},
      {"TPOT", [](const Candidate& c) { return c.tpot ? Time(*c.tpot) : std::string("-"); },
       "(end - first token) / (output - 1), without prompts in between"},
      {"TPOT at arrivals",
       [](const Candidate& c) {
         return c.tpot_at_arrival ? Time(*c.tpot_at_arrival) : std::string("-");
       },
       "the same with the prompts that arrive in between"},
  };
}

std::vector<PlanRow> LoadRows(const Scenario& scenario) {
  return {
      {"backlog gone",
       [](const Candidate& c) {
         return c.backlog.cleared ? Format("{:.1f} s", c.backlog.cleared->value)
                                  : std::string("never");
       },
       "when the queue of the start-up is first empty, from the beginning of the start-up"},
      {"link at arrivals", [](const Candidate& c) { return HumanRate(c.link_at_arrival); },
       "bytes that states move at the arrival rate"},
      {"link at most", [](const Candidate& c) { return HumanRate(c.link_at_saturation); },
       "and at the deployment's own rate"},
      {"within the SLO", [](const Candidate& c) { return Format("{:.1f} %", 100 * c.slo_share); },
       "requests within the limits of TTFT and TPOT at the arrival rate"},
      {"cost of 1000", [](const Candidate& c) { return Number(c.cost_per_1000); },
       Format("{} per 1000 requests at the arrival rate",
              scenario.currency.empty() ? "price" : scenario.currency)},
      {"  at most", [](const Candidate& c) { return Number(c.cost_per_1000_at_saturation); },
       "at the deployment's own rate"},
      {"  within the SLO", [](const Candidate& c) { return Number(c.cost_per_1000_within_slo); },
       "per 1000 requests that are within the SLO"},
      {"sets to hold", [](const Candidate& c) { return Count(c.copies_to_hold); },
       "copies of all these cards that carry more than what arrives"},
      {"sets to clear", [](const Candidate& c) { return Count(c.copies_to_clear); },
       "copies that also have the backlog gone in time"},
      {"fits", [](const Candidate& c) { return std::string(c.fits ? "yes" : "no"); },
       "whether some cards hold weights, states and buffers"},
      {"evidence",
       [](const Candidate& c) {
         return std::string(c.ideal ? "ideal bound" : EvidenceName(c.evidence));
       },
       "where rates and times come from: given, calibrated, derived from peaks, extrapolated"},
      {"meets objective",
       [](const Candidate& c) { return std::string(c.meets_objective ? "yes" : "no"); },
       "holds the arrivals, clears in time, keeps TTFT and TPOT"},
  };
}

}  // namespace

std::vector<PlanRow> PlanRows(const Scenario& scenario) {
  std::vector<PlanRow> rows = RateRows();
  if (scenario.pool && scenario.pool->reuses > 0) {
    rows.push_back({"reuse", [](const Candidate& c) { return Time(c.reuse); },
                    "to the first tokens of the later requests that use its state, all together"});
  }
  if (scenario.pool && scenario.pool->capacity.value > 0) {
    rows.push_back({"pool holds",
                    [](const Candidate& c) {
                      return c.pool_states ? Format("{} states", *c.pool_states) : "-";
                    },
                    "states of the longest prompts that it has room for"});
  }
  for (PlanRow& row : LoadRows(scenario)) rows.push_back(std::move(row));
  return rows;
}

std::string FlipText(const Flip& flip) {
  return Format("{} x{:.3g} ({}): {}", flip.what, flip.factor, flip.to, flip.then);
}

std::string CardsText(const Scenario& scenario, const SmallerSet& set) {
  std::string text;
  for (size_t i = 0; i < set.cards.size(); ++i) {
    text += Format("{}{} {}", i == 0 ? "" : " + ", set.cards[i], scenario.groups[i].name);
  }
  return text;
}

}  // namespace divisi
