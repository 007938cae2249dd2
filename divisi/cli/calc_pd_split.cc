#include "divisi/cli/calc_pd_split.h"

#include "divisi/cli/calc_scenario.h"
#include "divisi/core/format.h"
#include "divisi/plan/planner.h"

namespace divisi {
namespace {

CalcFigure Column(const char* key, CalcUnit unit, const char* label) {
  return {key, 0, unit, label};
}

constexpr const char* kSplitFormula =
    "pools: mu_P = sum n_P / d_P, mu_D = sum n_D / d_D     requests/s; d: card-seconds of a "
    "request\n"
    "link:  mu_L = B / V                                   V: state of a prompt, bytes\n"
    "a split's rate = min(mu_P, mu_D, mu_L); all whole splits of both kinds are looked at\n"
    "replicas = sum n / (d_P + d_D); replicas-chunked = sum n / max(compute of both, bytes of\n"
    "both), an ideal bound; pd-pool: each state crosses the link twice\n"
    "the link limits where B < rate * V.     d_P, d_D: divisi calc stage-rates --help\n"
    "Rows of the grid: prefill cards of --card + of --other-card. Source: sections 9.2.3, 9.2.4.";

void AddGrid(const Evaluator& evaluator, CalcResult& result) {
  const std::vector<SplitType> types = evaluator.SplitTypes();
  const PerSecond link = evaluator.LinkRate(Scheme::kPdDirect);
  CalcTable table{"grid",
                  "Splits: cards that prefill, the rest decode",
                  {},
                  {Column("prefill", CalcUnit::kPerSecond, "prefill"),
                   Column("decode", CalcUnit::kPerSecond, "decode"),
                   Column("link", CalcUnit::kPerSecond, "link"),
                   Column("throughput", CalcUnit::kPerSecond, "together")},
                  {}};
  for (const SplitRates& cell : GridOf(evaluator)) {
    table.row_names.push_back(Format("{}+{}", cell.prefill_workers[0], cell.prefill_workers[1]));
    table.rows.push_back(
        {cell.prefill.value, cell.decode.value, link.value, cell.throughput.value});
  }
  if (table.rows.empty()) {
    result.notes.push_back(
        Format("There are more than {} splits: only the best is shown.", kMostGrid));
  } else {
    result.tables.push_back(std::move(table));
  }
}

void AddBest(const Scenario& scenario, const Candidate& best, CalcResult& result) {
  const auto cards = [&](size_t group) { return double(best.prefill_workers[group]); };
  const PerSecond never(0);
  result.figures.push_back(FigureOf("throughput", best.throughput, "best split"));
  result.figures.push_back(FigureOf("prefill_cards", cards(0), "its prefill cards of --card"));
  result.figures.push_back(
      FigureOf("prefill_other_cards", cards(1), "its prefill cards of --other-card"));
  result.figures.push_back(
      FigureOf("prefill", best.prefill_rate.value_or(never), "its prefill pool"));
  result.figures.push_back(FigureOf("decode", best.decode_rate.value_or(never), "its decode pool"));
  result.figures.push_back(FigureOf("link", best.link_rate.value_or(never), "the link"));
  result.figures.push_back(FigureOf("transfer", best.transfer, "state on the link, a request"));
  result.figures.push_back(FigureOf("link_needed", best.link_at_saturation,
                                    "bandwidth below which the link limits this split"));
  result.notes.push_back(Format("Best apart: {}; {} limits it.", DescribeCards(scenario, best),
                                BottleneckName(best.bottleneck)));
  if (!best.fits) result.notes.push_back("It does not fit: " + best.fit_problem + ".");
}

CalcTable SchemesTable(const std::vector<Candidate>& candidates) {
  CalcTable table{"schemes",
                  "Deployments, each at its best split, best first",
                  {},
                  {Column("throughput", CalcUnit::kPerSecond, "requests"),
                   Column("transfer", CalcUnit::kBytes, "on the link, each"),
                   Column("first_token", CalcUnit::kSeconds, "first token"),
                   Column("fits", CalcUnit::kCount, "fits (1: yes)")},
                  {}};
  for (const Candidate& candidate : candidates) {
    table.row_names.push_back(SchemeName(candidate.scheme));
    table.rows.push_back({candidate.throughput.value, static_cast<double>(candidate.transfer.value),
                          candidate.ttft.value, candidate.fits ? 1.0 : 0.0});
  }
  return table;
}

Result<CalcResult> RunSplit(const CalcValues& in) {
  ASSIGN_OR_RETURN(const Scenario scenario, ScenarioOf(in));
  ASSIGN_OR_RETURN(const std::vector<Candidate> candidates, CompareCandidates(scenario));
  const Evaluator evaluator(scenario);
  CalcResult result;
  for (const Candidate& candidate : candidates) {
    if (candidate.scheme == Scheme::kPdDirect) AddBest(scenario, candidate, result);
  }
  result.tables.push_back(SchemesTable(candidates));
  if (evaluator.decodes()) {
    AddGrid(evaluator, result);
  } else {
    result.notes.push_back("Of one output token nothing is decoded: there is nothing to divide.");
  }
  return result;
}

}  // namespace

CalcTopic PdSplitTopic() {
  return {"pd-split", "How two kinds of cards divide between prefill and decode: every split",
          kSplitFormula, ScenarioInputs(), RunSplit};
}

}  // namespace divisi
