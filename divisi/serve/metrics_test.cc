#include "divisi/serve/metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <sstream>
#include <thread>

#include "divisi/core/format.h"

namespace divisi {
namespace {

using testing::HasSubstr;

TEST(Histogram, CountsCumulativelyWithBoundsIncluded) {
  Histogram histogram({1, 2.5});
  for (const double value : {0.5, 1.0, 1.5, 2.5, 99.0}) histogram.Observe(value);
  std::string out;
  histogram.AppendSamples("h", "a=\"b\"", out);
  EXPECT_EQ(out,
            "h_bucket{a=\"b\",le=\"1\"} 2\nh_bucket{a=\"b\",le=\"2.5\"} 4\n"
            "h_bucket{a=\"b\",le=\"+Inf\"} 5\nh_sum{a=\"b\"} 104.5\nh_count{a=\"b\"} 5\n");
}

TEST(Histogram, LosesNothingUnderThreads) {
  Histogram histogram({0.5});
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 10000; ++i) histogram.Observe(1);
    });
  }
  for (auto& thread : threads) thread.join();
  std::string out;
  histogram.AppendSamples("h", "x=\"\"", out);
  EXPECT_THAT(out, HasSubstr("h_count{x=\"\"} 40000\n"));
  EXPECT_THAT(out, HasSubstr("h_sum{x=\"\"} 40000\n"));
}

TEST(ServeMetrics, EverySampleHasItsHeadOnceAndParses) {
  ServeMetrics metrics("we\"ird\\na\nme", 100);
  metrics.OnPrompt(7);
  metrics.OnTokens(3);
  metrics.OnFirstToken(Seconds(0.03));
  metrics.OnHttpResponse(429);
  metrics.OnFinished({.reason = FinishReason::kLength,
                      .prompt_tokens = 7,
                      .output_tokens = 3,
                      .timeline = {.arrived = Seconds(1),
                                   .scheduled = Seconds(1.25),
                                   .first_token = Seconds(2),
                                   .finished = Seconds(4)}});
  EngineStats engine;
  engine.scheduler.blocks_total = 8;
  engine.scheduler.blocks_used = 2;
  engine.step_tokens.counts[1] = 5;
  engine.step_tokens.sum = 20;
  const std::string text = metrics.Render(engine);
  std::istringstream lines(text);
  std::set<std::string> declared;
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("# TYPE ")) {
      const std::string name = line.substr(7, line.find(' ', 7) - 7);
      EXPECT_TRUE(declared.insert(name).second) << name << " twice";
      continue;
    }
    if (line.starts_with("#")) continue;
    std::string name = line.substr(0, line.find_first_of("{ "));
    for (const std::string suffix : {"_bucket", "_sum", "_count"}) {
      if (name.ends_with(suffix) && !declared.contains(name))
        name.resize(name.size() - suffix.size());
    }
    EXPECT_TRUE(declared.contains(name)) << line;
    size_t used = 0;
    const std::string value = line.substr(line.rfind(' ') + 1);
    EXPECT_NO_THROW(std::stod(value, &used)) << line;
    EXPECT_EQ(used, value.size()) << line;
  }
  const std::string label = "model_name=\"we\\\"ird\\\\na\\nme\"";
  EXPECT_THAT(text, HasSubstr("divisi:kv_cache_usage_perc{" + label + "} 0.25\n"));
  EXPECT_THAT(text, HasSubstr("divisi:prompt_tokens_total{" + label + "} 7\n"));
  EXPECT_THAT(text, HasSubstr("divisi:generation_tokens_total{" + label + "} 3\n"));
  EXPECT_THAT(text, HasSubstr("divisi:request_success_total{" + label +
                              ",finished_reason=\"length\"} 1\n"));
  EXPECT_THAT(text,
              HasSubstr("divisi:request_time_per_output_token_seconds_sum{" + label + "} 1\n"));
  EXPECT_THAT(text, HasSubstr("divisi:request_queue_time_seconds_sum{" + label + "} 0.25\n"));
  EXPECT_THAT(text, HasSubstr("divisi:iteration_tokens_total_count{" + label + "} 5\n"));
  EXPECT_THAT(text, HasSubstr("divisi:request_prompt_tokens_bucket{" + label + ",le=\"100\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("status=\"4xx\"} 1\n"));
}

}  // namespace
}  // namespace divisi
