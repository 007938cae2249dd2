#include <gtest/gtest.h>

#include "divisi/cli/kv_budget.h"

namespace divisi {
namespace {

constexpr KvLayout kLayout{.layers = 2, .kv_heads = 1, .head_dim = 32};  // 4 KiB a page
constexpr Bytes kMuch{int64_t{64} << 30};

ModelSpec Spec() {
  ModelSpec spec;
  spec.max_positions = 1000;
  return spec;
}

TEST(KvBudgetTest, AutoHoldsEveryRunningSequenceWhereMemoryAllows) {
  const KvBudget budget = PlanKvMemory({.max_num_seqs = 4}, Spec(), kLayout, kMuch).value();
  EXPECT_EQ(kLayout.PageBytes(), 4096);
  EXPECT_EQ(budget.pages, 4 * 63);
  EXPECT_EQ(budget.max_model_len, 1000);
}

TEST(KvBudgetTest, AutoTakesHalfOfAScarceMemoryAndShortensTheContext) {
  const KvBudget budget = PlanKvMemory({}, Spec(), kLayout, Bytes(20 * 4096)).value();
  EXPECT_EQ(budget.pages, 10);
  EXPECT_EQ(budget.max_model_len, 160);
}

TEST(KvBudgetTest, RefusesWhatCannotHoldTheContextAskedFor) {
  const auto small =
      PlanKvMemory({.max_model_len = 500, .kv_memory = "100 KiB"}, Spec(), kLayout, kMuch);
  ASSERT_FALSE(small.ok());
  EXPECT_NE(small.error().message.find("--max-model-len"), std::string::npos);
  EXPECT_TRUE(
      PlanKvMemory({.max_model_len = 500, .kv_memory = "128 KiB"}, Spec(), kLayout, kMuch).ok());
  EXPECT_FALSE(PlanKvMemory({.max_model_len = 1001}, Spec(), kLayout, kMuch).ok());
}

TEST(KvBudgetTest, ContextIsTheFlagsWithinTheModelsPositions) {
  EXPECT_EQ(WantedContext({}, Spec()).value(), 1000);
  EXPECT_EQ(WantedContext({.max_model_len = 300}, Spec()).value(), 300);
  const auto beyond = WantedContext({.max_model_len = 100'000}, Spec());
  ASSERT_FALSE(beyond.ok());
  EXPECT_EQ(beyond.error().message,
            "--max-model-len 100000 is beyond the 1000 positions of the model");
  EXPECT_FALSE(PlanKvMemory({.kv_memory = "lots"}, Spec(), kLayout, kMuch).ok());
  EXPECT_FALSE(PlanKvMemory({.kv_memory = "1 TiB"}, Spec(), kLayout, kMuch).ok());
  EXPECT_FALSE(PlanKvMemory({.kv_memory = "4095"}, Spec(), kLayout, kMuch).ok());
}

}  // namespace
}  // namespace divisi
