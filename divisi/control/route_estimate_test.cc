#include "divisi/control/route_estimate.h"

#include <gtest/gtest.h>

namespace divisi {
namespace {

constexpr double kNear = 1e-9;
constexpr auto kHost = static_cast<size_t>(Tier::kHost);
constexpr auto kDisk = static_cast<size_t>(Tier::kDisk);
constexpr auto kPool = static_cast<size_t>(Tier::kRemote);
constexpr auto kPeer = static_cast<size_t>(Tier::kPeer);

// 1 ms a step of 1000 tokens, 0.1 ms a token; a page of 16 tokens is read in 0.16 ms from host
// memory, in 0.8 ms from the disk, in 0.4 ms from the pool, which says what it has within 2 ms, in
// 0.2 ms from a peer.
RouteWorker Worker(Seconds queue = Seconds(0)) {
  RouteWorker worker{.queue = queue, .chunk = 1000};
  worker.rates = {.step = Seconds(1e-3), .per_token = Seconds(1e-4), .per_sequence = Seconds(1e-4)};
  worker.rates.read = {BytesPerSecond(0), BytesPerSecond(1e8), BytesPerSecond(2e7),
                       BytesPerSecond(4e7), BytesPerSecond(8e7)};
  worker.rates.lookup = Seconds(2e-3);
  return worker;
}

constexpr RouteSetting kSetting{.bytes_per_token = Bytes(1000)};

TEST(RouteEstimateTest, WithoutAPrefixAllIsComputed) {
  const RouteEstimate at = EstimateRoute(1500, Worker(Seconds(0.05)), kSetting);
  EXPECT_EQ(at.cached, 0);
  EXPECT_NEAR(at.times.queue.value, 0.05, kNear);
  EXPECT_EQ(at.times.ready, Seconds(0));
  EXPECT_NEAR(at.times.compute.value, 0.15 + 2e-3, kNear);
  EXPECT_NEAR(at.work.value, 0.15, kNear);
  EXPECT_NEAR(at.cost().value, 0.202, kNear);
}

TEST(RouteEstimateTest, WhatIsOnTheDeviceIsReadyAtOnce) {
  RouteWorker worker = Worker();
  worker.prefix.tokens = {960, 960, 960, 960};
  const RouteEstimate at = EstimateRoute(1000, worker, kSetting);
  EXPECT_EQ(at.cached, 960);
  EXPECT_EQ(at.from[0], 960);
  EXPECT_EQ(at.times.ready, Seconds(0));
  EXPECT_NEAR(at.expected.value, 4e-3 + 1e-3, kNear);
}

// Sharing stops short of the last token, in whole pages.
TEST(RouteEstimateTest, TheLastTokenIsAlwaysComputed) {
  RouteWorker worker = Worker();
  worker.prefix.tokens = {960, 960, 960, 960};
  EXPECT_EQ(EstimateRoute(960, worker, kSetting).cached, 944);
  EXPECT_EQ(EstimateRoute(961, worker, kSetting).cached, 960);
  EXPECT_EQ(EstimateRoute(1, worker, kSetting).cached, 0);
}

TEST(RouteEstimateTest, ReadsOverlapTheQueue) {
  RouteWorker worker = Worker();
  worker.prefix.tokens = {0, 960, 960, 960};
  // 960 kB at 100 MB/s: 9.6 ms.
  EXPECT_NEAR(EstimateRoute(1000, worker, kSetting).expected.value, 9.6e-3 + 5e-3, kNear);
  worker.queue = Seconds(8e-3);
  EXPECT_NEAR(EstimateRoute(1000, worker, kSetting).expected.value, 9.6e-3 + 5e-3, kNear);
  worker.queue = Seconds(0.02);
  EXPECT_NEAR(EstimateRoute(1000, worker, kSetting).expected.value, 0.02 + 5e-3, kNear);
}

TEST(RouteEstimateTest, AttentionToWhatIsCachedIsComputed) {
  RouteWorker worker = Worker();
  worker.rates.per_pair = Seconds(1e-6);
  worker.prefix.tokens = {960, 960, 960, 960};
  // 40 tokens that follow 960: 40 * 960 + 40 * 41 / 2 pairs.
  EXPECT_NEAR(EstimateRoute(1000, worker, kSetting).work.value, 4e-3 + 39220e-6, kNear);
}

TEST(RouteEstimateTest, ReadingLessIsTakenWhereComputingTheRestIsSooner) {
  RouteWorker worker = Worker();
  worker.prefix.tokens = {320, 640, 960, 960};
  worker.rates.read[kDisk] = BytesPerSecond(5e6);  // 0.2 ms a token; computing takes half.
  const RouteEstimate at = EstimateRoute(1000, worker, kSetting);
  EXPECT_EQ(at.cached, 640);
  EXPECT_EQ(at.from[0], 320);
  EXPECT_EQ(at.from[kHost], 320);
  EXPECT_NEAR(at.expected.value, 3.2e-3 + 36e-3 + 1e-3, kNear);
  // While the prompt waits anyway, the slow read costs nothing.
  worker.queue = Seconds(0.1);
  EXPECT_EQ(EstimateRoute(1000, worker, kSetting).cached, 960);
  EXPECT_NEAR(EstimateRoute(1000, worker, kSetting).expected.value, 0.1 + 5e-3, kNear);
  // And where nothing is quick, all is computed.
  worker.queue = Seconds(0);
  worker.prefix.tokens = {0, 0, 960, 960};
  EXPECT_EQ(EstimateRoute(1000, worker, kSetting).cached, 0);
}

TEST(RouteEstimateTest, ReadsAheadOnTheSameLinksCount) {
  RouteWorker worker = Worker();
  worker.prefix.tokens = {0, 960, 960, 960};
  worker.reading[kHost] = Bytes(500'000);  // 5 ms
  worker.reading[kDisk] = Bytes(100'000);  // 5 ms
  const RouteEstimate at = EstimateRoute(1000, worker, kSetting);
  EXPECT_NEAR(at.links.value, 0.01, kNear);
  EXPECT_NEAR(at.times.ready.value, 0.01 + 9.6e-3, kNear);
  // They hold up no one who reads nothing.
  worker.prefix.tokens = {960, 960, 960, 960};
  EXPECT_EQ(EstimateRoute(1000, worker, kSetting).times.ready, Seconds(0));
}

TEST(RouteEstimateTest, ThePoolIsAskedAndItsBandwidthShared) {
  RouteWorker worker = Worker();
  worker.prefix.tokens = {0, 0, 0, 960};
  RouteSetting setting = kSetting;
  // 24 ms at the worker's own rate, after 2 ms.
  RouteEstimate at = EstimateRoute(1000, worker, setting);
  EXPECT_NEAR(at.times.ready.value, 26e-3, kNear);
  EXPECT_EQ(at.from[kPool], 960);
  // The pool gives 80 MB/s in all, of which two others take their parts: 3 * 960 kB.
  setting.pool = {.rate = BytesPerSecond(8e7), .under_way = Bytes(10'000'000), .reads = 2};
  at = EstimateRoute(1000, worker, setting);
  EXPECT_NEAR(at.times.ready.value, 2e-3 + 36e-3, kNear);
  // They are nearly through: the worker's own link is slower again.
  setting.pool.under_way = Bytes(80'000);
  EXPECT_NEAR(EstimateRoute(1000, worker, setting).times.ready.value, 26e-3, kNear);
}

// Without a question, and quicker: 12 ms; in the pool's place, where the worker's own tiers end.
TEST(RouteEstimateTest, APeersHostMemoryIsOneMoreSource) {
  RouteWorker worker = Worker();
  worker.asks_pool = true;
  worker.prefix.tokens = {0, 0, 0, 960};
  worker.prefix.peer = {.node = {7}, .tokens = 960};
  RouteEstimate at = EstimateRoute(1000, worker, kSetting);
  EXPECT_EQ(at.from[kPeer], 960);
  EXPECT_EQ(at.from[kPool], 0);
  EXPECT_EQ(at.peer, NodeId{7});
  EXPECT_EQ(at.lookup, Seconds(0));
  EXPECT_NEAR(at.times.ready.value, 12e-3, kNear);
  worker.prefix.tokens = {160, 320, 320, 960};
  at = EstimateRoute(1000, worker, kSetting);
  EXPECT_EQ(at.from, (std::array<int64_t, kSources>{160, 160, 0, 0, 640}));
  EXPECT_NEAR(at.times.ready.value, 1.6e-3 + 8e-3, kNear);
  // The pool is quicker.
  worker.rates.read[kPool] = BytesPerSecond(1e9);
  at = EstimateRoute(1000, worker, kSetting);
  EXPECT_EQ(at.from[kPool], 640);
  EXPECT_FALSE(at.peer);
  // A peer that has no more than the worker itself is none.
  worker.prefix.tokens = {160, 320, 320, 320};
  worker.prefix.peer.tokens = 320;
  EXPECT_FALSE(EstimateRoute(1000, worker, kSetting).peer);
}

TEST(RouteEstimateTest, APeersLinkIsSharedAndItsCopyMayBeGone) {
  RouteWorker worker = Worker();
  worker.prefix.peer = {.node = {7}, .tokens = 960};
  // Two others read there, together at 80 MB/s: 3 * 960 kB.
  worker.prefix.peer.link = {
      .rate = BytesPerSecond(8e7), .under_way = Bytes(9'000'000), .reads = 2};
  EXPECT_NEAR(EstimateRoute(1000, worker, kSetting).times.ready.value, 36e-3, kNear);
  // What this one reads from others goes before, too.
  worker.reading[kPeer] = Bytes(80'000);
  EXPECT_NEAR(EstimateRoute(1000, worker, kSetting).times.ready.value, 37e-3, kNear);
  worker.prefix.peer.link = {};
  worker.reading = {};
  worker.prefix.peer.odds = 0.75;
  EXPECT_NEAR(EstimateRoute(1000, worker, kSetting).expected.value,
              0.75 * (12e-3 + 5e-3) + 0.25 * 0.101, kNear);
  // Sooner computed than read.
  worker.rates.read[kPeer] = BytesPerSecond(5e6);
  EXPECT_EQ(EstimateRoute(1000, worker, kSetting).cached, 0);
}

// It gives whole pages: computing begins after the last.
TEST(RouteEstimateTest, WhatIsReadOfAPeerIsNotFollowedByLayers) {
  RouteWorker worker = Worker();
  worker.prefix.tokens = {0, 160, 160, 160};
  worker.prefix.peer = {.node = {7}, .tokens = 960};
  RouteSetting setting = kSetting;
  setting.layers = 10;
  const RouteEstimate at = EstimateRoute(1360, worker, setting);
  EXPECT_EQ(at.from[kPeer], 800);
  EXPECT_NEAR(at.times.ready.value, 1.6e-3 + 10e-3, kNear);
}

// Whatever the pool then has.
TEST(RouteEstimateTest, WhoAsksThePoolBeginsAfterItsAnswer) {
  RouteWorker worker = Worker();
  worker.asks_pool = true;
  EXPECT_NEAR(EstimateRoute(1000, worker, kSetting).times.ready.value, 2e-3, kNear);
  worker.prefix.tokens = {960, 960, 960, 960};
  EXPECT_NEAR(EstimateRoute(1000, worker, kSetting).times.ready.value, 2e-3, kNear);
  // It has all that can be shared.
  EXPECT_EQ(EstimateRoute(976, worker, kSetting).times.ready, Seconds(0));
}

TEST(RouteEstimateTest, ComputingFollowsReadingLayerByLayer) {
  RouteWorker worker = Worker();
  worker.prefix.tokens = {0, 960, 960, 960};
  RouteSetting setting = kSetting;
  setting.layers = 10;
  // Reading 9.6 ms, computing 5 ms. The buffer is ceil(10 * 4.6 / 9.6) = 5 layers; with it the last
  // layer is read at 9.6 ms and computed 0.5 ms later, past 4.8 + 5 ms: so 6.
  RouteEstimate at = EstimateRoute(1000, worker, setting);
  EXPECT_NEAR(at.times.ready.value, 5.76e-3, kNear);
  EXPECT_NEAR(at.reading.value, 9.6e-3, kNear);
  // 400 tokens more take 45 ms: one layer is enough to begin.
  at = EstimateRoute(1360, worker, setting);
  EXPECT_NEAR(at.times.ready.value, 0.96e-3, kNear);
  // The lookup and what is ahead are not hidden so.
  worker.reading[kHost] = Bytes(500'000);
  EXPECT_NEAR(EstimateRoute(1360, worker, setting).times.ready.value, 5.96e-3, kNear);
}

TEST(RouteEstimateTest, PromisedPagesComeWithThePromptsAhead) {
  RouteWorker worker = Worker(Seconds(0.1));
  worker.prefix.promised = 960;
  worker.prefix.odds[0] = 0.5;  // Of copies, and this is none.
  RouteEstimate at = EstimateRoute(1000, worker, kSetting);
  EXPECT_EQ(at.cached, 960);
  EXPECT_EQ(at.awaited, 960);
  EXPECT_NEAR(at.times.ready.value, 0.1, kNear);
  EXPECT_NEAR(at.expected.value, 0.105, kNear);
  // What is on the device already is not waited for. Nor are pages read that will be there.
  worker.prefix.tokens = {320, 320, 320, 640};
  worker.prefix.odds[0] = 1;
  at = EstimateRoute(1000, worker, kSetting);
  EXPECT_EQ(at.awaited, 640);
  EXPECT_EQ(at.from[0], 320);
  EXPECT_EQ(at.from[kPool], 0);
}

TEST(RouteEstimateTest, ReadingBeginsWhenItMay) {
  RouteWorker worker = Worker();
  worker.prefix.tokens = {0, 960, 960, 960};
  EXPECT_NEAR(EstimateRoute(1000, worker, kSetting, Seconds(3e-3)).times.ready.value, 12.6e-3,
              kNear);
  EXPECT_NEAR(EstimateRoute(1000, Worker(), kSetting, Seconds(3e-3)).times.ready.value, 3e-3,
              kNear);
}

// ---- Copies that may be gone

TEST(RouteEstimateTest, OddsWeighTheMeanOrTheTail) {
  RouteWorker worker = Worker();
  worker.prefix.tokens = {960, 960, 960, 960};
  worker.prefix.odds[0] = 0.9;
  RouteSetting setting = kSetting;
  // 5 ms if it is there, 101 ms if not.
  RouteEstimate at = EstimateRoute(1000, worker, setting);
  EXPECT_NEAR(at.odds, 0.9, kNear);
  EXPECT_NEAR(at.expected.value, 0.9 * 5e-3 + 0.1 * 0.101, kNear);
  EXPECT_NEAR(at.times.Overlapped().value, 5e-3, kNear);
  setting.quantile = 0.99;
  EXPECT_NEAR(EstimateRoute(1000, worker, setting).expected.value, 0.101, kNear);
  setting.quantile = 0.9;
  EXPECT_NEAR(EstimateRoute(1000, worker, setting).expected.value, 5e-3, kNear);
}

TEST(RouteEstimateTest, AMissingPartEndsThePrefix) {
  RouteWorker worker = Worker();
  worker.prefix.tokens = {320, 640, 640, 640};
  worker.prefix.odds = {0.9, 0.8, 1, 1};
  // All: 3.2 + 37 ms; without the host's part 69 ms; without the device's 101 ms, and no tier was
  // ever read here.
  const RouteEstimate at = EstimateRoute(1000, worker, kSetting);
  EXPECT_NEAR(at.odds, 0.72, kNear);
  EXPECT_NEAR(at.expected.value, 0.72 * 40.2e-3 + 0.18 * 69e-3 + 0.1 * 101e-3, kNear);
}

TEST(RouteEstimateTest, ADevicesCopyThatIsGoneMayBeInHostMemory) {
  RouteWorker worker = Worker();
  worker.prefix.tokens = {960, 960, 960, 960};
  worker.prefix.odds = {0.9, 0.5, 1, 1};
  worker.rates.read_measured[kHost] = true;
  // The chapter's three points: 5 ms; read from host memory 14.6 ms; computed 101 ms.
  const double expected = EstimateRoute(1000, worker, kSetting).expected.value;
  EXPECT_NEAR(expected, 0.9 * 5e-3 + 0.05 * 14.6e-3 + 0.05 * 0.101, kNear);
  const RouteTimes host{Seconds(0), Seconds(9.6e-3), Seconds(5e-3)};
  EXPECT_NEAR(expected, CopyOutcomes({0.9, 0.5}, host, Seconds(0.101)).Mean().value, kNear);
}

// ---- What others lose

TEST(RouteEstimateTest, TotalCountsWhoWaitsForTheWork) {
  RouteWorker worker = Worker(Seconds(0.05));
  worker.decoding = 3;
  RouteSetting setting = kSetting;
  EXPECT_EQ(EstimateRoute(1000, worker, setting).delay, Seconds(0));
  setting.objective = RouteObjective::kTotal;
  setting.arrivals = PerSecond(2);
  // 0.1 s of work, for 3 streams and 2 * (0.05 + 0.1) prompts.
  RouteEstimate at = EstimateRoute(1000, worker, setting);
  EXPECT_NEAR(at.delay.value, 0.1 * (3 + 0.3), kNear);
  EXPECT_NEAR(at.cost().value, 0.05 + 0.1 + 1.3e-3 + 0.33, kNear);
  // By the work that is to be expected.
  worker.prefix.tokens = {960, 960, 960, 960};
  worker.prefix.odds[0] = 0.5;
  at = EstimateRoute(1000, worker, setting);
  EXPECT_NEAR(at.delay.value, 0.052 * (3 + 2 * 0.102), kNear);
}

TEST(RouteEstimateTest, TotalReadsMoreThanTheRequestAloneWould) {
  RouteWorker worker = Worker();
  worker.decoding = 8;
  worker.prefix.tokens = {0, 0, 960, 960};
  worker.rates.read[kDisk] = BytesPerSecond(8e6);  // 120 ms against 96 to compute.
  RouteSetting setting = kSetting;
  EXPECT_EQ(EstimateRoute(1000, worker, setting).cached, 0);
  setting.objective = RouteObjective::kTotal;
  EXPECT_EQ(EstimateRoute(1000, worker, setting).cached, 960);
}

TEST(RouteEstimateTest, ObjectivesAreKnownByName) {
  EXPECT_EQ(*ParseObjective("request"), RouteObjective::kRequest);
  EXPECT_EQ(*ParseObjective("total"), RouteObjective::kTotal);
  EXPECT_EQ(ParseObjective("both").error().message,
            "'both' is no objective; there are request and total");
}

// ---- Example 9.7: 8192 tokens of prefix and 256 new ones on A100s

// Rates by which 8448 tokens take 887.2 ms, and the 256 last of them 30.86 ms.
RouteWorker A100(Seconds queue) {
  constexpr double kFull = 0.8872078095491282, kHit = 0.03085740714666667;
  constexpr double kPairs = 8448.0 * 8449 / 2, kCached = 8192.0 * 8193 / 2;
  const double pair = (kHit - kFull * 256 / 8448) / (kPairs - kCached - kPairs * 256 / 8448);
  RouteWorker worker{.queue = queue, .chunk = 8448};
  worker.rates = {.step = Seconds(0),
                  .per_token = Seconds((kFull - pair * kPairs) / 8448),
                  .per_pair = Seconds(pair),
                  .per_sequence = Seconds(0)};
  return worker;
}

// The pool's objects go over the network into host memory, then over PCIe: what a worker measures
// of both together.
RouteEstimate FromPool(BytesPerSecond network) {
  const RouteSetting setting{.bytes_per_token = Bytes(147456)};
  RouteWorker b = A100(Seconds(0.020));
  b.prefix.tokens = {0, 0, 0, 8192};
  const Bytes state = setting.bytes_per_token * 8192;
  const TierRates links{.host_to_device = BytesPerSecond(25e9), .network = network};
  b.rates.read[kPool] = state / FetchTime(state, Tier::kRemote, links);
  b.rates.lookup = Seconds(0.010);
  return EstimateRoute(8448, b, setting);
}

TEST(RouteEstimateTest, TheChaptersFourRoutes) {
  const RouteSetting setting{.bytes_per_token = Bytes(147456)};
  RouteWorker a = A100(Seconds(0.250));
  a.prefix.tokens = {8192, 8192, 8192, 8192};
  EXPECT_NEAR(EstimateRoute(8448, a, setting).expected.value, 0.28085740714666667, kNear);
  const RouteEstimate computed = EstimateRoute(8448, A100(Seconds(0.020)), setting);
  EXPECT_NEAR(computed.expected.value, 0.9072078095491282, kNear);
  EXPECT_NEAR(FromPool(BytesPerSecond(6.25e9)).expected.value, 0.28244931754666663, kNear);
  EXPECT_NEAR(FromPool(BytesPerSecond(25e9)).expected.value, 0.13749417130666666, kNear);
  // At 10GbE it is computed.
  EXPECT_EQ(FromPool(BytesPerSecond(1.25e9)).cached, 0);
}

TEST(RouteEstimateTest, TheChaptersUncertainHit) {
  RouteSetting setting{.bytes_per_token = Bytes(147456)};
  RouteWorker a = A100(Seconds(0.080));
  a.prefix.tokens = {8192, 8192, 8192, 8192};
  a.prefix.odds[0] = 0.9;
  EXPECT_NEAR(EstimateRoute(8448, a, setting).expected.value, 0.19649244738691283, kNear);
  setting.quantile = 0.99;
  EXPECT_NEAR(EstimateRoute(8448, a, setting).expected.value, 0.9672078095491282, kNear);
  a.prefix.odds[0] = 0.99;
  EXPECT_NEAR(EstimateRoute(8448, a, setting).expected.value, 0.11085740714666667, kNear);
}

}  // namespace
}  // namespace divisi
