// divisi calc kv-trace: its inputs, and, where DIVISI_TRACES names a folder with the Mooncake
// traces, the hit rates of the recorded load.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "divisi/cli/calc.h"
#include "divisi/cli/calc_read.h"
#include "divisi/core/format.h"

namespace divisi {
namespace {

using testing::HasSubstr;
using Inputs = std::map<std::string, std::string>;

Result<CalcResult> Replay(Inputs inputs) { return RunCalc("kv-trace", Catalog(), inputs); }

Json JsonOf(const Inputs& inputs) {
  const auto result = Replay(inputs);
  EXPECT_TRUE(result) << result.error().message;
  return result ? CalcJson("kv-trace", *result) : Json::MakeObject();
}

std::string ErrorOf(const Inputs& inputs) {
  const auto result = Replay(inputs);
  return result ? "accepted" : result.error().message;
}

std::string TempPath(const std::string& name) {
  return Format("{}/{}-{}", testing::TempDir(), getpid(), name);
}

// Two turns of one conversation; the first block is shared with another.
std::string SmallTrace() {
  const std::string path = TempPath("kv_trace_small.jsonl");
  std::ofstream(path)
      << R"({"timestamp": 0, "input_length": 1024, "output_length": 9, "hash_ids": [0, 1]})"
      << "\n"
      << R"({"timestamp": 1000, "input_length": 1000, "output_length": 9, "hash_ids": [0, 2]})"
      << "\n"
      << R"({"timestamp": 2500, "input_length": 1536, "output_length": 9, "hash_ids": [0, 1, 3]})"
      << "\n";
  return path;
}

TEST(CalcKvTraceTest, CountsHitsAndWrites) {
  const Json json = JsonOf({{"trace", SmallTrace()}, {"blocks", "1,10"}, {"policy", "lru"}});
  EXPECT_EQ(Read(json, "accesses"), 7);
  EXPECT_EQ(Read(json, "span_seconds"), 2.5);
  EXPECT_EQ(Read(json, "caches/10/hits"), 3);
  EXPECT_EQ(Read(json, "caches/10/host_writes"), 4);
  EXPECT_EQ(Read(json, "caches/1/hits"), 0);
}

TEST(CalcKvTraceTest, RefusesWhatItCannotReplay) {
  EXPECT_THAT(ErrorOf({}), HasSubstr("--trace"));
  EXPECT_THAT(ErrorOf({{"trace", "/no/such/trace"}}), HasSubstr("/no/such/trace"));
  const std::string trace = SmallTrace();
  EXPECT_THAT(ErrorOf({{"trace", trace}, {"policy", "lur"}}), HasSubstr("did you mean lru?"));
  EXPECT_THAT(ErrorOf({{"trace", trace}, {"admission", "some"}}), HasSubstr("--admission"));
  EXPECT_THAT(ErrorOf({{"trace", trace}, {"policy", "optimum"}, {"disk-blocks", "5"}}),
              HasSubstr("one tier"));
  EXPECT_THAT(ErrorOf({{"trace", trace}, {"blocks", "0"}}), HasSubstr("--blocks"));
  const std::string azure = TempPath("kv_trace_azure.csv");
  std::ofstream(azure) << "TIMESTAMP,ContextTokens,GeneratedTokens\n"
                       << "2023-11-16 18:17:03.9799600,4808,10\n";
  EXPECT_THAT(ErrorOf({{"trace", azure}}), HasSubstr("no hash_ids"));
}

std::string Recorded(const std::string& name) {
  const char* folder = std::getenv("DIVISI_TRACES");
  return folder == nullptr ? "" : std::string(folder) + "/mooncake/" + name;
}

TEST(CalcKvTraceTest, LruOnTheRecordedLoadIsExact) {
  const std::string trace = Recorded("conversation_trace.jsonl");
  if (trace.empty()) GTEST_SKIP() << "DIVISI_TRACES names no folder";
  const Json json =
      JsonOf({{"trace", trace}, {"blocks", "1000,10000,30000,50000,288500"}, {"policy", "lru"}});
  EXPECT_EQ(Read(json, "accesses"), 288'500);
  EXPECT_EQ(Read(json, "caches/1000/hits"), 12'831);
  EXPECT_EQ(Read(json, "caches/10000/hits"), 60'921);
  EXPECT_EQ(Read(json, "caches/30000/hits"), 93'967);
  EXPECT_EQ(Read(json, "caches/50000/hits"), 102'290);
  EXPECT_EQ(Read(json, "caches/288500/hits"), 105'710);
}

TEST(CalcKvTraceTest, TheQueueOnTheRecordedLoadGivesHalfOfWhatTheFutureDoes) {
  const std::string trace = Recorded("conversation_trace.jsonl");
  if (trace.empty()) GTEST_SKIP() << "DIVISI_TRACES names no folder";
  const Json best = JsonOf({{"trace", trace}, {"blocks", "1000,10000"}, {"policy", "optimum"}});
  EXPECT_NEAR(Read(best, "caches/1000/hit_rate"), 0.1906, 2e-4);
  EXPECT_NEAR(Read(best, "caches/10000/hit_rate"), 0.3664, 1e-4);
  const Json queue = JsonOf({{"trace", trace}, {"blocks", "10000"}, {"policy", "queue"}});
  constexpr double kLru = 60'921, kOptimum = 105'710;
  EXPECT_GE((Read(queue, "caches/10000/hits") - kLru) / (kOptimum - kLru), 0.5);
}

// Host memory for 10,000 blocks and an SSD for 100,000, which its endurance lets be written slowly.
TEST(CalcKvTraceTest, AFractionOfTheWritesToTheDiskKeepsMostHitsOfTheRecordedLoad) {
  const std::string trace = Recorded("conversation_trace.jsonl");
  if (trace.empty()) GTEST_SKIP() << "DIVISI_TRACES names no folder";
  Inputs inputs{
      {"trace", trace}, {"blocks", "10000"}, {"policy", "queue"}, {"disk-blocks", "100000"}};
  const Json admitted = JsonOf(inputs);
  inputs["admission"] = "write-through";
  const Json all = JsonOf(inputs);
  const auto of = [](const Json& json, const char* column) {
    return Read(json, std::string("caches/10000/") + column);
  };
  EXPECT_GT(of(all, "disk_hits"), 0);
  EXPECT_LE(of(admitted, "disk_writes"), 0.25 * of(all, "disk_writes"));
  EXPECT_GE(of(admitted, "hits"), 0.90 * of(all, "hits"));
}

}  // namespace
}  // namespace divisi
