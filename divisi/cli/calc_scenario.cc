#include "divisi/cli/calc_scenario.h"

#include "divisi/cli/calc_inputs.h"
#include "divisi/core/format.h"

namespace divisi {
namespace {

Result<std::optional<StateOverride>> StateOf(const CalcValues& in) {
  const std::string& work = in.Text("query-work");
  if (work != "hidden" && work != "added") {
    return Error{Code::kInvalidArgument,
                 Format("--query-work: '{}' is neither 'hidden' nor 'added'", work)};
  }
  const std::string& name = in.Text("state-model");
  if (name.empty()) return std::optional<StateOverride>();
  const auto spec = in.catalog().Model(name);
  if (!spec) return WithContext(spec.error(), "--state-model");
  const ModelCost cost(**spec, Storage{});
  return std::optional(StateOverride{.name = name,
                                     .bytes_per_token = cost.state_per_token,
                                     .query_flops = work == "added" ? cost.query_flops : 0});
}

}  // namespace

std::vector<CalcInput> RequestInputs() {
  return {ModelInput(),
          StateModelInput(),
          {"query-work", CalcUnit::kText, "hidden",
           "Work on queries that --state-model adds: 'hidden' behind memory traffic, or 'added'"},
          EfficiencyInput(),
          TokensInput("input-tokens", "8192", "Tokens of a prompt"),
          {"cached-tokens", CalcUnit::kCount, "0", "Of them, the prefix that prefill holds already",
           CalcLimit::kWhole},
          TokensInput("output-tokens", "1025", "Tokens of an output; the first is prefill's"),
          TokensInput("batch", "32", "Sequences of a decode step"),
          RateInput("link", "25GB/s", "Link from prefill to decode")};
}

std::vector<CalcInput> ScenarioInputs() {
  std::vector<CalcInput> inputs = {
      CardInput("A100 80GB SXM"),
      {"cards", CalcUnit::kCount, "4", "How many", CalcLimit::kWhole},
      {"other-card", CalcUnit::kText, "H20 SXM5 96GB", "A second kind of accelerator"},
      {"other-cards", CalcUnit::kCount, "4", "How many", CalcLimit::kWhole}};
  for (CalcInput& input : RequestInputs()) inputs.push_back(std::move(input));
  return inputs;
}

CardGroup CardsOf(const CalcValues& in, const CardSpec& card, int count) {
  const double efficiency = in.Count("efficiency");
  return {.name = card.name,
          .card = card,
          .count = count,
          .host = card.name,
          .efficiency = {.prefill_compute = efficiency,
                         .prefill_memory = efficiency,
                         .decode_compute = efficiency,
                         .decode_memory = {{{1, efficiency}}}}};
}

Result<Scenario> RequestScenario(const CalcValues& in) {
  const auto model = in.catalog().Model(in.Text("model"));
  if (!model) return WithContext(model.error(), "--model");
  Scenario scenario;
  scenario.model_name = in.Text("model");
  scenario.model = **model;
  ASSIGN_OR_RETURN(scenario.state, StateOf(in));
  scenario.link = {.name = "link", .bandwidth = in.GetBytesPerSecond("link")};
  scenario.workload.decode_batch = in.Count("batch");
  scenario.workload.classes = {{.input = TokensOf(in, "input-tokens"),
                                .output = TokensOf(in, "output-tokens"),
                                .cached_prefill = TokensOf(in, "cached-tokens")}};
  return scenario;
}

Result<Scenario> ScenarioOf(const CalcValues& in) {
  ASSIGN_OR_RETURN(Scenario scenario, RequestScenario(in));
  for (const std::string card : {"card", "other-card"}) {
    const auto found = in.catalog().Card(in.Text(card));
    if (!found) return WithContext(found.error(), "--" + card);
    scenario.groups.push_back(CardsOf(in, **found, static_cast<int>(in.Count(card + "s"))));
  }
  return scenario;
}

}  // namespace divisi
