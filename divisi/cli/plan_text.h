// A plan for people: a table of candidates, the reasons, what would change the choice, and what
// each figure means.
#pragma once

#include <string>

#include "divisi/plan/planner.h"

namespace divisi {

// colour: ANSI colours, for a terminal.
std::string PlanText(const Scenario& scenario, const Plan& plan, bool colour);

// Every split of pd-direct with its rates: the plan's grid. Says so where the plan has none.
std::string SplitsText(const Scenario& scenario, const Plan& plan);

}  // namespace divisi
