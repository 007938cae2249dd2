// The scenario that several calculations hand to the planner: requests of one kind, on cards that
// all reach --efficiency of their peaks.
#pragma once

#include <string>
#include <vector>

#include "divisi/cli/calc.h"
#include "divisi/plan/scenario.h"

namespace divisi {

// --model, --state-model, --query-work, --efficiency, the tokens, --batch and --link.
std::vector<CalcInput> RequestInputs();
// --card, --cards, --other-card, --other-cards; then RequestInputs.
std::vector<CalcInput> ScenarioInputs();

// All but the cards. Errors: those of the catalogue, with the flag; kInvalidArgument for another
// --query-work than "hidden" or "added".
Result<Scenario> RequestScenario(const CalcValues& values);
// With both kinds of cards, also where the count of one is 0. Errors: as above.
Result<Scenario> ScenarioOf(const CalcValues& values);

// Cards at --efficiency, named as the catalogue does.
CardGroup CardsOf(const CalcValues& values, const CardSpec& card, int count);

}  // namespace divisi
