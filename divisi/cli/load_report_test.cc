#include "divisi/cli/load_report.h"

#include <gtest/gtest.h>

#include <set>

namespace divisi {
namespace {

LoadResult TwoCompletedOneFailed() {
  LoadResult result;
  for (int i = 0; i < 2; ++i) {
    RequestRecord record;
    record.completed = true;
    record.input_tokens = 10;
    record.output_tokens = 3;
    record.ttft = Seconds(0.25);
    record.gaps = {Seconds(0.125), Seconds(0.125)};
    record.latency = Seconds(0.5);
    record.text = "abc";
    result.records.push_back(record);
  }
  result.records.emplace_back().error = "HTTP 429: full";
  result.duration = Seconds(2);
  return result;
}

Json Report(const ReportHeader& header, const LoadResult& result, bool detailed) {
  const std::vector<double> percents = {99, 99.9};
  return ReportJson(header, Measure(result.records, result.duration, header.objectives, percents),
                    result, detailed);
}

const std::vector<std::string> kAll = {"ttft", "tpot", "itl", "e2el"};

// The keys of `vllm bench serve` (vllm/benchmarks/serve.py), which tools read.
TEST(ReportJson, HasTheKeysOfVllm) {
  ReportHeader header{.date = "d", .model = "m", .prompts = 3, .metrics = kAll};
  const Json json = Report(header, TwoCompletedOneFailed(), true);
  for (const char* key : {"date",
                          "backend",
                          "endpoint_type",
                          "label",
                          "model_id",
                          "tokenizer_id",
                          "num_prompts",
                          "request_rate",
                          "burstiness",
                          "max_concurrency",
                          "duration",
                          "completed",
                          "failed",
                          "total_input_tokens",
                          "total_output_tokens",
                          "request_throughput",
                          "request_goodput",
                          "output_throughput",
                          "total_token_throughput",
                          "max_output_tokens_per_s",
                          "max_concurrent_requests",
                          "input_lens",
                          "output_lens",
                          "ttfts",
                          "itls",
                          "start_times",
                          "latencies",
                          "queue_times",
                          "generated_texts",
                          "errors"}) {
    EXPECT_NE(json.Find(key), nullptr) << key;
  }
  for (const std::string& metric : kAll) {
    for (const char* figure : {"mean", "median", "std", "p99", "p99.9"}) {
      EXPECT_NE(json.Find(Format("{}_{}_ms", figure, metric)), nullptr) << figure << metric;
    }
  }
  EXPECT_EQ(json.Find("request_rate")->Dump(), R"("inf")");
  EXPECT_EQ(json.Find("max_concurrency")->Dump(), "null");
  EXPECT_EQ(json.Find("request_goodput")->Dump(), "null");
  EXPECT_EQ(json.Find("completed")->as_int(), 2);
  EXPECT_EQ(json.Find("failed")->as_int(), 1);
  EXPECT_EQ(json.Find("output_throughput")->as_double(), 3);
  EXPECT_EQ(json.Find("total_token_throughput")->as_double(), 13);
  EXPECT_EQ(json.Find("mean_ttft_ms")->as_double(), 250);
  EXPECT_EQ(json.Find("mean_tpot_ms")->as_double(), 125);
  EXPECT_EQ(json.Find("errors")->Dump(), R"(["","","HTTP 429: full"])");
  EXPECT_EQ(json.Find("output_lens")->Dump(), "[3,3,0]");
  EXPECT_TRUE(Json::Parse(json.Dump()).ok());
}

TEST(ReportJson, LeavesOutWhatWasNotAskedFor) {
  ReportHeader header{.requests_per_second = 4,
                      .max_concurrency = 8,
                      .objectives = {.ttft = Seconds(0.25)},
                      .metrics = {"ttft"}};
  const Json json = Report(header, TwoCompletedOneFailed(), false);
  for (const char* key :
       {"ttfts", "itls", "errors", "mean_tpot_ms", "malformed", "disconnected", "interrupted"}) {
    EXPECT_EQ(json.Find(key), nullptr) << key;
  }
  EXPECT_EQ(json.Find("request_rate")->as_double(), 4);
  EXPECT_EQ(json.Find("max_concurrency")->as_int(), 8);
  EXPECT_EQ(json.Find("request_goodput")->as_double(), 1);
  EXPECT_NE(json.Find("p99_client_queue_time_ms"), nullptr);
}

TEST(ReportTable, ShowsErrorsMostFrequentFirst) {
  LoadResult result = TwoCompletedOneFailed();
  result.records.emplace_back().error = "HTTP 500: x";
  result.records.emplace_back().error = "HTTP 500: x";
  const ReportHeader header{.metrics = kAll};
  const std::string table =
      ReportTable(header, Measure(result.records, result.duration, {}, {}), result);
  const size_t often = table.find("2 x HTTP 500: x");
  const size_t once = table.find("1 x HTTP 429: full");
  ASSERT_NE(often, std::string::npos);
  ASSERT_NE(once, std::string::npos);
  EXPECT_LT(often, once);
  EXPECT_NE(table.find("Mean TTFT (ms):                          250.00"), std::string::npos);
  EXPECT_EQ(table.find("goodput"), std::string::npos);
}

TEST(ParseMetrics, RefusesUnknownNames) {
  EXPECT_EQ(ParseMetrics("ttft,e2el").value(), (std::vector<std::string>{"ttft", "e2el"}));
  for (const char* list : {"", "ttft,", "latency", "TTFT"}) EXPECT_FALSE(ParseMetrics(list).ok());
}

TEST(DateName, WritesUtc) {
  EXPECT_EQ(DateName(0), "19700101-000000");
  EXPECT_EQ(DateName(951782399.9), "20000228-235959");
  EXPECT_EQ(DateName(951782400), "20000229-000000");
}

}  // namespace
}  // namespace divisi
