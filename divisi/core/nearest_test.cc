#include "divisi/core/nearest.h"

#include <gtest/gtest.h>

namespace divisi {
namespace {

TEST(NearestTest, NamesTheNearest) {
  const std::vector<std::string> names = {"prefill", "decode", "transfer"};
  EXPECT_EQ(DidYouMean("prefil", names), "; did you mean prefill?");
  EXPECT_EQ(DidYouMean("Decode", names, "--"), "; did you mean --decode?");
  EXPECT_EQ(DidYouMean("zebra", names), "; known are prefill, decode, transfer");
  EXPECT_EQ(DidYouMean("x", {}), "");
  EXPECT_EQ(DidYouMean(std::string(10000, 'p'), names), "; known are prefill, decode, transfer");
}

TEST(NearestTest, ABeginningMeansWhatGoesOn) {
  const std::vector<std::string> names = {"B200", "A100 80GB SXM", "A100 40GB PCIe"};
  EXPECT_EQ(DidYouMean("a100", names), "; did you mean A100 80GB SXM or A100 40GB PCIe?");
  EXPECT_EQ(DidYouMean("B20", names), "; did you mean B200?");
}

}  // namespace
}  // namespace divisi
