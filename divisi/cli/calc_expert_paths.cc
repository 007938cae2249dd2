// The calculators of section 9.3: attention and experts on different devices.
#include <limits>

#include "divisi/cli/calc.h"
#include "divisi/cli/calc_expert_batch.h"
#include "divisi/cli/calc_expert_inputs.h"
#include "divisi/core/format.h"
#include "divisi/plan/activation_transfer.h"
#include "divisi/plan/expert_path.h"

namespace divisi {
namespace {

constexpr double kNone = std::numeric_limits<double>::infinity();

// af-transfer

std::string CompareNote(const std::string& what, double ratio) {
  return ratio >= 1
             ? Format("{} takes {:.3g} times as long as the state's one transfer.", what, ratio)
             : Format("{} takes {:.3g} of the state's one transfer.", what, ratio);
}

Result<CalcResult> RunAfTransfer(const CalcValues& values) {
  const ActivationRoute route{.layers = values.Count("layers"),
                              .hidden = values.Count("hidden"),
                              .element_bytes = values.Count("activation-bytes"),
                              .per_layer = values.Count("transfers-per-layer")};
  const TransferLink link{values.GetBytesPerSecond("bandwidth"), values.GetSeconds("launch")};
  const double steps = values.Count("output-tokens") - 1;
  ASSIGN_OR_RETURN(const SerialTransfers step, ActivationTransfers(route, 1));
  ASSIGN_OR_RETURN(const SerialTransfers prefill,
                   ActivationTransfers(route, values.Count("prompt-tokens")));
  const Bytes state = values.GetBytes("state");
  const SerialTransfers once{.payload = state, .launches = 1};
  const SerialTransfers pieces{.payload = state, .launches = step.launches};
  const Seconds request = step.Total(link) * steps;
  const double step_ratio = step.Total(link) / once.Total(link);
  const double request_ratio = request / once.Payload(link);
  CalcResult result;
  result.figures = {
      FigureOf("message", step.payload / static_cast<int64_t>(step.launches),
               "One transfer of one token"),
      FigureOf("step_transfers", step.launches, "Transfers of a decode step"),
      FigureOf("step_payload", step.payload, "Payload of a decode step"),
      FigureOf("step_payload", step.Payload(link), "Time of that payload"),
      FigureOf("step", step.Total(link), "A decode step's transfers, launches included"),
      FigureOf("request_steps", steps, "Decode steps of a request"),
      FigureOf("request", request, "A request's transfers in decode"),
      FigureOf("prefill_payload", prefill.payload, "Payload of its prefill"),
      FigureOf("prefill_payload", prefill.Payload(link), "Time of that payload"),
      FigureOf("prefill", prefill.Total(link), "The prefill's transfers, launches included"),
      FigureOf("state_payload", once.Payload(link), "The state's payload instead"),
      FigureOf("state", once.Total(link), "The state in one transfer"),
      FigureOf("state_in_pieces", pieces.Total(link), "The state in a step's count of transfers"),
      FigureOf("step_to_state", step_ratio, "A step to the state's transfer"),
      FigureOf("request_to_state", request_ratio, "A request's decode to the state's payload"),
      FigureOf("break_even_launch", BreakEvenLaunch(state, step, link.bandwidth),
               "Launch cost at which a step takes as long as the state"),
  };
  result.notes = {CompareNote("A decode step", step_ratio),
                  CompareNote("The decode of a whole request", request_ratio)};
  return result;
}

CalcTopic AfTransfer() {
  return {
      .name = "af-transfer",
      .summary = "Activations of each layer there and back, against one transfer of the state",
      .formula =
          "n = layers * transfers-per-layer; V_AF = n * hidden * activation-bytes  [bytes]\n"
          "step    = V_AF / B + n * alpha  [s];  request = (output-tokens - 1) * step\n"
          "prefill = prompt-tokens * V_AF / B + n * alpha;  state = V_KV / B + alpha\n"
          "break-even launch alpha* = (V_KV - V_AF) / ((n - 1) B): above it even one step takes\n"
          "longer than the state's transfer.\n"
          "Source: section 9.3.4, example 9.4. For compact MLA: --state 575668224B.",
      .inputs = {{.name = "layers",
                  .value = "36",
                  .help = "layers whose feed-forward part is elsewhere",
                  .limit = CalcLimit::kOneOrMore},
                 {.name = "hidden",
                  .value = "4096",
                  .help = "width of the hidden state",
                  .limit = CalcLimit::kOneOrMore},
                 {.name = "activation-bytes",
                  .value = "2",
                  .help = "bytes of one of its elements",
                  .limit = CalcLimit::kPositive},
                 {.name = "transfers-per-layer",
                  .value = "2",
                  .help = "there and back",
                  .limit = CalcLimit::kOneOrMore},
                 {.name = "bandwidth",
                  .unit = CalcUnit::kBytesPerSecond,
                  .value = "25GB/s",
                  .help = "B: payload of the link",
                  .limit = CalcLimit::kPositive},
                 {.name = "launch",
                  .unit = CalcUnit::kSeconds,
                  .value = "5us",
                  .help = "alpha: fixed cost of each transfer"},
                 {.name = "prompt-tokens",
                  .value = "8192",
                  .help = "input of the request",
                  .limit = CalcLimit::kOneOrMore},
                 {.name = "output-tokens",
                  .value = "1025",
                  .help = "output of the request; the first comes from prefill",
                  .limit = CalcLimit::kOneOrMore},
                 {.name = "state",
                  .unit = CalcUnit::kBytes,
                  .value = "1.125GiB",
                  .help = "V_KV: the request's state",
                  .limit = CalcLimit::kPositive}},
      .run = RunAfTransfer};
}

// expert-path

double OrNone(const std::optional<int64_t>& rows) {
  return rows ? static_cast<double>(*rows) : kNone;
}

CalcTable PathTable(const ExpertShape& shape, const ExpertHost& local, const ExpertHost& remote,
                    const CalcValues& values) {
  const double experts = values.Count("experts");
  CalcTable table{.key = "paths",
                  .title = "All experts in sequence, by rows of each",
                  .columns = {{"cpu", 0, CalcUnit::kSeconds, "On the CPU"},
                              {"cpu_remote", 0, CalcUnit::kSeconds, "Weights at the other socket"},
                              {"gpu", 0, CalcUnit::kSeconds, "On the GPU"},
                              {"cpu_read", 0, CalcUnit::kSeconds, "CPU: reading"},
                              {"cpu_remote_read", 0, CalcUnit::kSeconds, "Remote: reading"},
                              {"cpu_compute", 0, CalcUnit::kSeconds, "CPU: computing"}}};
  for (const double rows : values.Counts("rows")) {
    const ExpertPathTime cpu = CpuPath(shape, local, rows);
    const ExpertPathTime far = CpuPath(shape, remote, rows);
    const ExpertPathTime gpu = GpuPath(shape, local, rows);
    table.row_names.push_back(Format("{:.12g}", rows));
    std::vector<double>& row = table.rows.emplace_back();
    for (const Seconds one : {cpu.Total(), far.Total(), gpu.Total(), cpu.operation.memory,
                              far.operation.memory, cpu.operation.compute}) {
      row.push_back((one * experts).value);
    }
  }
  return table;
}

Result<CalcResult> RunExpertPath(const CalcValues& values) {
  const ExpertShape shape = ExpertShapeOf(values);
  const ExpertHost local{
      .cpu = {values.GetFlopsPerSecond("cpu-compute"), values.GetBytesPerSecond("cpu-bandwidth")},
      .gpu = {values.GetFlopsPerSecond("gpu-compute"), values.GetBytesPerSecond("gpu-bandwidth")},
      .link = values.GetBytesPerSecond("link"),
      .launch = values.GetSeconds("launch")};
  ExpertHost remote = local;
  remote.cpu.memory = values.GetBytesPerSecond("remote-bandwidth");
  RETURN_IF_ERROR(CheckExpertHost(shape, remote, 1));
  for (const double rows : values.Counts("rows")) {
    RETURN_IF_ERROR(CheckExpertHost(shape, local, rows));
  }
  const auto crossover = CrossoverRows(shape, local);
  CalcResult result;
  result.figures = {
      FigureOf("expert_weights", shape.Weights(), "Weights of an expert"),
      FigureOf("row_payload", 2 * shape.Rows(1), "A row's input and output"),
      FigureOf("crossover_rows", OrNone(crossover), "Rows from which the GPU is faster"),
      FigureOf("crossover_rows_remote", OrNone(CrossoverRows(shape, remote)),
               "The same, weights at the other socket"),
      FigureOf("balance_rows", BalanceRows(shape, local.cpu),
               "Rows at which the CPU computes as long as it reads"),
      FigureOf("balance_rows_remote", BalanceRows(shape, remote.cpu),
               "The same, weights at the other socket"),
      FigureOf("balance_rows_gpu", BalanceRows(shape, local.gpu), "The same on the GPU"),
  };
  result.tables = {PathTable(shape, local, remote, values)};
  result.notes = {crossover ? Format("From {} rows an expert on, the GPU is faster.", *crossover)
                            : std::string("The GPU is not faster at any number of rows.")};
  return result;
}

CalcTopic ExpertPath() {
  return {
      .name = "expert-path",
      .summary = "An expert in host memory: its weights to the GPU, or its rows to the CPU",
      .formula =
          "P_e = 3 h f; W_e = P_e * weight-bytes  [bytes]; m rows an expert\n"
          "T_C(m) = 2 alpha + 2 m h b / B_L + max(2 m P_e / C_C, W_e / B_D)  [s]\n"
          "T_G(m) = alpha + W_e / B_L + max(2 m P_e / C_G, W_e / B_H)  [s]\n"
          "times are of all --experts in sequence; crossover: the fewest whole m with T_G < T_C;\n"
          "balance: m = (W_e / B) C / (2 P_e), C / B for weights of two bytes.\n"
          "Source: section 9.3.2, example 9.3. The AMX kernel: --cpu-compute 21.3TFLOP/s.",
      .inputs = WithExpertShape({{.name = "experts",
                                  .value = "8",
                                  .help = "experts that follow each other",
                                  .limit = CalcLimit::kOneOrMore},
                                 {.name = "rows",
                                  .unit = CalcUnit::kCounts,
                                  .value = "1,128",
                                  .help = "m: rows of each expert; a list",
                                  .limit = CalcLimit::kOneOrMore},
                                 {.name = "cpu-compute",
                                  .unit = CalcUnit::kFlopsPerSecond,
                                  .value = "1.8TFLOP/s",
                                  .help = "C_C: what the CPU's kernel reaches",
                                  .limit = CalcLimit::kPositive},
                                 {.name = "cpu-bandwidth",
                                  .unit = CalcUnit::kBytesPerSecond,
                                  .value = "220GB/s",
                                  .help = "B_D: memory of the same socket",
                                  .limit = CalcLimit::kPositive},
                                 {.name = "remote-bandwidth",
                                  .unit = CalcUnit::kBytesPerSecond,
                                  .value = "125GB/s",
                                  .help = "memory of the other socket",
                                  .limit = CalcLimit::kPositive},
                                 {.name = "gpu-compute",
                                  .unit = CalcUnit::kFlopsPerSecond,
                                  .value = "156TFLOP/s",
                                  .help = "C_G: efficiency included",
                                  .limit = CalcLimit::kPositive},
                                 {.name = "gpu-bandwidth",
                                  .unit = CalcUnit::kBytesPerSecond,
                                  .value = "777.5GB/s",
                                  .help = "B_H: efficiency included",
                                  .limit = CalcLimit::kPositive},
                                 {.name = "link",
                                  .unit = CalcUnit::kBytesPerSecond,
                                  .value = "25GB/s",
                                  .help = "B_L: between host and GPU",
                                  .limit = CalcLimit::kPositive},
                                 {.name = "launch",
                                  .unit = CalcUnit::kSeconds,
                                  .value = "5us",
                                  .help = "alpha: fixed cost of each transfer"}}),
      .run = RunExpertPath};
}

}  // namespace

std::vector<CalcTopic> ExpertPathTopics() {
  return {AfTransfer(), ExpertPath(), ExpertReuseTopic(), ExpertPipelineTopic()};
}

}  // namespace divisi
