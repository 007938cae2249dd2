#include "divisi/cli/calc_service_rates.h"

#include "divisi/cli/calc_scenario.h"
#include "divisi/core/format.h"
#include "divisi/plan/planner.h"

namespace divisi {

const char* const kServiceFormula =
    "Without --rates, services are the planner's schemes at their best splits, in requests/s:\n"
    "d_P = T_prefill, d_D = (output - 1) / batch * T_step   seconds of a card for each request\n"
    "pd-direct = min(n_P / d_P, n_D / d_D, B_link / V), replicas = sum n / (d_P + d_D),\n"
    "replicas-chunked = sum n / max(compute of both, bytes of both), an ideal bound\n";

std::vector<CalcInput> ServiceInputs() {
  std::vector<CalcInput> inputs = {
      {"rates", CalcUnit::kCounts, "",
       "Rates of services in requests per second; empty: derived from what follows",
       CalcLimit::kPositive}};
  for (CalcInput& input : ScenarioInputs()) inputs.push_back(std::move(input));
  return inputs;
}

Result<std::vector<ServiceRate>> ServiceRatesOf(const CalcValues& in) {
  std::vector<ServiceRate> rates;
  for (const double rate : in.Counts("rates")) {
    rates.push_back({Format("{}", rates.size() + 1), PerSecond(rate)});
  }
  if (!rates.empty()) return rates;
  ASSIGN_OR_RETURN(const Scenario scenario, ScenarioOf(in));
  ASSIGN_OR_RETURN(const std::vector<Candidate> candidates, CompareCandidates(scenario));
  for (const Candidate& candidate : candidates) {
    rates.push_back({SchemeName(candidate.scheme), candidate.throughput});
  }
  return rates;
}

}  // namespace divisi
