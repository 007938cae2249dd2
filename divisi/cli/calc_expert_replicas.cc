#include "divisi/cli/calc_expert_replicas.h"

#include <limits>

#include "divisi/cli/calc_expert_inputs.h"
#include "divisi/core/format.h"
#include "divisi/plan/expert_replicas.h"
#include "divisi/plan/expert_reuse.h"
#include "divisi/plan/gemm_padding.h"

namespace divisi {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

ReplicaPlan PlanOf(const CalcValues& values) {
  return {.shape = ExpertShapeOf(values),
          .tile = {.rows = values.Count("tile-rows"), .columns = values.Count("tile-columns")},
          .card = {values.GetFlopsPerSecond("compute"), values.GetBytesPerSecond("memory")},
          .link = {values.GetBytesPerSecond("link"), values.GetSeconds("launch")},
          .hot_experts = WholeCount(values, "hot-experts"),
          .rows = WholeCount(values, "rows"),
          .copies = WholeCount(values, "copies"),
          .receivers = WholeCount(values, "cards") - 1,
          .room = values.GetBytes("room")};
}

std::string Verdict(const ReplicaOutcome& outcome, Bytes room) {
  if (!outcome.fits) {
    return Format(
        "The copies need {} on a card that has {} of room: change the placement or free memory "
        "first, however long the load stays hot.",
        HumanBytes(outcome.needed), HumanBytes(room));
  }
  if (const auto batches = outcome.PayBackBatches()) {
    return Format("Copying has paid back after batch {:.0f}.", *batches);
  }
  return "The copies save nothing: copying never pays back.";
}

CalcTable NetTable(const ReplicaOutcome& outcome, const std::vector<double>& batches) {
  CalcTable table{.key = "net",
                  .title = "Saved less copying, if the load stays hot for so many batches",
                  .columns = {{"saving", 0, CalcUnit::kSeconds, "Net saving"}}};
  for (const double count : batches) {
    table.row_names.push_back(Format("{:.12g}", count));
    table.rows.push_back({outcome.fits ? outcome.NetSaving(count).value : -kInfinity});
  }
  return table;
}

Result<CalcResult> RunExpertReplicas(const CalcValues& values) {
  const ReplicaPlan plan = PlanOf(values);
  ASSIGN_OR_RETURN(const ReplicaOutcome outcome, WeighReplicas(plan));
  ASSIGN_OR_RETURN(const Bytes all_layers, ExpertMemory(plan.shape, 1, values.Count("layers")));
  ASSIGN_OR_RETURN(const Bytes hot_layers, ExpertMemory(plan.shape, 1, values.Count("hot-layers")));
  CalcResult result;
  result.figures = {
      FigureOf("traffic_before", outcome.before.bytes, "Memory traffic of the hot card, a batch"),
      FigureOf("traffic_after", outcome.after.bytes, "The same with the copies"),
      FigureOf("traffic_saved", outcome.before.bytes - outcome.after.bytes, "Traffic saved"),
      FigureOf("before", outcome.before_time.Total(), "Time of a batch"),
      FigureOf("after", outcome.after_time.Total(), "With the copies, on the busiest card"),
      FigureOf("saving", outcome.saving, "Saved a batch"),
      FigureOf("copied", outcome.copied, "Weights copied"),
      FigureOf("copy", outcome.copy_time, "Copying, one after another"),
      FigureOf("pay_back_batches", outcome.PayBackBatches().value_or(kInfinity),
               "Batches until more is saved than copying took"),
      FigureOf("needed", outcome.needed, "Room needed on a receiving card"),
      FigureOf("room", plan.room, "Room it has"),
      FigureOf("fits", outcome.fits ? 1.0 : 0.0, "The copies fit (1) or do not (0)"),
      FigureOf("all_layers", all_layers, "One replica a card in every layer"),
      FigureOf("hot_layers", hot_layers, "One replica a card in the hot layers"),
  };
  result.tables = {NetTable(outcome, values.Counts("batches"))};
  result.notes = {Verdict(outcome, plan.room)};
  return result;
}

Result<CalcResult> RunPadding(const CalcValues& values) {
  const ExpertShape shape = ExpertShapeOf(values);
  RETURN_IF_ERROR(CheckShape(shape));
  ASSIGN_OR_RETURN(const PaddedRows rows,
                   PadToTiles(WholeCounts(values, "rows"), WholeCount(values, "tile")));
  CalcResult result;
  CalcTable table{.key = "padding",
                  .title = "Rows of all experts",
                  .columns = {{"rows", 0, CalcUnit::kCount, "Rows"},
                              {"ratio", 0, CalcUnit::kCount, "To useful ones"},
                              {"compute", 0, CalcUnit::kFlops, "Operations"}}};
  const auto add = [&](const char* name, int64_t count) {
    const auto computed = static_cast<double>(count);
    table.row_names.push_back(name);
    table.rows.push_back(
        {computed, computed / static_cast<double>(rows.useful), shape.Compute(computed).value});
  };
  add("useful", rows.useful);
  add("non-empty experts to tiles", rows.non_empty);
  add("all experts to tiles", rows.all);
  add("all experts to the fullest", rows.largest);
  result.figures = {FigureOf("useful_rows", static_cast<double>(rows.useful), "Useful rows"),
                    FigureOf("padded_rows", static_cast<double>(rows.non_empty),
                             "Rows with non-empty experts padded to tiles"),
                    FigureOf("padded_rows_all", static_cast<double>(rows.all),
                             "Rows with all experts padded to tiles")};
  result.tables = {std::move(table)};
  return result;
}

std::vector<CalcInput> ReplicaInputs() {
  return {{.name = "hot-experts",
           .value = "8",
           .help = "experts that one card holds, all hot",
           .limit = CalcLimit::kOneOrMore},
          {.name = "rows",
           .value = "128",
           .help = "m: rows of each of them, a batch",
           .limit = CalcLimit::kOneOrMore},
          {.name = "copies",
           .value = "7",
           .help = "of them copied to another card",
           .limit = CalcLimit::kOneOrMore},
          {.name = "cards",
           .value = "8",
           .help = "cards, the hot one included",
           .limit = CalcLimit::kOneOrMore},
          {.name = "room",
           .unit = CalcUnit::kBytes,
           .value = "64MiB",
           .help = "free on each receiving card"},
          {.name = "tile-rows",
           .value = "64",
           .help = "of the grouped GEMM",
           .limit = CalcLimit::kOneOrMore},
          {.name = "tile-columns",
           .value = "128",
           .help = "of the grouped GEMM",
           .limit = CalcLimit::kOneOrMore},
          {.name = "compute",
           .unit = CalcUnit::kFlopsPerSecond,
           .value = "494.7TFLOP/s",
           .help = "C: of a card",
           .limit = CalcLimit::kPositive},
          {.name = "memory",
           .unit = CalcUnit::kBytesPerSecond,
           .value = "1675GB/s",
           .help = "B: bandwidth of a card's memory",
           .limit = CalcLimit::kPositive},
          {.name = "link",
           .unit = CalcUnit::kBytesPerSecond,
           .value = "450GB/s",
           .help = "over which copies go",
           .limit = CalcLimit::kPositive},
          {.name = "launch",
           .unit = CalcUnit::kSeconds,
           .value = "5us",
           .help = "fixed cost of each copy"},
          {.name = "batches",
           .unit = CalcUnit::kCounts,
           .value = "16,64",
           .help = "batches for which the load stays hot; a list",
           .limit = CalcLimit::kWhole},
          {.name = "layers",
           .value = "94",
           .help = "layers with experts",
           .limit = CalcLimit::kOneOrMore},
          {.name = "hot-layers",
           .value = "8",
           .help = "layers that get a replica",
           .limit = CalcLimit::kWhole}};
}

}  // namespace

CalcTopic ExpertReplicasTopic() {
  return {
      .name = "expert-replicas",
      .summary = "Copies of hot experts: traffic saved, copying, and when it has paid back",
      .formula =
          "traffic of an expert with m rows = ceil(m / tile-rows) W_e\n"
          "  + m b (ceil(2 f / tile-columns) h + ceil(h / tile-columns) f + 2 f + h)  [bytes]\n"
          "time of a card = max(2 P_e rows / C, traffic / B)  [s]; a copied expert keeps half of\n"
          "its rows; dt = before - after; T_copy = copies (W_e / link + launch)\n"
          "N_min = floor(T_copy / dt) + 1; net over N batches = N dt - T_copy\n"
          "Source: section 9.4.2, example 9.6, equation of N_min. Another server: --link 50GB/s.",
      .inputs = WithExpertShape(ReplicaInputs()),
      .run = RunExpertReplicas};
}

CalcTopic GroupedGemmPaddingTopic() {
  return {.name = "grouped-gemm-padding",
          .summary = "Rows that a grouped GEMM computes for few useful ones",
          .formula =
              "padded = sum over experts of ceil(rows / tile) tile; empty experts take none, one "
              "tile,\n"
              "or as many as the fullest; operations = rows * 2 P_e  [FLOP]\n"
              "Source: section 9.4.3.",
          .inputs = WithExpertShape({{.name = "rows",
                                      .unit = CalcUnit::kCounts,
                                      .value = "32,16,8,4,2,1,1,0",
                                      .help = "rows of each expert",
                                      .limit = CalcLimit::kWhole},
                                     {.name = "tile",
                                      .value = "32",
                                      .help = "rows of a tile",
                                      .limit = CalcLimit::kOneOrMore}}),
          .run = RunPadding};
}

}  // namespace divisi
