#include "divisi/plan/route.h"

#include <gtest/gtest.h>

#include "divisi/plan/flow.h"

namespace divisi {
namespace {

// Example 9.7: A holds the prefix and waits 250 ms, B waits 20 ms.
constexpr Seconds kHit = Seconds(0.03085740714666667);
constexpr Seconds kFull = Seconds(0.8872078095491282);
constexpr RemoteFetch kFetch{.state = Bytes(1207959552),
                             .lookup = Seconds(0.010),
                             .network = BytesPerSecond(6.25e9),
                             .host_to_device = BytesPerSecond(25e9)};
constexpr Seconds kLocal = Seconds(0.250 + 0.03085740714666667);

RouteTimes FetchRoute(BytesPerSecond network) {
  RemoteFetch fetch = kFetch;
  fetch.network = network;
  return {Seconds(0.020), fetch.Time(), kHit};
}

TEST(RouteTest, FetchesOverlapTheQueueOrFollowIt) {
  const RouteTimes route{Seconds(0.080), Seconds(0.060), Seconds(0.010)};
  EXPECT_NEAR(route.Overlapped().value, 0.090, 1e-12);
  EXPECT_NEAR(route.Serial().value, 0.150, 1e-12);
}

TEST(RouteTest, TimesOfTheFourRoutes) {
  EXPECT_NEAR(FetchRoute(BytesPerSecond(6.25e9)).Overlapped().value, 0.28244931754666663, 1e-12);
  EXPECT_NEAR(FetchRoute(BytesPerSecond(25e9)).Overlapped().value, 0.13749417130666666, 1e-12);
  EXPECT_EQ(FetchRoute(BytesPerSecond(0)).Overlapped(), kNever);
}

TEST(RouteTest, BandwidthsAtWhichAFetchBreaksEven) {
  const RouteTimes b = FetchRoute(kFetch.network);
  const BytesPerSecond hit = BreakEvenNetwork(kFetch, b, kLocal);
  EXPECT_NEAR(hit.value, 6.301906072726038e9, 1);
  EXPECT_NEAR(FetchRoute(hit).Overlapped().value, kLocal.value, 1e-12);
  const Seconds recompute = Seconds(0.020) + kFull;
  EXPECT_NEAR(BreakEvenNetwork(kFetch, b, recompute).value, 1.476665365157506e9, 1);
}

TEST(RouteTest, NoBandwidthBeatsWhatTheRestTakes) {
  const RouteTimes b = FetchRoute(kFetch.network);
  EXPECT_EQ(BreakEvenNetwork(kFetch, b, Seconds(0.089)).value, kNever.value);
  EXPECT_EQ(BreakEvenNetwork(kFetch, b, Seconds(0)).value, kNever.value);
  RouteTimes busy = b;
  busy.queue = Seconds(1);
  EXPECT_EQ(BreakEvenNetwork(kFetch, busy, kLocal).value, kNever.value);
  RemoteFetch cut = kFetch;
  cut.host_to_device = BytesPerSecond(0);
  EXPECT_EQ(BreakEvenNetwork(cut, b, kNever).value, kNever.value);
}

TEST(RouteTest, MeanAndTailOfAnUncertainHit) {
  const UncertainHit a{Seconds(0.080) + kHit, Seconds(0.080) + kFull};
  EXPECT_NEAR(a.At(0.9).Mean().value, 0.19649244738691283, 1e-12);
  EXPECT_EQ(a.At(0.5).Quantile(0.99), a.miss);
  EXPECT_EQ(a.At(0.9).Quantile(0.99), a.miss);
  EXPECT_EQ(a.At(0.99).Quantile(0.99), a.hit);
  EXPECT_EQ(a.At(1).Quantile(1), a.hit);
  EXPECT_EQ(a.At(0).Quantile(1e-6), a.miss);
}

TEST(RouteTest, AvailabilityThatATargetNeeds) {
  const UncertainHit a{Seconds(0.080) + kHit, Seconds(0.080) + kFull};
  EXPECT_NEAR(a.AvailabilityForMean(Seconds(0.020) + kFull), 0.07006477702547001, 1e-12);
  EXPECT_EQ(a.AvailabilityForQuantile(0.99, Seconds(0.220)), 0.99);
  EXPECT_EQ(a.AvailabilityForMean(Seconds(1)), 0);
  EXPECT_EQ(a.AvailabilityForQuantile(0.99, Seconds(1)), 0);
  EXPECT_EQ(a.AvailabilityForMean(Seconds(0.1)), kNever.value);
  EXPECT_EQ(a.AvailabilityForQuantile(0.99, Seconds(0.1)), kNever.value);
  EXPECT_EQ((UncertainHit{Seconds(1), kNever}).AvailabilityForMean(Seconds(2)), 1);
}

TEST(RouteTest, ACopyInHostMemoryEndsTheTwoPointModel) {
  const RouteTimes host{Seconds(0.080), Seconds(0.0483), kHit};
  const Outcomes alone = CopyOutcomes({0.9, 0}, host, kFull);
  EXPECT_NEAR(alone.Mean().value, 0.19649244738691283, 1e-12);
  EXPECT_EQ(alone.points().size(), 2u);
  // The fetch is shorter than the queue: every outcome is a hit's.
  const Outcomes covered = CopyOutcomes({0.5, 1}, host, kFull);
  ASSERT_EQ(covered.points().size(), 1u);
  EXPECT_NEAR(covered.Quantile(0.99).value, 0.080 + kHit.value, 1e-12);
  // A slower fetch makes a third point between the two.
  const Outcomes three = CopyOutcomes({0.5, 0.9}, {Seconds(0.080), Seconds(0.2), kHit}, kFull);
  ASSERT_EQ(three.points().size(), 3u);
  EXPECT_NEAR(three.Quantile(0.95).value, 0.2 + kHit.value, 1e-12);
  EXPECT_NEAR(three.Quantile(0.96).value, 0.080 + kFull.value, 1e-12);
}

TEST(RouteTest, AFetchSlowerThanRecomputingIsNotMade) {
  const Outcomes slow = CopyOutcomes({0.5, 1}, {Seconds(0.080), Seconds(2), kHit}, kFull);
  EXPECT_NEAR(slow.Quantile(1).value, 0.080 + kFull.value, 1e-12);
  const Outcomes cut = CopyOutcomes({0.5, 1}, {Seconds(0.080), kNever, kHit}, kFull);
  EXPECT_NEAR(cut.Quantile(1).value, 0.080 + kFull.value, 1e-12);
}

TEST(RouteTest, QuantilesInvertTheDistribution) {
  const Outcomes three({{0.2, Seconds(3)}, {0.5, Seconds(1)}, {0.3, Seconds(2)}});
  for (int percent = 1; percent <= 100; ++percent) {
    const double q = percent / 100.0;
    const double expected = percent <= 50 ? 1 : percent <= 80 ? 2 : 3;
    EXPECT_EQ(three.Quantile(q).value, expected) << percent;
  }
}

TEST(RouteTest, PreparationsFollowEachOther) {
  const Seconds steps[] = {Seconds(0.004666), Seconds(0.008)};
  EXPECT_DOUBLE_EQ(SerialPreparation(steps).value, 0.012666);
}

}  // namespace
}  // namespace divisi
