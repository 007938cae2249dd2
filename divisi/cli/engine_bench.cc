#include "divisi/cli/engine_bench.h"

#include <algorithm>
#include <cstring>

#include "divisi/core/format.h"
#include "divisi/core/random.h"

namespace divisi {
namespace {

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

// Sequences with KV of their own. Every byte is written, or reads would hit the system's one page
// of zeros.
struct Sequences {
  KvPages pages;
  std::vector<std::vector<BlockId>> ids;
  std::vector<std::vector<TokenId>> tokens;

  static Result<Sequences> Create(const Transformer& model, int64_t batch, int64_t positions,
                                  int64_t new_tokens) {
    const int64_t each = PagesFor(positions);
    ASSIGN_OR_RETURN(KvPages pages, KvPages::Create(model.kv_layout(), batch * each));
    constexpr int kByte = 0x3c;  // 0x3c3c is 0.0115 in bf16, 0x3c3c3c3c the same in f32.
    std::memset(pages.Head(0, 0, 0), kByte,
                static_cast<size_t>(batch * each * model.kv_layout().PageBytes()));
    Sequences all{std::move(pages), {}, {}};
    Random random(1);
    for (int64_t i = 0; i < batch; ++i) {
      std::vector<BlockId>& ids = all.ids.emplace_back();
      // A page of each in turn, as in a server where sequences grow together.
      for (int64_t j = 0; j < each; ++j) ids.push_back(static_cast<BlockId>(j * batch + i));
      std::vector<TokenId>& tokens = all.tokens.emplace_back();
      for (int64_t j = 0; j < new_tokens; ++j) {
        tokens.push_back(static_cast<TokenId>(random.Between(0, model.spec().vocab - 1)));
      }
    }
    return all;
  }

  std::vector<ForwardSequence> Step(int64_t start) const {
    std::vector<ForwardSequence> step;
    for (size_t i = 0; i < ids.size(); ++i) step.push_back({tokens[i], start, ids[i], 1});
    return step;
  }
};

struct Machine {
  ThreadPool& pool;
  const Clock& clock;
  const ReadBuffer& buffer;
  Isa isa;
  Ops& ops;
  int rounds;
};

struct Peaks {
  double bandwidth = 0, matrix = 0;
};
Peaks MeasurePeaks(const Machine& machine, Seconds least) {
  return {machine.buffer.MeasureBandwidth(machine.isa, machine.pool, machine.clock, least),
          MeasureMatrixPeak(machine.isa, machine.pool, machine.clock, least)};
}

// Measures `steps` runs of `step` as one round, between measurements of the peaks. On a shared
// machine the peak of 20 ms says little of the seconds beside it: each takes a tenth of a round.
template <typename Fn>
EngineBenchPoint MeasurePoint(const Machine& machine, int64_t steps, StepCost cost, Fn step) {
  std::vector<double> seconds, bandwidth, matrix, of_bandwidth, of_peak, of_roofline;
  const Seconds warm_start = machine.clock.Now();
  step(0);
  const Seconds warm = machine.clock.Now() - warm_start;
  const Seconds least(std::max(0.02, 0.1 * warm.value * static_cast<double>(steps)));
  Peaks after = MeasurePeaks(machine, least);
  for (int round = 0; round < machine.rounds; ++round) {
    const Peaks before = after;
    const Seconds start = machine.clock.Now();
    for (int64_t i = 0; i < steps; ++i) step(i);
    const double elapsed = (machine.clock.Now() - start).value / static_cast<double>(steps);
    after = MeasurePeaks(machine, least);
    seconds.push_back(elapsed);
    bandwidth.push_back((before.bandwidth + after.bandwidth) / 2);
    matrix.push_back((before.matrix + after.matrix) / 2);
    const double memory_time = cost.bytes / bandwidth.back();
    const double compute_time = cost.flops / matrix.back();
    of_bandwidth.push_back(memory_time / elapsed);
    of_peak.push_back(compute_time / elapsed);
    of_roofline.push_back(std::max(memory_time, compute_time) / elapsed);
  }
  EngineBenchPoint point;
  point.seconds = Median(seconds);
  point.bytes_per_second = cost.bytes / point.seconds;
  point.flops_per_second = cost.flops / point.seconds;
  point.read_bandwidth = Median(bandwidth);
  point.matrix_peak = Median(matrix);
  point.bandwidth_fraction = Median(of_bandwidth);
  point.peak_fraction = Median(of_peak);
  point.roofline_fraction = Median(of_roofline);
  return point;
}

Result<EngineBenchPoint> MeasureStep(Transformer& model, const Machine& machine, bool prefill,
                                     const StepShape& shape) {
  const auto [batch, tokens, context] = shape;
  const int64_t steps = prefill ? 1 : kDecodeSteps;
  ASSIGN_OR_RETURN(Sequences sequences,
                   Sequences::Create(model, batch, context + tokens + steps, tokens));
  const int64_t element = ElementBytes(model.spec().stored_type);
  const StepCost cost = CostOfStep(model.spec(), model.kv_layout(), shape, element);
  EngineBenchPoint point = MeasurePoint(machine, steps, cost, [&](int64_t i) {
    (void)model.Forward(sequences.Step(shape.context + i), sequences.pages, machine.ops);
  });
  point.tokens_per_second = static_cast<double>(batch * tokens) / point.seconds;
  point.prefill = prefill;
  point.batch = batch;
  point.tokens = tokens;
  point.context = context;
  return point;
}

}  // namespace

StepCost CostOfStep(const ModelSpec& spec, const KvLayout& layout, const StepShape& shape,
                    int64_t weight_element_bytes) {
  const auto [batch, tokens, context] = shape;
  const double hidden = spec.hidden;
  const double q = static_cast<double>(spec.heads) * spec.head_dim;
  const double kv = static_cast<double>(spec.kv_heads) * spec.head_dim;
  const double layer = hidden * (2 * q + 2 * kv + 3.0 * spec.intermediate);
  const double head = hidden * spec.vocab;
  const double rows = static_cast<double>(batch * tokens);
  // Row i of a sequence attends to context + i + 1 positions, with q k and p v for each.
  const double positions =
      rows * (static_cast<double>(context) + static_cast<double>(tokens + 1) / 2);
  const double kv_bytes = 2 * kv * static_cast<double>(layout.ElementSize()) * spec.layers;
  StepCost cost;
  cost.bytes = (spec.layers * layer + head) * static_cast<double>(weight_element_bytes) +
               kv_bytes * static_cast<double>(batch * (context + tokens));
  cost.flops = 2 * (spec.layers * layer * rows + head * static_cast<double>(batch)) +
               4 * q * positions * spec.layers;
  return cost;
}

Result<std::vector<EngineBenchPoint>> RunEngineBench(Transformer& model, ThreadPool& pool,
                                                     const Clock& clock,
                                                     const EngineBenchOptions& options) {
  ASSIGN_OR_RETURN(const ReadBuffer buffer, ReadBuffer::Create());
  Ops ops(options.isa, pool);
  const Machine machine{pool, clock, buffer, options.isa, ops, options.rounds};
  std::vector<EngineBenchPoint> points;
  const auto measure = [&](bool prefill, const StepShape& shape) -> Result<void> {
    if (options.progress) {
      options.progress(
          prefill ? Format("prefill of {} tokens", shape.tokens)
                  : Format("decode of {} sequences, context {}", shape.batch, shape.context));
    }
    ASSIGN_OR_RETURN(EngineBenchPoint point, MeasureStep(model, machine, prefill, shape));
    points.push_back(point);
    return {};
  };
  for (const int64_t batch : options.decode_batches) {
    RETURN_IF_ERROR(measure(false, {.batch = batch, .context = options.context}));
  }
  for (const int64_t tokens : options.prefill_tokens) {
    RETURN_IF_ERROR(measure(true, {.tokens = tokens}));
  }
  return points;
}

Json EngineBenchJson(const std::vector<EngineBenchPoint>& points, Isa isa, int threads) {
  Json out = Json::MakeObject();
  out.Set("isa", IsaName(isa));
  out.Set("threads", threads);
  Json list = Json::MakeArray();
  for (const EngineBenchPoint& point : points) {
    Json item = Json::MakeObject();
    item.Set("kind", point.prefill ? "prefill" : "decode");
    item.Set("batch", point.batch);
    item.Set("tokens", point.tokens);
    item.Set("context", point.context);
    item.Set("seconds", point.seconds);
    item.Set("tokens_per_second", point.tokens_per_second);
    item.Set("bytes_per_second", point.bytes_per_second);
    item.Set("flops_per_second", point.flops_per_second);
    item.Set("read_bandwidth_bytes_per_second", point.read_bandwidth);
    item.Set("matrix_peak_flops_per_second", point.matrix_peak);
    item.Set("bandwidth_fraction", point.bandwidth_fraction);
    item.Set("peak_fraction", point.peak_fraction);
    item.Set("roofline_fraction", point.roofline_fraction);
    list.Append(std::move(item));
  }
  out.Set("points", std::move(list));
  return out;
}

std::string EngineBenchTable(const std::vector<EngineBenchPoint>& points) {
  std::string table =
      "step     batch  tokens  context       time   tokens/s    GB/s (of machine)    GFLOP/s (of "
      "machine)  of roofline\n";
  for (const EngineBenchPoint& p : points) {
    table += Format(
        "{:<8} {:>5}  {:>6}  {:>7}  {:>9}  {:>9.1f}  {:>6.1f} of {:>5.1f} {:>4.0f}%  {:>7.1f} of "
        "{:>6.1f} {:>4.0f}%  {:>9.0f}%\n",
        p.prefill ? "prefill" : "decode", p.batch, p.tokens, p.context,
        HumanSeconds(Seconds(p.seconds)), p.tokens_per_second, p.bytes_per_second / 1e9,
        p.read_bandwidth / 1e9, 100 * p.bandwidth_fraction, p.flops_per_second / 1e9,
        p.matrix_peak / 1e9, 100 * p.peak_fraction, 100 * p.roofline_fraction);
  }
  return table;
}

}  // namespace divisi
