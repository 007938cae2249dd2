// Families and features without a golden file: random checkpoints against a forward pass in double
// precision (tests/reference_model.h); and what loading refuses.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "tests/model_runner.h"
#include "tests/random_checkpoint.h"
#include "tests/reference_model.h"

namespace divisi {
namespace {

using ::testing::HasSubstr;

std::vector<TokenId> RandomTokens(int64_t count, int vocab, uint64_t seed) {
  Random random(seed, 1);
  std::vector<TokenId> tokens(static_cast<size_t>(count));
  for (TokenId& token : tokens) token = static_cast<TokenId>(random.Between(0, vocab - 1));
  return tokens;
}

Json Llama3Scaling() {
  // Small enough that the test's 20 pairs fall on both sides of the blend and into it.
  return Json::Parse(R"({"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
                         "high_freq_factor": 4.0, "original_max_position_embeddings": 64})")
      .value();
}

// How far the logits of all positions are from the reference's.
struct Errors {
  double worst = 0;
  double relative = 0;  // Root mean square of the errors over that of the logits.
};

Errors MeasureErrors(const RandomShape& shape, ComputeType compute, uint64_t seed) {
  const TemporaryDirectory directory("family");
  WriteRandomCheckpoint(directory.path(), shape, seed);
  ModelRunner runner(directory.path(), {.compute = compute, .threads = 2});
  const std::vector<TokenId> tokens = RandomTokens(75, shape.vocab, seed);
  const auto expected = ReferenceLogits(runner.checkpoint, tokens);
  const auto actual = runner.Run(tokens, 0, static_cast<int64_t>(tokens.size()));
  Errors errors;
  double error_squares = 0, logit_squares = 0;
  for (size_t p = 0; p < tokens.size(); ++p) {
    for (size_t t = 0; t < expected[p].size(); ++t) {
      const double error = actual[p * expected[p].size() + t] - expected[p][t];
      errors.worst = std::max(errors.worst, std::abs(error));
      error_squares += error * error;
      logit_squares += expected[p][t] * expected[p][t];
    }
  }
  errors.relative = std::sqrt(error_squares / logit_squares);
  return errors;
}

struct Family {
  const char* name;
  RandomShape shape;
};

const Family kFamilies[] = {
    {"Qwen3", {.family = "qwen3", .heads = 6, .kv_heads = 3, .head_dim = 32}},
    {"Qwen3UntiedF32", {.family = "qwen3", .tie = false, .stored = DataType::kF32}},
    {"Qwen2Biases", {.family = "qwen2", .hidden = 96, .heads = 6, .kv_heads = 2}},
    {"Qwen2F16", {.family = "qwen2", .tie = false, .stored = DataType::kF16}},
    {"Llama3Scaled",
     {.family = "llama",
      .layers = 3,
      .hidden = 80,
      .heads = 5,
      .kv_heads = 1,
      .head_dim = 40,
      .tie = false,
      .rope_scaling = Llama3Scaling()}},
    {"LlamaAllBiases", {.family = "llama", .attention_bias = true, .mlp_bias = true}},
    {"OddShapes",
     {.family = "llama",
      .hidden = 70,
      .heads = 7,
      .kv_heads = 7,
      .head_dim = 10,
      .intermediate = 54,
      .vocab = 131}},
    {"LinearScaling",
     {.family = "llama",
      .rope_scaling = Json::Parse(R"({"rope_type": "linear", "factor": 4})").value()}},
};

void PrintTo(const Family& family, std::ostream* out) { *out << family.name; }

class Families : public testing::TestWithParam<Family> {};

// Float32 rounds by 3e-8 of a value, root mean square. Some 20 roundings on the way, each made
// larger by the layers after it (random weights pass noise on three- to fivefold), give about 1e-6
// of logits that are about 2; the largest of 15,000 is 5 to 10 times that.
TEST_P(Families, F32MatchesDoublePrecision) {
  const Errors errors = MeasureErrors(GetParam().shape, ComputeType::kF32, 7);
  EXPECT_LE(errors.relative, 3e-6);
  EXPECT_LE(errors.worst, 4e-5);
}

// The same with 2^-9 / sqrt(3) = 0.11 % for each of 13 to 19 roundings to bf16: 1 to 2.5 %.
TEST_P(Families, Bf16IsNearDoublePrecision) {
  RandomShape shape = GetParam().shape;
  shape.stored = DataType::kBf16;
  EXPECT_LE(MeasureErrors(shape, ComputeType::kBf16, 8).relative, 0.035);
}

INSTANTIATE_TEST_SUITE_P(Random, Families, testing::ValuesIn(kFamilies),
                         [](const auto& info) { return std::string(info.param.name); });

// What Transformer::Load says about a checkpoint.
Result<Transformer> TryLoad(const Json& config, const NamedTensors& tensors, DataType stored,
                            ComputeType compute = ComputeType::kF32) {
  const TemporaryDirectory directory("load");
  WriteCheckpoint(directory.path(), config, tensors, stored);
  const Checkpoint checkpoint = Checkpoint::Open(directory.path()).value();
  return Transformer::Load(checkpoint, compute, 64);
}

TEST(LoadTransformer, NamesTheMissingTensor) {
  const RandomShape shape{.family = "qwen2"};
  NamedTensors tensors = RandomTensors(shape, 1);
  tensors.erase("model.layers.1.self_attn.k_proj.bias");
  const auto loaded = TryLoad(RandomConfig(shape), tensors, shape.stored);
  ASSERT_FALSE(loaded.ok());
  EXPECT_EQ(loaded.error().code, Code::kNotFound);
  EXPECT_THAT(loaded.error().message, HasSubstr("model.layers.1.self_attn.k_proj.bias"));
}

TEST(LoadTransformer, NamesTheMisshapenTensor) {
  const RandomShape shape;
  NamedTensors tensors = RandomTensors(shape, 1);
  std::swap(tensors["model.layers.0.mlp.down_proj.weight"].shape[0],
            tensors["model.layers.0.mlp.down_proj.weight"].shape[1]);
  const auto loaded = TryLoad(RandomConfig(shape), tensors, shape.stored);
  ASSERT_FALSE(loaded.ok());
  EXPECT_EQ(loaded.error().code, Code::kDataLoss);
  EXPECT_THAT(loaded.error().message, HasSubstr("model.layers.0.mlp.down_proj.weight"));
}

TEST(LoadTransformer, NeedsAHeadUnlessTied) {
  RandomShape shape{.tie = true};
  const NamedTensors tensors = RandomTensors(shape, 1);
  shape.tie = false;
  const auto loaded = TryLoad(RandomConfig(shape), tensors, shape.stored);
  ASSERT_FALSE(loaded.ok());
  EXPECT_THAT(loaded.error().message, HasSubstr("lm_head.weight"));
}

TEST(LoadTransformer, Bf16RefusesOtherMatricesAndSaysWhatToDo) {
  const RandomShape shape{.stored = DataType::kF16};
  const auto tensors = RandomTensors(shape, 1);
  EXPECT_TRUE(TryLoad(RandomConfig(shape), tensors, shape.stored, ComputeType::kF32).ok());
  const auto loaded = TryLoad(RandomConfig(shape), tensors, shape.stored, ComputeType::kBf16);
  ASSERT_FALSE(loaded.ok());
  EXPECT_EQ(loaded.error().code, Code::kUnimplemented);
  EXPECT_THAT(loaded.error().message, HasSubstr("--dtype float32"));
}

TEST(LoadTransformer, RefusesOddWidths) {
  const RandomShape shape{.intermediate = 33};
  const auto loaded = TryLoad(RandomConfig(shape), RandomTensors(shape, 1), shape.stored);
  ASSERT_FALSE(loaded.ok());
  EXPECT_THAT(loaded.error().message, HasSubstr("intermediate_size is 33"));
}

std::vector<float> LogitsOf(const Json& config, const NamedTensors& tensors, DataType stored) {
  const TemporaryDirectory directory("logits");
  WriteCheckpoint(directory.path(), config, tensors, stored);
  ModelRunner runner(directory.path(), {.compute = ComputeType::kBf16});
  return runner.Run(RandomTokens(20, static_cast<int>(runner.vocab()), 5), 0, 1);
}

TEST(LoadTransformer, TakesNamesWithoutPrefix) {
  const RandomShape shape;
  const NamedTensors tensors = RandomTensors(shape, 3);
  NamedTensors bare;
  for (const auto& [name, tensor] : tensors)
    bare[name.substr(std::string("model.").size())] = tensor;
  EXPECT_EQ(LogitsOf(RandomConfig(shape), bare, shape.stored),
            LogitsOf(RandomConfig(shape), tensors, shape.stored));
}

TEST(LoadTransformer, IgnoresAStoredHeadWhereTied) {
  const RandomShape shape{.tie = true};
  NamedTensors tensors = RandomTensors(shape, 3);
  const auto expected = LogitsOf(RandomConfig(shape), tensors, shape.stored);
  tensors["lm_head.weight"] = RandomTensors({.tie = false}, 4)["lm_head.weight"];
  EXPECT_EQ(LogitsOf(RandomConfig(shape), tensors, shape.stored), expected);
}

}  // namespace
}  // namespace divisi
