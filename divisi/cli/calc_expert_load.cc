// The calculators of section 9.4: load of the cards that hold experts.
#include <cmath>
#include <numeric>

#include "divisi/cli/calc.h"
#include "divisi/cli/calc_expert_inputs.h"
#include "divisi/cli/calc_expert_replicas.h"
#include "divisi/core/format.h"
#include "divisi/plan/checks.h"
#include "divisi/plan/expert_exchange.h"
#include "divisi/plan/expert_load.h"

namespace divisi {
namespace {

// One card with all of the batch's rows against as many on each.
std::vector<CalcFigure> CardFigures(const ExpertShape& shape, const CalcValues& values) {
  const FlopsPerSecond compute = values.GetFlopsPerSecond("compute");
  const double rows = values.Count("assignments");
  const double cards = values.Count("cards");
  return {FigureOf("even_card", shape.Compute(rows / cards) / compute,
                   "A card's computing, rows spread evenly"),
          FigureOf("hot_card", shape.Compute(rows) / compute, "The same, all rows on one card")};
}

Result<CalcTable> GroupSizes(const ExpertShape& shape, const CalcValues& values) {
  const RoutedBatch batch{.tokens = WholeCount(values, "tokens"),
                          .experts_per_token = WholeCount(values, "experts-per-token"),
                          .experts = WholeCount(values, "experts")};
  const std::vector<int64_t> sizes = WholeCounts(values, "ep");
  ASSIGN_OR_RETURN(
      const std::vector<double> random,
      RandomBusiestRatios(batch, sizes,
                          {.batches = WholeCount(values, "batches"),
                           .seed = static_cast<uint64_t>(WholeCount(values, "seed"))}));
  CalcTable table{.key = "ep",
                  .title = "The busiest card by size of the group",
                  .columns = {{"rows", 0, CalcUnit::kCount, "One hot expert: rows"},
                              {"mean_rows", 0, CalcUnit::kCount, "Mean rows"},
                              {"ratio", 0, CalcUnit::kCount, "Ratio"},
                              {"receive", 0, CalcUnit::kSeconds, "Receiving them"},
                              {"mean_receive", 0, CalcUnit::kSeconds, "Mean receiving"},
                              {"random_ratio", 0, CalcUnit::kCount, "Ratio, random choice"}}};
  const BytesPerSecond card = values.GetBytesPerSecond("card-bandwidth");
  for (size_t i = 0; i < sizes.size(); ++i) {
    ASSIGN_OR_RETURN(const CardRows rows, HotCardRows(batch, values.Count("hot-rows"), sizes[i]));
    table.row_names.push_back(Format("{}", sizes[i]));
    table.rows.push_back({rows.busiest, rows.mean, rows.Ratio(),
                          (shape.Rows(rows.busiest) / card).value,
                          (shape.Rows(rows.mean) / card).value, random[i]});
  }
  return table;
}

// One line of example 9.5's table.
struct ExchangeCase {
  const char* name;
  bool hot;
  BytesPerSecond card;
  BytesPerSecond cut;
  double dispatch_bytes;  // Of an element.
};

class ExchangeTable {
 public:
  ExchangeTable(const ExpertShape& shape, const CalcValues& values)
      : shape_(shape),
        rows_(values.Counts("group-rows")),
        sources_(static_cast<int>(values.Count("sources"))),
        work_{.rates = {values.GetFlopsPerSecond("compute"), values.GetBytesPerSecond("memory")},
              .row_flops = shape.Compute(1),
              .weights = values.GetBytes("weights-read")} {}

  Result<void> Add(const ExchangeCase& wanted) {
    std::vector<double> rows = rows_;
    if (!wanted.hot) rows.assign(rows.size(), Mean());
    ExpertExchange exchange = EvenSources(rows, sources_, shape_.Rows(1));
    exchange.dispatch_bytes = Bytes(std::llround(shape_.hidden * wanted.dispatch_bytes));
    const ExchangeNetwork network =
        UniformNetwork(static_cast<size_t>(sources_), rows.size(), wanted.card, wanted.cut);
    ASSIGN_OR_RETURN(const ExpertLayerBounds bounds, BoundExpertLayer(exchange, network, work_));
    table_.row_names.push_back(wanted.name);
    table_.rows.push_back({exchange.Skew(), bounds.dispatch.value, bounds.compute.value,
                           bounds.combine.value, bounds.Serial().value});
    return {};
  }

  const CalcTable& table() const { return table_; }

 private:
  double Mean() const {
    return std::accumulate(rows_.begin(), rows_.end(), 0.0) / static_cast<double>(rows_.size());
  }

  ExpertShape shape_;
  std::vector<double> rows_;
  int sources_;
  ExpertGroupWork work_;
  CalcTable table_{.key = "exchange",
                   .title = "Lower bounds of a layer, with a barrier between its steps",
                   .columns = {{"skew", 0, CalcUnit::kCount, "Skew"},
                               {"dispatch", 0, CalcUnit::kSeconds, "Dispatch"},
                               {"compute", 0, CalcUnit::kSeconds, "Compute"},
                               {"combine", 0, CalcUnit::kSeconds, "Combine"},
                               {"total", 0, CalcUnit::kSeconds, "Total"}}};
};

Result<CalcTable> Exchanges(const ExpertShape& shape, const CalcValues& values) {
  constexpr double kMostCards = 4096;  // The matrix has an entry for each pair.
  RETURN_IF_ERROR(RequireBetween({"--sources", values.Count("sources")}, 1, kMostCards));
  RETURN_IF_ERROR(RequireBetween({"--narrow-bytes", values.Count("narrow-bytes")}, 1.0 / 16, 8));
  const auto groups = static_cast<double>(values.Counts("group-rows").size());
  RETURN_IF_ERROR(RequireBetween({"the number of --group-rows", groups}, 1, kMostCards));
  const BytesPerSecond card = values.GetBytesPerSecond("card-bandwidth");
  const BytesPerSecond cut = values.GetBytesPerSecond("cut-bandwidth");
  const BytesPerSecond one = values.GetBytesPerSecond("one-link-bandwidth");
  const BytesPerSecond nvlink = values.GetBytesPerSecond("nvlink-bandwidth");
  const double wide = shape.activation_bytes;
  ExchangeTable table(shape, values);
  const BytesPerSecond all_nvlink = nvlink * values.Count("sources");
  for (const ExchangeCase& wanted :
       {ExchangeCase{"even", false, card, cut, wide}, ExchangeCase{"hot", true, card, cut, wide},
        ExchangeCase{"even, one link", false, card, one, wide},
        ExchangeCase{"hot, narrow dispatch", true, card, cut, values.Count("narrow-bytes")},
        ExchangeCase{"hot, NVLink", true, nvlink, all_nvlink, wide}}) {
    RETURN_IF_ERROR(table.Add(wanted));
  }
  return table.table();
}

Result<CalcResult> RunExpertSkew(const CalcValues& values) {
  const ExpertShape shape = ExpertShapeOf(values);
  RETURN_IF_ERROR(CheckShape(shape));
  CalcResult result;
  result.figures = CardFigures(shape, values);
  ASSIGN_OR_RETURN(CalcTable sizes, GroupSizes(shape, values));
  ASSIGN_OR_RETURN(CalcTable exchanges, Exchanges(shape, values));
  result.tables = {std::move(sizes), std::move(exchanges)};
  return result;
}

std::vector<CalcInput> LoadInputs() {
  return {
      {.name = "assignments",
       .value = "512",
       .help = "rows of a layer over --cards",
       .limit = CalcLimit::kOneOrMore},
      {.name = "cards",
       .value = "8",
       .help = "cards that share them",
       .limit = CalcLimit::kOneOrMore},
      {.name = "tokens",
       .value = "1024",
       .help = "n: of the batch in the EP table",
       .limit = CalcLimit::kOneOrMore},
      {.name = "experts-per-token", .value = "8", .help = "k", .limit = CalcLimit::kOneOrMore},
      {.name = "experts", .value = "256", .help = "E", .limit = CalcLimit::kOneOrMore},
      {.name = "hot-rows", .value = "128", .help = "rows of the hot expert"},
      {.name = "ep",
       .unit = CalcUnit::kCounts,
       .value = "8,32,256",
       .help = "EP: cards that share the experts; a list",
       .limit = CalcLimit::kOneOrMore},
      {.name = "batches",
       .value = "1000",
       .help = "batches of random choice",
       .limit = CalcLimit::kOneOrMore},
      {.name = "seed", .value = "2", .help = "of the random choice", .limit = CalcLimit::kWhole}};
}

std::vector<CalcInput> ExchangeInputs() {
  return {{.name = "group-rows",
           .unit = CalcUnit::kCounts,
           .value = "5120,1024,1024,1024",
           .help = "m_j: rows of each group of experts when hot"},
          {.name = "sources",
           .value = "4",
           .help = "cards of attention; each sends as many rows",
           .limit = CalcLimit::kOneOrMore},
          {.name = "card-bandwidth",
           .unit = CalcUnit::kBytesPerSecond,
           .value = "50GB/s",
           .help = "of each card and direction",
           .limit = CalcLimit::kPositive},
          {.name = "cut-bandwidth",
           .unit = CalcUnit::kBytesPerSecond,
           .value = "200GB/s",
           .help = "between the pools, each direction",
           .limit = CalcLimit::kPositive},
          {.name = "one-link-bandwidth",
           .unit = CalcUnit::kBytesPerSecond,
           .value = "400Gbit/s",
           .help = "the cut where one link is left",
           .limit = CalcLimit::kPositive},
          {.name = "nvlink-bandwidth",
           .unit = CalcUnit::kBytesPerSecond,
           .value = "450GB/s",
           .help = "of each card and direction inside a server",
           .limit = CalcLimit::kPositive},
          {.name = "narrow-bytes",
           .value = "1",
           .help = "element of a narrow dispatch (FP8)",
           .limit = CalcLimit::kPositive},
          {.name = "compute",
           .unit = CalcUnit::kFlopsPerSecond,
           .value = "494.7TFLOP/s",
           .help = "C: of each card",
           .limit = CalcLimit::kPositive},
          {.name = "memory",
           .unit = CalcUnit::kBytesPerSecond,
           .value = "1675GB/s",
           .help = "of each card, for --weights-read",
           .limit = CalcLimit::kPositive},
          {.name = "weights-read",
           .unit = CalcUnit::kBytes,
           .value = "0B",
           .help = "W: weights that a group reads; 0 leaves reading out"}};
}

CalcTopic ExpertSkew() {
  std::vector<CalcInput> inputs = LoadInputs();
  for (CalcInput& input : ExchangeInputs()) inputs.push_back(std::move(input));
  return {
      .name = "expert-skew",
      .summary = "The busiest card: by group size, by random choice, and what it delays",
      .formula =
          "card with the hot expert: hot + (E / EP - 1) (n k - hot) / (E - 1) rows\n"
          "random choice: mean over batches of the busiest card's rows to the mean, by seed\n"
          "V_ij = a_ij * row bytes from source i to group j, m_j = sum_i a_ij,\n"
          "skew = max m_j / (n k / R)\n"
          "T_X >= max(sent_i / B_send, received_j / B_receive, V_cut / B_cut)  [s], X = dispatch,\n"
          "combine; compute = max_j max(m_j 2 P_e / C, W / memory); total = their sum\n"
          "Payload only: no launches, queues or padding.\n"
          "Source: section 9.4.1, equations of V_ij and T_X, example 9.5.",
      .inputs = WithExpertShape(std::move(inputs)),
      .run = RunExpertSkew};
}

}  // namespace

std::vector<CalcTopic> ExpertLoadTopics() {
  return {ExpertSkew(), ExpertReplicasTopic(), GroupedGemmPaddingTopic()};
}

}  // namespace divisi
