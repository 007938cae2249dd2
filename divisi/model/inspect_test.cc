#include "divisi/model/inspect.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "divisi/core/format.h"

namespace divisi {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr const char* kTinyModel = DIVISI_SOURCE_DIR "/models/tiny-qwen3";

ServeLoad Load() {
  return {.sequences = 4, .tokens = 100, .kv_type = DataType::kBf16, .machine = Bytes(10'000'000)};
}

TEST(InspectTest, AddsUpTheBundledModel) {
  const Checkpoint checkpoint = Checkpoint::Open(kTinyModel).value();
  const Inspection inspection = Inspect(checkpoint);
  EXPECT_THAT(inspection.problems, IsEmpty());
  EXPECT_EQ(WeightBytes(inspection), checkpoint.TotalBytes());
  const Json json = InspectionJson(inspection, Load());
  EXPECT_EQ(json.Find("parameters")->as_int(), 1'443'840);
  EXPECT_EQ(json.Find("weight_bytes")->as_int(), 2'887'680);
  // 2 * 6 layers * 2 heads * 32 = 768 numbers.
  EXPECT_EQ(json.Find("kv_bytes_per_token")->Find("float32")->as_int(), 3072);
  const Json* serve = json.Find("serve");
  EXPECT_EQ(serve->Find("kv_bytes")->as_int(), 4 * 100 * 1536);
  EXPECT_EQ(serve->Find("total_bytes")->as_int(), 2'887'680 + 614'400);
  EXPECT_TRUE(serve->Find("fits")->as_bool());
  int64_t parameters = 0;
  for (const Json& group : json.Find("weights")->as_array()) {
    parameters += group.Find("parameters")->as_int();
  }
  EXPECT_EQ(parameters, 1'443'840);
}

TEST(InspectTest, AConfigAloneSaysTheSame) {
  const Checkpoint checkpoint = Checkpoint::Open(kTinyModel).value();
  EXPECT_EQ(InspectionJson(InspectSpec(checkpoint.spec()), Load()),
            InspectionJson(Inspect(checkpoint), Load()));
}

TEST(InspectTest, SaysWhatDoesNotFit) {
  ServeLoad load = Load();
  load.machine = Bytes(2'887'680 + 614'399);
  const Inspection inspection = InspectSpec(Checkpoint::Open(kTinyModel)->spec());
  EXPECT_FALSE(InspectionJson(inspection, load).Find("serve")->Find("fits")->as_bool());
  EXPECT_THAT(InspectionText(inspection, load), HasSubstr("does not fit"));
}

TEST(InspectTest, TextShowsShapesAndSums) {
  const Checkpoint checkpoint = Checkpoint::Open(kTinyModel).value();
  EXPECT_THAT(InspectionText(Inspect(checkpoint), Load()),
              AllOf(HasSubstr("qwen3 (Qwen3ForCausalLM)"), HasSubstr("4 query heads over 2 KV"),
                    HasSubstr("1,443,840"), HasSubstr("1.5 KiB as bfloat16")));
  EXPECT_THAT(TensorsText(checkpoint), HasSubstr("model.layers.5.mlp.down_proj.weight"));
  EXPECT_THAT(TensorsText(checkpoint), HasSubstr("128 x 384"));
  EXPECT_EQ(TensorsJson(checkpoint).as_array().size(), checkpoint.tensors().size());
}

TEST(InspectTest, RefusesALoadBeyondAnExbibyte) {
  const Checkpoint checkpoint = Checkpoint::Open(kTinyModel).value();
  ModelSpec spec = checkpoint.spec();
  ServeLoad load = {.sequences = int64_t{1} << 20, .tokens = int64_t{1} << 30};
  spec.layers = 4096;  // 2^19 bytes per token: the product passes 2^63.
  const auto beyond = KvBytes(spec, load);
  ASSERT_FALSE(beyond.ok());
  EXPECT_EQ(beyond.error().code, Code::kOutOfRange);
  EXPECT_THAT(beyond.error().message, HasSubstr("ask for fewer"));
  load.tokens = 1024;
  EXPECT_EQ(KvBytes(spec, load)->value, spec.KvBytesPerToken(DataType::kBf16).value << 30);
}

TEST(InspectTest, ShowsExpertsAndLatentAttentionThatCannotBeServedYet) {
  const Checkpoint qwen = Checkpoint::Open(DIVISI_SOURCE_DIR "/models/tiny-qwen3-moe").value();
  const Inspection experts = Inspect(qwen);
  EXPECT_THAT(experts.problems, IsEmpty());
  EXPECT_EQ(WeightBytes(experts), qwen.TotalBytes());
  EXPECT_THAT(InspectionText(experts, Load()),
              AllOf(HasSubstr("16 in 4 of 4 layers, 4 per token, 64 wide"), HasSubstr("expert "),
                    HasSubstr("not served yet"), HasSubstr("2,041,216")));
  const Checkpoint deepseek =
      Checkpoint::Open(DIVISI_SOURCE_DIR "/models/tiny-deepseek-v3").value();
  const Inspection latent = Inspect(deepseek);
  EXPECT_THAT(latent.problems, IsEmpty());
  EXPECT_EQ(WeightBytes(latent), deepseek.TotalBytes());
  EXPECT_THAT(InspectionText(latent, Load()),
              AllOf(HasSubstr("MLA: 4 heads of 32 + 16 rotary"), HasSubstr("shared 32 wide")));
  const Json json = InspectionJson(latent, Load());
  EXPECT_EQ(json.Find("mla")->Find("latent_dim")->as_int(), 64);
  EXPECT_EQ(json.Find("moe")->Find("layers")->as_int(), 4);
  EXPECT_FALSE(json.Find("serve")->Find("supported")->as_bool());
  EXPECT_EQ(InspectionJson(InspectSpec(deepseek.spec()), Load()), json);
}

TEST(InspectTest, CountsQuantisedWeightsInTheirBytes) {
  ModelSpec spec = Checkpoint::Open(DIVISI_SOURCE_DIR "/models/tiny-deepseek-v3")->spec();
  const Bytes plain = WeightBytes(InspectSpec(spec));
  spec.quantised = QuantisedWeights{.type = "fp8", .bytes = 1};
  const Inspection inspection = InspectSpec(spec);
  int64_t quantised = 0;
  for (const WeightGroup& group : inspection.groups) {
    EXPECT_EQ(group.type == "fp8",
              group.part == "attention" || group.part == "mlp" || group.part == "expert");
    if (group.type == "fp8") quantised += group.parameters;
  }
  EXPECT_EQ(WeightBytes(inspection), plain - Bytes(quantised));
}

// A checkpoint whose config asks for more than its weights hold.
class IncompleteTest : public testing::Test {
 protected:
  void SetUp() override {
    std::filesystem::remove_all(directory_);
    std::filesystem::create_directories(directory_);
    std::filesystem::create_symlink(std::filesystem::path(kTinyModel) / "model.safetensors",
                                    directory_ / "model.safetensors");
    const auto text = ReadFile(std::filesystem::path(kTinyModel) / "config.json", 1 << 20);
    config_ = Json::Parse(*text).value();
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }
  Inspection InspectWith(std::string_view field, Json value) {
    config_.Set(field, std::move(value));
    EXPECT_TRUE(WriteFileAtomic(directory_ / "config.json", config_.Dump()).ok());
    return Inspect(Checkpoint::Open(directory_).value());
  }
  std::filesystem::path directory_ =
      std::filesystem::path(testing::TempDir()) / Format("inspect_test-{}", getpid());
  Json config_;
};

TEST_F(IncompleteTest, NamesMissingTensors) {
  const Inspection inspection = InspectWith("tie_word_embeddings", false);
  ASSERT_EQ(inspection.problems.size(), 1u);
  EXPECT_THAT(inspection.problems[0], HasSubstr("lm_head.weight"));
  EXPECT_THAT(InspectionText(inspection, Load()), HasSubstr("problem: "));
}

TEST_F(IncompleteTest, NamesMisshapenTensors) {
  const Inspection inspection = InspectWith("vocab_size", 4096);
  ASSERT_EQ(inspection.problems.size(), 1u);
  EXPECT_THAT(inspection.problems[0], AllOf(HasSubstr("embed_tokens"), HasSubstr("[4096, 128]")));
}

TEST_F(IncompleteTest, CountsUnusedTensorsApart) {
  const Inspection inspection = InspectWith("num_hidden_layers", 5);
  EXPECT_THAT(inspection.problems, IsEmpty());
  EXPECT_EQ(inspection.groups.back().part, "other");
  EXPECT_EQ(inspection.groups.back().tensors, 11);  // A layer's.
}

}  // namespace
}  // namespace divisi
