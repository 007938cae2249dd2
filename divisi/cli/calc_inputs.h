// Inputs that several calculations share, and what they name in the catalogue.
#pragma once

#include "divisi/cli/calc.h"
#include "divisi/plan/pass_cost.h"
#include "divisi/plan/stage.h"

namespace divisi {

CalcInput ModelInput();                        // --model
CalcInput StateModelInput();                   // --state-model
CalcInput CardInput(const std::string& card);  // --card
CalcInput EfficiencyInput();                   // --efficiency
CalcInput TokensInput(const std::string& name, const std::string& value, const std::string& help);
CalcInput RateInput(const std::string& name, const std::string& value, const std::string& help);

// --model, with weights and KV of two bytes an element.
// Errors: those of Catalog::Model, with the flag.
Result<ModelCost> ModelOf(const CalcValues& values);

// State of one token: that of --state-model where it is given, so that the same work can be met
// with another state (the specification puts compact MLA into the example of Qwen3-8B); else that
// of --model. Errors: as ModelOf.
Result<Bytes> StatePerToken(const CalcValues& values);

// An input that was declared as whole.
Tokens TokensOf(const CalcValues& values, std::string_view name);

// --card at --efficiency of its peaks.
struct CalcDevice {
  CardSpec card;
  DeviceRates rates;
};
// Errors: those of Catalog::Card, with the flag.
Result<CalcDevice> DeviceOf(const CalcValues& values);
Result<CalcDevice> DeviceOf(const CalcValues& values, std::string_view card_input);

}  // namespace divisi
