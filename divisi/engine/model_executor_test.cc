#include "divisi/engine/model_executor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <thread>

#include "divisi/kv/layer_gate.h"

namespace divisi {
namespace {

using ::testing::HasSubstr;

const std::filesystem::path kModel = std::filesystem::path(DIVISI_SOURCE_DIR) / "models/tiny-qwen3";

ModelExecutor::Options TinyOptions() {
  return {.directory = kModel, .threads = 2, .kv_memory = Bytes(int64_t{32} << 20)};
}

std::unique_ptr<ModelExecutor> LoadTiny(ModelExecutor::Options options = TinyOptions()) {
  const SteadyClock clock;
  auto executor = ModelExecutor::Load(options, clock);
  CHECK(executor.ok(), "{}", executor.error().message);
  return std::move(executor).value();
}

// A sequence with pages of its own: `first_block` and on.
struct Running {
  Sequence sequence;
  std::vector<BlockId> blocks;

  Running(Request request, BlockId first_block) {
    sequence.tokens = request.prompt;
    sequence.request = std::move(request);
    for (BlockId i = 0; i < 20; ++i) blocks.push_back(first_block + i);
  }
  StepSlice Slice(int64_t count, bool sample) const {
    return {.sequence = &sequence,
            .start = sequence.computed,
            .count = count,
            .blocks = blocks,
            .sample = sample};
  }
};

StepPlan Plan(std::vector<StepSlice> slices) {
  StepPlan plan{.slices = std::move(slices)};
  for (const StepSlice& slice : plan.slices) plan.tokens += slice.count;
  return plan;
}

std::vector<TokenId> Prompt(int64_t length, TokenId first) {
  std::vector<TokenId> tokens;
  for (int64_t i = 0; i < length; ++i) {
    tokens.push_back(static_cast<TokenId>((first + 37 * i) % 2000));
  }
  return tokens;
}

// Runs alone, whole prompt at once: the tokens that it should give.
std::vector<TokenId> Alone(ModelExecutor& executor, const Request& request, int64_t tokens) {
  Running running(request, 0);
  std::vector<TokenId> output;
  while (static_cast<int64_t>(output.size()) < tokens) {
    const auto length = static_cast<int64_t>(running.sequence.tokens.size());
    const auto results =
        executor.Execute(Plan({running.Slice(length - running.sequence.computed, true)}));
    running.sequence.computed = length;
    output.push_back(results[0].sampled->token);
    running.sequence.tokens.push_back(output.back());
  }
  return output;
}

TEST(ModelExecutor, BatchedSlicesGiveWhatEachGivesAlone) {
  const auto executor = LoadTiny();
  const Request greedy{.prompt = Prompt(45, 3), .sampling = {.temperature = 0}};
  const Request random{.prompt = Prompt(30, 500), .sampling = {.temperature = 1.5, .seed = 9}};
  const auto expected_greedy = Alone(*executor, greedy, 3);
  const auto expected_random = Alone(*executor, random, 3);

  Running a(greedy, 40), b(random, 80);
  // Step 1: a part of a's prompt, all of b's. Step 2: the rest of a, b decodes. Then both decode.
  auto results = executor->Execute(Plan({a.Slice(20, false), b.Slice(30, true)}));
  EXPECT_FALSE(results[0].sampled.has_value());
  std::vector<TokenId> greedy_tokens, random_tokens;
  const auto take = [](Running& running, const SliceResult& result, std::vector<TokenId>& out) {
    running.sequence.computed = static_cast<int64_t>(running.sequence.tokens.size());
    out.push_back(result.sampled->token);
    running.sequence.tokens.push_back(out.back());
  };
  a.sequence.computed = 20;
  take(b, results[1], random_tokens);
  results = executor->Execute(Plan({b.Slice(1, true), a.Slice(25, true)}));
  take(b, results[0], random_tokens);
  take(a, results[1], greedy_tokens);
  while (greedy_tokens.size() < 3) {
    results = executor->Execute(Plan({a.Slice(1, true), b.Slice(1, true)}));
    take(a, results[0], greedy_tokens);
    take(b, results[1], random_tokens);
  }
  random_tokens.resize(3);
  EXPECT_EQ(greedy_tokens, expected_greedy);
  EXPECT_EQ(random_tokens, expected_random);
}

TEST(ModelExecutor, ScoresThePromptChunkByChunkAsAtOnce) {
  const auto executor = LoadTiny();
  const Request request{.prompt = Prompt(40, 11), .prompt_logprobs = 2};
  Running whole(request, 0), cut(request, 40);
  const auto at_once = executor->Execute(Plan({whole.Slice(40, true)}))[0];
  ASSERT_EQ(at_once.prompt_scores.size(), 39u);
  ASSERT_TRUE(at_once.sampled.has_value());

  std::vector<SampledToken> scores;
  for (const int64_t count : {1, 22, 17}) {
    const bool last = cut.sequence.computed + count == 40;
    const auto result = executor->Execute(Plan({cut.Slice(count, last)}))[0];
    EXPECT_EQ(result.prompt_scores.size(), static_cast<size_t>(last ? count - 1 : count));
    EXPECT_EQ(result.sampled.has_value(), last);
    scores.insert(scores.end(), result.prompt_scores.begin(), result.prompt_scores.end());
    cut.sequence.computed += count;
  }
  ASSERT_EQ(scores.size(), 39u);
  for (size_t i = 0; i < scores.size(); ++i) {
    EXPECT_EQ(scores[i].token, request.prompt[i + 1]);
    EXPECT_EQ(scores[i].logprob, at_once.prompt_scores[i].logprob);
    ASSERT_EQ(scores[i].top.size(), 2u);
    EXPECT_EQ(scores[i].top[0].token, at_once.prompt_scores[i].top[0].token);
    EXPECT_GE(scores[i].top[0].logprob, scores[i].top[1].logprob);
  }
}

TEST(ModelExecutor, LogitsInPartsScoreTheSame) {
  const Request request{.prompt = Prompt(40, 11), .prompt_logprobs = 0};
  const Running running(request, 0), other(request, 40);
  const StepPlan plan = Plan({running.Slice(40, true), other.Slice(40, true)});
  const auto expected = LoadTiny()->Execute(plan);
  ModelExecutor::Options options = TinyOptions();
  for (const int64_t rows : {0, 1, 7, 79}) {  // Of 80 rows; a part has one row at least.
    options.logits_memory = Bytes(rows * 2048 * 4);
    const auto results = LoadTiny(options)->Execute(plan);
    for (size_t i = 0; i < 2; ++i) {
      EXPECT_EQ(results[i].sampled->token, expected[i].sampled->token);
      ASSERT_EQ(results[i].prompt_scores.size(), 39u);
      for (size_t t = 0; t < 39; ++t) {
        EXPECT_EQ(results[i].prompt_scores[t].logprob, expected[i].prompt_scores[t].logprob);
      }
    }
  }
}

// After a preemption prompt and output are computed again in one slice; the next token must be what
// it would have been, and scores are of the prompt alone.
TEST(ModelExecutor, RecomputedSequenceGoesOnAsBefore) {
  const auto executor = LoadTiny();
  const Request request{
      .prompt = Prompt(20, 7), .sampling = {.temperature = 1, .seed = 4}, .prompt_logprobs = 0};
  const auto expected = Alone(*executor, request, 8);
  Running again(request, 60);
  again.sequence.tokens.insert(again.sequence.tokens.end(), expected.begin(), expected.begin() + 7);
  const auto result = executor->Execute(Plan({again.Slice(27, true)}))[0];
  EXPECT_EQ(result.sampled->token, expected[7]);
  EXPECT_EQ(result.prompt_scores.size(), 19u);
}

// A copy of the tiny model whose last norm is made of NaNs, and with it every logit.
std::filesystem::path BrokenModel() {
  const auto copy = std::filesystem::path(testing::TempDir()) / Format("no_numbers.{}", getpid());
  std::filesystem::copy(kModel, copy, std::filesystem::copy_options::recursive);
  std::fstream file(copy / "model.safetensors", std::ios::in | std::ios::out | std::ios::binary);
  uint64_t header_bytes = 0;
  file.read(reinterpret_cast<char*>(&header_bytes), sizeof header_bytes);
  std::string header(header_bytes, ' ');
  file.read(header.data(), static_cast<std::streamsize>(header_bytes));
  const Json tensors = Json::Parse(header).value();
  const Json& norm = *tensors.Find("model.norm.weight");
  CHECK(*norm.Find("dtype") == Json("BF16"));
  const auto& offsets = norm.Find("data_offsets")->as_array();
  const int64_t begin = offsets[0].as_int(), bytes = offsets[1].as_int() - begin;
  file.seekp(static_cast<std::streamoff>(8 + header_bytes) + begin);
  for (int64_t i = 0; i < bytes; i += 2) file.write("\xC0\x7F", 2);
  return copy;
}

TEST(ModelExecutor, OutputThatIsNoNumbersFailsItsSlices) {
  const auto directory = BrokenModel();
  ModelExecutor::Options options = TinyOptions();
  options.directory = directory;
  const auto executor = LoadTiny(options);
  std::filesystem::remove_all(directory);
  const Request greedy{.prompt = Prompt(20, 3), .sampling = {.temperature = 0}};
  const Request scored{.prompt = Prompt(20, 3), .prompt_logprobs = 1};
  const Running a(greedy, 0), b(scored, 20), c(greedy, 40);
  const auto results =
      executor->Execute(Plan({a.Slice(20, true), b.Slice(10, false), c.Slice(10, false)}));
  ASSERT_TRUE(results[0].failure);
  EXPECT_THAT(results[0].failure->message, HasSubstr("tokens 0 to 19"));
  ASSERT_TRUE(results[1].failure);
  EXPECT_FALSE(results[2].failure) << "it had no logits to look at";
}

// Copies pages [0, count) to those from `to` on, layer by layer, each opened when it is there, once
// somebody waits for it.
void FillSlowly(KvPages& pages, int count, BlockId to, LayerGate& gate) {
  const KvLayout layout = pages.layout();
  const auto bytes = static_cast<size_t>(layout.LayerBytes());
  for (int layer = 0; layer < layout.layers; ++layer) {
    while (gate.waiting().now == 0) std::this_thread::yield();
    for (BlockId page = 0; page < count; ++page) {
      std::memcpy(pages.Head(to + page, layer, 0), pages.Head(page, layer, 0), bytes);
    }
    gate.Open(layer + 1);
  }
}

TEST(ModelExecutor, AStepFollowsThePagesThatAreStillBeingFilled) {
  const auto executor = LoadTiny();
  Request request{.id = 1, .prompt = Prompt(70, 5)};
  Running whole(request, 0);
  const SampledToken expected = *executor->Execute(Plan({whole.Slice(70, true)}))[0].sampled;
  Running late(request, 20);
  late.sequence.computed = 64;
  LayerGate gate;
  StepSlice slice = late.Slice(6, true);
  slice.gate = &gate;
  std::thread filling([&] { FillSlowly(executor->pages(), 4, 20, gate); });
  const std::vector<SliceResult> results = executor->Execute(Plan({slice}));
  filling.join();
  EXPECT_FALSE(results[0].lost);
  EXPECT_EQ(results[0].sampled->token, expected.token);
  EXPECT_EQ(results[0].sampled->logprob, expected.logprob);
  EXPECT_GE(gate.waiting().waits, 1);
}

TEST(ModelExecutor, AFailedGateLosesItsSliceAlone) {
  const auto executor = LoadTiny();
  Running other({.id = 2, .prompt = Prompt(30, 9)}, 0);
  const SampledToken expected = *executor->Execute(Plan({other.Slice(30, true)}))[0].sampled;
  Running late({.id = 1, .prompt = Prompt(70, 5)}, 20);
  late.sequence.computed = 64;
  LayerGate gate;
  gate.Open(1);
  gate.Fail();
  StepSlice slice = late.Slice(6, true);
  slice.gate = &gate;
  const auto results = executor->Execute(Plan({slice, other.Slice(30, true)}));
  EXPECT_TRUE(results[0].lost);
  EXPECT_FALSE(results[0].failure.has_value());
  EXPECT_FALSE(results[1].lost);
  EXPECT_EQ(results[1].sampled->token, expected.token);
}

TEST(ModelExecutor, EmptyPlanDoesNothing) { EXPECT_TRUE(LoadTiny()->Execute({}).empty()); }

TEST(ModelExecutor, LoadReportsPhasesAndProgress) {
  ModelExecutor::Options options = TinyOptions();
  Bytes last_done, last_total;
  options.progress = [&](Bytes done, Bytes total) {
    EXPECT_GE(done, last_done);
    last_done = done;
    last_total = total;
  };
  const auto executor = LoadTiny(options);
  EXPECT_GT(last_total.value, 0);
  EXPECT_EQ(last_done, last_total);
  const ModelExecutor::LoadTimes& times = executor->load_times();
  EXPECT_GT(times.open.value, 0);
  EXPECT_GT(times.warm_up.value, 0);
  EXPECT_EQ(executor->max_model_len(), 2048);
  EXPECT_EQ(executor->threads(), 2);
  EXPECT_EQ(executor->pages().pages(), PagesThatFit(executor->pages().layout(), options.kv_memory));
}

TEST(ModelExecutor, LoadRefusesWhatCannotBeServed) {
  const SteadyClock clock;
  ModelExecutor::Options options = TinyOptions();
  options.max_model_len = 4096;
  auto refused = ModelExecutor::Load(options, clock);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, Code::kInvalidArgument);
  EXPECT_THAT(refused.error().message, HasSubstr("max_model_len is 4096; the model has 2048"));

  options = TinyOptions();
  options.kv_memory = Bytes(1000000);
  refused = ModelExecutor::Load(options, clock);
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(refused.error().message, HasSubstr("less than one sequence of 2048"));
  options.max_model_len = 512;
  EXPECT_TRUE(ModelExecutor::Load(options, clock).ok());

  options.directory = kModel / "nowhere";
  refused = ModelExecutor::Load(options, clock);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, Code::kNotFound);
}

TEST(PagesThatFit, CountsWholePages) {
  const KvLayout layout{.layers = 6, .kv_heads = 2, .head_dim = 32};
  // K and V of 16 tokens: 6 layers * 2 heads * 32 channels * 2 * 2 bytes * 16.
  EXPECT_EQ(layout.PageBytes(), 24576);
  EXPECT_EQ(PagesThatFit(layout, Bytes(24575)), 0);
  EXPECT_EQ(PagesThatFit(layout, Bytes(10 * 24576 + 1)), 10);
}

}  // namespace
}  // namespace divisi
