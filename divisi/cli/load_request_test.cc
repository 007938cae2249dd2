#include "divisi/cli/load_request.h"

#include <gtest/gtest.h>

#include <set>

#include "divisi/core/json.h"

namespace divisi {
namespace {

TEST(ParseBaseUrl, TakesTheUsualForms) {
  const auto url = [](std::string_view text) { return ParseBaseUrl(text).value().Url(); };
  EXPECT_EQ(url("http://127.0.0.1:8000"), "http://127.0.0.1:8000");
  EXPECT_EQ(url("http://localhost:8000/"), "http://localhost:8000");
  EXPECT_EQ(url("http://localhost:8000/v1/"), "http://localhost:8000");
  EXPECT_EQ(url("http://host/api/v1"), "http://host:80/api");
  EXPECT_EQ(url("http://[::1]:9/x"), "http://[::1]:9/x");
}

TEST(ParseBaseUrl, RefusesTheRest) {
  for (const char* text :
       {"", "localhost:8000", "ftp://a", "http://", "http://:80", "http://a:", "http://a:0",
        "http://a:70000", "http://a:8x", "http://a b", "http://[::1", "http://a\r\nX: y"}) {
    const auto result = ParseBaseUrl(text);
    ASSERT_FALSE(result.ok()) << text;
    EXPECT_EQ(result.error().code, Code::kInvalidArgument);
  }
  EXPECT_EQ(ParseBaseUrl("https://a").error().code, Code::kUnimplemented);
}

TEST(HttpRequestText, AnnouncesTheBodyAndTheKey) {
  const HttpAddress address{"h", "1", "/p"};
  EXPECT_EQ(
      HttpRequestText(address, "POST", "/v1/x", "k", "{}"),
      "POST /p/v1/x HTTP/1.1\r\nHost: h:1\r\nUser-Agent: divisi-bench\r\n"
      "Authorization: Bearer k\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}");
  const std::string get = HttpRequestText(address, "GET", "/health", "", "");
  EXPECT_EQ(get.find("Content-Length"), std::string::npos);
  EXPECT_EQ(get.find("Authorization"), std::string::npos);
}

TEST(CompletionBody, CompletionsCarryTokenIds) {
  const std::vector<TokenId> prompt = {7, 8};
  const Json body = Json::Parse(CompletionBody({.model = "m",
                                                .prompt = prompt,
                                                .output_tokens = 5,
                                                .temperature = 0.5,
                                                .ignore_eos = true}))
                        .value();
  EXPECT_EQ(body.Dump(),
            R"({"model":"m","prompt":[7,8],"max_tokens":5,"stream":true,)"
            R"("stream_options":{"include_usage":true},"temperature":0.5,"ignore_eos":true})");
}

TEST(CompletionBody, ChatCarriesWords) {
  const std::vector<TokenId> prompt = {0, 1, 64};
  const Json body =
      Json::Parse(
          CompletionBody({.model = "m", .chat = true, .prompt = prompt, .ignore_eos = false}))
          .value();
  EXPECT_EQ(body.Find("messages")->Dump(), R"([{"role":"user","content":"the of the"}])");
  EXPECT_EQ(body.Find("max_completion_tokens")->as_int(), 1);
  EXPECT_EQ(body.Find("ignore_eos"), nullptr);
  EXPECT_EQ(body.Find("temperature"), nullptr);
}

TEST(BrokenRequests, AreDistinctAndCarryTheKeyWhereTheyAreHttp) {
  const auto broken = BrokenRequests({"h", "1", ""}, "m", "secret");
  std::set<std::string> texts;
  std::set<std::string_view> names;
  for (const BrokenRequest& request : broken) {
    texts.insert(request.text);
    names.insert(request.name);
  }
  EXPECT_GE(broken.size(), 20u);
  EXPECT_EQ(texts.size(), broken.size());
  EXPECT_EQ(names.size(), broken.size());
}

}  // namespace
}  // namespace divisi
