#include "divisi/cli/load_stats.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "divisi/core/random.h"

namespace divisi {
namespace {

RequestRecord Completed(double start, double ttft, std::vector<double> gaps) {
  RequestRecord record;
  record.completed = true;
  record.start = Seconds(start);
  record.ttft = Seconds(ttft);
  record.latency = record.ttft;
  for (const double gap : gaps) {
    record.gaps.emplace_back(gap);
    record.latency += Seconds(gap);
  }
  record.input_tokens = 10;
  record.output_tokens = static_cast<int64_t>(gaps.size()) + 1;
  return record;
}

// Expected values: numpy.percentile([1, 2, 4, 8], p) and numpy.std, computed by hand from the
// definition rank = p / 100 * (n - 1).
TEST(Percentile, InterpolatesLinearlyAsNumpy) {
  const std::vector<double> values = {1, 2, 4, 8};
  EXPECT_DOUBLE_EQ(Percentile(values, 0), 1);
  EXPECT_DOUBLE_EQ(Percentile(values, 50), 3);
  EXPECT_DOUBLE_EQ(Percentile(values, 90), 4 + 4 * 0.7);
  EXPECT_DOUBLE_EQ(Percentile(values, 99), 4 + 4 * 0.97);
  EXPECT_DOUBLE_EQ(Percentile(values, 100), 8);
  EXPECT_DOUBLE_EQ(Percentile({}, 99), 0);
  EXPECT_DOUBLE_EQ(Percentile(std::vector<double>{7}, 99), 7);
}

TEST(Percentile, LiesBetweenNeighboursAndGrowsWithThePercent) {
  Random random(11);
  for (int round = 0; round < 200; ++round) {
    std::vector<double> values(static_cast<size_t>(random.Between(1, 50)));
    for (double& value : values) value = random.Normal();
    std::ranges::sort(values);
    double last = values.front();
    for (double percent = 0; percent <= 100; percent += 2.5) {
      const double value = Percentile(values, percent);
      EXPECT_GE(value, last - 1e-12);
      EXPECT_LE(value, values.back());
      last = value;
    }
  }
}

TEST(Summarise, MeanMedianAndPopulationDeviation) {
  const std::vector<double> percents = {99};
  const Summary summary = Summarise({4, 1, 8, 2}, percents);
  EXPECT_DOUBLE_EQ(summary.mean, 3.75);
  EXPECT_DOUBLE_EQ(summary.median, 3);
  EXPECT_NEAR(summary.deviation, 2.680951323690902, 1e-12);
  ASSERT_EQ(summary.percentiles.size(), 1u);
  EXPECT_DOUBLE_EQ(summary.percentiles[0].second, 7.88);
  EXPECT_DOUBLE_EQ(Summarise({}, percents).mean, 0);
}

TEST(Measure, CountsTokensAndTimesOfCompletedRequestsOnly) {
  std::vector<RequestRecord> records = {Completed(0, 0.1, {0.02, 0.04}), Completed(0.05, 0.3, {})};
  records.emplace_back().error = "HTTP 500";
  records.back().output_tokens = 99;
  records.emplace_back().abandoned = true;
  const std::vector<double> percents = {50, 99};
  const LoadFigures figures = Measure(records, Seconds(2), {}, percents);
  EXPECT_EQ(figures.completed, 2);
  EXPECT_EQ(figures.failed, 1);
  EXPECT_EQ(figures.abandoned, 1);
  EXPECT_EQ(figures.input_tokens, 20);
  EXPECT_EQ(figures.output_tokens, 4);
  EXPECT_DOUBLE_EQ(figures.PerSecond(figures.output_tokens), 2);
  EXPECT_NEAR(figures.ttft_ms.mean, 200, 1e-9);
  EXPECT_NEAR(figures.tpot_ms.mean, 30, 1e-9);  // The one-token request has none.
  EXPECT_NEAR(figures.itl_ms.median, 30, 1e-9);
  EXPECT_NEAR(figures.e2el_ms.mean, (160 + 300) / 2.0, 1e-9);
  EXPECT_EQ(figures.peak_concurrency, 2);
  EXPECT_EQ(figures.peak_output_tokens_per_second, 4);
}

TEST(Measure, GoodputNeedsEveryObjective) {
  const std::vector<RequestRecord> records = {
      Completed(0, 0.1, {0.02, 0.04}), Completed(0, 0.1, {0.2, 0.2}), Completed(0, 0.9, {0.01})};
  const auto good = [&](const std::vector<std::string>& pairs) {
    return Measure(records, Seconds(1), ParseObjectives(pairs).value(), {}).good;
  };
  EXPECT_EQ(good({}), 3);
  EXPECT_EQ(good({"ttft:100"}), 2);
  EXPECT_EQ(good({"ttft:100", "tpot:50"}), 1);
  EXPECT_EQ(good({"ttft:100", "tpot:50", "e2el:100"}), 0);
}

TEST(Measure, ARequestThatEndsAsAnotherStartsIsNotConcurrent) {
  const std::vector<RequestRecord> records = {Completed(0, 1, {}), Completed(1, 1, {})};
  EXPECT_EQ(Measure(records, Seconds(2), {}, {}).peak_concurrency, 1);
}

TEST(ParseObjectives, NamesWhatItRefuses) {
  for (const char* pair : {"ttft", "ttft:", "ttft:x", "ttft:-1", "itl:5", "tpot:1e999", ":5"}) {
    const auto result = ParseObjectives({pair});
    ASSERT_FALSE(result.ok()) << pair;
    EXPECT_NE(result.error().message.find(Format("'{}'", pair)), std::string::npos);
  }
}

TEST(ParsePercentiles, ReadsListsAndRefusesTheRest) {
  EXPECT_EQ(ParsePercentiles("50,99,99.9").value(), (std::vector<double>{50, 99, 99.9}));
  for (const char* list : {"", "50,", "101", "-1", "a", "50 99", "nan"}) {
    EXPECT_FALSE(ParsePercentiles(list).ok()) << list;
  }
}

}  // namespace
}  // namespace divisi
