// Who holds a request's state, moment by moment.
#include <algorithm>

#include "divisi/cli/plan_figures.h"
#include "divisi/cli/svg.h"
#include "divisi/core/format.h"

namespace divisi {
namespace {

constexpr double kWidth = 960, kPitch = 62;

// What one side has at one moment.
struct Held {
  enum class Kind { kNothing, kState, kFilling, kFreed };
  Kind kind = Kind::kNothing;
  Bytes bytes;
};

struct Moment {
  std::string name;
  std::vector<Held> held;  // By side: prefill, the pool if there is one, decode.
  int from = -1;           // Of the arrow to the next side; -1: none.
  std::string arrow;

  Bytes Total() const {
    Bytes all;
    for (const Held& side : held) {
      if (side.kind == Held::Kind::kState || side.kind == Held::Kind::kFilling) all += side.bytes;
    }
    return all;
  }
};

const Candidate* Moving(const Plan& plan) {
  for (const Candidate& candidate : plan.candidates) {
    if (candidate.prefill_rate && candidate.fits && candidate.transfer.value > 0) return &candidate;
  }
  return nullptr;
}

// Of the classes that move anything, the one with the most requests.
const RequestClass& Usual(const Scenario& scenario) {
  const auto weight = [&](const RequestClass& request) {
    return TransferOf(scenario, request).value > 0 ? request.weight : 0;
  };
  const auto& classes = scenario.workload.classes;
  return *std::max_element(classes.begin(), classes.end(),
                           [&](const auto& a, const auto& b) { return weight(a) < weight(b); });
}

using Kind = Held::Kind;

std::vector<Moment> DirectMoments(Bytes bytes, const std::string& crossing) {
  const Held state{Kind::kState, bytes}, none{}, freed{Kind::kFreed, bytes};
  return {{.name = "before: prefill is done", .held = {state, none}},
          {.name = "during: the state crosses",
           .held = {state, {Kind::kFilling, bytes}},
           .from = 0,
           .arrow = crossing},
          {.name = "complete: the marker follows",
           .held = {state, state},
           .from = 0,
           .arrow = "marker"},
          {.name = "after: decode owns it", .held = {freed, state}}};
}

std::vector<Moment> PoolMoments(Bytes bytes, const std::string& crossing) {
  const Held state{Kind::kState, bytes}, none{}, freed{Kind::kFreed, bytes};
  const Held filling{Kind::kFilling, bytes};
  return {
      {.name = "before: prefill is done", .held = {state, none, none}},
      {.name = "written to the pool", .held = {state, filling, none}, .from = 0, .arrow = crossing},
      {.name = "published, then fetched",
       .held = {freed, state, filling},
       .from = 1,
       .arrow = crossing},
      {.name = "after: decode has it, the pool a copy", .held = {freed, state, state}}};
}

struct Columns {
  double left = 250, wide = 150, gap = 150;
  double X(size_t side) const { return left + static_cast<double>(side) * (wide + gap); }
};

void DrawHeld(Svg& svg, const Held& held, const Box& box) {
  if (held.kind == Kind::kNothing) return;
  const char* style = held.kind == Kind::kState     ? "state"
                      : held.kind == Kind::kFilling ? "filling"
                                                    : "freed";
  const std::string text =
      held.kind == Kind::kFreed ? std::string("freed") : HumanBytes(held.bytes);
  svg.Rect(box, style);
  svg.Text({box.x + box.width / 2, box.y + 19}, text,
           held.kind == Kind::kState ? "mid on-state" : "mid");
  if (held.kind != Kind::kFilling) return;
  svg.Text({box.x + box.width / 2, box.y + 44}, "buffer", "mid quiet");
}

void DrawMoment(Svg& svg, const Moment& moment, double y, const Columns& at) {
  svg.Text({0, y + 19}, moment.name, "");
  for (size_t side = 0; side < moment.held.size(); ++side) {
    DrawHeld(svg, moment.held[side], {at.X(side), y, at.wide, 30});
  }
  svg.Text({kWidth, y + 19}, HumanBytes(moment.Total()), "end strong");
  if (moment.from < 0) return;
  const double start = at.X(static_cast<size_t>(moment.from)) + at.wide;
  svg.Arrow({start + 8, y + 15}, {start + at.gap - 8, y + 15}, "arrow");
  svg.Text({start + at.gap / 2, y + 8}, moment.arrow, "mid quiet");
}

HtmlTable Numbers(const std::vector<Moment>& moments, const std::vector<std::string>& sides) {
  HtmlTable table{.head = {"moment"}};
  table.head.insert(table.head.end(), sides.begin(), sides.end());
  table.head.push_back("all sides");
  for (const Moment& moment : moments) {
    std::vector<std::string> row = {moment.name};
    for (const Held& held : moment.held) {
      const bool holds = held.kind == Kind::kState || held.kind == Kind::kFilling;
      row.push_back(holds ? HumanBytes(held.bytes) : std::string("0 B"));
    }
    row.push_back(HumanBytes(moment.Total()));
    table.rows.push_back(std::move(row));
  }
  return table;
}

std::string Caption(const Scenario& scenario, const Candidate& candidate, bool chosen) {
  const RequestClass& request = Usual(scenario);
  std::string text =
      Format("In {}{}: the state of {} prompt tokens", SchemeName(candidate.scheme),
             chosen ? "" : ", which is not chosen", (request.input - request.cached_decode).value);
  if (request.cached_decode.value > 0) {
    text += Format(" ({} more lie at decode already)", request.cached_decode.value);
  }
  return text +
         ". The source keeps it until the copy is complete, so that memory holds it twice "
         "meanwhile.";
}

}  // namespace

std::optional<PlanFigure> TransferFigure(const Scenario& scenario, const Plan& plan) {
  const Candidate* candidate = Moving(plan);
  if (candidate == nullptr) return std::nullopt;
  const bool pool = candidate->scheme == Scheme::kPdPool;
  const LinkSpec& link = pool && scenario.pool ? scenario.pool->link : scenario.link;
  const Bytes bytes = TransferOf(scenario, Usual(scenario));
  const std::string crossing = HumanSeconds(link.launch + bytes / link.bandwidth);
  const auto moments = pool ? PoolMoments(bytes, crossing) : DirectMoments(bytes, crossing);
  std::vector<std::string> sides = {"prefill worker", "decode worker"};
  if (pool) sides.insert(sides.begin() + 1, "pool");
  const Columns at = pool ? Columns{.left = 270, .wide = 110, .gap = 90} : Columns{};
  Svg svg({.id = "transfer",
           .title = "Who holds a request's state",
           .description = Format("{} cross in {}.", HumanBytes(bytes), crossing),
           .width = kWidth,
           .height = static_cast<double>(moments.size()) * kPitch + 14});
  for (size_t side = 0; side < sides.size(); ++side) {
    svg.Text({at.X(side) + at.wide / 2, 14}, sides[side], "mid strong");
  }
  svg.Text({kWidth, 14}, "all sides", "end quiet");
  for (size_t i = 0; i < moments.size(); ++i) {
    DrawMoment(svg, moments[i], 34 + static_cast<double>(i) * kPitch, at);
  }
  return PlanFigure{.title = "A request's state at its transfer",
                    .svg = svg.Html(),
                    .caption = Caption(scenario, *candidate, candidate == &plan.chosen()),
                    .numbers = Numbers(moments, sides)};
}

}  // namespace divisi
