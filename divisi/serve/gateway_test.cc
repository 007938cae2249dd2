#include "divisi/serve/gateway.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "divisi/core/utf8.h"
#include "divisi/serve/scripted_backend.h"

namespace divisi {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class GatewayTest : public testing::Test {
 protected:
  GatewayTest()
      : tokenizer_(
            *Tokenizer::Load(std::filesystem::path(DIVISI_SOURCE_DIR) / "models/tiny-qwen3")) {
    gateway_ = MakeGateway({.model_names = {"tiny", "alias"}, .version = "1.2.3"});
    gateway_->SetModel(Model());
  }

  std::unique_ptr<Gateway> MakeGateway(GatewayOptions options) {
    return std::make_unique<Gateway>(std::move(options), clock_, logger_);
  }

  GatewayModel Model() {
    GatewayModel model;
    model.backend = &backend_;
    model.tokenizer = &tokenizer_;
    model.render_chat = [](const Json& variables, double) -> Result<std::string> {
      std::string text;
      for (const Json& message : variables.Find("messages")->as_array()) {
        if (message.Find("role")->as_string() == "tool") {
          return Error{Code::kInvalidArgument, "no tools here"};
        }
        text +=
            message.Find("role")->as_string() + ":" + message.Find("content")->as_string() + "\n";
      }
      return text;
    };
    model.eos_token_ids = {kEos};
    model.vocab_size = tokenizer_.vocab_size();
    model.max_model_len = 64;
    return model;
  }

  std::shared_ptr<RecordingExchange> Call(std::string method, std::string target, std::string body,
                                          HttpHeaders headers = {}) {
    auto exchange = std::make_shared<RecordingExchange>();
    gateway_->Handle({.method = std::move(method),
                      .target = std::move(target),
                      .headers = std::move(headers),
                      .body = std::move(body),
                      .peer = "test"},
                     exchange);
    exchange->RunPosted();
    return exchange;
  }
  std::shared_ptr<RecordingExchange> Complete(std::string body) {
    return Call("POST", "/v1/completions", std::move(body));
  }

  // The events of a stream: JSON, or the text [DONE].
  static std::vector<Json> Events(const std::string& stream) {
    std::vector<Json> events;
    for (size_t at = 0; at < stream.size();) {
      const size_t end = stream.find("\n\n", at);
      EXPECT_NE(end, std::string::npos) << "an unfinished event in " << stream;
      EXPECT_EQ(stream.substr(at, 6), "data: ");
      const std::string data = stream.substr(at + 6, end - at - 6);
      events.push_back(data == "[DONE]" ? Json(data) : *Json::Parse(data));
      at = end + 2;
    }
    return events;
  }
  static Json Body(const RecordingExchange& exchange) {
    return *Json::Parse(exchange.response()->body);
  }
  static std::string ErrorCode(const RecordingExchange& exchange) {
    const Json body = Body(exchange);
    const Json* code = body.Find("error")->Find("code");
    return code->is_string() ? code->as_string() : "";
  }
  static const Json& Choice(const Json& body, size_t index = 0) {
    return body.Find("choices")->as_array().at(index);
  }

  static constexpr TokenId kEos = 2047;  // <|im_end|>
  Tokenizer tokenizer_;
  ManualClock clock_;
  Logger logger_{{.least = LogLevel::kError}};
  ScriptedBackend backend_;
  std::unique_ptr<Gateway> gateway_;
};

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
    auto exchange = Complete(
        Format(R"({{"prompt":"x","max_tokens":5,"logprobs":0,"stream":{}}})", stream));
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

TEST_F(GatewayTest, RefusesPromptsBeyondTheContext) {
  std::string ids = "1";
  for (int i = 1; i < 64; ++i) ids += ",1";
  auto exchange = Complete(Format(R"({{"prompt":[{}]}})", ids));
  EXPECT_EQ(exchange->response()->status, 400);
  EXPECT_EQ(ErrorCode(*exchange), "context_length_exceeded");
  EXPECT_THAT(exchange->response()->body, HasSubstr("64 tokens"));
  EXPECT_THAT(exchange->response()->body, Not(HasSubstr("in the completion")))
      << "none was asked for";
  EXPECT_THAT(exchange->response()->body, Not(HasSubstr("--")));
  EXPECT_EQ(ErrorCode(*Complete(R"({"prompt":[1,2],"max_tokens":63})")), "context_length_exceeded");
  // What is left open is fitted.
  Complete(R"({"prompt":[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,
               29,30,31,32,33,34,35,36,37,38,39,40,41,42,43,44,45,46,47,48,49,50,51,52,53,54,55,56]})");
  EXPECT_EQ(backend_.request(backend_.submitted().back()).max_tokens, 8);
}

TEST_F(GatewayTest, NamesTheFlagThatLimitsTheContext) {
  GatewayModel model = Model();
  model.limited_by = "--kv-memory";
  gateway_ = MakeGateway({.model_names = {"tiny"}});
  gateway_->SetModel(std::move(model));
  EXPECT_THAT(Complete(R"({"prompt":[1,2],"max_tokens":63})")->response()->body,
              AllOf(HasSubstr("(2 in the prompt, 63 in the completion)"),
                    HasSubstr("this server's --kv-memory")));
}

TEST_F(GatewayTest, RefusesWhatItCannotServe) {
  const std::vector<std::tuple<std::string, std::string, std::string>> cases{
      {R"({"model":"gpt","prompt":"x"})", "404", "model"},
      {R"({"prompt":[99999]})", "400", "prompt"},
      {R"({"prompt":[-1]})", "400", "prompt"},
      {R"({"prompt":""})", "400", "prompt"},
      {R"({"prompt":"x","logit_bias":{"2048":1}})", "400", "logit_bias"},
      {R"({"prompt":"x","stop_token_ids":[2048]})", "400", "stop_token_ids"},
  };
  for (const auto& [body, status, param] : cases) {
    auto exchange = Complete(body);
    ASSERT_TRUE(exchange->response()) << body;
    EXPECT_EQ(Format("{}", exchange->response()->status), status) << body;
    EXPECT_EQ(*Body(*exchange).Find("error")->Find("param"), Json(param)) << body;
  }
  auto refused = Call("POST", "/v1/chat/completions",
                      R"({"messages":[{"role":"tool","content":"x"}]})");
  EXPECT_EQ(refused->response()->status, 400);
  EXPECT_THAT(refused->response()->body, HasSubstr("no tools here"));
  EXPECT_TRUE(backend_.submitted().empty());
}

TEST_F(GatewayTest, SaysWhyThereIsNoChat) {
  GatewayModel model = Model();
  model.render_chat = {};
  model.no_chat_reason = "line 3, column 7: 'call' is not supported";
  gateway_ = MakeGateway({.model_names = {"tiny"}});
  gateway_->SetModel(std::move(model));
  const std::string messages = R"({"messages":[{"role":"user","content":"x"}]})";
  for (const char* path : {"/v1/chat/completions", "/tokenize"}) {
    auto refused = Call("POST", path, messages);
    EXPECT_EQ(refused->response()->status, 400) << path;
    EXPECT_THAT(refused->response()->body, HasSubstr("line 3, column 7")) << path;
  }
}

TEST_F(GatewayTest, RoutesMethodsAndKeys) {
  EXPECT_EQ(Call("GET", "/nothing", "")->response()->status, 404);
  auto wrong_method = Call("GET", "/v1/completions", "");
  EXPECT_EQ(wrong_method->response()->status, 405);
  EXPECT_THAT(wrong_method->response()->body,
              HasSubstr("GET is not a method of /v1/completions; use POST, OPTIONS"));
  EXPECT_THAT(wrong_method->response()->headers,
              testing::Contains(std::pair<std::string, std::string>("Allow", "POST, OPTIONS")));
  EXPECT_EQ(Call("OPTIONS", "/v1/completions", "")->response()->status, 204);
  EXPECT_EQ(Call("HEAD", "/health?x=1", "")->response()->status, 200);
  EXPECT_EQ(Call("GET", "/v1/models/alias", "")->response()->status, 200);
  EXPECT_EQ(Call("GET", "/v1/models/", "")->response()->status, 404);
  EXPECT_EQ(Body(*Call("GET", "/v1/models", "")).Find("data")->as_array().size(), 2u);
  EXPECT_EQ(*Body(*Call("GET", "/version", "")).Find("version"), Json("1.2.3"));
  EXPECT_THAT(Call("GET", "/metrics", "")->response()->body,
              HasSubstr("divisi:num_requests_running{model_name=\"tiny\"} 0"));

  gateway_ = MakeGateway({.model_names = {"tiny"}, .api_key = "secret"});
  gateway_->SetModel(Model());
  EXPECT_EQ(Call("GET", "/health", "")->response()->status, 200);
  EXPECT_EQ(Call("GET", "/v1/models", "")->response()->status, 401);
  for (const std::string key : {"secre", "secrets", "", "Secret"}) {
    EXPECT_EQ(
        Call("GET", "/v1/models", "", {{"Authorization", "Bearer " + key}})->response()->status,
        401);
  }
  EXPECT_EQ(Call("GET", "/v1/models", "", {{"authorization", "bearer secret"}})->response()->status,
            200);
}

TEST_F(GatewayTest, RefusesWhileLoadingAndWhileDraining) {
  gateway_->Drain();
  EXPECT_EQ(Complete(R"({"prompt":"x"})")->response()->status, 503);
  EXPECT_EQ(Call("GET", "/health", "")->response()->status, 503);
  gateway_ = MakeGateway({.model_names = {"tiny"}});
  auto exchange = Complete(R"({"prompt":"x"})");
  EXPECT_EQ(exchange->response()->status, 503);
  EXPECT_THAT(exchange->response()->headers,
              testing::Contains(std::pair<std::string, std::string>("Retry-After", "1")));
}

TEST_F(GatewayTest, RefusalsAreCountedAndLoggedOnceASecond) {
  Logger logger({.least = LogLevel::kInfo});
  Gateway gateway({.model_names = {"tiny"}}, clock_, logger);
  gateway.SetModel(Model());
  testing::internal::CaptureStderr();
  const auto logged = [] {
    std::string text = testing::internal::GetCapturedStderr();
    testing::internal::CaptureStderr();
    return text;
  };
  gateway.OnRefusal({503, "too many connections", "10.0.0.1:5"});
  EXPECT_THAT(logged(),
              AllOf(HasSubstr("503"), HasSubstr("too many connections"), HasSubstr("10.0.0.1:5")));
  gateway.OnRefusal({503, "too many connections", "10.0.0.1:6"});
  clock_.Advance(Seconds(0.9));
  gateway.OnRefusal({.reason = "no descriptors"});
  EXPECT_EQ(logged(), "");
  clock_.Advance(Seconds(0.2));
  gateway.OnRefusal({.reason = "no descriptors"});
  EXPECT_THAT(logged(),
              AllOf(HasSubstr("no descriptors"), HasSubstr("others_since_the_last_line=2")));
  auto exchange = std::make_shared<RecordingExchange>();
  gateway.Handle({.method = "GET", .target = "/metrics"}, exchange);
  EXPECT_THAT(exchange->response()->body, HasSubstr("status=\"5xx\"} 2\n"));
  EXPECT_EQ(logged(), "") << "a probe's success is no news";
  gateway.Handle({.method = "POST", .target = "/v1/completions", .body = "{", .peer = "me"},
                 std::make_shared<RecordingExchange>());
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              AllOf(HasSubstr("/v1/completions"), HasSubstr("400"), HasSubstr("me")));
}

TEST_F(GatewayTest, TokenizesAndBack) {
  const auto ids = tokenizer_.Encode("hello", true);
  auto exchange = Call("POST", "/tokenize", R"({"prompt":"hello","return_token_strs":true})");
  const Json body = Body(*exchange);
  EXPECT_EQ(*body.Find("count"), Json(static_cast<int64_t>(ids.size())));
  EXPECT_EQ(*body.Find("max_model_len"), Json(64));
  EXPECT_EQ(body.Find("token_strs")->as_array().size(), ids.size());
  auto back =
      Call("POST", "/detokenize", Format(R"({{"tokens":{}}})", body.Find("tokens")->Dump()));
  EXPECT_EQ(*Body(*back).Find("prompt"), Json("hello"));
  EXPECT_EQ(Call("POST", "/detokenize", R"({"tokens":[1,"a"]})")->response()->status, 400);
}

TEST_F(GatewayTest, EchoesGoodRequestIdsOnly) {
  const auto id_of = [](const RecordingExchange& exchange) {
    for (const auto& [name, value] : exchange.response()->headers) {
      if (name == "X-Request-Id") return value;
    }
    return std::string();
  };
  EXPECT_EQ(id_of(*Call("GET", "/health", "", {{"X-Request-Id", "abc-1"}})), "abc-1");
  EXPECT_EQ(id_of(*Call("GET", "/health", "", {{"X-Request-Id", "a b"}})).size(), 32u);
  EXPECT_NE(id_of(*Call("GET", "/health", "")), id_of(*Call("GET", "/health", "")));
}

TEST(EqualSecrets, ComparesAllBytes) {
  EXPECT_TRUE(EqualSecrets("abc", "abc"));
  EXPECT_FALSE(EqualSecrets("abcabc", "abc"));
  EXPECT_FALSE(EqualSecrets("", "abc"));
  EXPECT_FALSE(EqualSecrets("abc", ""));
}

}  // namespace
}  // namespace divisi
