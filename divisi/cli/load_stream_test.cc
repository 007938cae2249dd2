#include "divisi/cli/load_stream.h"

#include <gtest/gtest.h>

namespace divisi {
namespace {

class CompletionStreamTest : public testing::Test {
 protected:
  Result<void> Event(std::string_view data, double now) {
    return stream.Feed(Format("data: {}\n\n", data), Seconds(now));
  }
  RequestRecord record;
  CompletionStream stream{record, Seconds(10)};
};

TEST_F(CompletionStreamTest, TimesEachTokenAndTakesCountsFromUsage) {
  record.input_tokens = 3;
  ASSERT_TRUE(Event(R"({"choices":[{"text":"On","finish_reason":null}],"usage":null})", 10.5).ok());
  ASSERT_TRUE(Event(R"({"choices":[{"text":"ce "}]})", 10.7).ok());
  ASSERT_TRUE(Event(R"({"choices":[{"text":"upon a","finish_reason":"length"}]})", 11).ok());
  EXPECT_EQ(record.output_tokens, 3);
  EXPECT_FALSE(stream.End().ok());
  ASSERT_TRUE(
      Event(R"({"choices":[],"usage":{"prompt_tokens":5,"completion_tokens":4}})", 12).ok());
  ASSERT_TRUE(Event("[DONE]", 12).ok());
  EXPECT_TRUE(stream.End().ok());
  EXPECT_EQ(record.text, "Once upon a");
  EXPECT_NEAR(record.ttft.value, 0.5, 1e-12);
  ASSERT_EQ(record.gaps.size(), 2u);
  EXPECT_NEAR(record.gaps[1].value, 0.3, 1e-12);
  EXPECT_NEAR(record.latency.value, 1, 1e-12);  // To the last token, not to the usage chunk.
  EXPECT_EQ(record.input_tokens, 5);
  EXPECT_EQ(record.output_tokens, 4);
}

TEST_F(CompletionStreamTest, ChatRoleAndFinishChunksAreNoTokens) {
  ASSERT_TRUE(Event(R"({"choices":[{"delta":{"role":"assistant","content":""}}]})", 10.1).ok());
  EXPECT_EQ(stream.token_events(), 0);
  ASSERT_TRUE(Event(R"({"choices":[{"delta":{"content":"Hi"}}]})", 10.4).ok());
  ASSERT_TRUE(Event(R"({"choices":[{"delta":{},"finish_reason":"stop"}]})", 10.5).ok());
  ASSERT_TRUE(Event("[DONE]", 10.5).ok());
  EXPECT_EQ(stream.token_events(), 1);
  EXPECT_EQ(record.output_tokens, 1);
  EXPECT_NEAR(record.ttft.value, 0.4, 1e-12);
  EXPECT_EQ(record.text, "Hi");
}

TEST_F(CompletionStreamTest, ATokenWhoseCharacterIsNotCompleteStillCounts) {
  ASSERT_TRUE(Event(R"({"choices":[{"text":"","finish_reason":null}]})", 10.1).ok());
  ASSERT_TRUE(Event(R"({"choices":[{"text":"é","finish_reason":null}]})", 10.2).ok());
  EXPECT_EQ(stream.token_events(), 2);
}

TEST_F(CompletionStreamTest, ErrorsMidwayAndForeignEventsAreReported) {
  const auto midway = Event(R"({"error":{"message":"out of pages","type":"server_error"}})", 11);
  ASSERT_FALSE(midway.ok());
  EXPECT_EQ(midway.error().message, "the server broke off: out of pages");
  EXPECT_FALSE(Event("{\"choices\":", 11).ok());
  for (const char* odd : {"[]", "{}", "3", R"({"choices":{}})", R"({"choices":[3]})",
                          R"({"choices":[{"delta":7}],"usage":{"completion_tokens":-4}})"}) {
    EXPECT_TRUE(Event(odd, 11).ok()) << odd;
  }
  EXPECT_EQ(stream.token_events(), 0);
}

}  // namespace
}  // namespace divisi
