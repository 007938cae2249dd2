#include "divisi/serve/openai_request.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "divisi/core/format.h"

namespace divisi {
namespace {

using testing::ElementsAre;

CompletionRequest Good(const std::string& fields, const GenerationDefaults& defaults = {}) {
  auto parsed = ParseCompletionRequest("{\"prompt\":\"x\"" + fields + "}", defaults);
  if (auto* error = std::get_if<ApiError>(&parsed)) {
    ADD_FAILURE() << fields << ": " << error->message;
    return {};
  }
  return std::get<CompletionRequest>(std::move(parsed));
}

template <typename T>
ApiError ErrorOf(const OrApiError<T>& parsed) {
  const auto* error = std::get_if<ApiError>(&parsed);
  if (error == nullptr) return {.status = 200};
  EXPECT_EQ(error->status, 400);
  EXPECT_EQ(error->type, "invalid_request_error");
  EXPECT_FALSE(error->message.empty());
  return *error;
}

TEST(CompletionRequest, ReadsEveryField) {
  const auto request = Good(
      R"(,"model":"m","max_tokens":5,"temperature":0.5,"top_p":0.25,"n":2,"best_of":2,"stream":true,
         "stream_options":{"include_usage":true,"continuous_usage_stats":true},"logprobs":3,"echo":true,
         "stop":["a","b"],"presence_penalty":-2,"frequency_penalty":1.5,"logit_bias":{"9":-100,"3":7},
         "seed":-4,"user":"u","top_k":-1,"min_p":0.1,"repetition_penalty":1.2,"stop_token_ids":[4],
         "ignore_eos":true,"include_stop_str_in_output":true,"skip_special_tokens":false,
         "add_special_tokens":false,"cache_salt":"s","kv_session":"open","something_unknown":{"a":[1]})");
  const GenerationRequest& g = request.generation;
  EXPECT_EQ(g.model, "m");
  EXPECT_EQ(g.max_tokens, 5);
  EXPECT_EQ(g.sampling.temperature, 0.5);
  EXPECT_EQ(g.sampling.top_p, 0.25);
  EXPECT_EQ(g.sampling.top_k, 0);
  EXPECT_EQ(g.sampling.min_p, 0.1);
  EXPECT_EQ(g.sampling.presence_penalty, -2);
  EXPECT_EQ(g.sampling.frequency_penalty, 1.5);
  EXPECT_EQ(g.sampling.repetition_penalty, 1.2);
  EXPECT_EQ(g.sampling.top_logprobs, 3);
  EXPECT_THAT(g.sampling.logit_bias, ElementsAre(std::pair(3, 7.0f), std::pair(9, -100.0f)));
  EXPECT_EQ(g.seed, static_cast<uint64_t>(-4));
  EXPECT_EQ(g.n, 2);
  EXPECT_THAT(g.stop, ElementsAre("a", "b"));
  EXPECT_THAT(g.stop_token_ids, ElementsAre(4));
  EXPECT_TRUE(g.stream && g.include_usage && g.continuous_usage && g.ignore_eos && request.echo);
  EXPECT_TRUE(g.include_stop_in_output);
  EXPECT_FALSE(g.skip_special_tokens || g.add_special_tokens);
  EXPECT_EQ(g.cache_salt, "s");
  EXPECT_EQ(g.session, SessionState::kOpen);
}

TEST(CompletionRequest, NullMeansAbsentAndDefaultsAreTheCheckpoints) {
  const auto defaults = ParseGenerationDefaults(*Json::Parse(
      R"({"temperature":0.6,"top_k":20,"top_p":0.95,"repetition_penalty":-3,"eos_token_id":5})"));
  const auto request =
      Good(R"(,"temperature":null,"top_p":0.5,"stop":null,"n":null,"logprobs":null)", defaults);
  EXPECT_EQ(request.generation.sampling.temperature, 0.6);
  EXPECT_EQ(request.generation.sampling.top_p, 0.5);
  EXPECT_EQ(request.generation.sampling.top_k, 20);
  EXPECT_EQ(request.generation.sampling.repetition_penalty, 1);
  EXPECT_EQ(request.generation.sampling.top_logprobs, -1);
  EXPECT_FALSE(request.generation.seed || request.generation.max_tokens);
  EXPECT_EQ(Good(",\"temperature\":1e-300").generation.sampling.temperature, 0);
}

TEST(CompletionRequest, TakesPromptsInFourForms) {
  const auto prompts = [](const std::string& prompt) {
    auto parsed = ParseCompletionRequest("{\"prompt\":" + prompt + "}", {});
    return std::get<CompletionRequest>(parsed).prompts;
  };
  EXPECT_THAT(prompts(R"("a")"), ElementsAre(Prompt("a")));
  EXPECT_THAT(prompts(R"(["a","b"])"), ElementsAre(Prompt("a"), Prompt("b")));
  EXPECT_THAT(prompts("[1,2]"), ElementsAre(Prompt(std::vector<TokenId>{1, 2})));
  EXPECT_THAT(prompts("[[1],[2,3]]"), ElementsAre(Prompt(std::vector<TokenId>{1}),
                                                  Prompt(std::vector<TokenId>{2, 3})));
}

TEST(CompletionRequest, BoundsAreSaidInPlainNumbers) {
  const auto message = [](const std::string& fields) {
    return ErrorOf(ParseCompletionRequest("{\"prompt\":\"x\"," + fields + "}", {})).message;
  };
  EXPECT_EQ(message("\"top_p\":0"), "'top_p' must be a number above 0 and at most 1, not 0");
  EXPECT_EQ(message("\"repetition_penalty\":-1.5"),
            "'repetition_penalty' must be a number above 0 and at most 100, not -1.5");
  EXPECT_EQ(message("\"top_p\":true"),
            "'top_p' must be a number above 0 and at most 1, not boolean");
}

TEST(CompletionRequest, EveryBadFieldIsNamed) {
  const std::vector<std::pair<std::string, std::string>> cases{
      {"max_tokens", "0"},
      {"max_tokens", "-1"},
      {"max_tokens", "1.5"},
      {"max_tokens", "1e400"},
      {"max_tokens", "9223372036854775808"},
      {"max_tokens", "18446744073709551616"},
      {"seed", "-18446744073709551616"},
      {"max_tokens", "\"5\""},
      {"n", "0"},
      {"n", "1000000000"},
      {"n", "129"},
      {"temperature", "-0.1"},
      {"temperature", "101"},
      {"temperature", "true"},
      {"top_p", "0"},
      {"top_p", "1.1"},
      {"top_k", "-2"},
      {"top_k", "1.5"},
      {"min_p", "2"},
      {"presence_penalty", "2.1"},
      {"frequency_penalty", "-3"},
      {"repetition_penalty", "0"},
      {"seed", "9223372036854775808"},
      {"seed", "1.5"},
      {"logprobs", "21"},
      {"logprobs", "true"},
      {"stop", "5"},
      {"stop", "[\"\"]"},
      {"stop", "[1]"},
      {"stop_token_ids", "[-1]"},
      {"stop_token_ids", "3"},
      {"logit_bias", "[]"},
      {"logit_bias", "{\"x\":1}"},
      {"logit_bias", "{\"1\":101}"},
      {"logit_bias", "{\"1 \":1}"},
      {"stream", "1"},
      {"stream_options", "{}"},
      {"best_of", "2"},
      {"suffix", "\"x\""},
      {"echo", "\"yes\""},
      {"min_tokens", "3"},
      {"guided_json", "{\"a\":1}"},
      {"prompt_logprobs", "1"},
      {"response_format", "{\"type\":\"json_object\"}"},
      {"model", "7"},
      {"ignore_eos", "0"},
      {"cache_salt", "7"},
      {"cache_salt", "\"" + std::string(257, 'x') + "\""},
  };
  for (const auto& [name, value] : cases) {
    const auto error = ErrorOf(
        ParseCompletionRequest(Format("{{\"prompt\":\"x\",\"{}\":{}}}", name, value), {}));
    if (value == "1e400") continue;  // Refused as JSON, before any field is looked at.
    EXPECT_EQ(error.param, name) << value;
    EXPECT_NE(error.message.find(name), std::string::npos) << error.message;
  }
  for (const std::string prompt : {"5", "[]", "[1,\"a\"]", "[\"a\",1]", "[1.5]", "[-1]", "[[true]]",
                                   "{}", "[2147483648]", "null"}) {
    EXPECT_EQ(ErrorOf(ParseCompletionRequest("{\"prompt\":" + prompt + "}", {})).param, "prompt")
        << prompt;
  }
  EXPECT_EQ(ErrorOf(ParseCompletionRequest("{\"prompt\":[\"a\",\"b\"],\"n\":65}", {})).param, "n");
  for (const std::string body : {"", "{", "[]", "5", "{\"prompt\":1e400}", "\xff"}) {
    EXPECT_EQ(ErrorOf(ParseCompletionRequest(body, {})).status, 400) << body;
  }
}

TEST(CompletionRequest, ASessionIsOpenOrClosedOrNotKnown) {
  const auto session = [](const std::string& value) {
    return ParseCompletionRequest("{\"prompt\":\"x\",\"kv_session\":" + value + "}", {});
  };
  const auto state = [&](const std::string& value) {
    return std::get<CompletionRequest>(session(value)).generation.session;
  };
  EXPECT_EQ(state("\"open\""), SessionState::kOpen);
  EXPECT_EQ(state("\"closed\""), SessionState::kClosed);
  EXPECT_EQ(state("null"), SessionState::kUnknown);
  for (const std::string wrong : {"\"shut\"", "\"\"", "true", "\"a state of many words\""}) {
    EXPECT_EQ(ErrorOf(session(wrong)).param, "kv_session") << wrong;
  }
  EXPECT_EQ(ErrorOf(session("\"shut\"")).message,
            "'kv_session' must be \"open\" or \"closed\", not \"shut\"");
}

TEST(CompletionRequest, HarmlessFormsOfUnsupportedFieldsPass) {
  Good(R"(,"suffix":null,"min_tokens":0,"guided_json":null,"prompt_logprobs":null,"best_of":1,
         "use_beam_search":false,"response_format":{"type":"text"},"stream_options":null)");
}

ChatRequest GoodChat(const std::string& fields) {
  auto parsed = ParseChatRequest("{" + fields + "}", {});
  if (auto* error = std::get_if<ApiError>(&parsed)) {
    ADD_FAILURE() << fields << ": " << error->message;
    return {};
  }
  return std::get<ChatRequest>(std::move(parsed));
}

TEST(ChatRequest, ReadsMessagesToolsAndOptions) {
  const auto chat = GoodChat(
      R"("messages":[{"role":"system","content":"s"},
                     {"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]},
                     {"role":"assistant","content":null,"tool_calls":[{"id":"1"}]}],
         "tools":[{"type":"function"}],"chat_template_kwargs":{"enable_thinking":false},
         "logprobs":true,"top_logprobs":4,"max_tokens":3,"max_completion_tokens":9)");
  EXPECT_EQ(*chat.messages.as_array()[1].Find("content"), Json("ab"));
  EXPECT_TRUE(chat.messages.as_array()[2].Find("content")->is_null());
  EXPECT_EQ(chat.tools.as_array().size(), 1u);
  EXPECT_EQ(*chat.template_variables.Find("enable_thinking"), Json(false));
  EXPECT_EQ(chat.generation.sampling.top_logprobs, 4);
  EXPECT_EQ(chat.generation.max_tokens, 9);
  EXPECT_FALSE(chat.generation.add_special_tokens);
  EXPECT_TRUE(chat.add_generation_prompt);
  const std::string hello = R"("messages":[{"role":"user","content":"hi"}])";
  EXPECT_EQ(GoodChat(hello).generation.sampling.top_logprobs, -1);
  EXPECT_EQ(GoodChat(hello + ",\"logprobs\":true").generation.sampling.top_logprobs, 0);
  EXPECT_TRUE(GoodChat(hello + R"(,"tools":[{"a":1}],"tool_choice":"none")").tools.is_null());
}

TEST(ChatRequest, EveryBadFieldIsNamed) {
  const std::string hello = R"("messages":[{"role":"user","content":"hi"}],)";
  const std::vector<std::pair<std::string, std::string>> cases{
      {"messages", "\"messages\":[]"},
      {"messages", "\"messages\":5"},
      {"messages", "\"model\":\"m\""},
      {"messages[0]", R"("messages":[5])"},
      {"messages[0]", R"("messages":[{"role":5,"content":"x"}])"},
      {"messages[1]", R"("messages":[{"role":"user","content":"x"},{"role":"user"}])"},
      {"messages[0].content", R"("messages":[{"role":"user","content":5}])"},
      {"messages[0].content", R"("messages":[{"role":"user","content":[{"type":"image_url"}]}])"},
      {"messages[0].content", R"("messages":[{"role":"user","content":[{"type":"text"}]}])"},
      {"top_logprobs", hello + "\"top_logprobs\":3"},
      {"top_logprobs", hello + "\"logprobs\":true,\"top_logprobs\":21"},
      {"logprobs", hello + "\"logprobs\":3"},
      {"max_completion_tokens", hello + "\"max_completion_tokens\":0"},
      {"tool_choice", hello + "\"tool_choice\":\"required\""},
      {"tools", hello + "\"tools\":{}"},
      {"functions", hello + "\"functions\":[{}]"},
      {"continue_final_message", hello + "\"continue_final_message\":true"},
      {"chat_template", hello + "\"chat_template\":\"x\""},
      {"chat_template_kwargs", hello + "\"chat_template_kwargs\":[]"},
      {"response_format", hello + "\"response_format\":{\"type\":\"json_schema\"}"},
  };
  for (const auto& [param, fields] : cases) {
    EXPECT_EQ(ErrorOf(ParseChatRequest("{" + fields + "}", {})).param, param) << fields;
  }
}

}  // namespace
}  // namespace divisi
