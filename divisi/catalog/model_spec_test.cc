#include "divisi/catalog/model_spec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "divisi/core/file.h"

namespace divisi {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

// The facts below are those of the published models of these names.
constexpr std::string_view kQwen3Config = R"({
  "architectures": ["Qwen3ForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
  "bos_token_id": 151643, "eos_token_id": 151645, "head_dim": 128, "hidden_act": "silu",
  "hidden_size": 1024, "initializer_range": 0.02, "intermediate_size": 3072,
  "max_position_embeddings": 40960, "max_window_layers": 28, "model_type": "qwen3",
  "num_attention_heads": 16, "num_hidden_layers": 28, "num_key_value_heads": 8,
  "rms_norm_eps": 1e-06, "rope_scaling": null, "rope_theta": 1000000, "sliding_window": null,
  "tie_word_embeddings": true, "torch_dtype": "bfloat16", "transformers_version": "4.51.0",
  "use_cache": true, "use_sliding_window": false, "vocab_size": 151936})";

constexpr std::string_view kQwen2Config = R"({
  "architectures": ["Qwen2ForCausalLM"], "attention_dropout": 0.0, "bos_token_id": 151643,
  "eos_token_id": 151645, "hidden_act": "silu", "hidden_size": 896, "initializer_range": 0.02,
  "intermediate_size": 4864, "max_position_embeddings": 32768, "max_window_layers": 21,
  "model_type": "qwen2", "num_attention_heads": 14, "num_hidden_layers": 24,
  "num_key_value_heads": 2, "rms_norm_eps": 1e-06, "rope_theta": 1000000.0,
  "sliding_window": 32768, "tie_word_embeddings": true, "torch_dtype": "bfloat16",
  "use_cache": true, "use_sliding_window": false, "vocab_size": 151936})";

constexpr std::string_view kLlamaConfig = R"({
  "architectures": ["LlamaForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
  "bos_token_id": 128000, "eos_token_id": [128001, 128008, 128009], "head_dim": 64,
  "hidden_act": "silu", "hidden_size": 2048, "initializer_range": 0.02, "intermediate_size": 8192,
  "max_position_embeddings": 131072, "mlp_bias": false, "model_type": "llama",
  "num_attention_heads": 32, "num_hidden_layers": 16, "num_key_value_heads": 8,
  "pretraining_tp": 1, "rms_norm_eps": 1e-05,
  "rope_scaling": {"factor": 32.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0,
                   "original_max_position_embeddings": 8192, "rope_type": "llama3"},
  "rope_theta": 500000.0, "tie_word_embeddings": true, "torch_dtype": "bfloat16",
  "use_cache": true, "vocab_size": 128256})";

Result<ModelSpec> Parse(std::string_view text) { return ParseModelSpec(Json::Parse(text).value()); }

// The config with one member set to the value of a JSON text; removed where the text is empty.
Result<ModelSpec> ParseChanged(std::string_view config, std::string_view field,
                               std::string_view value) {
  Json json = Json::Parse(config).value();
  if (value.empty()) {
    std::erase_if(json.as_object(), [&](const Json::Member& m) { return m.first == field; });
  } else {
    json.Set(field, Json::Parse(value).value());
  }
  return ParseModelSpec(json);
}

TEST(ModelSpecTest, ReadsQwen3) {
  const ModelSpec spec = Parse(kQwen3Config).value();
  EXPECT_EQ(spec.family, "qwen3");
  EXPECT_EQ(spec.architecture, "Qwen3ForCausalLM");
  EXPECT_EQ(spec.layers, 28);
  EXPECT_EQ(spec.hidden, 1024);
  EXPECT_EQ(spec.heads, 16);
  EXPECT_EQ(spec.kv_heads, 8);
  EXPECT_EQ(spec.head_dim, 128);
  EXPECT_EQ(spec.intermediate, 3072);
  EXPECT_EQ(spec.vocab, 151936);
  EXPECT_EQ(spec.max_positions, 40960);
  EXPECT_EQ(spec.norm_eps, 1e-6);
  EXPECT_EQ(spec.rope_theta, 1e6);
  EXPECT_EQ(spec.rope_scaling.kind, RopeScaling::Kind::kNone);
  EXPECT_TRUE(spec.tie_embeddings);
  EXPECT_TRUE(spec.qk_norm);
  EXPECT_FALSE(spec.qkv_bias || spec.output_bias || spec.mlp_bias);
  EXPECT_EQ(spec.stored_type, DataType::kBf16);
  EXPECT_THAT(spec.eos_token_ids, ElementsAre(151645));
  EXPECT_EQ(spec.bos_token_id, 151643);
  EXPECT_EQ(spec.Parameters(), 596'049'920);
  // 2 * 28 layers * 8 heads * 128 = 57,344 numbers.
  EXPECT_EQ(spec.KvBytesPerToken(DataType::kBf16), Bytes(114'688));
  EXPECT_EQ(spec.KvBytesPerToken(DataType::kF32), Bytes(229'376));
}

TEST(ModelSpecTest, ReadsQwen2WithBiasesItDoesNotName) {
  const ModelSpec spec = Parse(kQwen2Config).value();
  EXPECT_EQ(spec.head_dim, 64);  // 896 / 14
  EXPECT_TRUE(spec.qkv_bias);
  EXPECT_FALSE(spec.output_bias || spec.mlp_bias || spec.qk_norm);
  EXPECT_TRUE(spec.tie_embeddings);
  EXPECT_EQ(spec.Parameters(), 494'032'768);
}

TEST(ModelSpecTest, ReadsLlama3) {
  const ModelSpec spec = Parse(kLlamaConfig).value();
  EXPECT_EQ(spec.rope_theta, 5e5);
  EXPECT_EQ(spec.norm_eps, 1e-5);
  EXPECT_EQ(spec.rope_scaling.kind, RopeScaling::Kind::kLlama3);
  EXPECT_EQ(spec.rope_scaling.factor, 32);
  EXPECT_EQ(spec.rope_scaling.low_freq_factor, 1);
  EXPECT_EQ(spec.rope_scaling.high_freq_factor, 4);
  EXPECT_EQ(spec.rope_scaling.original_max_positions, 8192);
  EXPECT_THAT(spec.eos_token_ids, ElementsAre(128001, 128008, 128009));
  EXPECT_FALSE(spec.qkv_bias || spec.output_bias || spec.mlp_bias || spec.qk_norm);
  EXPECT_EQ(spec.Parameters(), 1'235'814'400);
}

TEST(ModelSpecTest, ReadsTheBundledModel) {
  const std::string text =
      ReadFile(DIVISI_SOURCE_DIR "/models/tiny-qwen3/config.json", 1 << 20).value();
  const ModelSpec spec = Parse(text).value();
  EXPECT_EQ(spec.Parameters(), 1'443'840);  // models/README.md
  EXPECT_EQ(spec.rope_theta, 10000);
}

TEST(ModelSpecTest, CountsBiasesAndUntiedHead) {
  const int64_t plain = Parse(kLlamaConfig)->Parameters();
  EXPECT_EQ(ParseChanged(kLlamaConfig, "tie_word_embeddings", "false")->Parameters() - plain,
            int64_t{128256} * 2048);
  const ModelSpec attention = ParseChanged(kLlamaConfig, "attention_bias", "true").value();
  EXPECT_TRUE(attention.qkv_bias && attention.output_bias);
  EXPECT_EQ(attention.Parameters() - plain, 16 * (2048 + 2 * 512 + 2048));
  const ModelSpec mlp = ParseChanged(kLlamaConfig, "mlp_bias", "true").value();
  EXPECT_TRUE(mlp.mlp_bias);
  EXPECT_EQ(mlp.Parameters() - plain, 16 * (2 * 8192 + 2048));
}

TEST(ModelSpecTest, AbsentFieldsTakeTheFamilysDefaults) {
  EXPECT_EQ(ParseChanged(kQwen3Config, "head_dim", "")->head_dim, 128);
  EXPECT_EQ(ParseChanged(kLlamaConfig, "head_dim", "")->head_dim, 64);
  EXPECT_EQ(ParseChanged(kLlamaConfig, "head_dim", "null")->head_dim, 64);
  EXPECT_EQ(ParseChanged(kLlamaConfig, "num_key_value_heads", "")->kv_heads, 32);
  EXPECT_EQ(ParseChanged(kQwen3Config, "rope_theta", "")->rope_theta, 10000);
  EXPECT_EQ(ParseChanged(kLlamaConfig, "rms_norm_eps", "")->norm_eps, 1e-6);
  EXPECT_EQ(ParseChanged(kQwen3Config, "architectures", "")->architecture, "Qwen3ForCausalLM");
  EXPECT_TRUE(ParseChanged(kQwen3Config, "eos_token_id", "null")->eos_token_ids.empty());
  EXPECT_EQ(ParseChanged(kQwen3Config, "bos_token_id", "null")->bos_token_id, std::nullopt);
  for (const auto config : {kQwen3Config, kQwen2Config, kLlamaConfig}) {
    EXPECT_FALSE(ParseChanged(config, "tie_word_embeddings", "")->tie_embeddings);
    EXPECT_TRUE(ParseChanged(config, "hidden_act", "").ok());
  }
}

TEST(ModelSpecTest, ReadsStoredTypeInBothSpellings) {
  EXPECT_EQ(ParseChanged(kQwen3Config, "torch_dtype", "\"float16\"")->stored_type, DataType::kF16);
  EXPECT_EQ(ParseChanged(kQwen3Config, "dtype", "\"float32\"")->stored_type, DataType::kF32);
  EXPECT_EQ(ParseChanged(kQwen3Config, "torch_dtype", "")->stored_type, DataType::kBf16);
}

TEST(ModelSpecTest, ReadsYarnWithItsDefaults) {
  const RopeScaling scaling = ParseChanged(kQwen3Config, "rope_scaling",
                                           R"({"rope_type": "yarn", "factor": 4.0,
                       "original_max_position_embeddings": 32768})")
                                  ->rope_scaling;
  EXPECT_EQ(scaling.kind, RopeScaling::Kind::kYarn);
  EXPECT_EQ(scaling.factor, 4);
  EXPECT_EQ(scaling.original_max_positions, 32768);
  EXPECT_EQ(scaling.beta_fast, 32);
  EXPECT_EQ(scaling.beta_slow, 1);
  EXPECT_TRUE(scaling.truncate);
  EXPECT_EQ(scaling.attention_factor, std::nullopt);
  EXPECT_EQ(scaling.mscale, 0);
}

TEST(ModelSpecTest, ReadsEveryYarnField) {
  const RopeScaling scaling =
      ParseChanged(kQwen3Config, "rope_scaling",
                   R"({"type": "yarn", "factor": 2, "original_max_position_embeddings": 4096,
                       "beta_fast": 16, "beta_slow": 2, "truncate": false,
                       "attention_factor": 1.25, "mscale": 0.7, "mscale_all_dim": 0.5})")
          ->rope_scaling;
  EXPECT_EQ(scaling.factor, 2);
  EXPECT_EQ(scaling.beta_fast, 16);
  EXPECT_EQ(scaling.beta_slow, 2);
  EXPECT_FALSE(scaling.truncate);
  EXPECT_EQ(scaling.attention_factor, 1.25);
  EXPECT_EQ(scaling.mscale, 0.7);
  EXPECT_EQ(scaling.mscale_all_dim, 0.5);
}

TEST(ModelSpecTest, YarnFactorAndLengthFollowFromEachOther) {
  const RopeScaling no_factor = ParseChanged(kQwen3Config, "rope_scaling",
                                             R"({"rope_type": "yarn",
                                                 "original_max_position_embeddings": 10240})")
                                    ->rope_scaling;
  EXPECT_EQ(no_factor.factor, 4);
  const RopeScaling no_length =
      ParseChanged(kQwen3Config, "rope_scaling", R"({"rope_type": "yarn", "factor": 4})")
          ->rope_scaling;
  EXPECT_EQ(no_length.original_max_positions, 40960);
}

TEST(ModelSpecTest, ReadsRopeParameters) {
  Json config = Json::Parse(kQwen3Config).value();
  std::erase_if(config.as_object(), [](const Json::Member& m) { return m.first == "rope_theta"; });
  config.Set("rope_parameters", Json::Parse(R"({"rope_theta": 5000000})").value());
  EXPECT_EQ(ParseModelSpec(config)->rope_theta, 5e6);
  EXPECT_EQ(ParseModelSpec(config)->rope_scaling.kind, RopeScaling::Kind::kNone);
  config.Set("rope_parameters",
             Json::Parse(R"({"rope_theta": 5e6, "rope_type": "linear", "factor": 8})").value());
  EXPECT_EQ(ParseModelSpec(config)->rope_scaling.kind, RopeScaling::Kind::kLinear);
  EXPECT_EQ(ParseModelSpec(config)->rope_scaling.factor, 8);
}

// YaRN finds the channel of a wavelength by dividing by log(rope_theta).
TEST(ModelSpecTest, YarnNeedsARotaryBaseAboveOne) {
  Json config = Json::Parse(kQwen3Config).value();
  config.Set("rope_theta", 1);
  EXPECT_TRUE(ParseModelSpec(config).ok()) << "every pair turns alike, which is defined";
  config.Set("rope_scaling", Json::Parse(R"({"rope_type": "yarn", "factor": 4})").value());
  const auto spec = ParseModelSpec(config);
  ASSERT_FALSE(spec.ok());
  EXPECT_EQ(spec.error().code, Code::kInvalidArgument);
  EXPECT_THAT(spec.error().message, HasSubstr("rope_theta must be above 1"));
  config.Set("rope_theta", 1.5);
  EXPECT_TRUE(ParseModelSpec(config).ok());
}

TEST(ModelSpecTest, ReadsDefaultRopeType) {
  const auto spec = ParseChanged(kQwen3Config, "rope_scaling", R"({"rope_type": "default"})");
  EXPECT_EQ(spec->rope_scaling.kind, RopeScaling::Kind::kNone);
}

TEST(ModelSpecTest, FullAttentionMayBeSpelledOut) {
  Json types = Json::MakeArray();
  for (int i = 0; i < 24; ++i) types.Append("full_attention");
  EXPECT_TRUE(ParseChanged(kQwen2Config, "layer_types", types.Dump()).ok());
  EXPECT_TRUE(ParseChanged(kQwen2Config, "quantization_config", "null").ok());
}

struct Refusal {
  std::string_view config;
  const char* field;
  const char* value;  // JSON; empty: absent
  Code code;
  const char* message_has;
};

class RefusalTest : public testing::TestWithParam<Refusal> {};

TEST_P(RefusalTest, NamesTheField) {
  const Refusal& refusal = GetParam();
  ASSERT_TRUE(Parse(refusal.config).ok());
  const auto spec = ParseChanged(refusal.config, refusal.field, refusal.value);
  ASSERT_FALSE(spec.ok()) << refusal.field << " = " << refusal.value;
  EXPECT_EQ(CodeName(spec.error().code), std::string(CodeName(refusal.code)));
  EXPECT_THAT(spec.error().message,
              AllOf(HasSubstr(refusal.field), HasSubstr(refusal.message_has)));
}

constexpr Code kInvalid = Code::kInvalidArgument;
constexpr Code kLacking = Code::kUnimplemented;

INSTANTIATE_TEST_SUITE_P(
    Absent, RefusalTest,
    testing::Values(Refusal{kQwen3Config, "model_type", "", kInvalid, "missing"},
                    Refusal{kQwen3Config, "hidden_size", "", kInvalid, "missing"},
                    Refusal{kQwen3Config, "num_hidden_layers", "null", kInvalid, "missing"},
                    Refusal{kQwen3Config, "num_attention_heads", "", kInvalid, "missing"},
                    Refusal{kQwen3Config, "intermediate_size", "", kInvalid, "missing"},
                    Refusal{kQwen3Config, "vocab_size", "", kInvalid, "missing"},
                    Refusal{kQwen3Config, "max_position_embeddings", "", kInvalid, "missing"}));

INSTANTIATE_TEST_SUITE_P(
    Absurd, RefusalTest,
    testing::Values(
        Refusal{kQwen3Config, "hidden_size", "0", kInvalid, "is 0"},
        Refusal{kQwen3Config, "hidden_size", "-1024", kInvalid, "-1024"},
        Refusal{kQwen3Config, "hidden_size", "1e3", kInvalid, "an integer"},
        Refusal{kQwen3Config, "hidden_size", "\"1024\"", kInvalid, "\"1024\""},
        Refusal{kQwen3Config, "hidden_size", "9223372036854775807", kInvalid, "outside"},
        Refusal{kQwen3Config, "hidden_size", "18446744073709551615", kInvalid, "an integer"},
        Refusal{kQwen3Config, "num_hidden_layers", "4097", kInvalid, "outside"},
        Refusal{kQwen3Config, "num_attention_heads", "4194304", kInvalid, "outside"},
        Refusal{kQwen3Config, "vocab_size", "2147483648", kInvalid, "outside"},
        Refusal{kQwen3Config, "intermediate_size", "[3072]", kInvalid, "array"},
        Refusal{kQwen3Config, "num_key_value_heads", "0", kInvalid, "is 0"},
        Refusal{kQwen3Config, "num_key_value_heads", "3", kInvalid, "divide"},
        Refusal{kQwen3Config, "num_key_value_heads", "32", kInvalid, "divide"},
        Refusal{kQwen3Config, "head_dim", "127", kInvalid, "even"},
        Refusal{kQwen3Config, "head_dim", "0", kInvalid, "outside"},
        Refusal{kQwen3Config, "head_dim", "2048", kInvalid, "outside"},
        Refusal{kQwen2Config, "num_attention_heads", "10", kInvalid, "divide hidden_size"},
        Refusal{kQwen2Config, "num_attention_heads", "128", kInvalid, "even"},
        Refusal{kQwen3Config, "rms_norm_eps", "0", kInvalid, "outside"},
        Refusal{kQwen3Config, "rms_norm_eps", "true", kInvalid, "a number"},
        Refusal{kQwen3Config, "rope_theta", "-10000", kInvalid, "outside"},
        Refusal{kQwen3Config, "rope_theta", "1e300", kInvalid, "outside"},
        Refusal{kQwen3Config, "tie_word_embeddings", "1", kInvalid, "true or false"},
        Refusal{kQwen3Config, "eos_token_id", "151936", kInvalid, "outside"},
        Refusal{kQwen3Config, "eos_token_id", "[1, -1]", kInvalid, "integers"},
        Refusal{kQwen3Config, "eos_token_id", "[1, \"2\"]", kInvalid, "integers"},
        Refusal{kQwen3Config, "bos_token_id", "-5", kInvalid, "outside"},
        Refusal{kQwen3Config, "architectures", "[]", kInvalid, "list"},
        Refusal{kQwen3Config, "layer_types", "[\"full_attention\"]", kInvalid, "28"}));

INSTANTIATE_TEST_SUITE_P(
    Lacking, RefusalTest,
    testing::Values(
        Refusal{kQwen3Config, "model_type", "\"gpt2\"", kLacking, "known are qwen3, qwen2"},
        Refusal{kQwen3Config, "hidden_act", "\"gelu\"", kLacking, "silu"},
        Refusal{kQwen3Config, "use_sliding_window", "true", kLacking, "full attention"},
        Refusal{kQwen3Config, "quantization_config", R"({"bits": 4})", kLacking, "quantised"},
        Refusal{kQwen3Config, "compression_config", "{}", kLacking, "quantization_config"},
        Refusal{kQwen3Config, "torch_dtype", "\"float8_e4m3fn\"", kLacking, "bfloat16"},
        Refusal{kQwen3Config, "partial_rotary_factor", "0.5", kLacking, "0.5"},
        Refusal{kQwen3Config, "architectures", R"(["Qwen3ForSequenceClassification"])", kLacking,
                "ForCausalLM"}));

INSTANTIATE_TEST_SUITE_P(
    Rope, RefusalTest,
    testing::Values(
        Refusal{kLlamaConfig, "rope_scaling", "[]", kInvalid, "object"},
        Refusal{kLlamaConfig, "rope_scaling", "{}", kInvalid, "rope_scaling.rope_type is missing"},
        Refusal{kLlamaConfig, "rope_scaling", R"({"type": "dynamic", "factor": 2})", kLacking,
                "dynamic"},
        Refusal{kLlamaConfig, "rope_scaling", R"({"rope_type": "longrope"})", kLacking, "yarn"},
        Refusal{kLlamaConfig, "rope_scaling", R"({"rope_type": "linear"})", kInvalid,
                "rope_scaling.factor is missing"},
        Refusal{kLlamaConfig, "rope_scaling", R"({"rope_type": "linear", "factor": 0.5})", kInvalid,
                "rope_scaling.factor is 0.5"},
        Refusal{kLlamaConfig, "rope_scaling", R"({"rope_type": "yarn"})", kInvalid, "factor"},
        Refusal{kLlamaConfig, "rope_scaling", R"({"rope_type": "yarn", "factor": 0})", kInvalid,
                "outside"},
        Refusal{kLlamaConfig, "rope_scaling", R"({"rope_type": "linear", "factor": -2})", kInvalid,
                "outside"},
        Refusal{kLlamaConfig, "rope_scaling",
                R"({"rope_type": "yarn", "factor": 2, "original_max_position_embeddings": 0})",
                kInvalid, "outside"},
        Refusal{kLlamaConfig, "rope_scaling",
                R"({"rope_type": "yarn", "factor": 2, "beta_slow": 0})", kInvalid, "outside"},
        Refusal{kLlamaConfig, "rope_scaling",
                R"({"rope_type": "yarn", "original_max_position_embeddings": 1000000})", kInvalid,
                "max_position_embeddings"},
        Refusal{kLlamaConfig, "rope_scaling",
                R"({"rope_type": "yarn", "factor": 2, "beta_fast": 1, "beta_slow": 2})", kInvalid,
                "beta_fast"},
        Refusal{kLlamaConfig, "rope_scaling",
                R"({"rope_type": "llama3", "factor": 8, "low_freq_factor": 4,
                    "high_freq_factor": 4, "original_max_position_embeddings": 8192})",
                kInvalid, "high_freq_factor"},
        Refusal{kLlamaConfig, "rope_parameters", R"({"rope_theta": 500000})", kInvalid, "disagree"},
        Refusal{kQwen3Config, "rope_parameters", R"({"rope_theta": 500000})", kInvalid,
                "disagree"}));

TEST(ModelSpecTest, RefusesWhatIsNoObject) {
  EXPECT_EQ(Parse("[]").error().code, Code::kInvalidArgument);
  EXPECT_THAT(Parse("3").error().message, HasSubstr("object"));
}

TEST(ModelSpecTest, LongTextsAreCutInMessages) {
  const std::string long_name(100000, 'x');
  EXPECT_LT(
      ParseChanged(kQwen3Config, "model_type", "\"" + long_name + "\"").error().message.size(),
      300u);
}

}  // namespace
}  // namespace divisi
