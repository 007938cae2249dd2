#include "divisi/kv/page_loading.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace divisi {
namespace {

using testing::ElementsAre;

TEST(LayerGroupsTest, RiseAndFallAndHoldEachLayerOnce) {
  EXPECT_THAT(LayerGroups(28, 4), ElementsAre(1, 2, 4, 4, 4, 4, 4, 2, 2, 1));
  EXPECT_THAT(LayerGroups(6, 2), ElementsAre(1, 2, 2, 1));
  EXPECT_THAT(LayerGroups(3, 8), ElementsAre(3));
  EXPECT_THAT(LayerGroups(3, 1), ElementsAre(1, 1, 1));
  EXPECT_THAT(LayerGroups(1, 1), ElementsAre(1));
  for (int layers = 1; layers < 100; ++layers) {
    for (int most = 1; most < 40; ++most) {
      int sum = 0;
      for (const int count : LayerGroups(layers, most)) {
        ASSERT_TRUE(count >= 1 && count <= most);
        sum += count;
      }
      ASSERT_EQ(sum, layers);
    }
  }
}

}  // namespace
}  // namespace divisi
