// How a candidate stands to what the scenario expects: backlog, copies, cost, shortfalls.
#pragma once

#include "divisi/plan/candidate.h"

namespace divisi {

// Fills backlog, slo_share, the costs, the copies, shortfalls and meets_objective from the rates,
// times and memory that are there.
void JudgeObjective(const Scenario& scenario, Candidate& candidate);

// Arrivals of mean requests to a stage. Classes with arrivals of their own come in another mix from
// moment to moment: each of their requests counts as the mean ones whose time the stage takes for
// it.
ArrivalSchedule ArrivalsAt(const Scenario& scenario, const std::vector<double>& class_work);

}  // namespace divisi
