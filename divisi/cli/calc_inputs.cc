#include "divisi/cli/calc_inputs.h"

#include "divisi/core/format.h"

namespace divisi {
namespace {

Result<ModelCost> NamedModel(const CalcValues& values, std::string_view input) {
  const auto spec = values.catalog().Model(values.Text(input));
  if (!spec) return WithContext(spec.error(), Format("--{}", input));
  return ModelCost(**spec, Storage{});
}

}  // namespace

CalcInput ModelInput() {
  return {"model", CalcUnit::kText, "qwen3-8b", "Model, a name of the catalogue"};
}

CalcInput StateModelInput() {
  return {"state-model", CalcUnit::kText, "",
          "Model whose state takes the place of --model's own; its computing stays"};
}

CalcInput CardInput(const std::string& card) {
  return {"card", CalcUnit::kText, card, "Accelerator, a name of the catalogue"};
}

CalcInput EfficiencyInput() {
  return {"efficiency", CalcUnit::kCount, "0.5", "Share of the card's peaks that is reached",
          CalcLimit::kShare};
}

CalcInput TokensInput(const std::string& name, const std::string& value, const std::string& help) {
  return {name, CalcUnit::kCount, value, help, CalcLimit::kOneOrMore};
}

CalcInput RateInput(const std::string& name, const std::string& value, const std::string& help) {
  return {name, CalcUnit::kBytesPerSecond, value, help, CalcLimit::kPositive};
}

Result<ModelCost> ModelOf(const CalcValues& values) { return NamedModel(values, "model"); }

Result<Bytes> StatePerToken(const CalcValues& values) {
  const bool other = !values.Text("state-model").empty();
  ASSIGN_OR_RETURN(const ModelCost model, NamedModel(values, other ? "state-model" : "model"));
  return model.state_per_token;
}

Tokens TokensOf(const CalcValues& values, std::string_view name) {
  return Tokens(static_cast<int64_t>(values.Count(name)));
}

Result<CalcDevice> DeviceOf(const CalcValues& values) { return DeviceOf(values, "card"); }

Result<CalcDevice> DeviceOf(const CalcValues& values, std::string_view card_input) {
  const auto card = values.catalog().Card(values.Text(card_input));
  if (!card) return WithContext(card.error(), Format("--{}", card_input));
  const double efficiency = values.Count("efficiency");
  return CalcDevice{.card = **card,
                    .rates = {.compute = (*card)->bf16_peak * efficiency,
                              .memory = (*card)->memory_bandwidth * efficiency}};
}

}  // namespace divisi
