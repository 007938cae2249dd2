// A plan as one HTML file: figures, tables, reasons, and where the numbers come from. It needs no
// network and no scripts, reads in light, dark and on paper, and each figure has its numbers beside
// it.
#pragma once

#include <string>

#include "divisi/plan/planner.h"

namespace divisi {

// The same scenario and plan give the same bytes. Requires: the plan is the scenario's.
std::string PlanReport(const Scenario& scenario, const Plan& plan);

}  // namespace divisi
