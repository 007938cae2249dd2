#include "divisi/plan/kv_tiers.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "divisi/plan/example_models.h"
#include "divisi/plan/flow.h"

namespace divisi {
namespace {

constexpr Bytes kPrefix = Bytes(1207959552);  // 8192 tokens of Qwen3-8B
constexpr Seconds kPrefill = Seconds(0.856358380990359);
constexpr TierRates kRates{BytesPerSecond(25e9), BytesPerSecond(7.1e9), BytesPerSecond(25e9)};
constexpr DeviceRates kA100{FlopsPerSecond(156e12), BytesPerSecond(1019.5e9)};

TEST(KvTiersTest, TiersKeepWhatACardMakes) {
  const BytesPerSecond made = ProductionRate(kPrefix, kPrefill);
  EXPECT_NEAR(made.value, 1.4105771354780485e9, 1);
  EXPECT_NEAR(Residence(Bytes(int64_t{256} << 30), made).value, 194.86910714091727, 1e-9);
  EXPECT_NEAR(Residence(Bytes(3840000000000), made).value, 2722.289978632479, 1e-8);
  EXPECT_EQ(CapacityToKeep(made, Seconds(10)).value, 14105771355);
  EXPECT_NEAR(ProductionRate(kPrefix, kPrefill, 0.5).value, made.value / 2, 1e-6);
}

TEST(KvTiersTest, NothingMadeIsKeptForEver) {
  EXPECT_EQ(Residence(Bytes(1), BytesPerSecond(0)), kNever);
  EXPECT_EQ(CapacityToKeep(BytesPerSecond(0), kNever), Bytes(0));
  EXPECT_EQ(ProductionRate(Bytes(0), Seconds(0)).value, 0);
  EXPECT_EQ(ProductionRate(kPrefix, kPrefill, 1.5).value, 0);
}

TEST(KvTiersTest, CapacityBeyondCountingIsTheLargest) {
  EXPECT_EQ(CapacityToKeep(BytesPerSecond(1e12), Seconds(1e300)).value, INT64_MAX);
}

TEST(KvTiersTest, FetchesByTier) {
  EXPECT_EQ(FetchTime(kPrefix, Tier::kDevice, kRates), Seconds(0));
  EXPECT_DOUBLE_EQ(FetchTime(kPrefix, Tier::kHost, kRates).value, 0.04831838208);
  EXPECT_DOUBLE_EQ(FetchTime(kPrefix, Tier::kDisk, kRates).value, 0.1701351481690141);
  EXPECT_DOUBLE_EQ(FetchTime(kPrefix, Tier::kRemote, kRates).value, 0.09663676416);
  EXPECT_EQ(FetchTime(kPrefix, Tier::kRemote, {BytesPerSecond(1), {}, {}}), kNever);
}

TEST(KvTiersTest, HostMemoryBoundsPrefetching) {
  EXPECT_EQ(WholeObjects(Bytes(int64_t{256} << 30), kPrefix), 227);
  EXPECT_EQ(WholeObjects(Bytes(1), Bytes(0)), 0);
  EXPECT_EQ(WholeObjects(Bytes(-1), Bytes(1)), 0);
}

TEST(KvTiersTest, LayerwiseLoadingWaitsForTheSlowerOfReadAndCompute) {
  const LayerwiseLoad read_bound{36, Seconds(0.04831838208), Seconds(0.03085740714666667)};
  EXPECT_NEAR(read_bound.Serial().value, 0.07917578922666667, 1e-12);
  EXPECT_NEAR(read_bound.Total().value, 0.049175532278518524, 1e-12);
  EXPECT_EQ(read_bound.BufferLayers(), 14);
  EXPECT_EQ(read_bound.LayersToHide(), 14);
  EXPECT_EQ(read_bound.Total(14), read_bound.compute);
  EXPECT_NEAR(BufferBytes(kPrefix, read_bound).value, 436.5243733333333e6, 1);

  const LayerwiseLoad compute_bound{10, Seconds(1), Seconds(2)};
  EXPECT_DOUBLE_EQ(compute_bound.Total().value, 2.1);
  EXPECT_EQ(compute_bound.BufferLayers(), 0);
  EXPECT_EQ(compute_bound.LayersToHide(), 1);
  EXPECT_EQ(BufferBytes(kPrefix, compute_bound), Bytes(0));
}

// A twin that walks the layers: a layer starts when it was read and the one before it is done.
double WalkLayers(const LayerwiseLoad& load, int preloaded) {
  double read = 0;
  double end = 0;
  for (int layer = 0; layer < load.layers; ++layer) {
    if (layer >= preloaded) read += load.read.value / load.layers;
    end = std::max(end, layer >= preloaded ? read : 0) + load.compute.value / load.layers;
  }
  return end;
}

TEST(KvTiersTest, LayerwiseTotalIsThatOfAWalkOverLayers) {
  for (const double read : {0.1, 0.5, 1.0, 1.7, 20.0}) {
    for (int layers = 1; layers <= 9; ++layers) {
      const LayerwiseLoad load{layers, Seconds(read), Seconds(1)};
      for (int preloaded = 0; preloaded <= layers; ++preloaded) {
        EXPECT_NEAR(load.Total(preloaded).value, WalkLayers(load, preloaded), 1e-12)
            << read << " " << layers << " " << preloaded;
      }
    }
  }
}

TEST(KvTiersTest, AReadThatNeverEndsNeedsAllLayers) {
  const LayerwiseLoad load{36, kNever, Seconds(1)};
  EXPECT_EQ(load.BufferLayers(), 36);
  EXPECT_EQ(load.LayersToHide(), 36);
  EXPECT_EQ(load.Total(), kNever);
  EXPECT_EQ(BufferBytes(kPrefix, load), kPrefix);
  EXPECT_EQ(LayerwiseLoad({1, Seconds(0), Seconds(0)}).BufferLayers(), 0);
}

TEST(KvTiersTest, NewTokensThatHideARead) {
  const ModelCost model(ExampleQwen3_8B(), {});
  const auto hide = [&](Tier tier) {
    return TokensToHide(model, kA100, Tokens(8192), FetchTime(kPrefix, tier, kRates));
  };
  EXPECT_EQ(hide(Tier::kHost), Tokens(400));
  EXPECT_EQ(hide(Tier::kRemote), Tokens(796));
  EXPECT_EQ(hide(Tier::kDisk), Tokens(1388));
  EXPECT_EQ(hide(Tier::kDevice), Tokens(1));
  EXPECT_EQ(TokensToHide(model, kA100, Tokens(8192), kNever), std::nullopt);
}

TEST(KvTiersTest, EnduranceBoundsWhatADiskTakes) {
  const Endurance disk{Bytes(3840000000000), 1, Seconds(5 * 365 * 86400.0)};
  const BytesPerSecond made = ProductionRate(kPrefix, kPrefill);
  EXPECT_NEAR(disk.AllowedWrites().value, 44.44444444444445e6, 1e-6);
  EXPECT_NEAR(disk.Excess(made), 31.73798554825609, 1e-9);
  EXPECT_NEAR(disk.SustainedShare(made), 0.03150798586380184, 1e-12);
  EXPECT_LT(disk.LifeAt(made).value, 60 * 86400.0);  // "less than two months"
  EXPECT_EQ(disk.SustainedShare(BytesPerSecond(1)), 1);
  EXPECT_EQ(disk.LifeAt(BytesPerSecond(0)), kNever);
  EXPECT_EQ(Endurance{}.LifeAt(made), Seconds(0));
  EXPECT_EQ(Endurance{}.SustainedShare(made), 0);
}

}  // namespace
}  // namespace divisi
