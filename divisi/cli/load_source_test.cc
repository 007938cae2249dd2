#include "divisi/cli/load_source.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

namespace divisi {
namespace {

std::vector<PlannedRequest> All(RequestSource& source, size_t most = 100'000) {
  std::vector<PlannedRequest> requests;
  while (requests.size() < most) {
    auto request = source.Next();
    if (!request) break;
    requests.push_back(std::move(*request));
  }
  return requests;
}

std::vector<PlannedRequest> Synthetic(const SyntheticLoad& load) {
  return All(*MakeSyntheticSource(load).value(), 5000);
}

TEST(Gamma, HasTheMomentsOfItsDistribution) {
  for (const double shape : {0.3, 1.0, 4.0}) {
    Random random(5);
    constexpr int kDraws = 200'000;
    double sum = 0;
    double squares = 0;
    for (int i = 0; i < kDraws; ++i) {
      const double x = Gamma(random, shape, 2);
      ASSERT_GE(x, 0);
      sum += x;
      squares += x * x;
    }
    const double mean = sum / kDraws;
    // Mean k*s and variance k*s^2; the tolerance is five standard errors of the mean.
    EXPECT_NEAR(mean, shape * 2, 5 * std::sqrt(shape * 4 / kDraws)) << shape;
    EXPECT_NEAR(squares / kDraws - mean * mean, shape * 4, 0.05 * shape * 4) << shape;
  }
}

TEST(ArrivalTimes, AscendAndEndWhereTheRateSays) {
  const auto times = ArrivalTimes(4000, 50, 1, 9);
  EXPECT_NEAR(times.back().value, 80, 1e-9);
  for (size_t i = 1; i < times.size(); ++i) ASSERT_LE(times[i - 1], times[i]);
  EXPECT_EQ(times, ArrivalTimes(4000, 50, 1, 9));
  EXPECT_NE(times, ArrivalTimes(4000, 50, 1, 10));
}

TEST(ArrivalTimes, BurstinessSetsTheSpreadOfTheGaps) {
  const auto variation = [](double burstiness) {
    const auto times = ArrivalTimes(20'000, 10, burstiness, 1);
    double mean = 0;
    double square = 0;
    for (size_t i = 1; i < times.size(); ++i) {
      const double gap = (times[i] - times[i - 1]).value;
      mean += gap;
      square += gap * gap;
    }
    const auto n = static_cast<double>(times.size() - 1);
    mean /= n;
    return std::sqrt(square / n - mean * mean) / mean;
  };
  // The coefficient of variation of a gamma distribution is 1 / sqrt(shape).
  EXPECT_NEAR(variation(1), 1, 0.05);
  EXPECT_NEAR(variation(0.25), 2, 0.2);
  EXPECT_NEAR(variation(100), 0.1, 0.01);
}

TEST(SyntheticSource, FixedLengthsAndDistinctPrompts) {
  const auto requests = Synthetic({.count = 20, .input_tokens = 32, .output_tokens = 8, .seed = 3});
  ASSERT_EQ(requests.size(), 20u);
  const std::vector<TokenId> alphabet = {5, 6, 7, 8};
  std::set<std::vector<TokenId>> prompts;
  for (const PlannedRequest& request : requests) {
    EXPECT_EQ(request.arrival, Seconds(0));
    EXPECT_EQ(request.output_tokens, 8);
    const auto tokens = PromptTokens(request, 3, alphabet);
    EXPECT_EQ(tokens.size(), 32u);
    EXPECT_EQ(request.InputTokens(), 32);
    prompts.insert(tokens);
    EXPECT_EQ(tokens, PromptTokens(request, 3, alphabet));
    for (const TokenId token : tokens) ASSERT_TRUE(token >= 5 && token <= 8);
  }
  EXPECT_EQ(prompts.size(), 20u);
}

TEST(SyntheticSource, SharedPrefixComesBeforeTheInput) {
  const auto requests =
      Synthetic({.count = 2, .input_tokens = 4, .output_tokens = 1, .prefix_tokens = 40});
  std::vector<TokenId> alphabet;
  for (TokenId id = 0; id < 1000; ++id) alphabet.push_back(id);
  auto a = PromptTokens(requests[0], 0, alphabet);
  auto b = PromptTokens(requests[1], 0, alphabet);
  ASSERT_EQ(a.size(), 44u);
  EXPECT_NE(a, b);
  a.resize(40);
  b.resize(40);
  EXPECT_EQ(a, b);
}

TEST(SyntheticSource, RangeRatioSpreadsLengthsUniformly) {
  const auto requests =
      Synthetic({.count = 4000, .input_tokens = 100, .output_tokens = 10, .range_ratio = 0.5});
  std::set<int64_t> inputs, outputs;
  double mean = 0;
  for (const PlannedRequest& request : requests) {
    inputs.insert(request.InputTokens());
    outputs.insert(request.output_tokens);
    mean += static_cast<double>(request.InputTokens()) / 4000;
  }
  EXPECT_EQ(*inputs.begin(), 50);
  EXPECT_EQ(*inputs.rbegin(), 150);
  EXPECT_EQ(outputs.size(), 11u);
  EXPECT_EQ(*outputs.begin(), 5);
  EXPECT_NEAR(mean, 100, 2);
}

TEST(SyntheticSource, WithoutCountItIsSizedByTheDurationOrEndless) {
  SyntheticLoad load{.count = {}, .duration = Seconds(3), .requests_per_second = 7};
  EXPECT_EQ(Synthetic(load).size(), 21u);
  load.requests_per_second = 0;
  EXPECT_EQ(Synthetic(load).size(), 5000u);
}

TEST(SyntheticSource, RefusesOptionsOutOfRangeByName) {
  const auto message = [](SyntheticLoad load) {
    const auto source = MakeSyntheticSource(load);
    return source.ok() ? std::string() : source.error().message;
  };
  EXPECT_EQ(message({}), "");
  EXPECT_NE(message({.count = 0}).find("--num-prompts"), std::string::npos);
  EXPECT_NE(message({.requests_per_second = -1}).find("--request-rate"), std::string::npos);
  EXPECT_NE(message({.requests_per_second = NAN}).find("--request-rate"), std::string::npos);
  EXPECT_NE(message({.burstiness = 0}).find("--burstiness"), std::string::npos);
  EXPECT_NE(message({.range_ratio = 1}).find("--range-ratio"), std::string::npos);
  EXPECT_NE(message({.input_tokens = 0}).find("--input-len"), std::string::npos);
  EXPECT_NE(message({.output_tokens = -5}).find("--output-len"), std::string::npos);
  EXPECT_NE(message({.prefix_tokens = -1}).find("--prefix-len"), std::string::npos);
}

TEST(ListSource, PlaysInOrderOfArrival) {
  std::vector<PlannedRequest> requests(3);
  requests[0].arrival = Seconds(2);
  requests[1].arrival = Seconds(1);
  requests[2].arrival = Seconds(2);
  requests[2].output_tokens = 9;
  const auto source = MakeListSource(requests);
  EXPECT_EQ(source->Count(), 3);
  const auto played = All(*source);
  ASSERT_EQ(played.size(), 3u);
  EXPECT_EQ(played[0].arrival, Seconds(1));
  EXPECT_EQ(played[2].output_tokens, 9);
}

}  // namespace
}  // namespace divisi
