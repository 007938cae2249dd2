#include "divisi/cli/weight_memory.h"

#include <gtest/gtest.h>

namespace divisi {
namespace {

constexpr int64_t kGiB = int64_t{1} << 30;

TEST(WeightMemoryTest, AutoCopiesWhereTheCopyFitsBesideFilesAndKv) {
  EXPECT_TRUE(ShouldCopyWeights("auto", Bytes(2 * kGiB), Bytes(kGiB), Bytes(5 * kGiB)));
  EXPECT_FALSE(ShouldCopyWeights("auto", Bytes(2 * kGiB), Bytes(kGiB), Bytes(5 * kGiB - 1)));
  EXPECT_FALSE(ShouldCopyWeights("auto", Bytes(1000), Bytes(0), Bytes(kGiB)));
}

TEST(WeightMemoryTest, AChoiceIsTaken) {
  EXPECT_TRUE(ShouldCopyWeights("copied", Bytes(1), Bytes(0), Bytes(0)));
  EXPECT_FALSE(ShouldCopyWeights("mapped", Bytes(kGiB), Bytes(0), Bytes(8 * kGiB)));
}

}  // namespace
}  // namespace divisi
