// Families with experts and latent attention: model_spec.h by their configs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "divisi/catalog/model_spec.h"
#include "divisi/core/file.h"

namespace divisi {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

Json ConfigOf(const std::string& model) {
  const auto text = ReadFile(DIVISI_SOURCE_DIR "/models/" + model + "/config.json", 1 << 20);
  return Json::Parse(text.value()).value();
}

Result<ModelSpec> ParseChanged(const std::string& model, std::string_view field,
                               std::string_view value) {
  Json config = ConfigOf(model);
  if (value.empty()) {
    std::erase_if(config.as_object(), [&](const Json::Member& m) { return m.first == field; });
  } else {
    config.Set(field, Json::Parse(value).value());
  }
  return ParseModelSpec(config);
}

constexpr const char* kQwen = "tiny-qwen3-moe";
constexpr const char* kDeepSeek = "tiny-deepseek-v3";

TEST(ExpertConfigTest, ReadsQwen3Moe) {
  const ModelSpec spec = ParseModelSpec(ConfigOf(kQwen)).value();
  EXPECT_EQ(spec.family, "qwen3_moe");
  EXPECT_TRUE(spec.qk_norm);
  EXPECT_FALSE(spec.mla.has_value());
  ASSERT_TRUE(spec.moe.has_value());
  EXPECT_EQ(spec.moe->experts, 16);
  EXPECT_EQ(spec.moe->experts_per_token, 4);
  EXPECT_EQ(spec.moe->expert_intermediate, 64);
  EXPECT_EQ(spec.moe->shared_intermediate, 0);
  EXPECT_EQ(spec.moe->layers, 4);
  EXPECT_THAT(spec.moe->dense_layers, IsEmpty());
  EXPECT_FALSE(spec.moe->selection_bias);
  EXPECT_EQ(spec.Parameters(), 2'041'216);  // models/README.md
  // 12 of 16 experts of 3 * 128 * 64 stay idle in each of 4 layers.
  EXPECT_EQ(spec.ActiveParameters(), 2'041'216 - 4 * 12 * 3 * 128 * 64);
  EXPECT_EQ(spec.KvBytesPerToken(DataType::kBf16), Bytes(2 * 4 * 2 * 32 * 2));
}

TEST(ExpertConfigTest, ReadsDeepSeekV3) {
  const ModelSpec spec = ParseModelSpec(ConfigOf(kDeepSeek)).value();
  EXPECT_EQ(spec.family, "deepseek_v3");
  ASSERT_TRUE(spec.mla.has_value());
  EXPECT_EQ(spec.mla->query_rank, 64);
  EXPECT_EQ(spec.mla->latent_dim, 64);
  EXPECT_EQ(spec.mla->rope_dim, 16);
  EXPECT_EQ(spec.mla->nope_dim, 32);
  EXPECT_EQ(spec.mla->value_dim, 32);
  EXPECT_EQ(spec.head_dim, 48);
  ASSERT_TRUE(spec.moe.has_value());
  EXPECT_EQ(spec.moe->experts, 16);
  EXPECT_EQ(spec.moe->shared_intermediate, 32);
  EXPECT_EQ(spec.moe->layers, 4);
  EXPECT_THAT(spec.moe->dense_layers, ElementsAre(0));
  EXPECT_TRUE(spec.moe->selection_bias);
  EXPECT_EQ(spec.Parameters(), 1'835'008 + 4 * 16);  // models/README.md, and the biases
  EXPECT_EQ(spec.KvBytesPerToken(DataType::kBf16), Bytes(5 * (64 + 16) * 2));
}

TEST(ExpertConfigTest, LayerPatternsOfQwen) {
  const ModelSpec listed = ParseChanged(kQwen, "mlp_only_layers", "[0, 2]").value();
  EXPECT_THAT(listed.moe->dense_layers, ElementsAre(0, 2));
  EXPECT_EQ(listed.moe->layers, 2);
  const ModelSpec every_other = ParseChanged(kQwen, "decoder_sparse_step", "2").value();
  EXPECT_THAT(every_other.moe->dense_layers, ElementsAre(0, 2));
  EXPECT_EQ(ParseChanged(kDeepSeek, "first_k_dense_replace", "0")->moe->layers, 5);
}

TEST(ExpertConfigTest, QueriesMayBeProjectedDirectly) {
  const int64_t ranked = ParseModelSpec(ConfigOf(kDeepSeek))->Parameters();
  const ModelSpec direct = ParseChanged(kDeepSeek, "q_lora_rank", "null").value();
  EXPECT_EQ(direct.mla->query_rank, 0);
  // 128 -> 64 with its norm -> 4 * 48, against 128 -> 4 * 48, in 5 layers.
  EXPECT_EQ(ranked - direct.Parameters(), 5 * ((128 * 64 + 64 + 64 * 192) - 128 * 192));
}

TEST(ExpertConfigTest, SharedExpertsMakeOneMlp) {
  EXPECT_EQ(ParseChanged(kDeepSeek, "n_shared_experts", "2")->moe->shared_intermediate, 64);
  EXPECT_EQ(ParseChanged(kDeepSeek, "n_shared_experts", "null")->moe->shared_intermediate, 0);
}

TEST(ExpertConfigTest, OnlyNoAuxSelectionHasABias) {
  EXPECT_FALSE(ParseChanged(kDeepSeek, "topk_method", "\"greedy\"")->moe->selection_bias);
  EXPECT_TRUE(ParseChanged(kDeepSeek, "model_type", "\"kimi_k2\"")->moe->selection_bias);
}

TEST(ExpertConfigTest, ReadsQuantisation) {
  EXPECT_FALSE(ParseModelSpec(ConfigOf(kDeepSeek))->quantised.has_value());
  const auto fp8 = ParseChanged(kDeepSeek, "quantization_config",
                                R"({"quant_method": "fp8", "weight_block_size": [128, 128]})");
  EXPECT_EQ(fp8->quantised->type, "fp8");
  EXPECT_EQ(fp8->quantised->bytes, 1);
  const auto int4 = ParseChanged(kDeepSeek, "quantization_config",
                                 R"({"quant_method": "compressed-tensors", "config_groups":
                                    {"group_0": {"weights": {"num_bits": 4, "type": "int"}}}})");
  EXPECT_EQ(int4->quantised->type, "int4");
  EXPECT_EQ(int4->quantised->bytes, 0.5);
}

TEST(ExpertConfigTest, BoundsExpertsAndParameters) {
  Json config = ConfigOf(kQwen);
  config.Set("num_hidden_layers", 4096);
  config.Set("num_experts", 64);
  ASSERT_TRUE(ParseModelSpec(config).ok());
  config.Set("num_experts", 65);
  EXPECT_THAT(ParseModelSpec(config).error().message, HasSubstr("at most 262144"));
  config.Set("num_experts", 64);
  config.Set("hidden_size", 1 << 20);
  config.Set("moe_intermediate_size", 1 << 22);
  EXPECT_THAT(ParseModelSpec(config).error().message, HasSubstr("at most 262144"));
}

TEST(ExpertConfigTest, MixtralAttendsToItsWholePast) {
  Json config = ConfigOf(kQwen);
  config.Set("model_type", "mixtral");
  config.Set("num_local_experts", 8);
  const ModelSpec spec = ParseModelSpec(config).value();
  EXPECT_EQ(spec.moe->expert_intermediate, spec.intermediate);
  EXPECT_EQ(spec.moe->layers, spec.layers);
  EXPECT_FALSE(spec.qk_norm);
  config.Set("sliding_window", 4096);
  EXPECT_EQ(ParseModelSpec(config).error().code, Code::kUnimplemented);
}

struct Refusal {
  const char* model;
  const char* field;
  const char* value;  // JSON; empty: absent
  Code code;
  const char* message_has;
};
class ExpertRefusalTest : public testing::TestWithParam<Refusal> {};

TEST_P(ExpertRefusalTest, NamesTheField) {
  const Refusal& refusal = GetParam();
  const auto spec = ParseChanged(refusal.model, refusal.field, refusal.value);
  ASSERT_FALSE(spec.ok()) << refusal.field << " = " << refusal.value;
  EXPECT_EQ(CodeName(spec.error().code), std::string(CodeName(refusal.code)));
  EXPECT_THAT(spec.error().message,
              AllOf(HasSubstr(refusal.field), HasSubstr(refusal.message_has)));
}

constexpr Code kInvalid = Code::kInvalidArgument;
constexpr Code kLacking = Code::kUnimplemented;
INSTANTIATE_TEST_SUITE_P(
    All, ExpertRefusalTest,
    testing::Values(Refusal{kQwen, "num_experts_per_tok", "17", kInvalid, "outside 1 to 16"},
                    Refusal{kQwen, "num_experts_per_tok", "", kInvalid, "missing"},
                    Refusal{kQwen, "moe_intermediate_size", "", kInvalid, "missing"},
                    Refusal{kQwen, "mlp_only_layers", "[4]", kInvalid, "from 0 to 3"},
                    Refusal{kQwen, "mlp_only_layers", "3", kInvalid, "a list"},
                    Refusal{kQwen, "decoder_sparse_step", "0", kInvalid, "outside"},
                    Refusal{kDeepSeek, "n_routed_experts", "0", kInvalid, "outside"},
                    Refusal{kDeepSeek, "kv_lora_rank", "", kInvalid, "missing"},
                    Refusal{kDeepSeek, "qk_rope_head_dim", "15", kInvalid, "even"},
                    Refusal{kDeepSeek, "first_k_dense_replace", "6", kInvalid, "outside"},
                    Refusal{kDeepSeek, "moe_layer_freq", "2", kLacking, "1 is"},
                    Refusal{kDeepSeek, "attention_bias", "true", kLacking, "false is"},
                    Refusal{kDeepSeek, "quantization_config",
                            R"({"quant_method": "gptq", "bits": 4})", kLacking,
                            "fp8 or compressed-tensors"},
                    Refusal{kDeepSeek, "quantization_config",
                            R"({"quant_method": "compressed-tensors"})", kInvalid, "group_0"}));

}  // namespace
}  // namespace divisi
