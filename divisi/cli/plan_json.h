// A plan as JSON: the numbers of the table, unrounded. docs/planner.md describes every field.
#pragma once

#include "divisi/core/json.h"
#include "divisi/plan/planner.h"

namespace divisi {

Json PlanJson(const Scenario& scenario, const Plan& plan);
Json CandidateJson(const Scenario& scenario, const Candidate& candidate);

}  // namespace divisi
