// What the cards do, and what their memory holds.
#include <algorithm>
#include <cmath>

#include "divisi/cli/plan_figures.h"
#include "divisi/cli/svg.h"
#include "divisi/core/format.h"

namespace divisi {
namespace {

constexpr double kWidth = 960;

// Cards of a group by what they do.
struct Roles {
  int prefill = 0, decode = 0, both = 0;
  int idle = 0;  // The model does not fit in the role that they have.
};

bool HasPools(const Candidate& candidate) { return candidate.prefill_rate.has_value(); }

Roles RolesOf(const CardGroup& group, const Candidate& candidate, size_t i) {
  Roles roles;
  if (!HasPools(candidate)) {
    (candidate.decode_memory[i].Fits() ? roles.both : roles.idle) = group.count;
    return roles;
  }
  const int prefill = candidate.prefill_workers[i] * group.CardsPerWorker();
  const int decode = group.count - prefill;
  (candidate.prefill_memory[i].Fits() ? roles.prefill : roles.idle) += prefill;
  (candidate.decode_memory[i].Fits() ? roles.decode : roles.idle) += decode;
  return roles;
}

struct Run {
  int cards;
  const char* style;
  const char* name;
};
std::vector<Run> RunsOf(const Roles& roles) {
  std::vector<Run> runs;
  for (const Run& run :
       {Run{roles.prefill, "prefill", "prefill"}, Run{roles.decode, "decode", "decode"},
        Run{roles.both, "both", "both"}, Run{roles.idle, "idle", "unused"}}) {
    if (run.cards > 0) runs.push_back(run);
  }
  return runs;
}

void Legend(Svg& svg, double y) {
  double x = 0;
  for (const Run& run : RunsOf({1, 1, 1, 1})) {
    svg.Rect({x, y, 12, 12}, run.style);
    svg.Text({x + 18, y + 11}, run.name, "quiet");
    x += 90;
  }
}

constexpr double kRowLeft = 150, kRowRight = kWidth;

// A square a card; a little apart where another worker begins.
void DrawSquares(Svg& svg, const Scenario& scenario, const Candidate& candidate, double y) {
  const auto cards = [](const Scenario& s) {
    double sum = 0;
    for (const CardGroup& group : s.groups) sum += group.count;
    return sum;
  };
  const double gaps = 22.0 * static_cast<double>(scenario.groups.size());
  const double pitch =
      std::min(34.0, (kRowRight - kRowLeft - gaps) / std::max(1.0, cards(scenario)));
  double x = kRowLeft;
  for (size_t i = 0; i < scenario.groups.size(); ++i) {
    const CardGroup& group = scenario.groups[i];
    if (group.count == 0) continue;
    const double start = x;
    int card = 0;
    for (const Run& run : RunsOf(RolesOf(group, candidate, i))) {
      for (int n = 0; n < run.cards; ++n) {
        const bool last = ++card % group.CardsPerWorker() == 0;
        svg.Rect({x, y, pitch - (last ? 4 : 1), 26}, run.style,
                 Format("{}: {}", group.name, run.name));
        x += pitch;
      }
    }
    const auto room = static_cast<size_t>(std::max(3.0, (x - start + 16) / 7));
    svg.Text({start, y + 42}, Shortened(Format("{} {}", group.count, group.name), room), "quiet");
    x += 22;
  }
}

// Bars of many groups are thin.
double BarPitch(const Scenario& scenario) { return scenario.groups.size() > 6 ? 16 : 24; }

// Shares of each group as bars, as long as the group is large.
void DrawBars(Svg& svg, const Scenario& scenario, const Candidate& candidate, double y) {
  const double pitch = BarPitch(scenario);
  int largest = 1;
  for (const CardGroup& group : scenario.groups) largest = std::max(largest, group.count);
  for (size_t i = 0; i < scenario.groups.size(); ++i) {
    const CardGroup& group = scenario.groups[i];
    if (group.count == 0) continue;
    const double scale = (kRowRight - kRowLeft - 170) / largest;
    double x = kRowLeft + 170;
    svg.Text({x - 10, y + pitch - 8}, Shortened(Format("{} {}", group.count, group.name), 24),
             "end");
    for (const Run& run : RunsOf(RolesOf(group, candidate, i))) {
      const double wide = run.cards * scale;
      svg.Rect({x, y, std::max(1.0, wide - 1), pitch - 4}, run.style,
               Format("{} {}: {}", run.cards, group.name, run.name));
      if (wide > 40)
        svg.Text({x + 6, y + pitch - 8}, Format("{}", run.cards), Format("on-{}", run.style));
      x += wide;
    }
    y += pitch;
  }
}

void RowHead(Svg& svg, const Candidate& candidate, bool chosen, double y) {
  svg.Text({0, y + 11}, SchemeName(candidate.scheme), chosen ? "strong" : "");
  svg.Text({0, y + 28}, HumanNumber(candidate.throughput.value) + " requests/s", "quiet");
}

HtmlTable CardNumbers(const Scenario& scenario, const Plan& plan) {
  HtmlTable table{.head = {"candidate", "cards", "prefill", "decode", "both", "unused"}};
  for (const Candidate& candidate : plan.candidates) {
    for (size_t i = 0; i < scenario.groups.size(); ++i) {
      const CardGroup& group = scenario.groups[i];
      const Roles roles = RolesOf(group, candidate, i);
      table.rows.push_back({SchemeName(candidate.scheme), Format("{} {}", group.count, group.name),
                            Format("{}", roles.prefill), Format("{}", roles.decode),
                            Format("{}", roles.both), Format("{}", roles.idle)});
    }
  }
  return table;
}

// Memory of one card in one role.
struct MemoryRow {
  std::string name;
  MemoryNeed need;
};
std::vector<MemoryRow> MemoryRows(const Scenario& scenario, const Candidate& candidate) {
  std::vector<MemoryRow> rows;
  for (size_t i = 0; i < scenario.groups.size(); ++i) {
    const CardGroup& group = scenario.groups[i];
    const int prefill = HasPools(candidate) ? candidate.prefill_workers[i] : 0;
    if (prefill > 0) rows.push_back({group.name + ", prefill", candidate.prefill_memory[i]});
    if (group.Workers() == prefill) continue;
    const char* role = HasPools(candidate) ? ", decode" : ", both";
    rows.push_back({group.name + role, candidate.decode_memory[i]});
  }
  return rows;
}

constexpr double kBarLeft = 230, kBarRight = kWidth - 200;

void DrawNeed(Svg& svg, const MemoryRow& row, double y, double largest) {
  const auto wide = [&](Bytes bytes) {
    return static_cast<double>(bytes.value) / largest * (kBarRight - kBarLeft);
  };
  const MemoryNeed& need = row.need;
  svg.Text({kBarLeft - 12, y + 17}, Shortened(row.name, 30), "end");
  svg.Rect({kBarLeft, y, wide(need.capacity), 24}, "capacity");
  double x = kBarLeft;
  const auto part = [&](Bytes bytes, const char* style, const char* name) {
    if (bytes.value <= 0) return;
    svg.Rect({x, y, wide(bytes), 24}, style, Format("{}: {}", name, HumanBytes(bytes)));
    x += wide(bytes);
  };
  part(need.weights, "weights", "weights");
  part(need.state, "state", "states of running requests");
  part(need.buffers, "buffers", "states on their way");
  const double end = kBarLeft + wide(need.capacity);
  svg.Line({end, y - 4}, {end, y + 28}, need.Fits() ? "mark" : "limit");
  svg.Text({std::max(x, end) + 10, y + 17},
           Format("{} of {}{}", HumanBytes(need.Total()), HumanBytes(need.capacity),
                  need.Fits() ? "" : ": too little"),
           need.Fits() ? "" : "bad");
}

void MemoryLegend(Svg& svg, double y) {
  double x = kBarLeft;
  for (const auto& [style, name] :
       {std::pair{"weights", "weights"}, std::pair{"state", "states of running requests"},
        std::pair{"buffers", "states on their way"}, std::pair{"capacity", "free"}}) {
    svg.Rect({x, y, 12, 12}, style);
    svg.Text({x + 18, y + 11}, name, "quiet");
    x += 46 + 7.0 * static_cast<double>(std::string_view(name).size());
  }
}

}  // namespace

PlanFigure CardsFigure(const Scenario& scenario, const Plan& plan) {
  constexpr int kMostSquares = 48;
  int cards = 0, groups = 0;
  for (const CardGroup& group : scenario.groups) {
    cards += group.count;
    groups += group.count > 0 ? 1 : 0;
  }
  const bool squares = cards <= kMostSquares;
  const double pitch = squares ? 66 : std::max(1, groups) * BarPitch(scenario) + 18;
  const double height = static_cast<double>(plan.candidates.size()) * pitch + 26;
  Svg svg({.id = "cards",
           .title = "What each card does in each candidate",
           .description = "Chosen: " + DescribeCards(scenario, plan.chosen()),
           .width = kWidth,
           .height = height});
  double y = 4;
  for (const Candidate& candidate : plan.candidates) {
    RowHead(svg, candidate, &candidate == &plan.chosen(), y);
    squares ? DrawSquares(svg, scenario, candidate, y) : DrawBars(svg, scenario, candidate, y);
    y += pitch;
  }
  Legend(svg, height - 16);
  return {.title = "Which card does what",
          .svg = svg.Html(),
          .caption = squares ? "A rectangle is a card; wider gaps part the workers."
                             : "Bars are as long as the cards are many.",
          .numbers = CardNumbers(scenario, plan)};
}

PlanFigure MemoryFigure(const Scenario& scenario, const Plan& plan) {
  constexpr double kPitch = 42;
  const std::vector<MemoryRow> rows = MemoryRows(scenario, plan.chosen());
  double largest = 1;
  HtmlTable numbers{
      .head = {"card", "weights", "running states", "states on their way", "all", "of", "share"}};
  for (const MemoryRow& row : rows) {
    const MemoryNeed& need = row.need;
    largest = std::max(largest, static_cast<double>(std::max(need.Total(), need.capacity).value));
    numbers.rows.push_back({row.name, HumanBytes(need.weights), HumanBytes(need.state),
                            HumanBytes(need.buffers), HumanBytes(need.Total()),
                            HumanBytes(need.capacity),
                            Format("{:.0f} %", 100 * (need.Total() / need.capacity))});
  }
  const double height = static_cast<double>(rows.size()) * kPitch + 30;
  Svg svg({.id = "memory",
           .title = "Memory of a card by role",
           .description = "Weights, states and buffers of one card of each group, against what it "
                          "has.",
           .width = kWidth,
           .height = height});
  for (size_t i = 0; i < rows.size(); ++i) {
    DrawNeed(svg, rows[i], static_cast<double>(i) * kPitch + 6, largest);
  }
  MemoryLegend(svg, height - 18);
  return {.title = "Memory of a card",
          .svg = svg.Html(),
          .caption =
              "Need of one card in the chosen deployment; the line is what it has. Prefill "
              "holds a state being computed and one being sent, decode the batch at its end "
              "and one being received.",
          .numbers = std::move(numbers)};
}

}  // namespace divisi
