#include "divisi/plan/money.h"

#include <gtest/gtest.h>

#include <cmath>

namespace divisi {
namespace {

constexpr MoneyPerHour kPrice = MoneyPerHour(8);
constexpr PerSecond kDirect = PerSecond(4.554607484655709);
constexpr PerSecond kReplicas = PerSecond(3.0169582422948773);

TEST(MoneyTest, CostOfAThousandRequests) {
  EXPECT_NEAR(CostPerThousand(kPrice, Completed(PerSecond(3.5), kDirect)).value, 0.6349206349206349,
              1e-12);
  EXPECT_NEAR(CostPerThousand(kPrice, kReplicas).value, 0.7365770566754243, 1e-12);
  EXPECT_NEAR(CostPerThousand(kPrice, kDirect).value, 0.4879064177777778, 1e-12);
}

TEST(MoneyTest, OnlyRequestsThatMeetTheObjectiveCount) {
  EXPECT_NEAR(CostPerThousand(kPrice, kDirect * 0.25).value, 1.9516256711111113, 1e-12);
  EXPECT_TRUE(std::isinf(CostPerThousand(kPrice, kDirect * 0.0).value));
}

TEST(MoneyTest, CapacityMakesNoRequests) {
  EXPECT_EQ(Completed(PerSecond(3.5), kDirect), PerSecond(3.5));
  EXPECT_EQ(Completed(PerSecond(3.5), kReplicas), kReplicas);
}

}  // namespace
}  // namespace divisi
