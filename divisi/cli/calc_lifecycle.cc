#include "divisi/cli/calc_lifecycle.h"

#include <cmath>

#include "divisi/cli/calc_inputs.h"
#include "divisi/core/format.h"
#include "divisi/plan/flow.h"
#include "divisi/plan/migration.h"
#include "divisi/plan/recovery.h"

namespace divisi {
namespace {

CalcFigure Column(const char* key, CalcUnit unit, const char* label) {
  return {key, 0, unit, label};
}

constexpr const char* kMigrateFormula =
    "V = batch * context * state per token                   bytes\n"
    "g = batch / T_step * state per token                    bytes/s\n"
    "catch-up = V / (B - g)                                  s; never where B <= g\n"
    "added meanwhile = g * catch-up                          bytes\n"
    "resharding = moved / B + preparations * time of each    s, one after another; inside a "
    "server\n"
    "the busiest card's bytes count, over its own link\n"
    "Source: section 9.6.2; the bytes and preparations of resharding are given, not derived.";

CalcTable CatchUps(const GrowingState& state, const CalcValues& in) {
  CalcTable table{"copies",
                  "Copying while the source runs",
                  {"network", "slow_network"},
                  {Column("catch_up", CalcUnit::kSeconds, "caught up after"),
                   Column("added", CalcUnit::kBytes, "added meanwhile")},
                  {}};
  for (const char* name : {"network", "slow-network"}) {
    const BytesPerSecond link = in.GetBytesPerSecond(name);
    const Seconds time = state.CatchUp(link);
    // Where it never ends, so does what is added.
    const double added = std::isfinite(time.value)
                             ? static_cast<double>(state.AddedMeanwhile(link).value)
                             : kNever.value;
    table.rows.push_back({time.value, added});
  }
  return table;
}

CalcTable Reshardings(const CalcValues& in) {
  const Seconds preparation = in.GetSeconds("preparation") * in.Count("preparations");
  CalcTable table{"resharding",
                  "Resharding",
                  {"slow_network", "network", "fabric"},
                  {Column("moved", CalcUnit::kBytes, "moved"),
                   Column("transfer", CalcUnit::kSeconds, "transfer"),
                   Column("total", CalcUnit::kSeconds, "with preparation")},
                  {}};
  for (const char* name : {"slow-network", "network", "fabric"}) {
    const bool inside = std::string_view(name) == "fabric";
    const Resharding change{in.GetBytes(inside ? "busiest" : "reshard"), preparation};
    const BytesPerSecond link = in.GetBytesPerSecond(name);
    table.rows.push_back({static_cast<double>(change.moved.value), change.Transfer(link).value,
                          change.Total(link).value});
  }
  return table;
}

Result<CalcResult> RunMigrate(const CalcValues& in) {
  ASSIGN_OR_RETURN(const ModelCost model, ModelOf(in));
  ASSIGN_OR_RETURN(const CalcDevice device, DeviceOf(in));
  ASSIGN_OR_RETURN(const Bytes per_token, StatePerToken(in));
  const double batch = in.Count("batch");
  const double context = in.Count("context");
  const Seconds step = TimeOf(model.DecodeStep(batch, context), device.rates).Total();
  const GrowingState state = GrowingState::Of(
      {.batch = batch, .context = context, .step = step, .state_per_token = per_token});
  CalcResult result;
  result.figures = {FigureOf("state", state.bytes, "KV to copy"),
                    FigureOf("step", step, "a decode step of the source"),
                    FigureOf("growth", state.growth, "growth while it runs"),
                    FigureOf("preparation", in.GetSeconds("preparation") * in.Count("preparations"),
                             "preparation of resharding: no link makes it shorter")};
  result.tables = {CatchUps(state, in), Reshardings(in)};
  if (state.CatchUp(in.GetBytesPerSecond("network")) == kNever) {
    result.notes.push_back(
        "The network is no faster than the state grows: the copy never catches "
        "up. Stop the source, or move fewer sequences.");
  }
  return result;
}

CalcTopic MigrateTopic() {
  return {"migrate",
          "Copying a state that grows; resharding with preparation",
          kMigrateFormula,
          {ModelInput(),
           StateModelInput(),
           CardInput("H20 SXM5 96GB"),
           EfficiencyInput(),
           TokensInput("batch", "32", "Sequences of the source"),
           TokensInput("context", "8704", "Mean tokens of each"),
           RateInput("network", "200Gbit/s", "Link to the target"),
           RateInput("slow-network", "50Gbit/s", "A slower one, for comparison"),
           {"reshard", CalcUnit::kBytes, "16.4GB", "Weights that resharding moves over a network"},
           {"busiest", CalcUnit::kBytes, "4.7GB", "Bytes that the busiest card sends in a server"},
           RateInput("fabric", "300GB/s", "Link of a card inside a server"),
           {"preparations", CalcUnit::kCount, "9", "Preparing steps, one after another",
            CalcLimit::kWhole},
           {"preparation", CalcUnit::kSeconds, "1s", "Time of each"}},
          RunMigrate};
}

constexpr const char* kRecoverFormula =
    "known = prompt + logged output                       tokens\n"
    "needed KV = known - 1; the last known token is processed next\n"
    "reused = min(checkpoint, known - 1)                  positions\n"
    "replayed = known - 1 - reused                        tokens of one prefill after the reused\n"
    "regenerated = returned - logged                      decoded again, one step each, and "
    "perhaps\n"
    "other than what the client has\n"
    "Source: section 9.6.3.";

Result<CalcResult> RunRecover(const CalcValues& in) {
  ASSIGN_OR_RETURN(const ModelCost model, ModelOf(in));
  ASSIGN_OR_RETURN(const CalcDevice device, DeviceOf(in));
  const Interrupted request{TokensOf(in, "prompt"), TokensOf(in, "returned"),
                            TokensOf(in, "logged"), TokensOf(in, "checkpoint")};
  if (request.logged > request.returned) {
    return Error{
        Code::kInvalidArgument,
        Format("--logged: {} tokens are logged and only {} returned; of what was returned, "
               "give how much is in the log",
               request.logged.value, request.returned.value)};
  }
  const Recovery recovery = RecoveryOf(request);
  const RecoveryTime time = TimeOf(recovery, model, device.rates);
  const auto count = [](Tokens amount) { return static_cast<double>(amount.value); };
  CalcResult result;
  result.figures = {
      FigureOf("reused_tokens", count(recovery.reused), "tokens whose KV serves"),
      FigureOf("replayed_tokens", count(recovery.replayed), "tokens computed again by prefill"),
      FigureOf("rebuilt_tokens", count(recovery.rebuilt), "tokens with KV then"),
      FigureOf("last_position", count(recovery.last), "position that is processed next"),
      FigureOf("regenerated_tokens", count(recovery.regenerated), "returned tokens made anew"),
      FigureOf("replay", time.replay, "the prefill"),
      FigureOf("last_step", time.last_step, "the step of the last known token"),
      FigureOf("regenerate", time.regenerate, "the steps of what the log lacks"),
      FigureOf("total", time.Total(), "until a token that the client lacks")};
  result.notes.push_back(
      recovery.regenerated.value == 0
          ? "All that was returned is logged: the output goes on as if nothing had happened."
          : "What was returned and not logged is sampled again and may differ from what the client "
            "has.");
  return result;
}

CalcTopic RecoverTopic() {
  const auto tokens = [](const char* name, const char* value, const char* help) {
    return CalcInput{name, CalcUnit::kCount, value, help, CalcLimit::kWhole};
  };
  return {"recover",
          "What is computed again after a failure, from the token log and the last KV",
          kRecoverFormula,
          {ModelInput(), CardInput("A100 80GB SXM"), EfficiencyInput(),
           TokensInput("prompt", "8192", "Tokens of the input"),
           tokens("returned", "1025", "Output tokens that the client has"),
           tokens("logged", "1025", "Of them, how many are in the log"),
           tokens("checkpoint", "8192", "Leading positions whose KV survives")},
          RunRecover};
}

}  // namespace

std::vector<CalcTopic> LifecycleTopics() {
  return {StartupTopic(), MigrateTopic(), RecoverTopic(), CostTopic()};
}

}  // namespace divisi
