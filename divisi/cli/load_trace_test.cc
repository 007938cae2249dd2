#include "divisi/cli/load_trace.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "divisi/core/random.h"

namespace divisi {
namespace {

Result<std::vector<PlannedRequest>> Read(std::string_view text, TraceOptions options = {}) {
  return ReadTrace(text, "t", options);
}

std::string Refusal(std::string_view text) {
  const auto result = Read(text);
  return result.ok() ? "accepted" : result.error().message;
}

constexpr std::string_view kMooncake =
    "{\"timestamp\": 1000, \"input_length\": 1030, \"output_length\": 5, \"hash_ids\": [0, 1, 2]}\n"
    "{\"timestamp\": 1000, \"input_length\": 1024, \"output_length\": 6, \"hash_ids\": [0, 7]}\r\n"
    "\n"
    "{\"hash_ids\":[9],\"extra\":{\"a\":[1,\"x]\\\"}\"]},\"timestamp\":4000.5,\"input_length\":700,"
    "\"output_length\":0}";

TEST(MooncakeTrace, ReadsTimesLengthsAndSharedBlocks) {
  const auto requests = Read(kMooncake).value();
  ASSERT_EQ(requests.size(), 3u);
  EXPECT_EQ(requests[0].arrival, Seconds(0));
  EXPECT_DOUBLE_EQ(requests[2].arrival.value, 3.0005);
  EXPECT_EQ(requests[0].InputTokens(), 1030);
  EXPECT_EQ(requests[0].output_tokens, 5);
  EXPECT_EQ(requests[2].InputTokens(), 700);
  EXPECT_EQ(requests[2].output_tokens, 1);

  std::vector<TokenId> alphabet;
  for (TokenId id = 0; id < 5000; ++id) alphabet.push_back(id);
  const auto a = PromptTokens(requests[0], 1, alphabet);
  const auto b = PromptTokens(requests[1], 1, alphabet);
  EXPECT_TRUE(std::equal(a.begin(), a.begin() + 512, b.begin()));
  EXPECT_FALSE(std::equal(a.begin() + 512, a.begin() + 1024, b.begin() + 512));
}

TEST(MooncakeTrace, TokensThatNoHashIdCoversAreTheRequestsOwn) {
  const std::string line = R"({"timestamp":0,"input_length":600,"output_length":1,"hash_ids":[4]})";
  const auto requests = Read(line + "\n" + line).value();
  ASSERT_EQ(requests[0].pieces.size(), 2u);
  EXPECT_EQ(requests[0].pieces[0].stream, requests[1].pieces[0].stream);
  EXPECT_NE(requests[0].pieces[1].stream, requests[1].pieces[1].stream);
}

TEST(MooncakeTrace, SpeedAndScale) {
  const auto requests = Read(kMooncake, {.speed = 2, .scale = 0.1}).value();
  EXPECT_DOUBLE_EQ(requests[2].arrival.value, 1.50025);
  EXPECT_EQ(requests[0].InputTokens(), 103);
  EXPECT_EQ(requests[0].pieces[0].tokens, 51);  // 512 tokens scaled, as in every request.
  EXPECT_EQ(requests[0].output_tokens, 1);
  EXPECT_FALSE(Read(kMooncake, {.speed = 0}).ok());
  EXPECT_FALSE(Read(kMooncake, {.scale = -1}).ok());
}

TEST(AzureTrace, ReadsTimestampsAcrossMidnight) {
  const auto requests = Read(
                            "TIMESTAMP,ContextTokens,GeneratedTokens\r\n"
                            "2023-12-31 23:59:59.5000000,4808,10\r\n"
                            "2024-01-01 00:00:00.250000+00:00,549,173")
                            .value();
  ASSERT_EQ(requests.size(), 2u);
  EXPECT_NEAR(requests[1].arrival.value, 0.75, 1e-6);
  EXPECT_EQ(requests[0].InputTokens(), 4808);
  EXPECT_EQ(requests[1].output_tokens, 173);
  EXPECT_NE(requests[0].pieces[0].stream, requests[1].pieces[0].stream);
}

TEST(Trace, ErrorsNameLineAndColumn) {
  const std::string good = R"({"timestamp":0,"input_length":1,"output_length":1,"hash_ids":[]})";
  EXPECT_EQ(Refusal(good + "\n{\"timestamp\":-1}"),
            "t:2:14: expected a number from 0 to 10000000000000");
  EXPECT_EQ(Refusal("{\"timestamp\": 1,}"), "t:1:17: expected '\"'");
  EXPECT_EQ(Refusal("{}"), "t:1:1: expected the members timestamp, input_length and output_length");
  EXPECT_EQ(Refusal(good + " x"), "t:1:66: unexpected text after the end of the entry");
  EXPECT_EQ(Refusal(R"({"timestamp":0,"input_length":1,"output_length":1,"hash_ids":[1,2]})"),
            "t:1:1: 2 hash_ids for 1 blocks of 512 tokens");
  EXPECT_EQ(Refusal(R"({"hash_ids":[1,-2]})"),
            "t:1:16: expected an integer from 0 to 576460752303423487");
  EXPECT_EQ(Refusal(R"({"x":)"), "t:1:6: expected a value");
  EXPECT_EQ(Refusal("TIMESTAMP,ContextTokens,GeneratedTokens\n2023-02-30 00:00:00,1,1"),
            "t:2:1: no such day");
  EXPECT_EQ(Refusal("TIMESTAMP,ContextTokens,GeneratedTokens\n2023-02-03 00:00:00,1;1"),
            "t:2:22: expected ','");
  EXPECT_EQ(Refusal("TIMESTAMP,ContextTokens,GeneratedTokens\n"), "t: the trace has no requests");
  EXPECT_EQ(Refusal(""), "t: the trace has no requests");
  EXPECT_EQ(Refusal("a,b\n").substr(0, 14), "t:1:1: neither");
}

TEST(Trace, DeepNestingAndDamageAreRefusedNotFatal) {
  EXPECT_NE(Refusal("{\"x\":" + std::string(100'000, '[')).find("deep"), std::string::npos);
  Random random(1);
  for (int round = 0; round < 5000; ++round) {
    std::string text(kMooncake);
    for (int64_t n = random.Between(1, 4); n > 0; --n) {
      const auto at = static_cast<size_t>(random.Between(0, static_cast<int64_t>(text.size()) - 1));
      if (random.Chance(0.5)) {
        text[at] = static_cast<char>(random.Between(0, 255));
      } else {
        text.erase(at, static_cast<size_t>(random.Between(1, 9)));
      }
    }
    const auto result = Read(text);
    if (!result.ok()) {
      EXPECT_EQ(result.error().message.substr(0, 2), "t:");
    }
  }
}

TEST(Trace, ReportsProgressOnLongFiles) {
  std::string text;
  for (int i = 0; i < 10'000; ++i) {
    text += "{\"timestamp\":0,\"input_length\":1,\"output_length\":1}\n";
  }
  std::vector<double> seen;
  EXPECT_EQ(Read(text, {.progress = [&](double f) { seen.push_back(f); }}).value().size(), 10'000u);
  ASSERT_EQ(seen.size(), 2u);
  EXPECT_NEAR(seen[0], 0.4096, 1e-9);
}

}  // namespace
}  // namespace divisi
