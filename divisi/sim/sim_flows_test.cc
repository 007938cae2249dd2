#include "divisi/sim/sim_flows.h"

#include <gtest/gtest.h>

namespace divisi {
namespace {

class SimFlowsTest : public testing::Test {
 protected:
  // When the transfer ends; -1 while it has not.
  double& Start(int64_t bytes, std::vector<SimFlows::Link> path) {
    double& end = ends_[count_++];
    end = -1;
    flows_.Start(Bytes(bytes), std::move(path), [this, &end] { end = schedule_.now().value; });
    return end;
  }
  void Run() {
    while (schedule_.Step()) continue;
  }

  SimSchedule schedule_;
  SimFlows flows_{schedule_};
  std::array<double, 8> ends_{};
  size_t count_ = 0;
};

TEST_F(SimFlowsTest, OneHasTheNarrowestLinkOfItsPath) {
  const auto wide = flows_.AddLink(BytesPerSecond(100));
  const auto narrow = flows_.AddLink(BytesPerSecond(20));
  const double& end = Start(100, {wide, narrow});
  Run();
  EXPECT_DOUBLE_EQ(end, 5);
  EXPECT_EQ(flows_.Carried(wide), Bytes(100));
}

TEST_F(SimFlowsTest, TwoShareALinkAndTheLongerHasItAloneAfterwards) {
  const auto link = flows_.AddLink(BytesPerSecond(100));
  const double& shorter = Start(100, {link});
  const double& longer = Start(200, {link});
  Run();
  EXPECT_DOUBLE_EQ(shorter, 2);
  EXPECT_DOUBLE_EQ(longer, 3);
}

TEST_F(SimFlowsTest, WhatOneCannotUseTheOtherGets) {
  const auto shared = flows_.AddLink(BytesPerSecond(100));
  const auto slow = flows_.AddLink(BytesPerSecond(20));
  const double& held_back = Start(40, {shared, slow});
  const double& other = Start(160, {shared});
  Run();
  EXPECT_DOUBLE_EQ(held_back, 2);
  EXPECT_DOUBLE_EQ(other, 2);
}

TEST_F(SimFlowsTest, ALaterOneTakesItsPart) {
  const auto link = flows_.AddLink(BytesPerSecond(100));
  const double& first = Start(200, {link});
  double* second = nullptr;
  schedule_.At(Seconds(1), [&] { second = &Start(50, {link}); });
  Run();
  EXPECT_DOUBLE_EQ(*second, 2);
  EXPECT_DOUBLE_EQ(first, 2.5);
}

TEST_F(SimFlowsTest, WhatIsCancelledGivesItsPartBack) {
  const auto link = flows_.AddLink(BytesPerSecond(100));
  const double& kept = Start(150, {link});
  const auto dropped = flows_.Start(Bytes(1000), {link}, [] { FAIL() << "it was cancelled"; });
  schedule_.At(Seconds(1), [&] { EXPECT_EQ(flows_.Cancel(dropped), Bytes(950)); });
  Run();
  EXPECT_DOUBLE_EQ(kept, 2);
}

TEST_F(SimFlowsTest, NothingToMoveIsThereAtOnce) {
  const double& end = Start(0, {flows_.AddLink(BytesPerSecond(100))});
  Run();
  EXPECT_DOUBLE_EQ(end, 0);
}

}  // namespace
}  // namespace divisi
