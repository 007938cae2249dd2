#include "divisi/plan/expert_reuse.h"

#include <gtest/gtest.h>

namespace divisi {
namespace {

constexpr ExpertShape kExpert{.hidden = 4096, .width = 1536};
constexpr RoutedBatch kBatch{.tokens = 64, .experts_per_token = 8, .experts = 128};
constexpr DeviceRates kXeon{FlopsPerSecond(21.3e12), BytesPerSecond(220e9)};

TEST(ExpertReuseTest, EvenAndHotDifferInBytesNotInOperations) {
  const auto even = UseOf(kExpert, kBatch, EvenDistinctExperts(kBatch), kXeon);
  const auto hot = UseOf(kExpert, kBatch, HotDistinctExperts(kBatch), kXeon);
  ASSERT_TRUE(even && hot);
  EXPECT_EQ(even->read.value, int64_t{9} << 29);
  EXPECT_EQ(hot->read.value, 288 << 20);
  EXPECT_EQ(even->rows_each, 4);
  EXPECT_EQ(hot->rows_each, 64);
  EXPECT_EQ(even->time.compute, hot->time.compute);
  EXPECT_NEAR(even->time.memory.value, 21.962900945454546e-3, 1e-15);
  EXPECT_NEAR(hot->time.memory.value, 1.3726813090909091e-3, 1e-15);
}

TEST(ExpertReuseTest, ExpectedExpertsLieBetweenTheEnds) {
  EXPECT_NEAR(ExpectedDistinctExperts(128, 8, 64), 125.94234926707806, 1e-9);
  EXPECT_NEAR(ExpectedDistinctExperts(128, 8, 1), 8, 1e-9);
  EXPECT_EQ(ExpectedDistinctExperts(128, 128, 1), 128);
  double before = 0;
  for (int64_t tokens = 1; tokens < 2000; tokens *= 2) {
    const RoutedBatch batch{.tokens = tokens, .experts_per_token = 8, .experts = 128};
    const double expected = ExpectedDistinctExperts(128, 8, static_cast<double>(tokens));
    EXPECT_GT(expected, before);
    EXPECT_GE(expected, HotDistinctExperts(batch) - 1e-9);
    EXPECT_LE(expected, EvenDistinctExperts(batch));
    before = expected;
  }
}

TEST(ExpertReuseTest, ASmallBatchCannotMeetAllExperts) {
  EXPECT_EQ(EvenDistinctExperts({.tokens = 2, .experts_per_token = 8, .experts = 128}), 16);
}

TEST(ExpertReuseTest, MemoryOfResidentExperts) {
  EXPECT_EQ(ExpertMemory(kExpert, 32, 94)->value, 32 * 94 * (int64_t{36} << 20));
  EXPECT_FALSE(ExpertMemory(kExpert, 1e6, 1e9));
}

TEST(ExpertReuseTest, RefusesBatchesThatCannotBe) {
  EXPECT_FALSE(CheckBatch({.tokens = 1, .experts_per_token = 9, .experts = 8}));
  EXPECT_FALSE(CheckBatch({.tokens = 0, .experts_per_token = 1, .experts = 8}));
  EXPECT_FALSE(CheckBatch({.tokens = 1, .experts_per_token = 1, .experts = 0}));
  EXPECT_FALSE(CheckBatch({.tokens = 1, .experts_per_token = 0, .experts = 8}));
  EXPECT_FALSE(UseOf(kExpert, kBatch, 8, {FlopsPerSecond(1), BytesPerSecond(0)}));
}

}  // namespace
}  // namespace divisi
