#include "divisi/plan/backlog.h"

#include <gtest/gtest.h>

#include "divisi/core/random.h"

namespace divisi {
namespace {

Backlog Constant(double arrivals, double ready, double rate, double horizon = 60) {
  return BacklogOver({ArrivalSchedule::Constant(PerSecond(arrivals)), Seconds(ready),
                      PerSecond(rate), Seconds(horizon)});
}

// Sections 9.6.1 and 9.7.2.
TEST(BacklogTest, ClearsWhenTheChapterSays) {
  EXPECT_NEAR(Constant(3.5, 10, 4.554607484655709).cleared->value, 43.187703016754355, 1e-9);
  EXPECT_NEAR(Constant(3.5, 10, 4.1661141727409525).cleared->value, 62.543544984158856, 1e-9);
  const Backlog growing = Constant(3.5, 10, 3.0169582422948773);
  EXPECT_FALSE(growing.cleared);
  EXPECT_NEAR(growing.At(Seconds(60)), 59.15208788525614, 1e-9);
  EXPECT_NEAR(Constant(3.5, 10, 4.55).most, 35, 1e-12);
  EXPECT_NEAR(Constant(3.5, 10, 4.55).At(Seconds(5)), 17.5, 1e-12);
  EXPECT_NEAR(
      RateToClear(ArrivalSchedule::Constant(PerSecond(3.5)), Seconds(10), Seconds(60))->value, 4.2,
      1e-12);
}

TEST(BacklogTest, Edges) {
  EXPECT_FALSE(Constant(3.5, 10, 3.5).cleared);      // Stands.
  EXPECT_EQ(Constant(0, 10, 1).cleared->value, 10);  // Nothing came.
  EXPECT_EQ(Constant(2, 0, 2).cleared->value, 0);    // Ready at once, just enough.
  EXPECT_FALSE(RateToClear(ArrivalSchedule::Constant(PerSecond(1)), Seconds(10), Seconds(10)));
  EXPECT_FALSE(Constant(1, 10, 0).cleared);
}

ArrivalSchedule Bursts() {
  // 20 a second for ten seconds of each minute, 2 otherwise: 5 on average.
  return {{{Seconds(0), PerSecond(20)}, {Seconds(10), PerSecond(2)}}, Seconds(60)};
}

TEST(BacklogTest, RepeatingPatterns) {
  const ArrivalSchedule bursts = Bursts();
  EXPECT_DOUBLE_EQ(bursts.LongTermRate().value, 5);
  EXPECT_DOUBLE_EQ(bursts.At(Seconds(125)).value, 20);
  EXPECT_DOUBLE_EQ(bursts.NextChange(Seconds(125)).value, 130);
  EXPECT_DOUBLE_EQ(bursts.NextChange(Seconds(10)).value, 60);
  const Backlog backlog = BacklogOver({bursts, Seconds(0), PerSecond(7), Seconds(120)});
  EXPECT_NEAR(backlog.At(Seconds(10)), 130, 1e-9);
  EXPECT_NEAR(backlog.cleared->value, 36, 1e-9);
  EXPECT_NEAR(backlog.At(Seconds(70)), 130, 1e-9);
  EXPECT_FALSE(BacklogOver({bursts, Seconds(0), PerSecond(4), Seconds(120)}).cleared);
}

// A queue that falls by little each period is followed to its end, in as many steps as one that
// falls fast.
TEST(BacklogTest, RepeatingPatternsClearHoweverSlowly) {
  const ArrivalSchedule bursts = Bursts();
  // 20 * 10 + 2 * 50 = 300 in a period of 60 s. From ready at 60 s on each period takes 0.006 of
  // the 300 that wait; a period's own burst of 150 over the rate is what empties last: at the end
  // of the period in which the rest is below.
  const Backlog slow = BacklogOver({bursts, Seconds(60), PerSecond(5.0001), Seconds(120)});
  ASSERT_TRUE(slow.cleared);
  EXPECT_NEAR(slow.cleared->value, 60 + 300 / 0.0001, 120);
  EXPECT_NEAR(slow.most, 300 + 10 * (20 - 5.0001), 1e-9);
  // Beyond what rounding leaves certain it stands.
  EXPECT_FALSE(BacklogOver({bursts, Seconds(60), PerSecond(5), Seconds(120)}).cleared);
  EXPECT_FALSE(BacklogOver({bursts, Seconds(60), PerSecond(5 + 1e-12), Seconds(120)}).cleared);
}

// The same end as piece by piece.
TEST(BacklogTest, PassedPeriodsChangeNothing) {
  Random random(5);
  for (int round = 0; round < 200; ++round) {
    ArrivalSchedule arrivals;
    for (int i = 0; i < 3; ++i) {
      arrivals.parts.push_back({Seconds(11.0 * i), PerSecond(1 + 10 * random.Uniform())});
    }
    arrivals.period = Seconds(40);
    const Seconds ready(100 * random.Uniform());
    const PerSecond rate = arrivals.LongTermRate() * (1 + 0.2 * random.Uniform());
    const auto jumped = BacklogOver({arrivals, ready, rate, Seconds(1)}).cleared;
    const auto walked = BacklogOver({arrivals, ready, rate, Seconds(1e5)}).cleared;
    ASSERT_EQ(jumped.has_value(), walked.has_value()) << round;
    if (!walked) continue;
    EXPECT_NEAR(jumped->value, walked->value, 1e-6 * walked->value) << round;
  }
}

// The naive twin: small steps of time.
TEST(BacklogTest, IsThatOfSmallSteps) {
  Random random(3);
  for (int round = 0; round < 50; ++round) {
    ArrivalSchedule arrivals;
    for (int i = 0; i < 4; ++i) {
      arrivals.parts.push_back({Seconds(7.0 * i), PerSecond(10 * random.Uniform())});
    }
    if (random.Chance(0.5)) arrivals.period = Seconds(30);
    const PerSecond rate(1 + 12 * random.Uniform());
    const Seconds ready(20 * random.Uniform());
    const Backlog backlog = BacklogOver({arrivals, ready, rate, Seconds(100)});
    double queue = 0;
    const double step = 1e-3;
    for (int i = 0; i < 100000; ++i) {
      const Seconds now(i * step);
      if (i % 1000 == 0) {
        ASSERT_NEAR(backlog.At(now), queue, 0.05) << round << " at " << now.value;
      }
      queue += arrivals.At(now).value * step;
      if (now >= ready) queue = std::max(0.0, queue - rate.value * step);
    }
  }
}

TEST(BacklogTest, TheLeastRateClearsInTime) {
  Random random(4);
  for (int round = 0; round < 200; ++round) {
    ArrivalSchedule arrivals;
    for (int i = 0; i < 3; ++i) {
      arrivals.parts.push_back({Seconds(11.0 * i), PerSecond(1 + 10 * random.Uniform())});
    }
    if (random.Chance(0.5)) arrivals.period = Seconds(40);
    const Seconds ready(15 * random.Uniform());
    const Seconds deadline = ready + Seconds(5 + 50 * random.Uniform());
    const PerSecond least = *RateToClear(arrivals, ready, deadline);
    const auto cleared = BacklogOver({arrivals, ready, least * 1.0001, deadline}).cleared;
    ASSERT_TRUE(cleared) << round;
    EXPECT_LE(cleared->value, deadline.value * (1 + 1e-9));
    const auto late = BacklogOver({arrivals, ready, least * 0.999, deadline}).cleared;
    EXPECT_TRUE(!late || *late > deadline) << round;
  }
}

}  // namespace
}  // namespace divisi
