#include "divisi/serve/openai_response.h"

#include <gtest/gtest.h>

#include <limits>

#include "divisi/serve/byte_tokenizer.h"

namespace divisi {
namespace {

const ResponseHead kCompletionHead{.kind = ApiKind::kCompletion,
                                   .id = "cmpl-1",
                                   .created_unix_seconds = 17,
                                   .model = "a\"b"};
const ResponseHead kChatHead{
    .kind = ApiKind::kChat, .id = "chatcmpl-1", .created_unix_seconds = 17, .model = "m"};

TEST(ChunkWriter, CompletionChunksAreOpenAis) {
  std::string out;
  const ChunkWriter writer(kCompletionHead);
  writer.AppendChunk({.index = 2, .text = "a\n\"b\""}, out);
  EXPECT_EQ(out,
            "data: {\"id\":\"cmpl-1\",\"object\":\"text_completion\",\"created\":17,"
            "\"model\":\"a\\\"b\",\"choices\":[{\"index\":2,\"text\":\"a\\n\\\"b\\\"\","
            "\"logprobs\":null,\"finish_reason\":null}]}\n\n");
  out.clear();
  writer.AppendChunk({.finish = FinishReason::kLength, .usage_null = true}, out);
  EXPECT_NE(
      out.find("\"text\":\"\",\"logprobs\":null,\"finish_reason\":\"length\"}],\"usage\":null}"),
      std::string::npos);
}

TEST(ChunkWriter, ChatChunksAreOpenAis) {
  std::string out;
  const ChunkWriter writer(kChatHead);
  writer.AppendRole({}, out);
  writer.AppendChunk({.text = "hi"}, out);
  writer.AppendChunk({.finish = FinishReason::kStop}, out);
  writer.AppendUsage({.prompt_tokens = 3, .completion_tokens = 4, .cached_tokens = 1}, out);
  ChunkWriter::AppendDone(out);
  const std::string head =
      "data: {\"id\":\"chatcmpl-1\",\"object\":\"chat.completion.chunk\",\"created\":17,"
      "\"model\":\"m\",\"choices\":[";
  EXPECT_EQ(out,
            head +
                "{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\"},"
                "\"logprobs\":null,\"finish_reason\":null}]}\n\n" +
                head +
                "{\"index\":0,\"delta\":{\"content\":\"hi\"},"
                "\"logprobs\":null,\"finish_reason\":null}]}\n\n" +
                head +
                "{\"index\":0,\"delta\":{},\"logprobs\":null,\"finish_reason\":\"stop\"}]}\n\n" +
                head +
                "],\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":4,\"total_tokens\":7,"
                "\"prompt_tokens_details\":{\"cached_tokens\":1}}}\n\ndata: [DONE]\n\n");
}

TEST(ChunkWriter, ErrorsHaveAllFourMembers) {
  std::string out;
  ChunkWriter::AppendError({.status = 429, .type = "t", .message = "m \"q\"", .code = "c"}, out);
  EXPECT_EQ(out,
            "data: {\"error\":{\"message\":\"m \\\"q\\\"\",\"type\":\"t\",\"param\":null,"
            "\"code\":\"c\"}}\n\n");
}

TEST(Logprobs, ChatHasBytesAndRivals) {
  const Tokenizer tokenizer = MakeByteTokenizer();
  std::string out;
  AppendLogprobs(
      ApiKind::kChat, tokenizer,
      {{.sampled = {.token = 0xE6, .logprob = -1.5f, .top = {{'a', -0.5f}, {'b', -9.f}}}}}, 1, out);
  EXPECT_EQ(out,
            "{\"content\":[{\"token\":\"\xEF\xBF\xBD\",\"logprob\":-1.5,\"bytes\":[230],"
            "\"top_logprobs\":[{\"token\":\"a\",\"logprob\":-0.5,\"bytes\":[97]}]}],"
            "\"refusal\":null}");
}

TEST(Logprobs, CompletionsHaveParallelLists) {
  const Tokenizer tokenizer = MakeByteTokenizer();
  const float impossible = -std::numeric_limits<float>::infinity();
  const std::vector<TextOutput::Token> tokens{
      {.sampled = {.token = 'a'}, .text_offset = 0},
      {.sampled = {.token = 'b', .logprob = impossible, .top = {{'c', -0.25f}, {'d', -3.f}}},
       .text_offset = 1}};
  std::string out;
  AppendLogprobs(ApiKind::kCompletion, tokenizer, tokens, 1, out);
  EXPECT_EQ(out,
            "{\"tokens\":[\"a\",\"b\"],\"token_logprobs\":[null,-9999.0],"
            "\"top_logprobs\":[null,{\"b\":-9999.0,\"c\":-0.25}],\"text_offset\":[0,1]}");
  out.clear();
  AppendLogprobs(ApiKind::kCompletion, tokenizer, tokens, 0, out);
  EXPECT_NE(out.find("\"top_logprobs\":null"), std::string::npos);
}

TEST(ResponseBody, IsWholeJson) {
  const std::vector<ChoiceResult> choices{
      {.text = "x", .finish = FinishReason::kStop},
      {.text = "y", .logprobs = "{}", .finish = FinishReason::kLength}};
  for (const ResponseHead& head : {kCompletionHead, kChatHead}) {
    const auto body = Json::Parse(ResponseBody(head, choices, {.prompt_tokens = 2}));
    ASSERT_TRUE(body) << body.error().message;
    const Json& second = body->Find("choices")->as_array().at(1);
    EXPECT_EQ(*second.Find("index"), Json(1));
    EXPECT_EQ(*second.Find("finish_reason"), Json("length"));
    if (head.kind == ApiKind::kChat) {
      EXPECT_EQ(*body->Find("object"), Json("chat.completion"));
      EXPECT_EQ(*second.Find("message")->Find("content"), Json("y"));
    } else {
      EXPECT_EQ(*second.Find("text"), Json("y"));
    }
    EXPECT_EQ(*body->Find("usage")->Find("total_tokens"), Json(2));
  }
}

TEST(ApiError, CodesHaveTheirStatus) {
  EXPECT_EQ(FromError({Code::kInvalidArgument, ""}).status, 400);
  EXPECT_EQ(FromError({Code::kOutOfRange, ""}).status, 400);
  EXPECT_EQ(FromError({Code::kResourceExhausted, ""}).status, 429);
  EXPECT_GT(FromError({Code::kResourceExhausted, ""}).retry_after_seconds, 0);
  EXPECT_EQ(FromError({Code::kUnavailable, ""}).status, 503);
  EXPECT_GT(FromError({Code::kUnavailable, ""}).retry_after_seconds, 0);
  EXPECT_EQ(FromError({Code::kInternal, ""}).status, 500);
}

}  // namespace
}  // namespace divisi
