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

}  // namespace
}  // namespace divisi
