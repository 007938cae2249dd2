#include "divisi/plan/startup.h"

#include <gtest/gtest.h>

#include "divisi/plan/flow.h"

namespace divisi {
namespace {

TEST(StartUpTest, GraphsPayBackByTheStep) {
  EXPECT_DOUBLE_EQ(StepsToPay(Seconds(10), Seconds(0.0002)), 50000);
  EXPECT_DOUBLE_EQ(FirstStepThatGains(Seconds(10), Seconds(0.0002)), 50001);
  EXPECT_EQ(FirstStepThatGains(Seconds(1), Seconds(0.4)), 3);
}

TEST(StartUpTest, NothingSavedNeverPays) {
  EXPECT_EQ(StepsToPay(Seconds(10), Seconds(0)), kNever.value);
  EXPECT_EQ(FirstStepThatGains(Seconds(10), Seconds(0)), kNever.value);
  EXPECT_EQ(StepsToPay(Seconds(0), Seconds(0)), 0);
}

}  // namespace
}  // namespace divisi
