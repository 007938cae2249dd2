// The rates of splits: bars, a grid, or a profile of each type of cards.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "divisi/cli/plan_figures.h"
#include "divisi/cli/svg.h"
#include "divisi/core/format.h"

namespace divisi {
namespace {

constexpr double kWidth = 960;
constexpr int kLevels = 10;  // Of the colour scale: classes h0 to h9.

int Level(double rate, double most) {
  if (!(most > 0)) return 0;
  return std::clamp(static_cast<int>(rate / most * kLevels), 0, kLevels - 1);
}

std::string TwoDecimals(double rate) { return Format("{:.2f}", rate); }

// Cells as wide as their number allows.
struct GridLayout {
  int columns, rows;
  double cell_width, cell_height;
  double left = 40, top = 26;
  Box CellOf(int x, int y) const {
    return {left + x * cell_width, top + (rows - 1 - y) * cell_height, cell_width, cell_height};
  }
  double right() const { return left + columns * cell_width; }
  double bottom() const { return top + rows * cell_height; }
};

GridLayout LayoutOf(const Scenario& scenario) {
  GridLayout layout{.columns = scenario.groups[0].Workers() + 1,
                    .rows = scenario.groups[1].Workers() + 1};
  layout.cell_width = std::min(96.0, (kWidth - 140) / layout.columns);
  layout.cell_height = std::min(46.0, 600.0 / layout.rows);
  return layout;
}

// Every how many cells a number stands, to have `room` pixels: 1, 2, 5, 10, ...
int LabelStep(double cell, double room) {
  int step = 1;
  for (const int longer : {2, 5, 10, 20, 50, 100, 200, 500}) {
    if (step * cell < room) step = longer;
  }
  return step;
}

void DrawAxes(Svg& svg, const GridLayout& at, const Scenario& scenario) {
  const int across = LabelStep(at.cell_width, 30);
  const int down = LabelStep(at.cell_height, 20);
  for (int x = 0; x < at.columns; x += across) {
    const Box cell = at.CellOf(x, 0);
    svg.Text({cell.x + cell.width / 2, at.bottom() + 18},
             Format("{}", x * scenario.groups[0].CardsPerWorker()), "mid");
  }
  for (int y = 0; y < at.rows; y += down) {
    const Box cell = at.CellOf(0, y);
    svg.Text({at.left - 10, cell.y + cell.height / 2 + 4},
             Format("{}", y * scenario.groups[1].CardsPerWorker()), "end");
  }
  svg.Text({at.left, at.bottom() + 40},
           Format("{}: cards that prefill", Shortened(scenario.groups[0].name, 60)), "quiet");
  svg.Text({0, 12}, Format("{}: cards that prefill", Shortened(scenario.groups[1].name, 60)),
           "quiet");
}

// Few cells: each with its value and, under a pointer, its pools.
void DrawCells(Svg& svg, const GridLayout& at, const Plan& plan, double most) {
  for (const SplitRates& split : plan.grid) {
    const Box cell = at.CellOf(split.prefill_workers[0], split.prefill_workers[1]);
    const int level = Level(split.throughput.value, most);
    svg.Rect(cell, Format("cell h{}", level),
             Format("{} requests/s: prefill {}, decode {}", TwoDecimals(split.throughput.value),
                    TwoDecimals(split.prefill.value), TwoDecimals(split.decode.value)));
    if (at.cell_width < 36 || at.cell_height < 18) continue;
    svg.Text({cell.x + cell.width / 2, cell.y + cell.height / 2 + 4.5},
             TwoDecimals(split.throughput.value), Format("mid on{}", level));
  }
}

// Many cells: a path for each colour, and a scale.
void DrawManyCells(Svg& svg, const GridLayout& at, const Plan& plan, double most) {
  std::vector<std::vector<Box>> levels(kLevels);
  for (const SplitRates& split : plan.grid) {
    levels[static_cast<size_t>(Level(split.throughput.value, most))].push_back(
        at.CellOf(split.prefill_workers[0], split.prefill_workers[1]));
  }
  for (int level = 0; level < kLevels; ++level) {
    svg.Boxes(levels[static_cast<size_t>(level)], Format("h{}", level));
    svg.Rect({at.right() + 16, at.top + (kLevels - 1 - level) * 14.0, 18, 14},
             Format("h{}", level));
  }
  svg.Text({at.right() + 42, at.top + 12}, TwoDecimals(most), "");
  svg.Text({at.right() + 42, at.top + kLevels * 14}, "0", "");
}

const Candidate* BestOf(const Plan& plan, Scheme scheme) {
  for (const Candidate& candidate : plan.candidates) {
    if (candidate.scheme == scheme) return &candidate;
  }
  return nullptr;
}

// The optimum, and those that equal it if they are few.
void FrameBest(Svg& svg, const GridLayout& at, const Plan& plan, double most) {
  constexpr size_t kMostFrames = 12;
  std::vector<Split> best;
  for (const SplitRates& split : plan.grid) {
    if (split.throughput.value >= most * (1 - 1e-9)) best.push_back(split.prefill_workers);
  }
  if (!(most > 0)) return;
  const Candidate* direct = BestOf(plan, Scheme::kPdDirect);
  if (best.size() > kMostFrames) best.clear();
  if (direct != nullptr && std::ranges::find(best, direct->prefill_workers) == best.end()) {
    best.push_back(direct->prefill_workers);
  }
  for (const Split& split : best) svg.Rect(at.CellOf(split[0], split[1]), "frame");
}

HtmlTable GridNumbers(const Scenario& scenario, const Plan& plan) {
  constexpr size_t kMostRows = 40;
  HtmlTable table;
  for (const CardGroup& group : scenario.groups) table.head.push_back(group.name + " prefill");
  table.head.insert(table.head.end(), {"prefill/s", "decode/s", "requests/s"});
  std::vector<const SplitRates*> splits;
  for (const SplitRates& split : plan.grid) splits.push_back(&split);
  std::stable_sort(splits.begin(), splits.end(), [](const SplitRates* a, const SplitRates* b) {
    return a->throughput > b->throughput;
  });
  splits.resize(std::min(splits.size(), kMostRows));
  for (const SplitRates* split : splits) {
    std::vector<std::string> row;
    for (size_t i = 0; i < scenario.groups.size(); ++i) {
      const int cards = split->prefill_workers[i] * scenario.groups[i].CardsPerWorker();
      row.push_back(Format("{}", cards));
    }
    row.insert(row.end(), {TwoDecimals(split->prefill.value), TwoDecimals(split->decode.value),
                           TwoDecimals(split->throughput.value)});
    table.rows.push_back(std::move(row));
  }
  return table;
}

PlanFigure Grid(const Scenario& scenario, const Plan& plan) {
  constexpr size_t kMostLabelled = 900;
  const GridLayout at = LayoutOf(scenario);
  double most = 0;
  for (const SplitRates& split : plan.grid) most = std::max(most, split.throughput.value);
  Svg svg({.id = "split",
           .title = "Requests per second of every split",
           .description = Format("A grid of {} splits; the best carries {} requests per second.",
                                 plan.grid.size(), TwoDecimals(most)),
           .width = kWidth,
           .height = at.bottom() + 52});
  plan.grid.size() <= kMostLabelled ? DrawCells(svg, at, plan, most)
                                    : DrawManyCells(svg, at, plan, most);
  FrameBest(svg, at, plan, most);
  DrawAxes(svg, at, scenario);
  return {.title = "Every split of the cards",
          .svg = svg.Html(),
          .caption =
              "Requests per second that each split carries: the least of its prefill pool, "
              "its decode pool and the link, without queueing. Cards that do not prefill "
              "decode. The best is framed; of many equals, the planner's choice.",
          .numbers = GridNumbers(scenario, plan)};
}

// What any split of the other types makes of each number of this type's prefill workers.
struct Profile {
  size_t group = 0;
  std::vector<int> workers;
  std::vector<double> rates;
  size_t best = 0;
};

// The best with `workers` of the group in prefill: those are cards that can do nothing else.
double RateWith(const std::vector<SplitType>& types, size_t group, int workers) {
  std::vector<SplitType> fixed = types;
  const SplitType& type = types[group];
  fixed[group] = {1, type.prefill * workers, PerSecond(0)};
  fixed.push_back({1, PerSecond(0), type.decode * (type.count - workers)});
  return RatesOf(fixed, BestSplit(fixed)).Slower().value;
}

Profile ProfileOf(const std::vector<SplitType>& types, size_t group, int also, PerSecond link) {
  constexpr int kMostPoints = 100;
  Profile profile{.group = group};
  const int count = types[group].count;
  const int step = (count + kMostPoints) / kMostPoints;
  for (int workers = 0; workers <= count; workers += step) profile.workers.push_back(workers);
  for (const int wanted : {also, count}) {
    if (std::ranges::find(profile.workers, wanted) == profile.workers.end()) {
      profile.workers.push_back(wanted);
    }
  }
  std::ranges::sort(profile.workers);
  for (const int workers : profile.workers) {
    profile.rates.push_back(std::min(RateWith(types, group, workers), link.value));
  }
  const auto most = std::ranges::max_element(profile.rates);
  profile.best = static_cast<size_t>(most - profile.rates.begin());
  // The planner's own choice where it is as good.
  for (size_t i = 0; i < profile.workers.size(); ++i) {
    if (profile.workers[i] == also && profile.rates[i] >= *most * (1 - 1e-9)) profile.best = i;
  }
  return profile;
}

// One band of the figure.
void DrawProfile(Svg& svg, const Profile& profile, const CardGroup& group, const Box& band,
                 double most) {
  const int count = std::max(1, group.Workers());
  const double slot = band.width / (count + 1);
  const auto x = [&](int workers) { return band.x + workers * slot; };
  const auto height = [&](double rate) { return most > 0 ? band.height * rate / most : 0; };
  const double floor = band.y + band.height;
  const bool all = profile.workers.size() == static_cast<size_t>(group.Workers()) + 1;
  for (size_t i = 0; i < profile.workers.size(); ++i) {
    const double wide =
        all ? slot
            : x(i + 1 < profile.workers.size() ? profile.workers[i + 1] : profile.workers[i] + 1) -
                  x(profile.workers[i]);
    const double gap = wide > 12 ? 3 : wide > 4 ? 1 : 0;
    const double tall = height(profile.rates[i]);
    const int cards = profile.workers[i] * group.CardsPerWorker();
    svg.Rect({x(profile.workers[i]), floor - tall, std::max(0.5, wide - gap), tall},
             i == profile.best ? "chosen" : "bar",
             Format("{} cards prefill: {} requests/s", cards, TwoDecimals(profile.rates[i])));
    if (wide < 40) continue;
    const double middle = x(profile.workers[i]) + (wide - gap) / 2;
    svg.Text({middle, floor - tall - 5}, TwoDecimals(profile.rates[i]), "mid");
    svg.Text({middle, floor + 16}, Format("{}", cards), "mid quiet");
  }
  svg.Line({band.x, floor}, {band.x + band.width, floor}, "axis");
  const int best = profile.workers[profile.best] * group.CardsPerWorker();
  if (slot < 40) {
    svg.Text({band.x, floor + 16}, "0", "quiet");
    svg.Text({band.x + band.width, floor + 16}, Format("{}", group.count), "end quiet");
    const double middle =
        std::clamp(x(profile.workers[profile.best]), band.x + 40, band.x + band.width - 40);
    svg.Text({middle, floor - height(profile.rates[profile.best]) - 6}, Format("best: {}", best),
             "mid strong");
  }
}

PlanFigure Profiles(const Scenario& scenario) {
  constexpr size_t kMostShown = 8;
  constexpr double kBand = 84, kPitch = 128;
  const Evaluator evaluator(scenario);
  const std::vector<SplitType> types = evaluator.SplitTypes();
  const PerSecond link = evaluator.LinkRate(Scheme::kPdDirect);
  const Split best = BestSplit(types);
  std::vector<Profile> profiles;
  for (size_t i = 0; i < types.size() && profiles.size() < kMostShown; ++i) {
    if (types[i].count > 0) profiles.push_back(ProfileOf(types, i, best[i], link));
  }
  double most = 0;
  for (const Profile& profile : profiles) most = std::max(most, profile.rates[profile.best]);
  const auto shown = static_cast<double>(profiles.size());
  Svg svg(
      {.id = "split",
       .title = "Requests per second by prefill cards of each type",
       .description = Format("The best split carries {} requests per second.", TwoDecimals(most)),
       .width = kWidth,
       .height = std::max(1.0, shown * kPitch)});
  HtmlTable numbers{.head = {"cards", "prefill cards of the best", "requests/s",
                             "with none in prefill", "with all in prefill"}};
  for (size_t i = 0; i < profiles.size(); ++i) {
    const Profile& profile = profiles[i];
    const CardGroup& group = scenario.groups[profile.group];
    const double top = static_cast<double>(i) * kPitch + 22;
    svg.Text({0, top + kBand - 20}, Shortened(group.name, 24), "strong");
    svg.Text({0, top + kBand - 2}, "cards that prefill", "quiet");
    DrawProfile(svg, profile, group, {190, top, kWidth - 200, kBand}, most);
    numbers.rows.push_back({group.name,
                            Format("{}", profile.workers[profile.best] * group.CardsPerWorker()),
                            TwoDecimals(profile.rates[profile.best]),
                            TwoDecimals(profile.rates.front()), TwoDecimals(profile.rates.back())});
  }
  std::string caption =
      "Requests per second when so many cards of a type prefill and the rest of them decode";
  caption += types.size() > 1 ? ", the other types being split as well as can be then." : ".";
  if (most > 0 && most >= link.value) {
    caption += Format(" No split carries more than the link: {} requests/s.", TwoDecimals(most));
  }
  if (profiles.size() < types.size()) {
    caption += " Types without cards or beyond the first eight are left out.";
  }
  return {.title = "Splits of the cards",
          .svg = svg.Html(),
          .caption = caption,
          .numbers = std::move(numbers)};
}

}  // namespace

std::optional<PlanFigure> SplitFigure(const Scenario& scenario, const Plan& plan) {
  const auto decodes = [](const RequestClass& r) { return r.DecodeCalls().value > 0; };
  if (std::ranges::none_of(scenario.workload.classes, decodes)) return std::nullopt;
  const bool grid = scenario.groups.size() == 2 && !plan.grid.empty();
  return grid ? Grid(scenario, plan) : Profiles(scenario);
}

}  // namespace divisi
