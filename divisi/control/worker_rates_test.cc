#include "divisi/control/worker_rates.h"

#include <gtest/gtest.h>

#include "divisi/core/random.h"

namespace divisi {
namespace {

constexpr WorkerRates kTrue{.step = Seconds(5e-3),
                            .per_token = Seconds(3e-4),
                            .per_pair = Seconds(4e-7),
                            .per_sequence = Seconds(6e-4)};

Seconds TimeOf(const StepWork& work) {
  return kTrue.step + kTrue.per_token * work.prompt_tokens + kTrue.per_pair * work.pairs +
         kTrue.per_sequence * work.decodes;
}

StepWork Chunk(double tokens, double before, double decodes) {
  return {tokens, tokens * before + tokens * (tokens + 1) / 2, decodes};
}

// One step in ten takes three times as long as it should, as on a machine with other guests.
StepMeter Measured(Random& random, int steps) {
  StepMeter meter;
  for (int i = 0; i < steps; ++i) {
    const auto decodes = static_cast<double>(random.Between(0, 8));
    const StepWork work = random.Chance(0.3)
                              ? Chunk(static_cast<double>(random.Between(1, 256)),
                                      static_cast<double>(random.Between(0, 4096)), decodes)
                              : StepWork{.decodes = decodes + 1};
    const double noise = random.Chance(0.1) ? 3 : 1 + 0.05 * random.Uniform();
    meter.Add(work, TimeOf(work) * noise);
  }
  return meter;
}

TEST(WorkerRatesTest, FindsTheTermsOfNoisySteps) {
  Random random(1);
  WorkerRates rates;
  Measured(random, 2000).Fit(rates);
  EXPECT_EQ(rates.steps, 2000);
  // What matters is what they predict.
  for (const int64_t tokens : {16, 128, 1024, 4096}) {
    EXPECT_NEAR(rates.Prefill(tokens, 256, 4) / kTrue.Prefill(tokens, 256, 4), 1, 0.2) << tokens;
  }
  EXPECT_NEAR(rates.DecodeStep(1) / kTrue.DecodeStep(1), 1, 0.2);
  EXPECT_NEAR(rates.DecodeStep(8) / kTrue.DecodeStep(8), 1, 0.2);
}

TEST(WorkerRatesTest, DecodesDoNotMakeItForgetPrompts) {
  Random random(2);
  StepMeter meter = Measured(random, 2000);
  for (int i = 0; i < 5000; ++i) meter.Add({.decodes = 4}, TimeOf({.decodes = 4}));
  WorkerRates rates;
  meter.Fit(rates);
  EXPECT_NEAR(rates.PromptWork(1024) / kTrue.PromptWork(1024), 1, 0.2);
}

TEST(WorkerRatesTest, FollowsAChange) {
  Random random(3);
  StepMeter meter = Measured(random, 1000);
  for (int i = 0; i < 1000; ++i) {
    const StepWork work = i % 2 == 0
                              ? Chunk(static_cast<double>(random.Between(1, 256)),
                                      static_cast<double>(random.Between(0, 4096)), i % 4)
                              : StepWork{.decodes = static_cast<double>(random.Between(1, 8))};
    meter.Add(work, TimeOf(work) * 4);
  }
  WorkerRates rates;
  meter.Fit(rates);
  EXPECT_NEAR(rates.PromptWork(512) / kTrue.PromptWork(512), 4, 1);
}

TEST(WorkerRatesTest, NothingMeasuredLeavesTheAssumptions) {
  WorkerRates rates;
  StepMeter().Fit(rates);
  WriteMeter().Fit(rates);
  EXPECT_EQ(rates.per_token, WorkerRates().per_token);
  EXPECT_EQ(rates.write, WorkerRates().write);
  EXPECT_EQ(rates.steps, 0);
}

// Steps of one kind alone: the sum is right, and no term is below nothing.
TEST(WorkerRatesTest, OneKindOfStepGivesNoNonsense) {
  StepMeter meter;
  for (int i = 0; i < 500; ++i) meter.Add(Chunk(64, 0, 0), Seconds(0.5e-3));
  WorkerRates rates;
  meter.Fit(rates);
  EXPECT_GE(rates.step, Seconds(0));
  EXPECT_GE(rates.per_token, Seconds(0));
  EXPECT_GE(rates.per_sequence, Seconds(0));
  EXPECT_NEAR(rates.Prefill(64, 64, 0).value, 0.5e-3, 0.1e-3);
}

TEST(WorkerRatesTest, WritesThatOverlapShareTheirTime) {
  WriteMeter meter;
  meter.Begin(Seconds(0));
  meter.Begin(Seconds(0));
  meter.End(Bytes(1000), Seconds(1));
  meter.End(Bytes(1000), Seconds(2));
  meter.Begin(Seconds(100));  // Nothing was on its way for long.
  meter.End(Bytes(1000), Seconds(101));
  WorkerRates rates;
  meter.Fit(rates);
  EXPECT_NEAR(rates.write.value, 1000, 1);
  EXPECT_EQ(rates.writes, 3);
}

TEST(WorkerRatesTest, CountsAStepsWork) {
  Sequence prompt{.request = {.prompt = std::vector<TokenId>(40)},
                  .tokens = std::vector<TokenId>(40)};
  Sequence running{.request = {.prompt = std::vector<TokenId>(4)},
                   .tokens = std::vector<TokenId>(6)};
  const StepPlan plan{.slices = {{.sequence = &running, .start = 5, .count = 1, .sample = true},
                                 {.sequence = &prompt, .start = 16, .count = 24, .sample = true}},
                      .tokens = 25};
  const StepWork work = WorkOf(plan);
  EXPECT_EQ(work.decodes, 1);
  EXPECT_EQ(work.prompt_tokens, 24);
  EXPECT_EQ(work.pairs, 24 * 16 + 24 * 25 / 2);
}

}  // namespace
}  // namespace divisi
