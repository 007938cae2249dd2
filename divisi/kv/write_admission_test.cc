#include "divisi/kv/write_admission.h"

#include <gtest/gtest.h>

#include <cmath>

#include "divisi/core/random.h"

namespace divisi {
namespace {

TEST(WriteAdmissionTest, TheBudgetIsThatOfTheDisksEndurance) {
  const Endurance disk{Bytes(3'840'000'000'000), 1, Seconds(5 * 365 * 86400.0)};
  const WriteBudget budget = BudgetOf(disk, Bytes(2'359'296), Seconds(600));
  EXPECT_NEAR(budget.pages_per_second, 44.44e6 / 2'359'296, 0.01);
  EXPECT_NEAR(budget.burst_pages, budget.pages_per_second * 600, 1e-6);
}

TEST(WriteAdmissionTest, NeverWritesMoreThanTheBucketGives) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    const WriteBudget budget{random.Uniform() * 10, static_cast<double>(random.Between(0, 40))};
    WriteAdmission admission(budget);
    Seconds now(0);
    int64_t admitted = 0;
    for (int step = 0; step < 3000; ++step) {
      now += Seconds(random.Exponential(0.1));
      const PageTraits traits{.uses = random.Between(1, 9)};
      admitted += admission.Admit(traits, random.Chance(0.3), now);
      if (random.Chance(0.2)) admission.CameBack(traits);
      const double most = budget.burst_pages / 2 + budget.pages_per_second * now.value;
      ASSERT_LE(static_cast<double>(admitted), most + 1e-6);
      ASSERT_GE(admission.level_pages(), 0);
    }
    EXPECT_EQ(admitted, admission.admitted());
  }
}

TEST(WriteAdmissionTest, WhatIsAwaitedIsWrittenWhileThereIsBudget) {
  WriteAdmission admission({.pages_per_second = 1, .burst_pages = 4});
  EXPECT_TRUE(admission.Admit({}, true, Seconds(0)));
  EXPECT_TRUE(admission.Admit({}, true, Seconds(0)));
  EXPECT_FALSE(admission.Admit({}, true, Seconds(0)));
  EXPECT_TRUE(admission.Admit({}, true, Seconds(1)));
  WriteAdmission none({});
  EXPECT_FALSE(none.Admit({}, true, Seconds(100)));
}

// Pages of two kinds, of which one comes back: after a while it alone is written.
TEST(WriteAdmissionTest, LearnsWhatComesBack) {
  Random random(3);
  WriteAdmission admission({.pages_per_second = 5, .burst_pages = 200});
  int64_t good = 0, bad = 0;
  for (int step = 0; step < 20000; ++step) {
    const bool comes_back = random.Chance(0.2);
    const PageTraits traits{.uses = 1, .answer_tokens = comes_back ? 3000 : 300};
    const bool written = admission.Admit(traits, false, Seconds(step * 0.04));
    if (comes_back) admission.CameBack(traits);
    if (step < 10000) continue;
    good += written && comes_back;
    bad += written && !comes_back;
  }
  EXPECT_GT(good, 1500);  // All that came: 2,000 of 10,000 in 400 s; the budget is 2,000.
  EXPECT_LT(bad, good / 10);
}

TEST(WriteAdmissionTest, AnOpenSessionsPagesGoBeforeAClosedOnes) {
  WriteAdmission admission({.pages_per_second = 0, .burst_pages = 100});  // Half full
  const PageTraits open{.session = SessionState::kOpen}, closed{.session = SessionState::kClosed};
  EXPECT_GT(admission.Chance(open), admission.Chance({}));
  EXPECT_LT(admission.Chance(closed), admission.Chance({}));
  for (int i = 0; i < 10; ++i) {
    EXPECT_FALSE(admission.Admit(closed, false, Seconds(0)));
    EXPECT_TRUE(admission.Admit(open, false, Seconds(0)));
  }
}

// Clients that hint the other way round are found out.
TEST(WriteAdmissionTest, WhatCameBackGoesBeforeWhatWasHinted) {
  WriteAdmission admission({.pages_per_second = 0, .burst_pages = 100});
  const PageTraits open{.session = SessionState::kOpen}, closed{.session = SessionState::kClosed};
  for (int i = 0; i < 2000; ++i) {
    admission.Admit(open, false, Seconds(0));
    admission.Admit(closed, false, Seconds(0));
    if (i % 2 == 0) admission.CameBack(closed);
  }
  EXPECT_GT(admission.Chance(closed), 4 * admission.Chance(open));
}

TEST(WriteAdmissionTest, AFullBucketAsksForLessThanAnEmptyOne) {
  WriteAdmission full({.pages_per_second = 100, .burst_pages = 100});
  full.Admit({}, true, Seconds(10));
  WriteAdmission empty({.pages_per_second = 0, .burst_pages = 100});
  for (int i = 0; i < 50; ++i) empty.Admit({}, true, Seconds(0));
  EXPECT_LT(full.Threshold() * 40, empty.Threshold());
}

TEST(WriteAdmissionTest, ChancesStayFinite) {
  WriteAdmission admission({.pages_per_second = 1, .burst_pages = 10});
  for (int i = 0; i < 100000; ++i) {
    const PageTraits traits{.uses = i, .reused_pages = int64_t{1} << (i % 63), .answer_tokens = -i};
    admission.Admit(traits, false, Seconds(0));
    admission.CameBack(traits);
    admission.CameBack(traits);
    ASSERT_TRUE(std::isfinite(admission.Chance(traits)));
  }
}

}  // namespace
}  // namespace divisi
