#include "divisi/engine/tier_complaints.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace divisi {
namespace {

using testing::HasSubstr;
using testing::Not;

class TierComplaintsTest : public testing::Test {
 protected:
  // What is said meanwhile.
  template <typename Happens>
  std::string Said(Happens happens) {
    testing::internal::CaptureStderr();
    happens();
    return testing::internal::GetCapturedStderr();
  }
  static BadPage Bad(Tier tier, Code code) { return {.tier = tier, .code = code, .why = "rotten"}; }

  Logger logger_{{.json = true}};
  TierComplaints complaints_{logger_};
};

TEST_F(TierComplaintsTest, SaysTheFirstOfATierAndHowManyFollowed) {
  const BadPage disk = Bad(Tier::kDisk, Code::kDataLoss);
  const std::string first = Said([&] { complaints_.Unread(disk, Seconds(0)); });
  EXPECT_THAT(first, HasSubstr("\"tier\":\"disk\""));
  EXPECT_THAT(first, HasSubstr("\"why\":\"rotten\""));
  EXPECT_THAT(first, Not(HasSubstr("more_since")));
  EXPECT_EQ(Said([&] {
              for (int i = 0; i < 7; ++i) complaints_.Unread(disk, Seconds(9));
            }),
            "");
  EXPECT_THAT(Said([&] { complaints_.Unread(Bad(Tier::kHost, Code::kNotFound), Seconds(9)); }),
              HasSubstr("\"tier\":\"host\""));
  EXPECT_THAT(Said([&] { complaints_.Unread(disk, Seconds(10)); }),
              HasSubstr("\"more_since_the_last_line\":7"));
  EXPECT_THAT(Said([&] { complaints_.Unread(disk, Seconds(20)); }), Not(HasSubstr("more_since")));
}

TEST_F(TierComplaintsTest, WhatIsNoFaultIsNotSaid) {
  EXPECT_EQ(Said([&] {
              complaints_.Unread(Bad(Tier::kRemote, Code::kNotFound), Seconds(0));
              complaints_.Unread(Bad(Tier::kPeer, Code::kNotFound), Seconds(0));
              complaints_.Unread(Bad(Tier::kDisk, Code::kCancelled), Seconds(0));
              complaints_.Unsaved({.to = Tier::kDisk, .ok = true}, Seconds(0));
            }),
            "");
}

TEST_F(TierComplaintsTest, ASaveThatFailedSaysWhereToAndWhy) {
  const std::string said = Said([&] {
    complaints_.Unsaved({.from = Tier::kHost, .to = Tier::kRemote, .why = "full"}, Seconds(0));
    complaints_.Unread(Bad(Tier::kRemote, Code::kDataLoss), Seconds(0));
  });
  EXPECT_THAT(said, HasSubstr("\"tier\":\"remote\",\"from\":\"host\""));
  EXPECT_THAT(said, HasSubstr("\"why\":\"full\""));
  EXPECT_THAT(said, HasSubstr("rotten"));
}

}  // namespace
}  // namespace divisi
