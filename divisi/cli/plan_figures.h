// The drawings of a plan's report, each with its numbers as a table.
#pragma once

#include <optional>
#include <string>

#include "divisi/cli/html.h"
#include "divisi/plan/planner.h"

namespace divisi {

struct PlanFigure {
  std::string title;
  std::string svg;      // HTML
  std::string caption;  // Plain text
  HtmlTable numbers;    // Empty where the drawing is its own table.
};

// Requests per second of every split: a bar each for one type of cards, a grid for two. For more
// types, or too many cards for a grid: for each type, the best that any split of the others makes
// of each number of its cards. Nothing where nothing is decoded.
std::optional<PlanFigure> SplitFigure(const Scenario& scenario, const Plan& plan);

// Which card does what in each candidate: one square a card, or bars where there are many.
PlanFigure CardsFigure(const Scenario& scenario, const Plan& plan);

// Waiting requests over time from the beginning of the start-up.
PlanFigure BacklogFigure(const Scenario& scenario, const Plan& plan);

// Who holds a request's state before, during and after its transfer; of the best candidate that
// moves any.
std::optional<PlanFigure> TransferFigure(const Scenario& scenario, const Plan& plan);

// Memory that a card of each group and role needs, against what it has; of the chosen candidate.
PlanFigure MemoryFigure(const Scenario& scenario, const Plan& plan);

}  // namespace divisi
