#include "divisi/serve/route_query.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "divisi/core/check.h"
#include "divisi/core/format.h"

namespace divisi {
namespace {

using testing::HasSubstr;

constexpr NodeId kSelf{9}, kFirst{11}, kSecond{12};

class RouteQueryTest : public testing::Test {
 protected:
  RouteQueryTest() : gateway_(kSelf, {.dispatch = {.keep_choices = true}}) {
    for (const auto& [link, node] : {std::pair<LinkId, NodeId>{1, kFirst}, {2, kSecond}}) {
      gateway_.Receive(
          link,
          HelloMessage{
              .node = node, .name = Format("w{}", link), .step_tokens = 1000, .page_bytes = 16000},
          now_);
      ReportMessage report;
      report.rates = {.step = Seconds(0),
                      .per_token = Seconds(1e-3),
                      .per_sequence = Seconds(0),
                      .steps = 1,
                      .prompt_steps = 1};
      gateway_.Receive(link, report, now_);
    }
  }

  void Submit(int64_t tokens, const char* label = "") {
    Request request;
    request.prompt.assign(static_cast<size_t>(tokens), 7);
    const auto number = gateway_.Submit(std::move(request), now_);
    CHECK(number.ok());
    for (RouteNote& note : gateway_.TakeChoices()) log_.Add(std::move(note));
    log_.Label(*number, label);
  }
  Json Answer(const std::vector<std::string>& words) {
    const auto answer = AnswerRoutes(words, gateway_, log_, now_);
    EXPECT_TRUE(answer.ok());
    return answer ? Json::Parse(*answer).value() : Json();
  }
  Json Candidate(const std::vector<std::string>& words, size_t at) {
    return Answer(words).Find("routes")->as_array().at(0).Find("candidates")->as_array().at(at);
  }
  std::string Refused(const std::vector<std::string>& words) {
    const auto answer = AnswerRoutes(words, gateway_, log_, now_);
    return answer ? "" : answer.error().message;
  }

  Seconds now_{5};
  GatewayCore gateway_;
  RouteLog log_;
};

TEST_F(RouteQueryTest, WhatFollowedEnginesHoldStandsBesideTheCandidates) {
  log_.HeldElsewhere(1, {{"vllm-a", 64, EventTier::kHost}});
  Submit(100);
  Submit(100);
  const Json answer = Answer({"routes", "last", "2"});
  const auto& routes = answer.Find("routes")->as_array();
  EXPECT_TRUE(routes.at(0).Find("elsewhere")->as_array().empty());
  const auto& held = routes.at(1).Find("elsewhere")->as_array();
  ASSERT_EQ(held.size(), 1u);
  EXPECT_EQ(held[0].Find("engine")->as_string(), "vllm-a");
  EXPECT_EQ(held[0].Find("tokens")->as_int(), 64);
  EXPECT_EQ(held[0].Find("tier")->as_string(), "host");
}

TEST_F(RouteQueryTest, SaysWhatTheLastChoicesCompared) {
  Submit(1000, "a");
  Submit(500, "b");
  now_ += Seconds(0.25);
  const Json answer = Answer({"routes", "last", "9"});
  EXPECT_EQ(answer.Find("policy")->as_string(), "expected-ttft");
  EXPECT_EQ(answer.Find("objective")->as_string(), "request");
  EXPECT_TRUE(answer.Find("quantile")->is_null());
  const Json::Array& routes = answer.Find("routes")->as_array();
  ASSERT_EQ(routes.size(), 2u);
  EXPECT_EQ(routes[0].Find("request")->as_string(), "b");
  EXPECT_EQ(routes[0].Find("attempt")->as_int(), 1);
  EXPECT_EQ(routes[0].Find("seconds_ago")->as_double(), 0.25);
  EXPECT_EQ(routes[0].Find("prompt_tokens")->as_int(), 500);
  const Json::Array& candidates = routes[0].Find("candidates")->as_array();
  ASSERT_EQ(candidates.size(), 2u);
  EXPECT_EQ(candidates[0].Find("worker")->as_string(), "w2");
  EXPECT_TRUE(candidates[0].Find("prefill")->is_null());
  EXPECT_TRUE(candidates[0].Find("chosen")->as_bool());
  EXPECT_EQ(candidates[0].Find("ttft_seconds")->as_double(), 0.5);
  EXPECT_FALSE(candidates[1].Find("chosen")->as_bool());
  EXPECT_EQ(candidates[1].Find("queue_seconds")->as_double(), 1.0);
  EXPECT_EQ(candidates[1].Find("compute_seconds")->as_double(), 0.5);
  EXPECT_EQ(Answer({"routes", "last", "1"}).Find("routes")->as_array().size(), 1u);
}

TEST_F(RouteQueryTest, FindsAClientsRequest) {
  Submit(1000, "a");
  Submit(500, "b");
  const Json routes = *Answer({"routes", "request", "a"}).Find("routes");
  ASSERT_EQ(routes.as_array().size(), 1u);
  EXPECT_EQ(routes.as_array()[0].Find("prompt_tokens")->as_int(), 1000);
  EXPECT_THAT(Refused({"routes", "request", "c"}), HasSubstr("'c' is not among the last 256"));
}

// As many choices may have one id as a request may ask for.
TEST_F(RouteQueryTest, ShowsABoundedNumberOfOneRequest) {
  for (int i = 0; i < 40; ++i) Submit(1, "many");
  EXPECT_EQ(Answer({"routes", "request", "many"}).Find("routes")->as_array().size(), 32u);
}

// A worker that is lost is tried no more; the second attempt is the request's, too.
TEST_F(RouteQueryTest, KeepsTheAttemptsOfARequestTogether) {
  Submit(1000, "a");
  gateway_.Ended(1, "reset", now_);
  for (int i = 0; i < 100 && gateway_.dispatcher().stats().retried[3] == 0; ++i) {
    now_ += Seconds(0.1);
    gateway_.Tick(now_);
  }
  now_ += Seconds(0.1);
  gateway_.Tick(now_);
  for (RouteNote& note : gateway_.TakeChoices()) log_.Add(std::move(note));
  const Json routes = *Answer({"routes", "request", "a"}).Find("routes");
  ASSERT_EQ(routes.as_array().size(), 2u);
  EXPECT_EQ(routes.as_array()[0].Find("attempt")->as_int(), 2);
}

TEST_F(RouteQueryTest, OnlyTheLastChoicesAreKept) {
  for (size_t i = 0; i < RouteLog::kMost + 1; ++i) Submit(1, i == 0 ? "first" : "");
  EXPECT_THAT(Refused({"routes", "request", "first"}), HasSubstr("not among"));
  EXPECT_THAT(Refused({"routes", "request", ""}), HasSubstr("not among"));
  EXPECT_EQ(Answer({"routes", "last", "32"}).Find("routes")->as_array().size(), 32u);
}

TEST_F(RouteQueryTest, SaysWhereAPromptWouldGo) {
  Submit(200);
  EXPECT_EQ(Candidate({"routes", "for", "1000"}, 0).Find("worker")->as_string(), "w2");
  // 1 ms to read, 40 to compute, after 200.
  const Json held = Candidate({"routes", "for", "1000", "host=960@w1"}, 0);
  EXPECT_EQ(held.Find("worker")->as_string(), "w1");
  EXPECT_EQ(held.Find("host_tokens")->as_int(), 960);
  EXPECT_EQ(held.Find("cached_tokens")->as_int(), 960);
  EXPECT_NEAR(held.Find("ttft_seconds")->as_double(), 0.24, 1e-9);
  EXPECT_EQ(gateway_.dispatcher().live(), 1);
}

TEST_F(RouteQueryTest, RefusesOtherWords) {
  EXPECT_TRUE(AsksForRoutes({"routes"}));
  EXPECT_FALSE(AsksForRoutes({"status"}));
  EXPECT_FALSE(AsksForRoutes({}));
  EXPECT_THAT(Refused({"routes"}), HasSubstr("expected routes last N"));
  EXPECT_THAT(Refused({"routes", "last", "0"}), HasSubstr("'0' is no whole number from 1 to 32"));
  EXPECT_THAT(Refused({"routes", "last", "33"}), HasSubstr("'33'"));
  EXPECT_THAT(Refused({"routes", "for", "1x"}), HasSubstr("'1x'"));
  for (const char* word : {"host", "host=1", "host=x@w1", "ram=1@w1", "w1@host=1", "host=0@w1"}) {
    EXPECT_NE(Refused({"routes", "for", "10", word}), "") << word;
  }
  EXPECT_THAT(Refused({"routes", "for", "10", "host=1@w9"}), HasSubstr("w9"));
  GatewayCore empty(kSelf, {});
  EXPECT_EQ(AnswerRoutes({"routes", "for", "10"}, empty, log_, now_).error().code,
            Code::kUnavailable);
}

}  // namespace
}  // namespace divisi
