#include "divisi/plan/split.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "divisi/core/random.h"

namespace divisi {
namespace {

using testing::ElementsAre;

SplitType Type(int count, double prefill_seconds, double decode_seconds) {
  return {count, Rate(Seconds(prefill_seconds)), Rate(Seconds(decode_seconds))};
}

// Section 9.2.3, example 9.2, and section 9.2.4.
TEST(SplitTest, FindsTheSplitsOfTheExamples) {
  const double a100_p = 0.856358380990359, a100_d = 1.764216006371751;
  const double h20_p = 1.8052960464121082, h20_d = 0.878231552;
  const std::vector<SplitType> types = {Type(4, a100_p, a100_d), Type(4, h20_p, h20_d)};
  EXPECT_THAT(BestSplit(types), ElementsAre(4, 0));
  EXPECT_NEAR(RatesOf(types, {4, 0}).Slower().value, 4.554607484655709, 1e-12);
  EXPECT_NEAR(RatesOf(types, {0, 4}).Slower().value, 2.2157030742684576, 1e-12);
  EXPECT_THAT(BestSplit({Type(4, 0.23788309036635896, a100_d), Type(4, 0.52, h20_d)}),
              ElementsAre(2, 0));
  EXPECT_THAT(BestSplit({Type(8, a100_p, a100_d)}), ElementsAre(3));
}

std::vector<SplitType> RandomTypes(Random& random, int most_types, int most_cards) {
  std::vector<SplitType> types;
  const auto count = random.Between(1, most_types);
  for (int64_t i = 0; i < count; ++i) {
    types.push_back(Type(static_cast<int>(random.Between(0, most_cards)),
                         0.01 * static_cast<double>(random.Between(1, 500)),
                         0.01 * static_cast<double>(random.Between(1, 500))));
    if (random.Between(0, 9) == 0) types.back().prefill = PerSecond(0);
    if (random.Between(0, 9) == 0) types.back().decode = PerSecond(0);
  }
  return types;
}

// The naive twin: every split.
TEST(SplitTest, NoSplitIsBetter) {
  Random random(7);
  for (int round = 0; round < 300; ++round) {
    const std::vector<SplitType> types = RandomTypes(random, 4, 6);
    const double best = RatesOf(types, BestSplit(types)).Slower().value;
    for (const Split& split : AllSplits(types, 1 << 20)) {
      ASSERT_LE(RatesOf(types, split).Slower().value, best * (1 + 1e-12)) << "round " << round;
    }
  }
}

// By the words of split.h. Rates are whole numbers, so that sums are exact and ties are many.
TEST(SplitTest, ChoosesAmongEqualsAsPromised) {
  Random random(12);
  for (int round = 0; round < 500; ++round) {
    std::vector<SplitType> types(static_cast<size_t>(random.Between(1, 4)));
    for (SplitType& type : types) {
      type = {static_cast<int>(random.Between(0, 6)),
              PerSecond(static_cast<double>(random.Between(0, 4))),
              PerSecond(static_cast<double>(random.Between(0, 4)))};
    }
    Split expected;
    double slower = -1, faster = -1;
    for (const Split& split : AllSplits(types, 1 << 20)) {
      const PoolRates rates = RatesOf(types, split);
      const double fast = std::max(rates.prefill, rates.decode).value;
      const bool equal = rates.Slower().value == slower && fast == faster;
      if (rates.Slower().value < slower || (rates.Slower().value == slower && fast < faster)) {
        continue;
      }
      if (equal && split <= expected) continue;
      expected = split, slower = rates.Slower().value, faster = fast;
    }
    const PoolRates found = RatesOf(types, BestSplit(types));
    EXPECT_EQ(found.Slower().value, slower) << "round " << round;
    EXPECT_EQ(std::max(found.prefill, found.decode).value, faster) << "round " << round;
    EXPECT_EQ(BestSplit(types), expected) << "round " << round;
  }
}

TEST(SplitTest, NoNeighbourIsBetterAmongHundredsOfCards) {
  Random random(8);
  for (int round = 0; round < 5; ++round) {
    std::vector<SplitType> types = RandomTypes(random, 4, 250);
    const Split best = BestSplit(types);
    const double rate = RatesOf(types, best).Slower().value;
    for (size_t i = 0; i < types.size(); ++i) {
      for (const int step : {-1, 1}) {
        Split other = best;
        other[i] += step;
        if (other[i] < 0 || other[i] > types[i].count) continue;
        EXPECT_LE(RatesOf(types, other).Slower().value, rate * (1 + 1e-12));
      }
    }
  }
}

TEST(SplitTest, TwiceTheCardsAreAtLeastTwiceTheRate) {
  Random random(9);
  for (int round = 0; round < 100; ++round) {
    std::vector<SplitType> types = RandomTypes(random, 3, 6);
    const double once = RatesOf(types, BestSplit(types)).Slower().value;
    for (SplitType& type : types) type.count *= 2;
    EXPECT_GE(RatesOf(types, BestSplit(types)).Slower().value, 2 * once * (1 - 1e-12));
  }
}

TEST(SplitTest, VeryLargeSetsEndSoonWithinACardOfTheBest) {
  Random random(12);
  for (const int types : {4, 16}) {
    std::vector<SplitType> set;
    for (int i = 0; i < types; ++i) {
      set.push_back(Type(100000, 0.5 + random.Uniform(), 0.5 + random.Uniform()));
    }
    const PoolRates rates = RatesOf(set, BestSplit(set));
    // Of the best, the pools differ by less than a card moved between them.
    EXPECT_NEAR(rates.prefill.value, rates.decode.value, 4.0 + 1e-9 * rates.prefill.value);
  }
}

TEST(SplitTest, NothingToSplit) {
  EXPECT_TRUE(BestSplit({}).empty());
  EXPECT_THAT(BestSplit({Type(0, 1, 1)}), ElementsAre(0));
  EXPECT_THAT(AllSplits({Type(1, 1, 1), Type(1, 1, 1)}, 4).size(), 4);
  EXPECT_TRUE(AllSplits({Type(1, 1, 1), Type(1, 1, 1)}, 3).empty());
}

}  // namespace
}  // namespace divisi
