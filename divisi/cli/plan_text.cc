#include "divisi/cli/plan_text.h"

#include <algorithm>
#include <vector>

#include "divisi/cli/plan_rows.h"
#include "divisi/core/format.h"

namespace divisi {
namespace {

constexpr const char* kGood = "\033[32m";
constexpr const char* kBad = "\033[31m";
constexpr const char* kQuiet = "\033[2m";
constexpr const char* kStrong = "\033[1m";
constexpr const char* kPlain = "\033[0m";

class Page {
 public:
  Page(const Scenario& scenario, const Plan& plan, bool colour)
      : scenario_(scenario), plan_(plan), colour_(colour) {}

  std::string Text() {
    Head();
    const std::vector<PlanRow> rows = PlanRows(scenario_);
    Table(rows);
    Queues();
    List("Why", plan_.why);
    std::vector<std::string> flips;
    for (const Flip& flip : plan_.flips) flips.push_back(FlipText(flip));
    List("What would change the choice", flips);
    std::vector<std::string> smaller;
    for (const SmallerSet& set : plan_.smaller) smaller.push_back(SmallerText(set));
    List("Fewer cards", smaller);
    text_ += "\n";
    for (const PlanRow& row : rows) {
      text_ += Paint(kQuiet, Format("{:<17} {}", row.name, row.meaning)) + "\n";
    }
    return std::move(text_);
  }

 private:
  std::string Paint(const char* style, const std::string& text) const {
    return colour_ ? style + text + kPlain : text;
  }

  void Head() {
    const PerSecond arrivals = scenario_.workload.arrivals.LongTermRate();
    text_ += Paint(kStrong, scenario_.name) + Format(": {}", scenario_.model_name);
    for (const CardGroup& group : scenario_.groups) {
      text_ += Format(", {} {}", group.count, group.name);
    }
    text_ += Format(", {} requests/s", HumanNumber(arrivals.value));
    for (const RequestClass& request : scenario_.workload.classes) {
      text_ += Format(", {} + {} tokens", request.input.value, request.output.value);
    }
    text_ += "\n\n";
  }

  void Table(const std::vector<PlanRow>& rows) {
    constexpr int kName = 17;
    constexpr int kColumn = 17;
    text_ += Format("{:<{}}", "", kName);
    for (const Candidate& candidate : plan_.candidates) {
      const std::string name = Format("{:>{}}", SchemeName(candidate.scheme), kColumn);
      text_ += &candidate == &plan_.chosen() ? Paint(kStrong, name) : name;
    }
    text_ += "\n";
    for (const PlanRow& row : rows) {
      text_ += Format("{:<{}}", row.name, kName);
      for (const Candidate& candidate : plan_.candidates) {
        const std::string cell = Format("{:>{}}", row.show(candidate), kColumn);
        const bool verdict = row.name == "meets objective";
        text_ += verdict ? Paint(candidate.meets_objective ? kGood : kBad, cell) : cell;
      }
      text_ += "\n";
    }
    for (const Candidate& candidate : plan_.candidates) {
      if (&candidate == &plan_.chosen()) text_ += "\n";
      text_ += Format("{:<{}}{}: {}\n", &candidate == &plan_.chosen() ? "chosen" : "", kName,
                      SchemeName(candidate.scheme), DescribeCards(scenario_, candidate));
      if (!candidate.fit_problem.empty()) {
        text_ += Paint(kBad, Format("{:<{}}  does not fit: {}", "", kName, candidate.fit_problem));
        text_ += "\n";
      }
    }
  }

  // Who waits from the start-up on: the curves that the report draws, at thirteen times.
  void Queues() {
    const Seconds end = plan_.chosen().backlog.points.back().time;
    if (std::ranges::all_of(plan_.candidates,
                            [](const Candidate& c) { return c.backlog.most == 0; })) {
      return;
    }
    constexpr int kTimes = 12;
    constexpr int kColumn = 7;
    text_ += "\n" + Paint(kStrong, Format("{:<17}", "Requests waiting"));
    for (int i = 0; i <= kTimes; ++i) {
      text_ += Format("{:>{}}", Format("{:.4g} s", (end * i / kTimes).value), kColumn);
    }
    text_ += "\n";
    for (const Candidate& candidate : plan_.candidates) {
      text_ += Format("{:<17}", SchemeName(candidate.scheme));
      for (int i = 0; i <= kTimes; ++i) {
        const double queue = candidate.backlog.At(end * i / kTimes);
        const std::string shown = queue < 100 ? Format("{:.3g}", queue) : Format("{:.0f}", queue);
        text_ += Format("{:>{}}", shown, kColumn);
      }
      text_ += "\n";
    }
  }

  std::string SmallerText(const SmallerSet& set) const {
    return Format("{} at {:.4g} {}/h: {}", CardsText(scenario_, set), set.price_per_hour,
                  scenario_.currency, set.reason);
  }

  void List(const char* title, const std::vector<std::string>& lines) {
    if (lines.empty()) return;
    text_ += "\n" + Paint(kStrong, title) + "\n";
    for (const std::string& line : lines) text_ += "  " + line + "\n";
  }

  const Scenario& scenario_;
  const Plan& plan_;
  bool colour_;
  std::string text_;
};

}  // namespace

std::string PlanText(const Scenario& scenario, const Plan& plan, bool colour) {
  return Page(scenario, plan, colour).Text();
}

std::string SplitsText(const Scenario& scenario, const Plan& plan) {
  if (plan.grid.empty()) return "\nThere are no splits, or too many to list.\n";
  std::string text = "\nSplits of pd-direct: cards that prefill, the rest decode; requests/s\n";
  for (const CardGroup& group : scenario.groups) text += Format("{:>17}", group.name);
  text += Format("{:>12}{:>12}{:>12}\n", "prefill", "decode", "together");
  for (const SplitRates& split : plan.grid) {
    for (size_t i = 0; i < scenario.groups.size(); ++i) {
      text += Format("{:>17}", split.prefill_workers[i] * scenario.groups[i].CardsPerWorker());
    }
    text += Format("{:>12.4g}{:>12.4g}{:>12.4g}\n", split.prefill.value, split.decode.value,
                   split.throughput.value);
  }
  return text;
}

}  // namespace divisi
