// What each stage of a request takes of a card: section 9.2.3. All figures are the planner's.
#include <algorithm>

#include "divisi/cli/calc_pd_split.h"
#include "divisi/cli/calc_scenario.h"
#include "divisi/core/format.h"
#include "divisi/plan/worker_cost.h"

namespace divisi {
namespace {

CalcFigure Column(const char* key, CalcUnit unit, const char* label) {
  return {key, 0, unit, label};
}

constexpr const char* kRatesFormula =
    "new = input - cached; c = input + (output - 1) / 2, the mean context of a step  [tokens]\n"
    "prefill F = 2 P new + A (input^2 - cached^2) / 2 + 2 H            operations\n"
    "        R = bytes of the weights that a pass meets, read once     bytes\n"
    "step    F = batch (2 (P + H) + A c); R = weights + batch c v      v: state of a token, bytes\n"
    "P: parameters that a token meets, H = hidden * vocabulary, A: operations of a token with one\n"
    "before it, 4 heads head_dim layers for GQA; embeddings are not read\n"
    "T = max(F / (eff * peak), R / (eff * bandwidth))                  s, the roofline\n"
    "d_P = T_prefill, d_D = (output - 1) T_step / batch                card-seconds of a request\n"
    "r_P = new / d_P tokens/s, r_D = batch / T_step calls/s\n"
    "chunked: tokens that ride on a step = (T_step - F_step / C) C new / F_prefill, C = eff * "
    "peak;\n"
    "  chunks = ceil(new / tokens), first token = chunks * T_step; an ideal bound of d is\n"
    "  max(F of both / C, R of both / B) for a request\n"
    "query work of --state-model: F_q of a step and request, F_q / C seconds; 'added' makes\n"
    "  d_D' = d_D + (output - 1) F_q / C; n --pool-cards hold --arrival-rate up to\n"
    "  (n / lambda - d_D) / (output - 1) seconds\n"
    "Source: section 9.2.3; roofline, Williams et al. 2009.";

Result<std::vector<CardGroup>> ListedCards(const CalcValues& in) {
  std::vector<CardGroup> groups;
  for (std::string_view rest = in.Text("cards");;) {
    const size_t comma = rest.find(',');
    std::string_view name = rest.substr(0, comma);
    name.remove_prefix(std::min(name.find_first_not_of(' '), name.size()));
    const auto card = in.catalog().Card(name);
    if (!card) return WithContext(card.error(), "--cards");
    groups.push_back(CardsOf(in, **card, 1));
    if (comma == std::string_view::npos) return groups;
    rest.remove_prefix(comma + 1);
  }
}

// What the tables of one scenario are made from.
struct Stages {
  const Scenario& scenario;
  std::vector<WorkerCost> workers;  // One card each, as the groups.

  const RequestClass& request() const { return scenario.workload.classes[0]; }
  double calls() const { return static_cast<double>(request().DecodeCalls().value); }
};

// Rows of `row_of` for each card.
template <typename RowOf>
CalcTable ByCard(const Stages& stages, CalcTable table, RowOf row_of) {
  for (size_t i = 0; i < stages.workers.size(); ++i) {
    table.row_names.push_back(stages.scenario.groups[i].name);
    table.rows.push_back(row_of(stages.workers[i]));
  }
  return table;
}

CalcTable PrefillTable(const Stages& stages) {
  const auto tokens = static_cast<double>(stages.request().NewTokens().value);
  return ByCard(stages,
                {"prefill",
                 "Prefill of one prompt",
                 {},
                 {Column("compute", CalcUnit::kSeconds, "computing"),
                  Column("memory", CalcUnit::kSeconds, "reading"),
                  Column("busy", CalcUnit::kSeconds, "card-seconds"),
                  Column("tokens", CalcUnit::kPerSecond, "new tokens"),
                  Column("requests", CalcUnit::kPerSecond, "requests")},
                 {}},
                [&](const WorkerCost& worker) -> std::vector<double> {
                  const StageTime& time = worker.classes[0].prefill;
                  const Seconds busy = worker.classes[0].prefill_busy;
                  return {time.compute.value, time.memory.value, busy.value, tokens / busy.value,
                          Rate(busy).value};
                });
}

CalcTable DecodeTable(const Stages& stages) {
  const double batch = stages.scenario.workload.decode_batch;
  return ByCard(
      stages,
      {"decode",
       "Decode: a step of the batch, and a request's part of all steps",
       {},
       {Column("compute", CalcUnit::kSeconds, "computing"),
        Column("memory", CalcUnit::kSeconds, "reading"), Column("step", CalcUnit::kSeconds, "step"),
        Column("calls", CalcUnit::kPerSecond, "calls"),
        Column("busy", CalcUnit::kSeconds, "card-seconds"),
        Column("requests", CalcUnit::kPerSecond, "requests")},
       {}},
      [&](const WorkerCost& worker) -> std::vector<double> {
        const ClassCost& cost = worker.classes[0];
        return {cost.step.compute.value,   cost.step.memory.value, cost.Step().value,
                batch / cost.Step().value, cost.decode_busy.value, Rate(cost.decode_busy).value};
      });
}

CalcTable TogetherTable(const Stages& stages, Seconds transfer) {
  return ByCard(
      stages,
      {"together",
       "Both stages on a card: one after the other, or prefill in chunks riding on decode",
       {},
       {Column("busy", CalcUnit::kSeconds, "card-seconds"),
        Column("requests", CalcUnit::kPerSecond, "requests"),
        Column("chunk_tokens", CalcUnit::kCount, "tokens riding on a step"),
        Column("chunks", CalcUnit::kCount, "chunks"),
        Column("first_token", CalcUnit::kSeconds, "first token"),
        Column("first_token_apart", CalcUnit::kSeconds, "and apart"),
        Column("mixed_busy", CalcUnit::kSeconds, "card-seconds, ideal"),
        Column("mixed_requests", CalcUnit::kPerSecond, "requests, ideal")},
       {}},
      [&](const WorkerCost& worker) -> std::vector<double> {
        const ClassCost& cost = worker.classes[0];
        const Seconds serial = cost.prefill_busy + cost.decode_busy;
        return {serial.value,
                Rate(serial).value,
                cost.chunk_tokens,
                static_cast<double>(cost.chunks),
                cost.FirstTokenByChunks().value,
                (cost.prefill_busy + transfer).value,
                cost.mixed_busy.value,
                Rate(cost.mixed_busy).value};
      });
}

CalcTable MemoryTable(const Stages& stages) {
  return ByCard(
      stages,
      {"memory",
       "Memory of a card that does both: weights and the batch's states at their end",
       {},
       {Column("needed", CalcUnit::kBytes, "needs"), Column("capacity", CalcUnit::kBytes, "has"),
        Column("fits", CalcUnit::kCount, "fits (1: yes)")},
       {}},
      [](const WorkerCost& worker) -> std::vector<double> {
        const MemoryNeed& need = worker.as_replica;
        return {static_cast<double>(need.Total().value), static_cast<double>(need.capacity.value),
                need.Fits() ? 1.0 : 0.0};
      });
}

// added, hidden: with the query work in the step's time, and without.
CalcTable QueryTable(const Stages& added, const Stages& hidden, const CalcValues& in) {
  const auto cards = static_cast<int>(in.Count("pool-cards"));
  const PerSecond arrivals = in.GetPerSecond("arrival-rate");
  CalcTable table{"query",
                  "Work on queries by which a step answers from --state-model's state",
                  {},
                  {Column("call", CalcUnit::kSeconds, "a step and request"),
                   Column("request", CalcUnit::kSeconds, "a request"),
                   Column("spare_call", CalcUnit::kSeconds, "a pool could take"),
                   Column("pool", CalcUnit::kPerSecond, "the pool, work added")},
                  {}};
  for (size_t i = 0; i < added.workers.size(); ++i) {
    const ClassCost& cost = added.workers[i].classes[0];
    const Seconds call = cost.added_step / added.scenario.workload.decode_batch;
    const Seconds spare = SpareOfCall(hidden.workers[i].classes[0].decode_busy,
                                      added.request().DecodeCalls(), {cards, arrivals});
    table.row_names.push_back(added.scenario.groups[i].name);
    table.rows.push_back({call.value, call.value * added.calls(), spare.value,
                          cards * Rate(cost.decode_busy).value});
  }
  return table;
}

void NoteBounds(const Stages& stages, CalcResult& result) {
  const auto bound = [](const StageTime& time) {
    return time.bound() == Bound::kCompute ? "computing" : "reading";
  };
  for (size_t i = 0; i < stages.workers.size(); ++i) {
    const WorkerCost& worker = stages.workers[i];
    const std::string& name = stages.scenario.groups[i].name;
    result.notes.push_back(
        stages.calls() > 0 ? Format("{}: prefill is bound by {}, decode by {}.", name,
                                    bound(worker.classes[0].prefill), bound(worker.classes[0].step))
                           : Format("{}: prefill is bound by {}; of one output token nothing "
                                    "is decoded.",
                                    name, bound(worker.classes[0].prefill)));
    if (worker.as_replica.Fits()) continue;
    result.notes.push_back(Format(
        "{}: weights and states need {} of {}; these rates are of a card "
        "with more memory.",
        name, HumanBytes(worker.as_replica.Total()), HumanBytes(worker.as_replica.capacity)));
  }
}

std::vector<WorkerCost> CostsOf(const Scenario& scenario) {
  std::vector<WorkerCost> workers;
  for (const CardGroup& group : scenario.groups) workers.push_back(CostOfWorker(scenario, group));
  return workers;
}

void AddWork(const Stages& stages, CalcResult& result) {
  const RequestClass& request = stages.request();
  const double batch = stages.scenario.workload.decode_batch;
  const ModelCost model(stages.scenario.model, stages.scenario.storage);
  const Work prefill = model.Prefill(request.NewTokens(), request.cached_prefill);
  const MemoryNeed& memory = stages.workers[0].as_replica;
  result.figures = {FigureOf("prefill", prefill.flops, "prefill of one prompt"),
                    FigureOf("prefill_read", prefill.bytes, "weights that it reads"),
                    FigureOf("calls", stages.calls(), "calls of decode for a request")};
  if (stages.calls() > 0) {
    const Work step = model.DecodeStep(batch, request.MeanContext());
    const Bytes weights = model.WeightsRead(batch);
    result.figures.push_back(FigureOf("step", step.flops, "a step of the batch"));
    result.figures.push_back(FigureOf("step_weights", weights, "weights that it reads"));
    result.figures.push_back(FigureOf("step_state", step.bytes - weights, "states that it reads"));
  }
  result.figures.push_back(FigureOf("weights", memory.weights, "weights in memory"));
  result.figures.push_back(
      FigureOf("end_state", memory.state, "states of the batch at the requests' end"));
  result.figures.push_back(FigureOf("end_memory", memory.Total(), "both"));
}

Result<CalcResult> RunRates(const CalcValues& in) {
  ASSIGN_OR_RETURN(Scenario scenario, RequestScenario(in));
  ASSIGN_OR_RETURN(scenario.groups, ListedCards(in));
  RETURN_IF_ERROR(CheckScenario(scenario));
  Scenario hidden = scenario, added = scenario;
  double query_flops = 0;
  if (scenario.state) {
    const auto other = in.catalog().Model(in.Text("state-model"));
    if (!other) return WithContext(other.error(), "--state-model");
    query_flops = ModelCost(**other, Storage{}).query_flops;
    hidden.state->query_flops = 0;
    added.state->query_flops = query_flops;
  }
  const Stages stages{scenario, CostsOf(scenario)};
  const Bytes state = TransferOf(scenario, stages.request());
  const Seconds transfer = state / scenario.link.bandwidth;
  CalcResult result;
  AddWork(stages, result);
  result.figures.push_back(FigureOf("transfer", transfer, "its state's way to decode"));
  result.figures.push_back(FigureOf("query", Flops(query_flops), "query work, a step and request"));
  result.tables.push_back(PrefillTable(stages));
  NoteBounds(stages, result);
  if (stages.calls() == 0) return result;
  result.tables.push_back(DecodeTable(stages));
  result.tables.push_back(TogetherTable(stages, transfer));
  result.tables.push_back(MemoryTable(stages));
  result.tables.push_back(QueryTable({added, CostsOf(added)}, {hidden, CostsOf(hidden)}, in));
  return result;
}

CalcTopic StageRates() {
  std::vector<CalcInput> inputs = RequestInputs();
  inputs.insert(inputs.begin(), {"cards", CalcUnit::kText, "A100 80GB SXM,H20 SXM5 96GB",
                                 "Accelerators, names of the catalogue; a list"});
  inputs.push_back(
      {"pool-cards", CalcUnit::kCount, "4", "Like cards of a decode pool", CalcLimit::kOneOrMore});
  inputs.push_back({"arrival-rate", CalcUnit::kPerSecond, "3.5", "Requests per second to hold",
                    CalcLimit::kPositive});
  return {"stage-rates",
          "What prefill and decode take of a card: work, time, what bounds it, rates",
          kRatesFormula, std::move(inputs), RunRates};
}

}  // namespace

std::vector<CalcTopic> StageTopics() { return {StageRates(), PdSplitTopic()}; }

}  // namespace divisi
