#include "divisi/model/synth_checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>

#include "divisi/core/file.h"
#include "divisi/core/format.h"
#include "divisi/model/checkpoint.h"
#include "divisi/model/inspect.h"
#include "divisi/model/tokenizer.h"
#include "divisi/model/transformer.h"

namespace divisi {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr const char* kTinyModel = DIVISI_SOURCE_DIR "/models/tiny-qwen3";

class SynthCheckpointTest : public testing::Test {
 protected:
  void SetUp() override {
    std::filesystem::remove_all(directory_);
    std::filesystem::create_directories(directory_);
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }

  // The example's config, made small enough for a test.
  static Json SmallConfig(const std::string& example) {
    const auto path = std::filesystem::path(DIVISI_SOURCE_DIR) / "examples/configs" / example;
    Json config = Json::Parse(ReadFile(path, 1 << 20).value()).value();
    config.Set("num_hidden_layers", 2);
    config.Set("hidden_size", 128);
    config.Set("num_attention_heads", 4);
    config.Set("num_key_value_heads", 2);
    config.Set("intermediate_size", 192);
    config.Set("vocab_size", 2048);
    config.Set("bos_token_id", nullptr);
    config.Set("eos_token_id", nullptr);
    return config;
  }
  Json Written(const char* name) {
    return Json::Parse(ReadFile(directory_ / name, 1 << 24).value()).value();
  }

  ThreadPool pool_{2};
  std::filesystem::path directory_ =
      std::filesystem::path(testing::TempDir()) / Format("synth_checkpoint-{}", getpid());
};

class SynthFamilyTest : public SynthCheckpointTest,
                        public testing::WithParamInterface<const char*> {};
INSTANTIATE_TEST_SUITE_P(Examples, SynthFamilyTest,
                         testing::Values("qwen3-0.6b.json", "qwen2.5-0.5b.json",
                                         "llama-3.2-1b.json"));

TEST_P(SynthFamilyTest, IsAWholeCheckpoint) {
  const Json config = SmallConfig(GetParam());
  ASSERT_TRUE(WriteSynthCheckpoint(config, directory_, {}, pool_).ok());
  const Checkpoint checkpoint = Checkpoint::Open(directory_).value();
  EXPECT_THAT(Inspect(checkpoint).problems, IsEmpty());
  EXPECT_THAT(checkpoint.spec().eos_token_ids, ElementsAre(2047, 2045));
  const Tokenizer tokenizer = Tokenizer::Load(directory_).value();
  EXPECT_EQ(tokenizer.vocab_size(), 2048);
  EXPECT_EQ(tokenizer.FindToken("<|im_end|>"), 2047);
  EXPECT_EQ(Written("generation_config.json").Find("eos_token_id")->as_array().size(), 2u);
  EXPECT_THAT(Written("tokenizer_config.json").Find("chat_template")->as_string(),
              HasSubstr("<|im_start|>"));
}

TEST_P(SynthFamilyTest, DeepModelsStayFinite) {
  Json config = SmallConfig(GetParam());
  config.Set("num_hidden_layers", 64);
  ASSERT_TRUE(WriteSynthCheckpoint(config, directory_, {}, pool_).ok());
  const Checkpoint checkpoint = Checkpoint::Open(directory_).value();
  Ops ops(SupportedIsas().back(), pool_);
  Transformer model = Transformer::Load(checkpoint, ComputeType::kBf16, 64).value();
  KvPages pages = KvPages::Create(model.kv_layout(), 1).value();
  const std::vector<TokenId> tokens = {2046, 72, 2047, 198};
  const BlockId page = 0;
  const ForwardSequence sequence = {.tokens = tokens, .pages = {&page, 1}, .logits_rows = 4};
  const auto logits = model.Forward({&sequence, 1}, pages, ops);
  ASSERT_EQ(logits.size(), 4u * 2048);
  double squares = 0;
  for (const float logit : logits) squares += double{logit} * logit;
  // The final norm makes a row of norm sqrt(128); an output's deviation is 0.02 times that, 0.23,
  // and the tied head's larger for the row's own token.
  const double deviation = std::sqrt(squares / static_cast<double>(logits.size()));
  EXPECT_GT(deviation, 0.1);
  EXPECT_LT(deviation, 0.5);
}

TEST_P(SynthFamilyTest, CopiedWeightsGiveTheSameBits) {
  ASSERT_TRUE(WriteSynthCheckpoint(SmallConfig(GetParam()), directory_, {}, pool_).ok());
  const Checkpoint checkpoint = Checkpoint::Open(directory_).value();
  Ops ops(SupportedIsas().back(), pool_);
  Transformer model = Transformer::Load(checkpoint, ComputeType::kBf16, 64).value();
  KvPages pages = KvPages::Create(model.kv_layout(), 1).value();
  const std::vector<TokenId> tokens = {2046, 72, 2047, 198};
  const BlockId page = 0;
  const ForwardSequence sequence = {.tokens = tokens, .pages = {&page, 1}, .logits_rows = 4};
  const auto mapped = model.Forward({&sequence, 1}, pages, ops);
  const std::vector<float> expected(mapped.begin(), mapped.end());
  Bytes copied, total;
  ASSERT_TRUE(model
                  .CopyWeights(pool_,
                               [&](Bytes done, Bytes all) {
                                 copied = done;
                                 total = all;
                               })
                  .ok());
  EXPECT_EQ(copied, total);
  EXPECT_GE(copied, checkpoint.TotalBytes() - Bytes(1 << 20));  // Vectors are not among them.
  // Writing over the checkpoint's pages would show whether anything still refers to them; they are
  // read-only, so what can be seen is that dropping them changes nothing.
  checkpoint.Release();
  const auto again = model.Forward({&sequence, 1}, pages, ops);
  EXPECT_EQ(std::vector<float>(again.begin(), again.end()), expected);
}

TEST_F(SynthCheckpointTest, StoresTheAskedType) {
  Json config = SmallConfig("qwen3-0.6b.json");
  ASSERT_TRUE(
      WriteSynthCheckpoint(config, directory_, {.weights = {.type = DataType::kF32}}, pool_).ok());
  const Checkpoint checkpoint = Checkpoint::Open(directory_).value();
  EXPECT_EQ(checkpoint.spec().stored_type, DataType::kF32);
  EXPECT_EQ(checkpoint.TotalBytes(), Bytes(4 * checkpoint.spec().Parameters()));
}

TEST_F(SynthCheckpointTest, CopiesATokenizer) {
  const Json config = SmallConfig("qwen3-0.6b.json");
  ASSERT_TRUE(
      WriteSynthCheckpoint(config, directory_, {.tokenizer_directory = kTinyModel}, pool_).ok());
  EXPECT_EQ(ReadFile(directory_ / "tokenizer.json", 1 << 24).value(),
            ReadFile(std::filesystem::path(kTinyModel) / "tokenizer.json", 1 << 24).value());
  EXPECT_THAT(Checkpoint::Open(directory_)->spec().eos_token_ids, ElementsAre(2047, 2045));
}

TEST_F(SynthCheckpointTest, RefusesATokenizerBeyondTheVocabulary) {
  Json config = SmallConfig("qwen3-0.6b.json");
  config.Set("vocab_size", 2047);
  const auto written =
      WriteSynthCheckpoint(config, directory_, {.tokenizer_directory = kTinyModel}, pool_);
  ASSERT_FALSE(written.ok());
  EXPECT_EQ(written.error().code, Code::kInvalidArgument);
  EXPECT_THAT(written.error().message, HasSubstr("2048 ids"));
  EXPECT_FALSE(std::filesystem::exists(directory_ / "config.json"));
}

TEST_F(SynthCheckpointTest, RefusesWhatTheSpecRefuses) {
  Json config = SmallConfig("qwen3-0.6b.json");
  config.Set("model_type", "gpt2");
  EXPECT_EQ(WriteSynthCheckpoint(config, directory_, {}, pool_).error().code, Code::kUnimplemented);
  EXPECT_TRUE(std::filesystem::is_empty(directory_));
}

}  // namespace
}  // namespace divisi
