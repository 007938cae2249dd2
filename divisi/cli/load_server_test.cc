#include "divisi/cli/load_server.h"

#include <gtest/gtest.h>

namespace divisi {
namespace {

TEST(ParseMetricsText, SumsOverLabelsAndDropsThePrefix) {
  const auto sums = ParseMetricsText(
                        "# HELP divisi:a Help.\n# TYPE divisi:a counter\n"
                        "divisi:a{model_name=\"x y\",k=\"}\"} 2\ndivisi:a{model_name=\"z\"} 3.5\r\n"
                        "up 1\nvllm:b_bucket{le=\"+Inf\"} 7 1700000000\nc +Inf\nd -1e3")
                        .value();
  EXPECT_EQ(sums.at("a"), 5.5);
  EXPECT_EQ(sums.at("up"), 1);
  EXPECT_EQ(sums.at("b_bucket"), 7);
  EXPECT_EQ(sums.at("d"), -1000);
  EXPECT_EQ(sums.size(), 5u);
}

TEST(ParseMetricsText, NamesTheLineThatIsNone) {
  for (const char* text : {"a", "a x", "a{b=\"c\" 3", " 3", "a 1x", "<html>"}) {
    const auto sums = ParseMetricsText(text);
    ASSERT_FALSE(sums.ok()) << text;
    EXPECT_NE(sums.error().message.find(text), std::string::npos);
  }
}

std::map<std::string, double> Reading(double requests, double queue, double prefill, double decode,
                                      double tokens) {
  std::map<std::string, double> reading;
  const auto set = [&](const std::string& name, double mean) {
    reading[name + "_sum"] = mean * requests;
    reading[name + "_count"] = requests;
  };
  set("request_queue_time_seconds", queue);
  set("request_prefill_time_seconds", prefill);
  set("request_decode_time_seconds", decode);
  set("request_generation_tokens", tokens);
  return reading;
}

TEST(TimesBetween, AreMeansOfTheRequestsInBetween) {
  auto before = Reading(10, 9, 9, 9, 9);
  auto after = before;
  for (const auto& [name, value] : Reading(4, 0.001, 0.003, 0.2, 101)) after[name] += value;
  const auto times = TimesBetween(before, after);
  ASSERT_TRUE(times.ok()) << times.error().message;
  EXPECT_EQ(times->requests, 4);
  EXPECT_NEAR(times->ttft.value, 0.004, 1e-12);
  EXPECT_NEAR(times->TimePerOutputToken().value, 0.002, 1e-12);

  LoadFigures client;
  client.ttft_ms.mean = 4.5;
  client.e2el_ms.mean = 4.5 + 201;
  const AddedTimes added = Added(client, *times);
  EXPECT_NEAR(added.first_token.value, 0.0005, 1e-12);
  EXPECT_NEAR(added.per_token.value, 10e-6, 1e-12);
  const Json json = EngineJson(*times, added);
  EXPECT_NEAR(json.Find("added_ttft_ms")->as_double(), 0.5, 1e-9);
  EXPECT_NEAR(json.Find("added_tpot_us")->as_double(), 10, 1e-6);
}

TEST(TimesBetween, NeedTheHistogramsAndARequest) {
  const auto reading = Reading(3, 1, 1, 1, 1);
  EXPECT_EQ(TimesBetween({}, {}).error().code, Code::kNotFound);
  EXPECT_EQ(TimesBetween(reading, reading).error().code, Code::kNotFound);
  EXPECT_TRUE(TimesBetween({}, reading).ok());
}

TEST(Added, HasNothingPerTokenForSingleTokens) {
  LoadFigures client;
  client.ttft_ms.mean = 3;
  client.e2el_ms.mean = 3;
  EXPECT_EQ(Added(client, {.requests = 1, .ttft = Seconds(0.001), .output_tokens = 1}).per_token,
            Seconds());
}

}  // namespace
}  // namespace divisi
