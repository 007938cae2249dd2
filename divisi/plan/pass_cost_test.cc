#include "divisi/plan/pass_cost.h"

#include <gtest/gtest.h>

#include "divisi/plan/example_models.h"
#include "divisi/plan/stage.h"

namespace divisi {
namespace {

// Figures of section 9.2.3, Qwen3-8B with 8192 tokens in and 1025 out, batch 32.
TEST(PassCostTest, CountsADenseModelAsTheChapterDoes) {
  const ModelCost model(ExampleQwen3_8B(), {});
  EXPECT_EQ(model.state_per_token.value, 144 << 10);
  EXPECT_DOUBLE_EQ(model.Prefill(Tokens(8192), Tokens(0)).flops.value, 133.591907434496e12);
  const Work step = model.DecodeStep(32, 8704);
  EXPECT_DOUBLE_EQ(step.flops.value, 0.648640724992e12);
  EXPECT_EQ(model.WeightsRead(32).value, 15136194560);
  EXPECT_EQ(step.bytes.value, 15136194560 + 41070624768);
  EXPECT_EQ(model.ResidentWeights().value + 43486543872, 59867398144);
}

TEST(PassCostTest, TimesAreTheLargerOfComputeAndMemory) {
  const ModelCost model(ExampleQwen3_8B(), {});
  const DeviceRates a100{FlopsPerSecond(156e12), BytesPerSecond(1019.5e9)};
  const StageTime prefill = TimeOf(model.Prefill(Tokens(8192), Tokens(0)), a100);
  EXPECT_DOUBLE_EQ(prefill.Total().value, 0.856358380990359);
  EXPECT_EQ(prefill.bound(), Bound::kCompute);
  const StageTime step = TimeOf(model.DecodeStep(32, 8704), a100);
  EXPECT_NEAR(step.Total().value, 55.131750199117214e-3, 1e-12);
  EXPECT_EQ(step.bound(), Bound::kMemory);
}

TEST(PassCostTest, StatesOfMlaInBothForms) {
  const ModelSpec spec = ExampleDeepSeekV3();
  const ModelCost compact(spec, {});
  EXPECT_EQ(compact.state_per_token.value, 70272);
  EXPECT_DOUBLE_EQ(compact.query_flops, 2046820352);
  const ModelCost expanded(spec, {}, StateForm::kExpanded);
  EXPECT_EQ(expanded.state_per_token.value, 61 * 128 * (192 + 128) * 2);
  // 671 billion parameters, 37 of them active: the makers' figures, which leave out the second
  // prediction module.
  EXPECT_NEAR(compact.ResidentWeights().value / 2e9, 671, 1);
  EXPECT_NEAR((compact.ActiveParams() + compact.head_params) / 1e9, 37, 1);
}

TEST(PassCostTest, BatchesMeetMoreExperts) {
  const ModelCost model(ExampleQwen3_235B(), {});
  EXPECT_NEAR(model.ExpectedExperts(64), 125.94234926707806, 1e-9);
  EXPECT_NEAR(model.ExpectedExperts(1), 8, 1e-9);
  EXPECT_EQ(model.expert_params, 18874368);
  EXPECT_NEAR(model.ResidentWeights().value / 2e9, 235, 1);
  EXPECT_NEAR((model.ActiveParams() + model.head_params) / 1e9, 22, 1);
  EXPECT_LT(model.DecodeStep(1, 100).bytes, model.DecodeStep(64, 100).bytes);
}

TEST(PassCostTest, HalfAByteAnElementHalvesWeights) {
  const ModelCost bf16(ExampleQwen3_8B(), {});
  const ModelCost int4(ExampleQwen3_8B(), {.weight_bytes = 0.5, .kv_bytes = 1});
  EXPECT_EQ(4 * int4.ResidentWeights().value, bf16.ResidentWeights().value);
  EXPECT_EQ(2 * int4.state_per_token.value, bf16.state_per_token.value);
}

}  // namespace
}  // namespace divisi
