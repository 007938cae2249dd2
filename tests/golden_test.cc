// The bundled tiny-qwen3 against golden outputs. The golden file was made once by an independent
// PyTorch implementation of the architecture, in float32 from the same bf16 weights; it is not
// regenerated from this code (models/README.md, "Reference data", tells its making and format).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "divisi/core/file.h"
#include "divisi/core/json.h"
#include "divisi/engine/model_executor.h"
#include "divisi/model/sampler.h"
#include "divisi/model/tokenizer.h"
#include "tests/model_runner.h"
#include "tests/random_checkpoint.h"

namespace divisi {
namespace {

const std::filesystem::path kRoot = DIVISI_SOURCE_DIR;
const std::filesystem::path kModel = kRoot / "models/tiny-qwen3";

// In float32 the reference itself is within 2.4e-5 of float64 (max_abs_err_vs_fp64), and so is a
// different order of the same sums.
constexpr double kF32Tolerance = 5e-5;

// In bf16, how far a logit may be from the float32 one. A bf16 has 8 significant bits: rounding
// changes a value by at most 2^-9 of it, by 2^-9 / sqrt(3) = 0.11 % root mean square. Between
// embedding and head a value passes 6 roundings per layer (two norms, q/k/v, attention's weights
// and output, activation), 37 in 6 layers; as independent noise on the final normed row, of length
// 18.9 for len37, against head rows of length about 1.4, that is
//   0.0011 * sqrt(37) * 18.9 * 1.4 / sqrt(128) = 0.016 root mean square on a logit;
// 5 deviations for the largest of all that are looked at. (Measured: 0.033 at most.)
constexpr double kBf16LogitError = 0.08;
// Two logits further apart than both can move keep their order.
constexpr double kBf16NearTie = 2 * kBf16LogitError;

Json LoadGolden() {
  const auto text = ReadFile(kRoot / "tests/golden/tiny-qwen3.json", size_t{1} << 24);
  return Json::Parse(text.value()).value();
}

std::vector<TokenId> Ids(const Json& array) {
  std::vector<TokenId> ids;
  for (const Json& id : array.as_array()) ids.push_back(static_cast<TokenId>(id.as_int()));
  return ids;
}

double LogSumExp(std::span<const float> logits) {
  const double max = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float x : logits) sum += std::exp(x - max);
  return max + std::log(sum);
}

TokenId Argmax(std::span<const float> logits) {
  return static_cast<TokenId>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

// Holds the last position's logits against the golden top20 and logsumexp.
void ExpectLast(const Json& golden, std::span<const float> logits, double tolerance) {
  for (const Json& entry : golden.Find("top20")->as_array()) {
    const auto id = static_cast<size_t>(entry.as_array()[0].as_int());
    EXPECT_NEAR(logits[id], entry.as_array()[1].as_double(), tolerance) << "logit " << id;
  }
  EXPECT_NEAR(LogSumExp(logits), golden.Find("logsumexp")->as_double(), tolerance);
}

// One test per prompt of the file.
class GoldenPrompt : public testing::TestWithParam<int> {
 protected:
  GoldenPrompt() : golden_(LoadGolden()) {
    prompt_ = &golden_.Find("prompts")->as_array()[static_cast<size_t>(GetParam())];
    ids_ = Ids(*prompt_->Find("ids"));
    greedy_ = Ids(*prompt_->Find("greedy")->Find("ids"));
  }

  Json golden_;
  const Json* prompt_ = nullptr;
  std::vector<TokenId> ids_;
  std::vector<TokenId> greedy_;
};

TEST_P(GoldenPrompt, LogitsInF32) {
  ModelRunner runner(kModel, {.compute = ComputeType::kF32});
  const std::vector<float> logits = runner.Run(ids_, 0, 1);
  ExpectLast(*prompt_, logits, kF32Tolerance);
  double worst = 0;
  if (const Json* full = prompt_->Find("last_logits")) {
    ASSERT_EQ(full->as_array().size(), logits.size());
    for (size_t i = 0; i < logits.size(); ++i) {
      worst = std::max(worst, std::abs(logits[i] - full->as_array()[i].as_double()));
    }
  }
  EXPECT_LE(worst, kF32Tolerance);
  RecordProperty("worst_logit_error", std::to_string(worst));
}

TEST_P(GoldenPrompt, GreedyTokensAndTextInF32) {
  ModelRunner runner(kModel, {.compute = ComputeType::kF32, .threads = 2});
  std::vector<TokenId> tokens = ids_;
  std::vector<float> logits = runner.Run(tokens, 0, 1);
  std::vector<TokenId> output;
  while (output.size() < greedy_.size()) {
    output.push_back(SampleToken(logits, tokens, ids_.size(), {.temperature = 0})->token);
    tokens.push_back(output.back());
    logits = runner.Run({&tokens.back(), 1}, static_cast<int64_t>(tokens.size()) - 1, 1);
  }
  EXPECT_EQ(output, greedy_);
  const Tokenizer tokenizer = Tokenizer::Load(kModel).value();
  EXPECT_EQ(tokenizer.Decode(output, /*skip_special_tokens=*/false),
            prompt_->Find("greedy")->Find("text")->as_string());
  EXPECT_EQ(tokenizer.Encode(prompt_->Find("text")->as_string(), false), ids_);
}

TEST_P(GoldenPrompt, ScoresOfThePromptInF32) {
  const Json* mean_nll = prompt_->Find("mean_nll");
  if (mean_nll == nullptr) return;  // A prompt of one token predicts nothing.
  const SteadyClock clock;
  auto executor = ModelExecutor::Load(
      {.directory = kModel, .compute = ComputeType::kF32, .kv_memory = Bytes(int64_t{64} << 20)},
      clock);
  ASSERT_TRUE(executor.ok()) << executor.error().message;
  Sequence sequence{.request = {.prompt = ids_, .prompt_logprobs = 0}, .tokens = ids_};
  std::vector<BlockId> blocks(ids_.size() / kBlockTokens + 1);
  for (size_t i = 0; i < blocks.size(); ++i) blocks[i] = static_cast<BlockId>(i);
  const auto count = static_cast<int64_t>(ids_.size());
  const StepPlan plan{
      .slices = {{.sequence = &sequence, .count = count, .blocks = blocks, .sample = true}},
      .tokens = count};
  const std::vector<SliceResult> results = (*executor)->Execute(plan);
  ASSERT_EQ(results[0].prompt_scores.size(), ids_.size() - 1);
  double sum = 0;
  for (const SampledToken& score : results[0].prompt_scores) sum -= *score.logprob;
  EXPECT_NEAR(sum / static_cast<double>(ids_.size() - 1), mean_nll->as_double(), kF32Tolerance);
}

// Every step with the golden tokens as context, so that one near tie does not hide the rest.
TEST_P(GoldenPrompt, GreedyTokensInBf16WhereNotTied) {
  ModelRunner runner(kModel, {.compute = ComputeType::kBf16});
  std::vector<TokenId> tokens = ids_;
  tokens.insert(tokens.end(), greedy_.begin(), greedy_.end() - 1);
  const auto steps = static_cast<int64_t>(greedy_.size());
  const std::vector<float> logits = runner.Run(tokens, 0, steps);
  const auto vocab = static_cast<size_t>(runner.vocab());
  ExpectLast(*prompt_, std::span(logits).subspan(0, vocab), kBf16LogitError);
  const Json::Array& gaps = prompt_->Find("greedy")->Find("gaps")->as_array();
  int compared = 0;
  for (size_t i = 0; i < greedy_.size(); ++i) {
    if (gaps[i].as_double() <= kBf16NearTie) continue;
    ++compared;
    EXPECT_EQ(Argmax(std::span(logits).subspan(i * vocab, vocab)), greedy_[i]) << "step " << i;
  }
  EXPECT_GE(compared, 40) << "the near-tie bound leaves too little to compare";
}

// As served: each token from the one before. Equal up to the first near tie, where the two may
// part.
TEST_P(GoldenPrompt, FreeRunningGreedyInBf16UntilATie) {
  ModelRunner runner(kModel, {.compute = ComputeType::kBf16});
  const Json::Array& gaps = prompt_->Find("greedy")->Find("gaps")->as_array();
  std::vector<TokenId> tokens = ids_;
  std::vector<float> logits = runner.Run(tokens, 0, 1);
  for (size_t i = 0; i < greedy_.size(); ++i) {
    const TokenId token = Argmax(logits);
    if (token != greedy_[i]) {
      EXPECT_LE(gaps[i].as_double(), kBf16NearTie) << "step " << i;
      break;
    }
    tokens.push_back(token);
    logits = runner.Run({&tokens.back(), 1}, static_cast<int64_t>(tokens.size()) - 1, 1);
  }
}

std::string PromptName(const testing::TestParamInfo<int>& info) {
  return std::vector<std::string>{"One",     "Five",   "Chat20", "Len37",
                                  "Mixed80", "Len200", "Len400", "Len600"}[info.param];
}
INSTANTIATE_TEST_SUITE_P(TinyQwen3, GoldenPrompt, testing::Range(0, 8), PromptName);

// The same weights under another config: YaRN and another theta.
TEST(GoldenVariants, LogitsInF32) {
  const Json golden = LoadGolden();
  const auto config_text = ReadFile(kModel / "config.json", size_t{1} << 20);
  int variants = 0;
  for (const Json& variant : golden.Find("variants")->as_array()) {
    SCOPED_TRACE(variant.Find("config_overrides")->Dump() + variant.Find("prompt")->as_string());
    const TemporaryDirectory directory("golden-variant");
    Json config = Json::Parse(config_text.value()).value();
    for (const auto& [key, value] : variant.Find("config_overrides")->as_object()) {
      config.Set(key, value);
    }
    ASSERT_TRUE(WriteFileAtomic(directory.path() / "config.json", config.Dump()).ok());
    std::filesystem::create_symlink(kModel / "model.safetensors",
                                    directory.path() / "model.safetensors");
    ModelRunner runner(directory.path(), {.compute = ComputeType::kF32});
    for (const Json& prompt : golden.Find("prompts")->as_array()) {
      if (prompt.Find("name")->as_string() != variant.Find("prompt")->as_string()) continue;
      const std::vector<TokenId> ids = Ids(*prompt.Find("ids"));
      ExpectLast(variant, runner.Run(ids, 0, 1), kF32Tolerance);
      ++variants;
    }
  }
  EXPECT_EQ(variants, 4);
}

}  // namespace
}  // namespace divisi
