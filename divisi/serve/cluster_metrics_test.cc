#include "divisi/serve/cluster_metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <sstream>

#include "divisi/serve/cluster_query.h"

namespace divisi {
namespace {

using testing::HasSubstr;
using testing::Not;

HelloMessage Hello(NodeId node, WorkerRole role) {
  return {.node = node, .role = role, .name = "w", .page_bytes = 100};
}

WorkerCounters Did(int64_t prefilled, int64_t sent) {
  WorkerCounters counters{.prefill_tokens = prefilled, .pages_sent = sent};
  for (int64_t i = 0; i < sent; ++i) counters.tail_times.Add(Seconds(0.003));
  return counters;
}

constexpr NodeId kFirst{1}, kSecond{2};

TEST(ClusterTotalsTest, NothingFallsWhenAWorkerDiesAndComesBackAsANewOne) {
  ClusterTotals totals;
  Registry registry({9}, {});
  const HelloMessage first = Hello(kFirst, WorkerRole::kPrefill);
  registry.Hello(1, first);
  totals.Take(first, Did(0, 0));
  totals.Take(first, Did(100, 2));
  totals.Take(first, Did(150, 3));
  totals.Take(first, Did(150, 3));
  EXPECT_EQ(totals[WorkerRole::kPrefill].counters.prefill_tokens, 150);
  EXPECT_EQ(totals[WorkerRole::kPrefill].sent, Bytes(300));
  registry.Leave(1, {.now = true});
  totals.ForgetGone(registry);
  const HelloMessage second = Hello(kSecond, WorkerRole::kPrefill);
  totals.Take(second, Did(0, 0));
  EXPECT_EQ(totals[WorkerRole::kPrefill].counters.prefill_tokens, 150);
  totals.Take(second, Did(7, 1));
  EXPECT_EQ(totals[WorkerRole::kPrefill].counters.prefill_tokens, 157);
  EXPECT_EQ(totals[WorkerRole::kPrefill].counters.tail_times.Count(), 4);
  EXPECT_EQ(totals[WorkerRole::kPrefill].sent, Bytes(400));
}

// A gateway that was started again has the workers' next reports, not their histories.
TEST(ClusterTotalsTest, WhatAWorkerDidBeforeItCameIsNotCounted) {
  ClusterTotals totals;
  totals.Take(Hello(kFirst, WorkerRole::kPrefill), Did(1000, 20));
  EXPECT_EQ(totals.Sum().prefill_tokens, 0);
  totals.Take(Hello(kFirst, WorkerRole::kPrefill), Did(1007, 21));
  EXPECT_EQ(totals.Sum().prefill_tokens, 7);
  EXPECT_EQ(totals[WorkerRole::kPrefill].sent, Bytes(100));
}

// One of several gateways forgets a worker that it does not see for a minute; others have it.
TEST(ClusterTotalsTest, AForgottenWorkerThatComesBackIsCountedOnce) {
  ClusterTotals totals;
  Registry registry({9}, {});
  HelloMessage worker = Hello(kFirst, WorkerRole::kReplica);
  worker.gateways = 2;
  const HelloMessage other = Hello(kSecond, WorkerRole::kReplica);
  registry.Hello(1, worker);
  registry.Hello(2, other);
  totals.Take(worker, Did(0, 0));
  totals.Take(worker, Did(100, 0));
  registry.Ended(1, "reset", Seconds(1));
  registry.Tick(Seconds(70));
  ASSERT_EQ(registry.members().size(), 1u);
  totals.Take(other, Did(0, 0));
  totals.ForgetGone(registry);
  registry.Hello(3, worker);
  totals.Take(worker, Did(130, 0));
  totals.ForgetGone(registry);
  totals.Take(worker, Did(131, 0));
  EXPECT_EQ(totals.Sum().prefill_tokens, 131);
}

TEST(ClusterTotalsTest, WhatIsDoneUnderARoleStaysWithIt) {
  ClusterTotals totals;
  totals.Take(Hello(kFirst, WorkerRole::kReplica), Did(0, 0));
  totals.Take(Hello(kFirst, WorkerRole::kReplica), Did(100, 0));
  totals.Take(Hello(kFirst, WorkerRole::kPrefill), Did(130, 2));
  EXPECT_EQ(totals[WorkerRole::kReplica].counters.prefill_tokens, 100);
  EXPECT_EQ(totals[WorkerRole::kPrefill].counters.prefill_tokens, 30);
  EXPECT_EQ(totals.Sum().prefill_tokens, 130);
}

TEST(ClusterTotalsTest, AWorkerThatCountsBackwardsIsNotBelieved) {
  ClusterTotals totals;
  totals.Take(Hello(kFirst, WorkerRole::kReplica), Did(0, 0));
  totals.Take(Hello(kFirst, WorkerRole::kReplica), Did(100, 0));
  totals.Take(Hello(kFirst, WorkerRole::kReplica), Did(50, 0));
  EXPECT_EQ(totals.Sum().prefill_tokens, 100);
}

class ClusterMetricsTest : public testing::Test {
 protected:
  ClusterMetricsTest() : registry_({9}, {}), dispatcher_({9}, {}) {}

  void Join(NodeId node, WorkerRole role) {
    registry_.Hello(node.value, Hello(node, role));
    dispatcher_.AddWorker(node, role);
  }
  std::string Text() const {
    return ClusterMetrics(totals_, registry_, dispatcher_, Seconds(0), "model_name=\"m\"");
  }

  Registry registry_;
  Dispatcher dispatcher_;
  ClusterTotals totals_;
};

TEST_F(ClusterMetricsTest, EachRoleHasItsLines) {
  Join(kFirst, WorkerRole::kPrefill);
  Join(kSecond, WorkerRole::kDecode);
  totals_.Take(Hello(kFirst, WorkerRole::kPrefill), Did(0, 0));
  totals_.Take(Hello(kFirst, WorkerRole::kPrefill), Did(100, 2));
  registry_.Report(kFirst.value, {.waiting = 5, .handed_over = 2, .pages_pinned = 12});
  registry_.Report(kSecond.value, {.reserved = 3, .pages_reserved = 9});
  ASSERT_TRUE(dispatcher_.Submit({.prompt = {1}}, Seconds(0)));
  const std::string text = Text();
  for (const char* line :
       {"divisi:role_prefill_tokens_total{model_name=\"m\",role=\"prefill\"} 100\n",
        "divisi:role_prefill_tokens_total{model_name=\"m\",role=\"decode\"} 0\n",
        "divisi:kv_bytes_total{model_name=\"m\",role=\"prefill\",direction=\"sent\"} 200\n",
        "divisi:kv_transfer_tail_seconds_bucket{model_name=\"m\",role=\"prefill\",le=\"0.002\"} "
        "0\n",
        "divisi:kv_transfer_tail_seconds_bucket{model_name=\"m\",role=\"prefill\",le=\"0.005\"} "
        "2\n",
        "divisi:kv_transfer_tail_seconds_count{model_name=\"m\",role=\"prefill\"} 2\n",
        "divisi:workers{model_name=\"m\",role=\"decode\",state=\"ready\"} 1\n",
        "divisi:role_requests_waiting{model_name=\"m\",role=\"prefill\"} 5\n",
        "divisi:kv_transfers{model_name=\"m\",role=\"decode\",state=\"reserved\"} 3\n",
        "divisi:kv_transfers{model_name=\"m\",role=\"prefill\",state=\"handed_over\"} 2\n",
        "divisi:kv_pages_reserved{model_name=\"m\",role=\"decode\"} 9\n",
        "divisi:kv_pages_pinned{model_name=\"m\",role=\"prefill\"} 12\n",
        "divisi:gateway_requests{model_name=\"m\",phase=\"reserving\"} 1\n",
        "divisi:requests_retried_total{model_name=\"m\",reason=\"no_room\"} 0\n"}) {
    EXPECT_THAT(text, HasSubstr(line));
  }
}

TEST_F(ClusterMetricsTest, StatesAndRetriesFollow) {
  Join(kFirst, WorkerRole::kReplica);
  Join(kSecond, WorkerRole::kReplica);
  ASSERT_TRUE(dispatcher_.Submit({.prompt = {1}}, Seconds(0)));
  dispatcher_.RemoveWorker(kFirst, Seconds(0));
  dispatcher_.Drain(kSecond, Seconds(0), Seconds(5));
  registry_.Ended(kFirst.value, "gone", Seconds(0));
  const std::string text = Text();
  EXPECT_THAT(text, HasSubstr("role=\"replica\",state=\"draining\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("role=\"replica\",state=\"lost\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("reason=\"worker_gone\"} 1\n"));
}

// What a lost worker last said is not what is.
TEST_F(ClusterMetricsTest, LostWorkersHaveNoGauges) {
  Join(kFirst, WorkerRole::kReplica);
  Join(kSecond, WorkerRole::kReplica);
  registry_.Report(kFirst.value, {.running = 3, .waiting = 5});
  registry_.Report(kSecond.value, {.running = 4, .waiting = 1});
  registry_.Ended(kFirst.value, "gone", Seconds(0));
  EXPECT_THAT(Text(), HasSubstr("requests_running{model_name=\"m\",role=\"replica\"} 4\n"));
  EXPECT_THAT(Text(), HasSubstr("requests_waiting{model_name=\"m\",role=\"replica\"} 1\n"));
}

// One head for each metric, and no sample of a metric apart from the others of its name.
TEST_F(ClusterMetricsTest, IsTheTextFormat) {
  std::set<std::string> named;
  std::string current;
  std::istringstream lines(Text());
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("# HELP ")) {
      current = line.substr(7, line.find(' ', 7) - 7);
      EXPECT_TRUE(named.insert(current).second) << line;
    } else if (!line.starts_with("# TYPE ")) {
      EXPECT_TRUE(line.starts_with(current)) << line;
      EXPECT_THAT(line, HasSubstr("{model_name=\"m\","));
      EXPECT_THAT(line, Not(HasSubstr(",}")));
    }
  }
}

TEST(ClusterQueryTest, WhatAWorkerHasNotSaidIsNull) {
  GatewayCore gateway({9}, {});
  gateway.Receive(1, Hello(kFirst, WorkerRole::kDecode), Seconds(0));
  const auto status = [&] { return AnswerQuery({"status"}, gateway, Seconds(1)); };
  EXPECT_THAT(*status(), HasSubstr("\"pages_total\":null"));
  EXPECT_THAT(*status(), HasSubstr("\"prefill_tokens\":null"));
  gateway.Receive(1, ReportMessage{.blocks_total = 64}, Seconds(0));
  EXPECT_THAT(*status(), HasSubstr("\"pages_total\":64"));
  EXPECT_THAT(*status(), HasSubstr("\"prefill_tokens\":0"));
  gateway.Ended(1, "reset", Seconds(1));
  EXPECT_THAT(*status(), HasSubstr("\"pages_total\":null"));
}

TEST(ClusterQueryTest, AWorkerThatEndsIsNotGivenNewRequests) {
  GatewayCore gateway({9}, {});
  gateway.Receive(1, Hello(kFirst, WorkerRole::kDecode), Seconds(0));
  const auto asked = [&](const std::vector<std::string>& words) {
    return AnswerQuery(words, gateway, Seconds(1)).ok();
  };
  EXPECT_TRUE(asked({"drain", "w"}));
  EXPECT_TRUE(asked({"undrain", "w"}));
  gateway.Receive(1, LeaveMessage{.drain = Seconds(30)}, Seconds(1));
  EXPECT_FALSE(asked({"undrain", "w"}));
  EXPECT_FALSE(asked({"role", "w", "replica"}));
}

}  // namespace
}  // namespace divisi
