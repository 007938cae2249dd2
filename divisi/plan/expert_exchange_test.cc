#include "divisi/plan/expert_exchange.h"

#include <gtest/gtest.h>

namespace divisi {
namespace {

// Example 9.5: four cards of attention, four of experts, 8 KiB a row, 50 GB/s a card, 200 GB/s
// between the two servers.
constexpr Bytes kRow(8192);
const ExpertExchange kEven = EvenSources({2048, 2048, 2048, 2048}, 4, kRow);
const ExpertExchange kHot = EvenSources({5120, 1024, 1024, 1024}, 4, kRow);
constexpr ExpertGroupWork kWork{.rates = {FlopsPerSecond(494.7e12), BytesPerSecond(1675e9)},
                                .row_flops = Flops(6.0 * 4096 * 1536)};

ExchangeNetwork Cards(double card_gbytes, double cut_gbytes) {
  return UniformNetwork(4, 4, BytesPerSecond(card_gbytes * 1e9), BytesPerSecond(cut_gbytes * 1e9));
}

double Milliseconds(const ExpertExchange& exchange, const ExchangeNetwork& network) {
  const auto bounds = BoundExpertLayer(exchange, network, kWork);
  EXPECT_TRUE(bounds);
  return bounds->Serial().value * 1e3;
}

TEST(ExpertExchangeTest, FiveRowsOfTheTable) {
  EXPECT_NEAR(Milliseconds(kEven, Cards(50, 200)), 0.8273639812734991, 1e-12);
  EXPECT_NEAR(Milliseconds(kHot, Cards(50, 200)), 2.068409953183748, 1e-12);
  EXPECT_NEAR(Milliseconds(kEven, Cards(50, 50)), 2.840629901273499, 1e-12);
  EXPECT_NEAR(Milliseconds(kHot, Cards(450, 1800)), 0.5771018642948589, 1e-12);
  ExpertExchange narrow = kHot;
  narrow.dispatch_bytes = Bytes(4096);
  EXPECT_NEAR(Milliseconds(narrow, Cards(50, 200)), 1.648979553183748, 1e-12);
}

TEST(ExpertExchangeTest, SkewIsTheFullestGroupToTheMean) {
  EXPECT_EQ(kEven.Skew(), 1);
  EXPECT_EQ(kHot.Skew(), 2.5);
}

// A direction of its own for each card: a slow sender of the experts holds up combine alone.
TEST(ExpertExchangeTest, EachDirectionHasItsLimit) {
  ExchangeNetwork network = Cards(50, 200);
  network.groups[2].send = BytesPerSecond(10e9);
  const auto bounds = BoundExpertLayer(kEven, network, kWork);
  ASSERT_TRUE(bounds);
  EXPECT_NEAR(bounds->combine / bounds->dispatch, 5, 1e-12);
}

TEST(ExpertExchangeTest, ASourceThatSendsEverythingIsTheLimit) {
  ExpertExchange one = kEven;
  one.rows.assign(4, std::vector<double>(4, 0));
  one.rows[3].assign(4, 2048);
  const auto bounds = BoundExpertLayer(one, Cards(50, 200), kWork);
  const auto even = BoundExpertLayer(kEven, Cards(50, 200), kWork);
  ASSERT_TRUE(bounds && even);
  EXPECT_NEAR(bounds->dispatch / even->dispatch, 4, 1e-12);
  EXPECT_EQ(bounds->compute, even->compute);
}

TEST(ExpertExchangeTest, ACutCountsOnlyWhatCrossesIt) {
  ExchangeNetwork network = Cards(50, 200);
  network.cuts.push_back({.bandwidth = BytesPerSecond(1e9), .sources = {0, 1}, .groups = {3}});
  const auto bounds = BoundExpertLayer(kEven, network, kWork);
  ASSERT_TRUE(bounds);
  EXPECT_NEAR(bounds->dispatch.value, 1024 * 8192 / 1e9, 1e-12);
}

TEST(ExpertExchangeTest, ReadingWeightsMayBeTheLimit) {
  ExpertGroupWork work = kWork;
  work.weights = Bytes(int64_t{9} << 29);
  const auto bounds = BoundExpertLayer(kEven, Cards(50, 200), work);
  ASSERT_TRUE(bounds);
  EXPECT_NEAR(bounds->compute.value, 4831838208 / 1675e9, 1e-12);
}

TEST(ExpertExchangeTest, RefusesWhatDoesNotFitTogether) {
  EXPECT_FALSE(BoundExpertLayer({}, Cards(50, 200), kWork));
  EXPECT_FALSE(BoundExpertLayer(EvenSources({0, 0, 0, 0}, 4, kRow), Cards(50, 200), kWork));
  EXPECT_FALSE(BoundExpertLayer(EvenSources({1, 2}, 4, kRow), Cards(50, 200), kWork));
  EXPECT_FALSE(BoundExpertLayer(kEven, Cards(0, 200), kWork));
  EXPECT_FALSE(BoundExpertLayer(kEven, Cards(50, 0), kWork));
  ExpertExchange ragged = kEven;
  ragged.rows[1].pop_back();
  EXPECT_FALSE(BoundExpertLayer(ragged, Cards(50, 200), kWork));
  ExchangeNetwork network = Cards(50, 200);
  network.cuts[0].groups.push_back(4);
  EXPECT_FALSE(BoundExpertLayer(kEven, network, kWork));
}

}  // namespace
}  // namespace divisi
