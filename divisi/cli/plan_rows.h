// The figures by which candidates are compared, as people read them: what each shows and means. One
// list for the terminal's table and the report's.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "divisi/plan/planner.h"

namespace divisi {

struct PlanRow {
  std::string name;  // Two spaces before it: a part or variant of the row above.
  std::function<std::string(const Candidate&)> show;
  std::string meaning;
};

std::vector<PlanRow> PlanRows(const Scenario& scenario);

// "link bandwidth x0.203 (5.07 GB/s): replicas with 4 A100 do both"
std::string FlipText(const Flip& flip);
// "3 A100 + 4 H20": the cards of a set.
std::string CardsText(const Scenario& scenario, const SmallerSet& set);

}  // namespace divisi
