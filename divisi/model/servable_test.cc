#include "divisi/model/servable.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "divisi/model/transformer_weights.h"

namespace divisi {
namespace {

using testing::AllOf;
using testing::HasSubstr;

Checkpoint Open(const std::string& model) {
  return Checkpoint::Open(DIVISI_SOURCE_DIR "/models/" + model).value();
}

TEST(ServableTest, TakesDenseModels) { EXPECT_TRUE(CheckServable(Open("tiny-qwen3").spec()).ok()); }

TEST(ServableTest, RefusesWhatTheTransformerLacksAndSaysWhatItHas) {
  for (const char* model : {"tiny-qwen3-moe", "tiny-deepseek-v3"}) {
    const auto loaded = LoadTransformerWeights(Open(model), ComputeType::kBf16);
    ASSERT_FALSE(loaded.ok()) << model;
    EXPECT_EQ(loaded.error().code, Code::kUnimplemented);
    EXPECT_THAT(loaded.error().message,
                AllOf(HasSubstr("not served yet"), HasSubstr("served are qwen3")));
  }
}

TEST(ServableTest, RefusesQuantisedWeights) {
  ModelSpec spec = Open("tiny-qwen3").spec();
  spec.quantised = QuantisedWeights{.type = "fp8"};
  const auto servable = CheckServable(spec);
  ASSERT_FALSE(servable.ok());
  EXPECT_EQ(servable.error().code, Code::kUnimplemented);
  EXPECT_THAT(servable.error().message, HasSubstr("quantised weights (fp8)"));
}

}  // namespace
}  // namespace divisi
