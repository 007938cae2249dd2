// The calculators of what a batch makes of experts: which it meets, and how its parts follow each
// other through attention and experts.
#include "divisi/cli/calc_expert_batch.h"

#include <algorithm>

#include "divisi/cli/calc_expert_inputs.h"
#include "divisi/core/format.h"
#include "divisi/plan/expert_reuse.h"
#include "divisi/plan/pipeline.h"

namespace divisi {
namespace {

void AddUse(CalcTable& table, const std::string& name, const ExpertUse& use) {
  table.row_names.push_back(name);
  table.rows.push_back({use.distinct, use.rows_each, static_cast<double>(use.read.value),
                        use.time.memory.value, use.time.compute.value});
}

// Tokens of decode that the device takes a second, and the queue that a faster stream leaves.
std::vector<CalcFigure> ServiceFigures(const ExpertUse& use, const CalcValues& values) {
  const Seconds all_layers = use.time.Total() * values.Count("layers");
  const PerSecond capacity(values.Count("tokens") / all_layers.value);
  const PerSecond arrival = values.GetPerSecond("arrival");
  return {FigureOf("all_layers", all_layers, "Experts of all layers, one batch, chosen at random"),
          FigureOf("capacity_tokens", capacity, "Tokens that batches of this size get through"),
          FigureOf("queue_growth_tokens", std::max(arrival - capacity, PerSecond(0)),
                   "Growth of the queue of tokens at --arrival")};
}

std::string MemoryNote(const std::string& what, Bytes needed, Bytes memory) {
  return Format("{} take {} {} {}.", what, HumanBytes(needed),
                needed <= memory ? "and fit into" : "and do not fit into", HumanBytes(memory));
}

Result<CalcResult> RunExpertReuse(const CalcValues& values) {
  const ExpertShape shape = ExpertShapeOf(values);
  RETURN_IF_ERROR(CheckShape(shape));
  const RoutedBatch batch{.tokens = WholeCount(values, "tokens"),
                          .experts_per_token = WholeCount(values, "experts-per-token"),
                          .experts = WholeCount(values, "experts")};
  RETURN_IF_ERROR(CheckBatch(batch));
  const DeviceRates device{values.GetFlopsPerSecond("compute"),
                           values.GetBytesPerSecond("bandwidth")};
  const double experts = values.Count("experts");
  const double layers = values.Count("layers");
  ASSIGN_OR_RETURN(const Bytes layer, ExpertMemory(shape, experts, 1));
  ASSIGN_OR_RETURN(const Bytes all, ExpertMemory(shape, experts, layers));
  ASSIGN_OR_RETURN(const Bytes resident, ExpertMemory(shape, values.Count("resident"), layers));
  const double expected =
      ExpectedDistinctExperts(experts, values.Count("experts-per-token"), values.Count("tokens"));
  ASSIGN_OR_RETURN(const ExpertUse even, UseOf(shape, batch, EvenDistinctExperts(batch), device));
  ASSIGN_OR_RETURN(const ExpertUse random, UseOf(shape, batch, expected, device));
  ASSIGN_OR_RETURN(const ExpertUse hot, UseOf(shape, batch, HotDistinctExperts(batch), device));
  CalcResult result;
  result.figures = {
      FigureOf("expert_weights", shape.Weights(), "Weights of an expert"),
      FigureOf("layer_weights", layer, "Of all experts of a layer"),
      FigureOf("model_weights", all, "Of all experts of all layers"),
      FigureOf("resident_weights", resident, "Of --resident experts of each layer"),
      FigureOf("assignments", batch.Assignments(), "Rows of the layer, over its experts"),
      FigureOf("compute", shape.Compute(batch.Assignments()), "Their operations"),
      FigureOf("expected_experts", expected, "Experts that the batch meets, chosen at random"),
  };
  for (CalcFigure& figure : ServiceFigures(random, values)) result.figures.push_back(figure);
  CalcTable table{.key = "routing",
                  .title = "A layer by how tokens choose",
                  .columns = {{"experts", 0, CalcUnit::kCount, "Experts met"},
                              {"rows_each", 0, CalcUnit::kCount, "Rows of each"},
                              {"weights_read", 0, CalcUnit::kBytes, "Weights read"},
                              {"read", 0, CalcUnit::kSeconds, "Reading"},
                              {"compute", 0, CalcUnit::kSeconds, "Computing"}}};
  AddUse(table, "even", even);
  AddUse(table, "random", random);
  AddUse(table, "hot", hot);
  result.tables = {table};
  result.notes = {MemoryNote("All experts", all, values.GetBytes("host-memory")),
                  MemoryNote(Format("{:g} resident experts a layer", values.Count("resident")),
                             resident, values.GetBytes("card-memory"))};
  return result;
}

Result<CalcResult> RunExpertPipeline(const CalcValues& values) {
  const Pipeline two{.stages = {values.GetSeconds("attention"), values.GetSeconds("experts")},
                     .micro_batches = values.Count("micro-batches")};
  const double parts = values.Count("layer-micro-batches");
  const Pipeline three{
      .stages = {values.GetSeconds("dispatch") / parts, values.GetSeconds("compute") / parts,
                 values.GetSeconds("combine") / parts},
      .micro_batches = parts};
  RETURN_IF_ERROR(CheckPipeline(two));
  RETURN_IF_ERROR(CheckPipeline(three));
  CalcResult result;
  result.figures = {
      FigureOf("serial", two.Serial(), "Attention and experts one after the other"),
      FigureOf("pipeline", two.Overlapped(), "Alternating"),
      FigureOf("gain", two.Serial() - two.Overlapped(), "Gain: what may be lost before it is gone"),
      FigureOf("attention_slowdown", ToleratedSlowdown(two, {true, false}),
               "Attention may slow down by a factor of"),
      FigureOf("experts_slowdown", ToleratedSlowdown(two, {false, true}),
               "Experts may slow down by a factor of"),
      FigureOf("layer_serial", three.Serial(), "Dispatch, compute, combine of a whole batch"),
      FigureOf("layer_pipeline", three.Overlapped(), "In micro-batches"),
      FigureOf("layer_gain", three.Serial() - three.Overlapped(), "Gain"),
      FigureOf("communication_slowdown", ToleratedSlowdown(three, {true, false, true}),
               "Dispatch and combine may slow down by a factor of"),
      FigureOf("compute_slowdown", ToleratedSlowdown(three, {false, true, false}),
               "Computing may slow down by a factor of"),
  };
  return result;
}

}  // namespace

CalcTopic ExpertReuseTopic() {
  return {
      .name = "expert-reuse",
      .summary = "Distinct experts of a batch, the weights it reads and the time that takes",
      .formula =
          "E[U] = E (1 - (1 - K / E)^M) distinct experts for M tokens that choose K of E\n"
          "read = distinct * W_e  [bytes]; compute = M K * 2 P_e  [FLOP], however they choose\n"
          "even: min(E, M K) distinct; hot: K; layer time = max(compute / C, read / B)  [s]\n"
          "capacity = M / (layers * layer time)  [tokens/s]; growth = arrival - capacity\n"
          "Source: section 9.3.3, equation of E[U].",
      .inputs = WithExpertShape(
          {{.name = "tokens",
            .value = "64",
            .help = "M: of the batch",
            .limit = CalcLimit::kOneOrMore},
           {.name = "experts-per-token", .value = "8", .help = "K", .limit = CalcLimit::kOneOrMore},
           {.name = "experts",
            .value = "128",
            .help = "E: of a layer",
            .limit = CalcLimit::kOneOrMore},
           {.name = "layers",
            .value = "94",
            .help = "layers with experts",
            .limit = CalcLimit::kOneOrMore},
           {.name = "resident",
            .value = "32",
            .help = "experts of each layer held on the card",
            .limit = CalcLimit::kWhole},
           {.name = "card-memory",
            .unit = CalcUnit::kBytes,
            .value = "80GB",
            .help = "memory of the card"},
           {.name = "host-memory",
            .unit = CalcUnit::kBytes,
            .value = "1TB",
            .help = "memory of a socket"},
           {.name = "compute",
            .unit = CalcUnit::kFlopsPerSecond,
            .value = "21.3TFLOP/s",
            .help = "C: of the device that runs the experts",
            .limit = CalcLimit::kPositive},
           {.name = "bandwidth",
            .unit = CalcUnit::kBytesPerSecond,
            .value = "220GB/s",
            .help = "B: of its memory",
            .limit = CalcLimit::kPositive},
           {.name = "arrival",
            .unit = CalcUnit::kPerSecond,
            .value = "0",
            .help = "tokens that arrive a second"}}),
      .run = RunExpertReuse};
}

CalcTopic ExpertPipelineTopic() {
  return {
      .name = "expert-pipeline",
      .summary = "Micro-batches that alternate, and the slow-down that eats the gain",
      .formula =
          "serial = q (t_1 + t_2 + ...); pipeline = t_1 + t_2 + ... + (q - 1) max(t_1, ...)  [s]\n"
          "for q equal micro-batches, each taking t_1, t_2, ...\n"
          "Two stages: --attention and --experts are of one micro-batch. Three stages: "
          "--dispatch,\n"
          "--compute and --combine are of the whole batch, which is cut into equal parts.\n"
          "A slow-down is the factor at which the pipeline takes as long as serial did without "
          "it.\n"
          "Source: sections 9.3.4 and 9.4.3.",
      .inputs =
          {{.name = "attention",
            .unit = CalcUnit::kSeconds,
            .value = "2ms",
            .help = "t_A: of one micro-batch"},
           {.name = "experts",
            .unit = CalcUnit::kSeconds,
            .value = "3ms",
            .help = "t_F: of one micro-batch"},
           {.name = "micro-batches", .value = "4", .help = "q", .limit = CalcLimit::kOneOrMore},
           {.name = "dispatch",
            .unit = CalcUnit::kSeconds,
            .value = "335.54432us",
            .help = "of the whole batch: 16 MiB at 50 GB/s"},
           {.name = "compute",
            .unit = CalcUnit::kSeconds,
            .value = "156.2753412734991us",
            .help = "of the whole batch: 2048 rows at 494.7 TFLOP/s"},
           {.name = "combine",
            .unit = CalcUnit::kSeconds,
            .value = "335.54432us",
            .help = "of the whole batch"},
           {.name = "layer-micro-batches",
            .value = "2",
            .help = "parts of that batch",
            .limit = CalcLimit::kOneOrMore}},
      .run = RunExpertPipeline};
}

}  // namespace divisi
