#include "divisi/plan/recovery.h"

#include <gtest/gtest.h>

#include "divisi/plan/example_models.h"

namespace divisi {
namespace {

constexpr DeviceRates kA100{FlopsPerSecond(156e12), BytesPerSecond(1019.5e9)};

// Section 9.6.3: 8192 tokens in, 1025 returned and logged, KV saved of the input.
constexpr Interrupted kExample{.prompt = Tokens(8192),
                               .returned = Tokens(1025),
                               .logged = Tokens(1025),
                               .checkpoint = Tokens(8192)};

TEST(RecoveryTest, AllButTheLastLoggedTokenIsReplayed) {
  const Recovery recovery = RecoveryOf(kExample);
  EXPECT_EQ(recovery.reused, Tokens(8192));
  EXPECT_EQ(recovery.replayed, Tokens(1024));
  EXPECT_EQ(recovery.rebuilt, Tokens(9216));
  EXPECT_EQ(recovery.last, Tokens(9216));
  EXPECT_EQ(recovery.regenerated, Tokens(0));
}

TEST(RecoveryTest, ACheckpointOfAllReplaysNothing) {
  Interrupted request = kExample;
  request.checkpoint = Tokens(9216);
  EXPECT_EQ(RecoveryOf(request).replayed, Tokens(0));
  const ModelCost model(ExampleQwen3_8B(), {});
  EXPECT_EQ(TimeOf(RecoveryOf(request), model, kA100).replay, Seconds(0));
}

TEST(RecoveryTest, WithoutKvTheWholeKnownSequenceIsReplayed) {
  Interrupted request = kExample;
  request.checkpoint = Tokens(0);
  EXPECT_EQ(RecoveryOf(request).replayed, Tokens(9216));
}

TEST(RecoveryTest, WithoutLogTheOutputIsMadeAgain) {
  Interrupted request = kExample;
  request.logged = Tokens(0);
  const Recovery recovery = RecoveryOf(request);
  EXPECT_EQ(recovery.last, Tokens(8191));  // The prompt's last token makes the first of output.
  EXPECT_EQ(recovery.reused, Tokens(8191));
  EXPECT_EQ(recovery.replayed, Tokens(0));
  EXPECT_EQ(recovery.regenerated, Tokens(1025));
}

TEST(RecoveryTest, KvBeyondTheLogIsNotUsed) {
  Interrupted request = kExample;
  request.logged = Tokens(100);
  request.checkpoint = Tokens(9000);
  const Recovery recovery = RecoveryOf(request);
  EXPECT_EQ(recovery.reused, Tokens(8291));
  EXPECT_EQ(recovery.replayed, Tokens(0));
  EXPECT_EQ(recovery.regenerated, Tokens(925));
}

TEST(RecoveryTest, ReplayIsFasterThanGeneratingAgain) {
  const ModelCost model(ExampleQwen3_8B(), {});
  const RecoveryTime logged = TimeOf(RecoveryOf(kExample), model, kA100);
  EXPECT_NEAR(logged.replay.value,
              TimeOf(model.Prefill(Tokens(1024), Tokens(8192)), kA100).Total().value, 1e-15);
  Interrupted lost = kExample;
  lost.logged = Tokens(0);
  const RecoveryTime again = TimeOf(RecoveryOf(lost), model, kA100);
  EXPECT_GT(again.Total().value, 10 * logged.Total().value);
}

TEST(RecoveryTest, RegenerationIsTheSumOfItsSteps) {
  const ModelCost model(ExampleQwen3_8B(), {});
  const Recovery recovery = RecoveryOf({Tokens(10), Tokens(5), Tokens(1), Tokens(0)});
  double sum = 0;
  for (int step = 1; step <= 4; ++step) {
    sum += TimeOf(model.DecodeStep(1, 10 + step), kA100).Total().value;
  }
  EXPECT_NEAR(TimeOf(recovery, model, kA100).regenerate.value, sum, 1e-12);
}

}  // namespace
}  // namespace divisi
