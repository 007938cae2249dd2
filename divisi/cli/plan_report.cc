#include "divisi/cli/plan_report.h"

#include <cmath>

#include "divisi/cli/html.h"
#include "divisi/cli/plan_figures.h"
#include "divisi/cli/plan_report_style.h"
#include "divisi/cli/plan_rows.h"
#include "divisi/core/format.h"

namespace divisi {
namespace {

std::string Paragraph(std::string_view style, std::string_view text) {
  return Format("<p class=\"{}\">{}</p>\n", style, HtmlText(text));
}

// The figure of PlanRows that has this name.
std::string Shown(const std::vector<PlanRow>& rows, const Candidate& candidate,
                  std::string_view name) {
  for (const PlanRow& row : rows) {
    if (row.name == name) return row.show(candidate);
  }
  return "-";
}

class Report {
 public:
  Report(const Scenario& scenario, const Plan& plan)
      : scenario_(scenario), plan_(plan), rows_(PlanRows(scenario)) {}

  std::string Html() {
    Head();
    Verdict();
    Heading("Why");
    Sentences(plan_.why);
    Figures();
    Heading("Candidates");
    Candidates();
    Flips();
    Smaller();
    Evidence();
    html_ +=
        "<footer>Made by divisi plan. Waits are those of M/D/k queues at the arrival rate; "
        "rates leave queueing out.</footer>\n</main>\n</body>\n</html>\n";
    return std::move(html_);
  }

 private:
  void Head() {
    html_ = Format(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
        "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src "
        "'unsafe-inline'\">\n<title>{} - deployment plan</title>\n<style>{}</style>\n</head>\n"
        "<body>\n<main>\n<header>\n<h1>{}</h1>\n",
        HtmlText(scenario_.name), kPlanReportStyle, HtmlText(scenario_.name));
    std::string facts = scenario_.model_name;
    for (const CardGroup& group : scenario_.groups) {
      facts += Format(", {} {}", group.count, group.name);
    }
    facts += Format("; {:.4g} requests/s", scenario_.workload.arrivals.LongTermRate().value);
    facts += Format("; start-up {:.4g} s", scenario_.startup.value);
    const Objective& objective = scenario_.objective;
    if (objective.clear_by)
      facts += Format("; backlog gone by {:.4g} s", objective.clear_by->value);
    if (objective.ttft) facts += "; TTFT within " + HumanSeconds(*objective.ttft);
    if (objective.tpot) facts += "; TPOT within " + HumanSeconds(*objective.tpot);
    html_ += Paragraph("facts", facts) + "</header>\n";
  }

  void Heading(const char* title) { html_ += Format("<h2>{}</h2>\n", title); }

  void Sentences(const std::vector<std::string>& sentences) {
    html_ += "<ul>\n";
    for (const std::string& sentence : sentences) {
      html_ += Format("<li>{}</li>\n", HtmlText(sentence));
    }
    html_ += "</ul>\n";
  }

  void Tile(const char* name, const std::string& value, const std::string& note) {
    html_ += Format("<div><dt>{}</dt><dd>{} <small>{}</small></dd></div>\n", name, HtmlText(value),
                    HtmlText(note));
  }

  void Verdict() {
    const Candidate& chosen = plan_.chosen();
    html_ +=
        Format("<p class=\"verdict\"><strong>{}</strong>: {}. <span class=\"{}\">{}</span></p>\n",
               SchemeName(chosen.scheme), HtmlText(DescribeCards(scenario_, chosen)),
               chosen.meets_objective ? "good" : "bad",
               chosen.meets_objective ? "Meets the objective."
                                      : "Nothing meets the objective; this comes nearest.");
    html_ += "<dl class=\"tiles\">\n";
    Tile("carries", HumanNumber(chosen.throughput.value), "requests/s");
    Tile("limited by", BottleneckName(chosen.bottleneck), "");
    Tile("TTFT at arrivals", Shown(rows_, chosen, "TTFT at arrivals"), "");
    Tile("TPOT at arrivals", Shown(rows_, chosen, "TPOT at arrivals"), "");
    Tile("backlog gone", Shown(rows_, chosen, "backlog gone"), "");
    Tile("cost of 1000", Shown(rows_, chosen, "cost of 1000"), scenario_.currency);
    html_ += "</dl>\n";
  }

  void Figure(const PlanFigure& figure) {
    html_ += Format("<h2>{}</h2>\n<figure>\n{}<figcaption>{}</figcaption>\n</figure>\n",
                    HtmlText(figure.title), figure.svg, HtmlText(figure.caption));
    if (figure.numbers.rows.empty()) return;
    html_ += Format("<details><summary>The figure's numbers</summary>\n{}</details>\n",
                    HtmlOf(figure.numbers));
  }

  void Figures() {
    Figure(CardsFigure(scenario_, plan_));
    if (const auto figure = SplitFigure(scenario_, plan_)) Figure(*figure);
    Figure(BacklogFigure(scenario_, plan_));
    if (const auto figure = TransferFigure(scenario_, plan_)) Figure(*figure);
    Figure(MemoryFigure(scenario_, plan_));
  }

  // Each row has its meaning below its name, which HtmlTable doesn't know.
  void Candidates() {
    html_ +=
        "<div class=\"scroll\"><table class=\"figures\">\n<thead><tr>"
        "<th scope=\"col\">figure</th>";
    for (const Candidate& candidate : plan_.candidates) {
      const bool chosen = &candidate == &plan_.chosen();
      html_ += Format("<th scope=\"col\"{}>{}</th>", chosen ? " class=\"marked\"" : "",
                      SchemeName(candidate.scheme));
    }
    html_ += "</tr></thead>\n<tbody>\n";
    for (const PlanRow& row : rows_) {
      html_ += Format("<tr><th scope=\"row\"{}>{}<span class=\"meaning\">{}</span></th>",
                      row.name.starts_with(' ') ? " class=\"part\"" : "", HtmlText(row.name),
                      HtmlText(row.meaning));
      for (const Candidate& candidate : plan_.candidates) {
        const bool chosen = &candidate == &plan_.chosen();
        html_ += Format("<td{}>{}</td>", chosen ? " class=\"marked\"" : "",
                        HtmlText(row.show(candidate)));
      }
      html_ += "</tr>\n";
    }
    html_ += "</tbody></table></div>\n";
    Shortfalls();
  }

  void Shortfalls() {
    HtmlTable table{.head = {"candidate", "cards", "what it misses"}, .prose = true};
    for (const Candidate& candidate : plan_.candidates) {
      std::string missed;
      for (const Shortfall& shortfall : candidate.shortfalls) {
        missed += (missed.empty() ? "" : "; ") + shortfall.reason;
      }
      if (candidate.fits && !candidate.fit_problem.empty()) {
        missed += (missed.empty() ? "" : "; ") + ("cards without use: " + candidate.fit_problem);
      }
      table.rows.push_back({SchemeName(candidate.scheme), DescribeCards(scenario_, candidate),
                            missed.empty() ? "nothing" : missed});
    }
    html_ += HtmlOf(table);
  }

  void Flips() {
    if (plan_.flips.empty()) return;
    Heading("What would change the choice");
    HtmlTable table{.head = {"what changes", "times", "to", "then"}, .prose = true};
    for (const Flip& flip : plan_.flips) {
      table.rows.push_back({flip.what, Format("{:.3g}", flip.factor), flip.to, flip.then});
    }
    html_ += HtmlOf(table);
  }

  void Smaller() {
    if (plan_.smaller.empty()) return;
    Heading("Fewer cards");
    HtmlTable table{.head = {"cards", "an hour", "objective", "because"}, .prose = true};
    for (const SmallerSet& set : plan_.smaller) {
      table.rows.push_back({CardsText(scenario_, set),
                            Format("{:.4g} {}", set.price_per_hour, scenario_.currency),
                            set.meets_objective ? "met" : "missed", set.reason});
    }
    html_ += HtmlOf(table);
  }

  // What the numbers rest on.
  void Evidence() {
    Heading("Where the numbers come from");
    html_ += Paragraph(
        "", Format("Rates and times of {} are {}. Given: read from the scenario or the catalogue. "
                   "Calibrated: from rates measured on running workers. Derived: peaks times the "
                   "efficiencies below. Extrapolated: an efficiency beyond the batches that were "
                   "measured.",
                   SchemeName(plan_.chosen().scheme), EvidenceName(plan_.chosen().evidence)));
    html_ += HtmlOf(Cards());
    html_ += HtmlOf(Requests());
    html_ += HtmlOf(Links());
  }

  HtmlTable Cards() const {
    HtmlTable table{.head = {"cards", "count", "peak", "memory bandwidth", "memory",
                             "prefill compute", "prefill memory", "decode compute", "decode memory",
                             "efficiency is"}};
    for (const CardGroup& group : scenario_.groups) {
      const Efficiency& reached = group.efficiency;
      table.rows.push_back(
          {group.name, Format("{}", group.count), HumanRate(group.card.bf16_peak),
           HumanRate(group.card.memory_bandwidth), HumanBytes(group.card.memory),
           Format("{:.3g}", reached.prefill_compute), Format("{:.3g}", reached.prefill_memory),
           Format("{:.3g}", reached.decode_compute),
           Format("{:.3g}", reached.decode_memory.At(scenario_.workload.decode_batch)),
           reached.calibrated ? "calibrated" : "given"});
    }
    return table;
  }

  HtmlTable Requests() const {
    HtmlTable table{
        .head = {"requests", "share", "input", "output", "cached at prefill", "cached at decode"}};
    for (const RequestClass& request : scenario_.workload.classes) {
      table.rows.push_back(
          {request.name, Format("{:.1f} %", 100 * request.weight / scenario_.TotalWeight()),
           Format("{}", request.input.value), Format("{}", request.output.value),
           Format("{}", request.cached_prefill.value), Format("{}", request.cached_decode.value)});
    }
    return table;
  }

  HtmlTable Links() const {
    HtmlTable table{.head = {"link", "bandwidth", "launch"}};
    const auto add = [&](const std::string& name, const LinkSpec& link) {
      table.rows.push_back({name, HumanRate(link.bandwidth), HumanSeconds(link.launch)});
    };
    add("between prefill and decode", scenario_.link);
    if (scenario_.pool) add("into and out of the pool", scenario_.pool->link);
    return table;
  }

  const Scenario& scenario_;
  const Plan& plan_;
  std::vector<PlanRow> rows_;
  std::string html_;
};

}  // namespace

std::string PlanReport(const Scenario& scenario, const Plan& plan) {
  return Report(scenario, plan).Html();
}

}  // namespace divisi
