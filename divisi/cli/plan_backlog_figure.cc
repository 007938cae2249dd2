// Waiting requests over time.
#include <algorithm>
#include <cmath>

#include "divisi/cli/plan_figures.h"
#include "divisi/cli/svg.h"
#include "divisi/core/format.h"

namespace divisi {
namespace {

constexpr double kWidth = 960, kHeight = 370;
constexpr Box kPlot{72, 24, 610, 290};

struct Axes {
  double seconds = 1, requests = 1;
  Spot At(double time, double waiting) const {
    return {kPlot.x + time / seconds * kPlot.width,
            kPlot.y + kPlot.height * (1 - waiting / requests)};
  }
};

// As high as the queues that end, so that one which grows for good does not flatten them.
Axes AxesOf(const Plan& plan) {
  double ending = 0, any = 0;
  Axes scale{.seconds = 0, .requests = 0};
  for (const Candidate& candidate : plan.candidates) {
    const Backlog& backlog = candidate.backlog;
    scale.seconds = std::max(scale.seconds, backlog.points.back().time.value);
    any = std::max(any, backlog.most);
    if (backlog.cleared) ending = std::max(ending, backlog.most);
  }
  constexpr double kRoom = 2;
  scale.requests = ending > 0 ? std::min(any, kRoom * ending) : any;
  scale.requests = scale.requests > 0 ? scale.requests * 1.06 : 1;
  if (!(scale.seconds > 0)) scale.seconds = 1;
  return scale;
}

void DrawAxes(Svg& svg, const Axes& scale) {
  const double floor = kPlot.y + kPlot.height;
  for (const double waiting : RoundTicks(scale.requests, 5)) {
    const double y = scale.At(0, waiting).y;
    svg.Line({kPlot.x, y}, {kPlot.x + kPlot.width, y}, waiting > 0 ? "grid" : "axis");
    svg.Text({kPlot.x - 8, y + 4}, Format("{:.6g}", waiting), "end quiet");
  }
  for (const double time : RoundTicks(scale.seconds, 8)) {
    const double x = scale.At(time, 0).x;
    svg.Line({x, floor}, {x, floor + 4}, "axis");
    svg.Text({x, floor + 19}, Format("{:.6g}", time), "mid quiet");
  }
  svg.Text({kPlot.x - 64, 12}, "waiting requests", "quiet");
  svg.Text({kPlot.x + kPlot.width, floor + 40}, "seconds from the beginning of the start-up",
           "end quiet");
}

void Moment(Svg& svg, const Axes& scale, Seconds time, const std::string& name) {
  if (time.value > scale.seconds) return;
  const double x = scale.At(time.value, 0).x;
  const bool deadline = name.starts_with("deadline");
  svg.Line({x, kPlot.y - 6}, {x, kPlot.y + kPlot.height}, deadline ? "limit" : "moment");
  svg.Text({x + 5, kPlot.y + 4}, name, deadline ? "bad" : "quiet");
}

std::string Cleared(const Candidate& candidate) {
  const auto& cleared = candidate.backlog.cleared;
  return cleared ? Format("gone at {:.1f} s", cleared->value) : std::string("never gone");
}

// Each curve has a colour and a pattern of its own, so that curves that coincide both show.
std::string Style(size_t candidate) { return Format("curve c{}", candidate % 4); }

void DrawCurves(Svg& svg, const Axes& scale, const Plan& plan) {
  svg.StartClip({kPlot.x, kPlot.y, kPlot.width, kPlot.height + 2});
  for (size_t i = 0; i < plan.candidates.size(); ++i) {
    std::vector<Spot> spots;
    for (const BacklogPoint& point : plan.candidates[i].backlog.points) {
      // Far above the plot nothing shows, and coordinates stay in range.
      const double waiting = std::min(point.requests, 1e3 * scale.requests);
      spots.push_back(scale.At(point.time.value, waiting));
    }
    svg.Polyline(spots, Style(i));
  }
  svg.EndClip();
  for (size_t i = 0; i < plan.candidates.size(); ++i) {
    const Candidate& candidate = plan.candidates[i];
    const double y = kPlot.y + 30 + static_cast<double>(i) * 52;
    const double x = kPlot.x + kPlot.width + 24;
    svg.Line({x, y}, {x + 34, y}, Style(i));
    svg.Text({x + 44, y + 4}, SchemeName(candidate.scheme), i == 0 ? "strong" : "");
    svg.Text({x + 44, y + 21}, Cleared(candidate), "quiet");
  }
}

HtmlTable Numbers(const Scenario& scenario, const Plan& plan) {
  HtmlTable table{.head = {"candidate", "longest queue", "at the start-up's end", "gone"}};
  const auto& deadline = scenario.objective.clear_by;
  if (deadline) table.head.push_back(Format("at the deadline of {:.4g} s", deadline->value));
  for (const Candidate& candidate : plan.candidates) {
    const Backlog& backlog = candidate.backlog;
    table.rows.push_back({SchemeName(candidate.scheme), HumanNumber(backlog.most),
                          HumanNumber(backlog.At(scenario.startup)), Cleared(candidate)});
    if (deadline) table.rows.back().push_back(HumanNumber(backlog.At(*deadline)));
  }
  return table;
}

}  // namespace

PlanFigure BacklogFigure(const Scenario& scenario, const Plan& plan) {
  const Axes scale = AxesOf(plan);
  Svg svg({.id = "backlog",
           .title = "Waiting requests over time",
           .description = Format("The queue of {}: {}.", SchemeName(plan.chosen().scheme),
                                 Cleared(plan.chosen())),
           .width = kWidth,
           .height = kHeight});
  DrawAxes(svg, scale);
  Moment(svg, scale, scenario.startup, Format("ready {:.4g} s", scenario.startup.value));
  const auto& deadline = scenario.objective.clear_by;
  if (deadline) Moment(svg, scale, *deadline, Format("deadline {:.4g} s", deadline->value));
  DrawCurves(svg, scale, plan);
  return {.title = "The backlog of the start",
          .svg = svg.Html(),
          .caption =
              "Requests arrive while the service starts; then the queue shrinks by what is "
              "carried beyond what arrives. As a fluid: rates, not single requests.",
          .numbers = Numbers(scenario, plan)};
}

}  // namespace divisi
