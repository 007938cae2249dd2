#include "divisi/plan/kv_reuse.h"

#include <gtest/gtest.h>

#include "divisi/plan/flow.h"

namespace divisi {
namespace {

constexpr Bytes kPrefix = Bytes(1207959552);
constexpr Bytes kLatentPrefix = Bytes(575668224);  // 8192 tokens of MLA, 61 layers
constexpr Seconds kPrefill = Seconds(0.856358380990359);
constexpr BytesPerSecond kLink = BytesPerSecond(25e9);

ReuseTimes Over(BytesPerSecond link) {
  return {TimeToMove(kPrefix, link), TimeToMove(kPrefix, link), kPrefill};
}

TEST(KvReuseTest, OneUsePaysOverAFastLink) {
  EXPECT_DOUBLE_EQ(Over(kLink).Stored(1).value, 0.09663676416);
  EXPECT_TRUE(Over(kLink).StoringPays(1));
  EXPECT_EQ(Over(kLink).UsesToPay(), 1);
}

TEST(KvReuseTest, SlowerLinksNeedMoreUses) {
  EXPECT_FALSE(Over(BytesPerSecond(2.8e9)).StoringPays(1));
  EXPECT_EQ(Over(BytesPerSecond(2.8e9)).UsesToPay(), 2);
  EXPECT_GT(Over(BytesPerSecond(1.45e9)).UsesToPay().value_or(0), 10);
  EXPECT_EQ(Over(BytesPerSecond(1.25e9)).UsesToPay(), std::nullopt);
  EXPECT_EQ(Over(BytesPerSecond(0)).UsesToPay(), std::nullopt);
}

TEST(KvReuseTest, UsesToPayIsTheFirstThatPays) {
  for (double rate = 1.42e9; rate < 4e9; rate += 0.07e9) {
    const ReuseTimes times = Over(BytesPerSecond(rate));
    const double uses = times.UsesToPay().value_or(0);
    EXPECT_TRUE(times.StoringPays(uses)) << rate;
    EXPECT_FALSE(times.StoringPays(uses - 1)) << rate;
  }
}

TEST(KvReuseTest, SavingIsTheDifferenceOfTheTwo) {
  EXPECT_NEAR(Over(kLink).Saved(1).value, 0.759721616830359, 1e-12);
  EXPECT_LT(Over(BytesPerSecond(1e9)).Saved(1).value, 0);
  EXPECT_EQ((ReuseTimes{kNever, Seconds(1), kNever}).Saved(1), Seconds(0));
}

TEST(KvReuseTest, BreakEvenFallsToTheRateOfMaking) {
  EXPECT_NEAR(BreakEvenBandwidth(kPrefix, 1, kPrefill).value, 2.821154270956097e9, 1);
  EXPECT_NEAR(BreakEvenBandwidth(kPrefix, 1e9, kPrefill).value, 1.4105771354780485e9, 10);
  const BytesPerSecond even = BreakEvenBandwidth(kPrefix, 3, kPrefill);
  EXPECT_NEAR(Over(even).Stored(3).value, Over(even).Recomputed(3).value, 1e-12);
  EXPECT_EQ(BreakEvenBandwidth(kPrefix, 0, kPrefill).value, kNever.value);
  EXPECT_EQ(BreakEvenBandwidth(kPrefix, 1, Seconds(0)).value, kNever.value);
}

TEST(KvReuseTest, ReadingEveryStepTakesTheLink) {
  const RepeatedReads reads{kPrefix, 100};
  EXPECT_DOUBLE_EQ(reads.LinkTime(kLink).value, 4.831838208);
  EXPECT_DOUBLE_EQ(reads.NeededBandwidth(Seconds(1)).value, 120.7959552e9);
  const RepeatedReads latent{kLatentPrefix, 100};
  EXPECT_DOUBLE_EQ(latent.NeededBandwidth(Seconds(1)).value, 57.5668224e9);
  EXPECT_EQ(reads.LinkTime(BytesPerSecond(0)), kNever);
  EXPECT_EQ(reads.NeededBandwidth(Seconds(0)).value, kNever.value);
  EXPECT_EQ(RepeatedReads({kPrefix, 0}).LinkTime(BytesPerSecond(0)), Seconds(0));
  EXPECT_EQ(RepeatedReads({kPrefix, 1e300}).Total().value, INT64_MAX);
}

TEST(KvReuseTest, HoldingIsBytesTimesSeconds) {
  EXPECT_EQ(HeldByteSeconds(kPrefix, Seconds(10)), 11.25 * (1 << 30));
  EXPECT_EQ(HeldByteSeconds(kLatentPrefix, Seconds(10)), 5.361328125 * (1 << 30));
}

TEST(KvReuseTest, AReuseIsAThirdMoveThroughThePool) {
  const PoolTraffic pair{kPrefix, 3};
  EXPECT_EQ(pair.PerRequest().value, int64_t{3456} << 20);  // 3.375 GiB
  EXPECT_NEAR(pair.At(PerSecond(3.5)).value, 12.683575296e9, 1e-3);
  EXPECT_NEAR(pair.MostRequests(kLink).value, 6.898685737892434, 1e-12);
  EXPECT_EQ(PoolTraffic({kPrefix, 0}).MostRequests(kLink).value, kNever.value);
}

}  // namespace
}  // namespace divisi
