// What becomes of a request that is served.
#include "divisi/core/utf8.h"
#include "divisi/serve/gateway_fixture.h"

namespace divisi {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST_F(GatewayTest, CompletesAPrompt) {
  auto exchange = Complete(R"({"model":"alias","prompt":"Once upon","max_tokens":7,"seed":5})");
  ASSERT_FALSE(exchange->ended());
  const Request& request = backend_.request(0);
  EXPECT_EQ(request.prompt, tokenizer_.Encode("Once upon", true));
  EXPECT_EQ(request.max_tokens, 7);
  EXPECT_EQ(request.sampling.seed, 5u);
  EXPECT_THAT(request.stop_token_ids, ElementsAre(kEos));
  const auto ids = tokenizer_.Encode(" a time", false);
  const int64_t prompt_tokens = static_cast<int64_t>(request.prompt.size());
  backend_.SendIds(0, ids, FinishReason::kLength);
  exchange->RunPosted();
  ASSERT_TRUE(exchange->response());
  EXPECT_EQ(exchange->response()->status, 200);
  const Json body = Body(*exchange);
  EXPECT_EQ(*Choice(body).Find("text"), Json(" a time"));
  EXPECT_EQ(*Choice(body).Find("finish_reason"), Json("length"));
  EXPECT_TRUE(Choice(body).Find("logprobs")->is_null());
  EXPECT_EQ(*body.Find("model"), Json("alias"));
  EXPECT_EQ(*body.Find("object"), Json("text_completion"));
  EXPECT_EQ(*body.Find("usage")->Find("prompt_tokens"), Json(prompt_tokens));
  EXPECT_EQ(*body.Find("usage")->Find("completion_tokens"), Json(static_cast<int64_t>(ids.size())));
}

TEST_F(GatewayTest, StreamsAChatAndEndsItOnce) {
  auto exchange = Call("POST", "/v1/chat/completions",
                       R"({"messages":[{"role":"user","content":[{"type":"text","text":"hi"}]}],
                           "stream":true,"stream_options":{"include_usage":true}})");
  EXPECT_EQ(backend_.request(0).prompt, tokenizer_.Encode("user:hi\n", false));
  ASSERT_TRUE(exchange->head());
  for (const TokenId id : tokenizer_.Encode("The cat", false)) backend_.SendIds(0, {id});
  exchange->RunPosted();
  backend_.SendIds(0, {kEos}, FinishReason::kStop);
  exchange->RunPosted();
  EXPECT_TRUE(exchange->ended());
  const auto events = Events(exchange->stream());
  ASSERT_GE(events.size(), 5u);
  EXPECT_EQ(*Choice(events[0]).Find("delta")->Find("role"), Json("assistant"));
  std::string text;
  for (const Json& event : events) {
    if (!event.is_object() || event.Find("choices")->as_array().empty()) continue;
    if (const Json* content = Choice(event).Find("delta")->Find("content")) {
      text += content->as_string();
    }
  }
  EXPECT_EQ(text, "The cat");
  const Json& last_choice = events[events.size() - 3];
  EXPECT_EQ(*Choice(last_choice).Find("finish_reason"), Json("stop"));
  EXPECT_TRUE(last_choice.Find("usage")->is_null());
  const Json& usage = events[events.size() - 2];
  EXPECT_TRUE(usage.Find("choices")->as_array().empty());
  EXPECT_EQ(*usage.Find("usage")->Find("completion_tokens"),
            Json(static_cast<int64_t>(tokenizer_.Encode("The cat", false).size() + 1)));
  EXPECT_EQ(events.back(), Json("[DONE]"));
}

TEST_F(GatewayTest, StopStringEndsTheChoiceAndCancelsTheEngine) {
  auto exchange = Complete(R"({"prompt":"x","max_tokens":30,"stop":["END"],"stream":true})");
  const auto ids = tokenizer_.Encode("one EN two END three", false);
  for (const TokenId id : ids) {
    if (backend_.IsRunning(0)) backend_.SendIds(0, {id});
    exchange->RunPosted();
  }
  EXPECT_TRUE(exchange->ended());
  EXPECT_THAT(backend_.cancelled(), ElementsAre(0));
  std::string text;
  for (const Json& event : Events(exchange->stream())) {
    if (event.is_object()) text += Choice(event).Find("text")->as_string();
  }
  EXPECT_EQ(text, "one EN two ");
}

TEST_F(GatewayTest, ManyChoicesOfManyPromptsKeepTheirOrderAndSeeds) {
  auto exchange = Complete(R"({"prompt":[[1,2],[3]],"n":2,"seed":9,"max_tokens":4})");
  ASSERT_EQ(backend_.submitted().size(), 4u);
  EXPECT_THAT(backend_.request(2).prompt, ElementsAre(3));
  EXPECT_EQ(backend_.request(0).sampling.seed, backend_.request(2).sampling.seed);
  EXPECT_EQ(backend_.request(1).sampling.seed, backend_.request(3).sampling.seed);
  EXPECT_NE(backend_.request(0).sampling.seed, backend_.request(1).sampling.seed);
  for (const RequestId id : {3, 1, 0, 2}) {
    backend_.SendIds(id, tokenizer_.Encode(Format("c{}", id), false), FinishReason::kLength);
  }
  exchange->RunPosted();
  const Json body = Body(*exchange);
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(*Choice(body, i).Find("index"), Json(static_cast<int64_t>(i)));
    EXPECT_EQ(*Choice(body, i).Find("text"), Json(Format("c{}", i)));
  }
  EXPECT_EQ(*body.Find("usage")->Find("prompt_tokens"), Json(3));
}

TEST_F(GatewayTest, WhatIsSaidOfPagesGoesWithTheRequest) {
  auto exchange =
      Complete(R"({"prompt":[5,6],"max_tokens":1,"cache_salt":"tenant","kv_session":"closed"})");
  ASSERT_EQ(backend_.submitted().size(), 1u);
  EXPECT_EQ(backend_.request(0).cache_salt, "tenant");
  EXPECT_EQ(backend_.request(0).session, SessionState::kClosed);
  backend_.SendIds(0, tokenizer_.Encode("a", false), FinishReason::kLength);
  exchange->RunPosted();
  EXPECT_TRUE(exchange->ended());
}

TEST_F(GatewayTest, EchoWithLogprobsScoresThePrompt) {
  auto exchange = Complete(R"({"prompt":[5,6],"max_tokens":1,"echo":true,"logprobs":1})");
  EXPECT_EQ(backend_.request(0).prompt_logprobs, 1);
  const SampledToken score{.token = 6, .logprob = -2.0f, .top = {{7, -0.25f}}};
  backend_.Send(0, {{.token = 8, .logprob = -1.0f, .top = {{8, -1.0f}}}}, FinishReason::kLength,
                {score});
  exchange->RunPosted();
  const Json body = Body(*exchange);
  const std::vector<TokenId> all{5, 6, 8};
  EXPECT_EQ(*Choice(body).Find("text"), Json(tokenizer_.Decode(all, true)));
  const Json& logprobs = *Choice(body).Find("logprobs");
  EXPECT_EQ(*logprobs.Find("token_logprobs"), Json(Json::Array{Json(), -2.0, -1.0}));
  EXPECT_EQ(logprobs.Find("text_offset")->as_array()[2],
            Json(CountCodePoints(tokenizer_.Decode(std::span(all).first(2), true))));
  EXPECT_TRUE(logprobs.Find("top_logprobs")->as_array()[0].is_null());
  EXPECT_EQ(logprobs.Find("top_logprobs")->as_array()[1].as_object().size(), 2u);
}

// As many entries as completion_tokens, as of vLLM: who trains on them needs the end's logprob too.
TEST_F(GatewayTest, TheEndTokenHasALogprobAndNoText) {
  for (const bool stream : {false, true}) {
    auto exchange =
        Complete(Format(R"({{"prompt":"x","max_tokens":5,"logprobs":0,"stream":{}}})", stream));
    const RequestId id = backend_.submitted().back();
    const TokenId cat = tokenizer_.Encode("cat", false)[0];
    backend_.Send(id, {{.token = cat, .logprob = -1.0f}});
    backend_.Send(id, {{.token = kEos, .logprob = -2.0f}}, FinishReason::kStop);
    exchange->RunPosted();
    std::string text;
    std::vector<Json> scores, offsets;
    const auto collect = [&](const Json& body) {
      text += Choice(body).Find("text")->as_string();
      const Json& logprobs = *Choice(body).Find("logprobs");
      if (logprobs.is_null()) return;
      for (const Json& score : logprobs.Find("token_logprobs")->as_array()) scores.push_back(score);
      for (const Json& at : logprobs.Find("text_offset")->as_array()) offsets.push_back(at);
    };
    if (stream) {
      for (const Json& event : Events(exchange->stream())) {
        if (event.is_object()) collect(event);
      }
    } else {
      collect(Body(*exchange));
      EXPECT_EQ(*Body(*exchange).Find("usage")->Find("completion_tokens"), Json(2));
    }
    EXPECT_EQ(text, tokenizer_.Decode(std::span(&cat, 1), true));
    EXPECT_THAT(scores, ElementsAre(Json(-1.0), Json(-2.0)));
    EXPECT_THAT(offsets, ElementsAre(Json(0), Json(CountCodePoints(text))));
  }
}

TEST_F(GatewayTest, ScoresAPromptWithoutMakingTokens) {
  auto exchange = Complete(R"({"prompt":"ab","max_tokens":0,"echo":true})");
  EXPECT_EQ(backend_.request(0).max_tokens, 0);
  backend_.SendIds(0, {}, FinishReason::kLength);
  exchange->RunPosted();
  const Json body = Body(*exchange);
  EXPECT_EQ(*Choice(body).Find("text"), Json("ab"));
  EXPECT_EQ(*Choice(body).Find("finish_reason"), Json("length"));
  EXPECT_EQ(*body.Find("usage")->Find("completion_tokens"), Json(0));
}

TEST_F(GatewayTest, ScoresAPromptThatFillsTheContext) {
  std::string ids = "1";
  for (int i = 1; i < 64; ++i) ids += ",1";
  const auto full = Complete(Format(R"({{"prompt":[{}],"max_tokens":0,"echo":true}})", ids));
  EXPECT_FALSE(full->ended());
  ASSERT_EQ(backend_.submitted().size(), 1u);
  EXPECT_EQ(backend_.request(0).prompt.size(), 64u);
  const auto over = Complete(Format(R"({{"prompt":[{},1],"max_tokens":0,"echo":true}})", ids));
  EXPECT_EQ(ErrorCode(*over), "context_length_exceeded");
  EXPECT_THAT(over->response()->body, HasSubstr("the prompt has 65 tokens."));
  const auto next = Complete(Format(R"({{"prompt":[{}],"max_tokens":1,"echo":true}})", ids));
  EXPECT_EQ(ErrorCode(*next), "context_length_exceeded");
}

TEST_F(GatewayTest, AClientThatLeavesCancelsAllItsRequests) {
  for (const bool stream : {false, true}) {
    const size_t before = backend_.submitted().size();
    auto exchange = Complete(Format(R"({{"prompt":"x","n":3,"stream":{}}})", stream));
    backend_.SendIds(before, {5});
    exchange->RunPosted();
    exchange->Leave();
    exchange->RunPosted();
    for (size_t i = before; i < before + 3; ++i) EXPECT_FALSE(backend_.IsRunning(i));
  }
  EXPECT_EQ(backend_.cancelled().size(), 6u);
}

TEST_F(GatewayTest, TheLogTellsASlowClientFromOneThatLeft) {
  Logger logger({.least = LogLevel::kInfo});
  Gateway gateway({.model_names = {"tiny"}}, clock_, logger);
  gateway.SetModel(Model());
  for (const auto& [why, words] : {std::pair(HttpClosing::kClientLeft, "client left"),
                                   std::pair(HttpClosing::kClientTooSlow, "client too slow")}) {
    auto exchange = std::make_shared<RecordingExchange>();
    gateway.Handle({.method = "POST", .target = "/v1/completions", .body = R"({"prompt":"x"})"},
                   exchange);
    testing::internal::CaptureStderr();
    exchange->Leave(why);
    EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr(words));
  }
}

TEST_F(GatewayTest, AFullQueueIs429AndLeavesNothingBehind) {
  backend_.RefuseAfter(2);
  auto exchange = Complete(R"({"prompt":"x","n":3,"stream":true})");
  ASSERT_TRUE(exchange->response());
  EXPECT_EQ(exchange->response()->status, 429);
  EXPECT_THAT(exchange->response()->headers,
              testing::Contains(std::pair<std::string, std::string>("Retry-After", "1")));
  EXPECT_THAT(backend_.cancelled(), ElementsAre(0, 1));
  // No request ran, so none ended.
  const std::string metrics = Call("GET", "/metrics", "")->response()->body;
  EXPECT_THAT(metrics, HasSubstr("finished_reason=\"abort\"} 0\n"));
  EXPECT_THAT(metrics, HasSubstr("divisi:prompt_tokens_total{model_name=\"tiny\"} 0\n"));
  EXPECT_THAT(metrics,
              HasSubstr("divisi:e2e_request_latency_seconds_count{model_name=\"tiny\"} 0"));
}

TEST_F(GatewayTest, AnEngineErrorEndsAStreamWithOneErrorEvent) {
  auto exchange = Complete(R"({"prompt":"x","stream":true,"n":2})");
  backend_.SendIds(0, {5});
  exchange->RunPosted();
  backend_.Fail(1, {Code::kInternal, "no numbers"});
  exchange->RunPosted();
  EXPECT_TRUE(exchange->ended());
  const auto events = Events(exchange->stream());
  ASSERT_NE(events.back().Find("error"), nullptr);
  EXPECT_EQ(*events.back().Find("error")->Find("message"), Json("no numbers"));
  EXPECT_EQ(exchange->stream().find("[DONE]"), std::string::npos);
  EXPECT_FALSE(backend_.IsRunning(0));
}

// A cluster says only later that no worker had room, or that all are lost.
TEST_F(GatewayTest, WhatFailsWhileItWaitsHasTheStatusOfItsReason) {
  const std::pair<Code, int> cases[] = {{Code::kResourceExhausted, 429},
                                        {Code::kUnavailable, 503},
                                        {Code::kDeadlineExceeded, 504},
                                        {Code::kInvalidArgument, 400}};
  RequestId id = 0;
  for (const auto& [code, status] : cases) {
    auto exchange = Complete(R"({"prompt":"x"})");
    backend_.Fail(id++, {code, "why"});
    exchange->RunPosted();
    ASSERT_TRUE(exchange->response());
    EXPECT_EQ(exchange->response()->status, status);
    const bool retry = std::ranges::any_of(exchange->response()->headers,
                                           [](const auto& h) { return h.first == "Retry-After"; });
    EXPECT_EQ(retry, status == 429 || status == 503);
  }
  auto stream = Complete(R"({"prompt":"x","stream":true})");
  backend_.Fail(id, {Code::kResourceExhausted, "why"});
  stream->RunPosted();
  const auto events = Events(stream->stream());
  ASSERT_EQ(events.size(), 1);
  EXPECT_EQ(*events[0].Find("error")->Find("type"), Json("rate_limit_error"));
}

TEST_F(GatewayTest, AnEngineErrorIsA500AndOneLineOfTheLog) {
  auto exchange = Complete(R"({"prompt":"x","n":2})");
  testing::internal::CaptureStderr();
  backend_.Fail(0, {Code::kInternal, "no numbers"});
  backend_.Fail(1, {Code::kInternal, "no numbers"});
  exchange->RunPosted();
  const std::string log = testing::internal::GetCapturedStderr();
  ASSERT_TRUE(exchange->response());
  EXPECT_EQ(exchange->response()->status, 500);
  EXPECT_EQ(*Body(*exchange).Find("error")->Find("message"), Json("no numbers"));
  EXPECT_THAT(log, HasSubstr("no numbers"));
  EXPECT_EQ(std::ranges::count(log, '\n'), 1) << log;
  EXPECT_THAT(Call("GET", "/metrics", "")->response()->body,
              HasSubstr("finished_reason=\"error\"} 2\n"));
}

TEST_F(GatewayTest, TheServersEndIsSaid) {
  auto plain = Complete(R"({"prompt":"x","n":2})");
  auto stream = Complete(R"({"prompt":"x","stream":true})");
  backend_.SendIds(2, {5});
  stream->RunPosted();
  plain->EndNow();
  ASSERT_TRUE(plain->response());
  EXPECT_EQ(plain->response()->status, 503);
  EXPECT_THAT(plain->response()->headers,
              testing::Contains(std::pair<std::string, std::string>("Retry-After", "1")));
  stream->EndNow();
  EXPECT_TRUE(stream->ended());
  const auto events = Events(stream->stream());
  EXPECT_EQ(*events.back().Find("error")->Find("type"), Json("service_unavailable"));
  EXPECT_THAT(backend_.cancelled(), ElementsAre(0, 1, 2));
}

}  // namespace
}  // namespace divisi
