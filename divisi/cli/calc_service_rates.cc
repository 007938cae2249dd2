#include "divisi/cli/calc_service_rates.h"

#include "divisi/cli/calc_inputs.h"
#include "divisi/core/format.h"
#include "divisi/plan/planner.h"

namespace divisi {
namespace {

Result<CardGroup> GroupOf(const CalcValues& in, const std::string& card_input) {
  ASSIGN_OR_RETURN(const CalcDevice device, DeviceOf(in, card_input));
  const double efficiency = in.Count("efficiency");
  return CardGroup{.name = card_input,
                   .card = device.card,
                   .count = static_cast<int>(in.Count(card_input + "s")),
                   .host = card_input,
                   .efficiency = {.prefill_compute = efficiency,
                                  .prefill_memory = efficiency,
                                  .decode_compute = efficiency,
                                  .decode_memory = {{{1, efficiency}}}}};
}

}  // namespace

const char* const kServiceFormula =
    "Without --rates, services are the planner's schemes at their best splits, in requests/s:\n"
    "d_P = T_prefill, d_D = (output - 1) / batch * T_step   seconds of a card for each request\n"
    "pd-direct = min(n_P / d_P, n_D / d_D, B_link / V), replicas = sum n / (d_P + d_D),\n"
    "replicas-chunked = sum n / max(compute of both, bytes of both), an ideal bound\n";

std::vector<CalcInput> ServiceInputs() {
  return {{"rates", CalcUnit::kCounts, "",
           "Rates of services in requests per second; empty: derived from what follows",
           CalcLimit::kPositive},
          ModelInput(),
          CardInput("A100 80GB SXM"),
          {"cards", CalcUnit::kCount, "4", "How many", CalcLimit::kWhole},
          {"other-card", CalcUnit::kText, "H20 SXM5 96GB", "A second kind of accelerator"},
          {"other-cards", CalcUnit::kCount, "4", "How many", CalcLimit::kWhole},
          EfficiencyInput(),
          TokensInput("input-tokens", "8192", "Tokens of a prompt"),
          TokensInput("output-tokens", "1025", "Tokens of an output"),
          TokensInput("batch", "32", "Sequences of a decode step"),
          RateInput("link", "25GB/s", "Link from prefill to decode")};
}

Result<std::vector<ServiceRate>> ServiceRatesOf(const CalcValues& in) {
  std::vector<ServiceRate> rates;
  for (const double rate : in.Counts("rates")) {
    rates.push_back({Format("{}", rates.size() + 1), PerSecond(rate)});
  }
  if (!rates.empty()) return rates;
  const auto model = in.catalog().Model(in.Text("model"));
  if (!model) return WithContext(model.error(), "--model");
  Scenario scenario;
  scenario.model_name = in.Text("model");
  scenario.model = **model;
  for (const char* card : {"card", "other-card"}) {
    ASSIGN_OR_RETURN(CardGroup group, GroupOf(in, card));
    if (group.count > 0) scenario.groups.push_back(std::move(group));
  }
  scenario.link = {.name = "link", .bandwidth = in.GetBytesPerSecond("link")};
  scenario.workload.decode_batch = in.Count("batch");
  scenario.workload.classes = {
      {.input = TokensOf(in, "input-tokens"), .output = TokensOf(in, "output-tokens")}};
  ASSIGN_OR_RETURN(const std::vector<Candidate> candidates, CompareCandidates(scenario));
  for (const Candidate& candidate : candidates) {
    rates.push_back({SchemeName(candidate.scheme), candidate.throughput});
  }
  return rates;
}

}  // namespace divisi
