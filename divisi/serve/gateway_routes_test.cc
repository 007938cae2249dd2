// Routes, and what is refused before it reaches the engine.
#include "divisi/serve/gateway_fixture.h"

namespace divisi {
namespace {

using testing::HasSubstr;

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
  auto refused =
      Call("POST", "/v1/chat/completions", R"({"messages":[{"role":"tool","content":"x"}]})");
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

TEST_F(GatewayTest, IsNotHealthyWhileNothingCouldRun) {
  EXPECT_EQ(Call("GET", "/health", "")->response()->status, 200);
  backend_.SayNotReady("no worker is ready");
  const auto exchange = Call("GET", "/health", "");
  EXPECT_EQ(exchange->response()->status, 503);
  EXPECT_THAT(exchange->response()->body, testing::HasSubstr("no worker is ready"));
  EXPECT_EQ(Call("GET", "/metrics", "")->response()->status, 200);
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
