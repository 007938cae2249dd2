#include "divisi/cli/engine_bench.h"

#include <gtest/gtest.h>

namespace divisi {
namespace {

// Time passes by itself, so that a rate never divides by nothing and depends on no machine.
class TickingClock final : public Clock {
 public:
  Seconds Now() const override { return now_ += Seconds(0.5); }

 private:
  mutable Seconds now_;
};

TEST(EngineBench, CountsBytesAndFlopsOfAStep) {
  ModelSpec spec;
  spec.layers = 3, spec.hidden = 8, spec.heads = 4, spec.kv_heads = 2, spec.head_dim = 2;
  spec.intermediate = 16, spec.vocab = 10;
  const KvLayout layout{.layers = 3, .kv_heads = 2, .head_dim = 2, .type = ComputeType::kBf16};
  // A layer: q and o 8x8 each, k and v 8x4 each, three of 8x16: 576. Head: 80.
  const StepCost decode = CostOfStep(spec, layout, {.batch = 5, .tokens = 1, .context = 9}, 2);
  EXPECT_EQ(decode.bytes, (3 * 576 + 80) * 2 + 5 * 10 * (2 * 4 * 2) * 3);
  EXPECT_EQ(decode.flops, 2 * (3 * 576 + 80) * 5 + 5 * 10 * (4 * 8) * 3);
  // A prefill of 4: rows see 1 + 2 + 3 + 4 positions, and only the last has logits.
  const StepCost prefill = CostOfStep(spec, layout, {.tokens = 4}, 4);
  EXPECT_EQ(prefill.bytes, (3 * 576 + 80) * 4 + 4 * (2 * 4 * 2) * 3);
  EXPECT_EQ(prefill.flops, 2 * (3 * 576 * 4 + 80) + 10 * (4 * 8) * 3);
}

TEST(EngineBench, MeasuresEveryPointOfTheBundledModel) {
  const Checkpoint checkpoint = *Checkpoint::Open(DIVISI_SOURCE_DIR "/models/tiny-qwen3");
  Transformer model = *Transformer::Load(checkpoint, ComputeType::kBf16, 64);
  ThreadPool pool(2);
  const TickingClock clock;
  const EngineBenchOptions options{.prefill_tokens = {5, 33},
                                   .decode_batches = {1, 3},
                                   .context = 20,
                                   .rounds = 1,
                                   .isa = SupportedIsas().back()};
  const auto points = *RunEngineBench(model, pool, clock, options);
  ASSERT_EQ(points.size(), 4u);
  // One tick for kDecodeSteps steps of a decode, and for one prefill.
  EXPECT_DOUBLE_EQ(points[1].tokens_per_second, 3 * kDecodeSteps / 0.5);
  EXPECT_DOUBLE_EQ(points[3].tokens_per_second, 33 / 0.5);
  EXPECT_TRUE(points[3].prefill);
  for (const EngineBenchPoint& point : points) {
    EXPECT_DOUBLE_EQ(point.bandwidth_fraction, point.bytes_per_second / point.read_bandwidth);
    EXPECT_DOUBLE_EQ(point.peak_fraction, point.flops_per_second / point.matrix_peak);
    EXPECT_DOUBLE_EQ(point.roofline_fraction,
                     std::max(point.bandwidth_fraction, point.peak_fraction));
  }
  const Json json = EngineBenchJson(points, options.isa, 2);
  ASSERT_EQ(json.Find("points")->as_array().size(), 4u);
  EXPECT_EQ(json.Find("points")->as_array()[2].Find("kind")->as_string(), "prefill");
  EXPECT_NE(EngineBenchTable(points).find("decode"), std::string::npos);
}

}  // namespace
}  // namespace divisi
