#include "divisi/cli/plan_text.h"

#include <cmath>
#include <functional>
#include <vector>

#include "divisi/core/format.h"

namespace divisi {
namespace {

constexpr const char* kGood = "\033[32m";
constexpr const char* kBad = "\033[31m";
constexpr const char* kQuiet = "\033[2m";
constexpr const char* kStrong = "\033[1m";
constexpr const char* kPlain = "\033[0m";

std::string Number(double value) { return std::isfinite(value) ? Format("{:.3g}", value) : "-"; }
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

// A line of the table: what it shows of each candidate, and what that means.
struct Row {
  std::string name;
  std::function<std::string(const Candidate&)> show;
  std::string meaning;
};

std::vector<Row> RateRows() {
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
      {"TTFT alone", [](const Candidate& c) { return Time(c.ttft); },
       "to the first token of a request that meets no other: prefill, then transfer"},
      {"TTFT at arrivals", [](const Candidate& c) { return Time(c.TtftAtArrival()); },
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

std::vector<Row> LoadRows(const Scenario& scenario) {
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

class Page {
 public:
  Page(const Scenario& scenario, const Plan& plan, bool colour)
      : scenario_(scenario), plan_(plan), colour_(colour) {}

  std::string Text() {
    Head();
    std::vector<Row> rows = RateRows();
    for (Row& row : LoadRows(scenario_)) rows.push_back(std::move(row));
    Table(rows);
    List("Why", plan_.why);
    std::vector<std::string> flips;
    for (const Flip& flip : plan_.flips) {
      flips.push_back(Format("{} x{:.3g} ({}): {}", flip.what, flip.factor, flip.to, flip.then));
    }
    List("What would change the choice", flips);
    std::vector<std::string> smaller;
    for (const SmallerSet& set : plan_.smaller) smaller.push_back(SmallerText(set));
    List("Fewer cards", smaller);
    text_ += "\n";
    for (const Row& row : rows) {
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
    text_ += Format(", {:.3g} requests/s", arrivals.value);
    for (const RequestClass& request : scenario_.workload.classes) {
      text_ += Format(", {} + {} tokens", request.input.value, request.output.value);
    }
    text_ += "\n\n";
  }

  void Table(const std::vector<Row>& rows) {
    constexpr int kName = 17;
    constexpr int kColumn = 17;
    text_ += Format("{:<{}}", "", kName);
    for (const Candidate& candidate : plan_.candidates) {
      const std::string name = Format("{:>{}}", SchemeName(candidate.scheme), kColumn);
      text_ += &candidate == &plan_.chosen() ? Paint(kStrong, name) : name;
    }
    text_ += "\n";
    for (const Row& row : rows) {
      text_ += Format("{:<{}}", row.name, kName);
      for (const Candidate& candidate : plan_.candidates) {
        const std::string cell = Format("{:>{}}", row.show(candidate), kColumn);
        const bool verdict = row.name == "meets objective";
        text_ += verdict ? Paint(candidate.meets_objective ? kGood : kBad, cell) : cell;
      }
      text_ += "\n";
    }
    for (const Candidate& candidate : plan_.candidates) {
      text_ += Format("{:<{}}{}: {}\n", &candidate == &plan_.chosen() ? "\nchosen" : "", kName,
                      SchemeName(candidate.scheme), DescribeCards(scenario_, candidate));
      if (!candidate.fit_problem.empty()) {
        text_ += Paint(kBad, Format("{:<{}}  does not fit: {}", "", kName, candidate.fit_problem));
        text_ += "\n";
      }
    }
  }

  std::string SmallerText(const SmallerSet& set) const {
    std::string cards;
    for (size_t i = 0; i < set.cards.size(); ++i) {
      cards += Format("{}{} {}", i == 0 ? "" : " + ", set.cards[i], scenario_.groups[i].name);
    }
    return Format("{} at {:.4g} {}/h: {}", cards, set.price_per_hour, scenario_.currency,
                  set.reason);
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

}  // namespace divisi
