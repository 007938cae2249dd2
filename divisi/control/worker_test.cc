#include "divisi/control/worker.h"

#include <gtest/gtest.h>

#include "divisi/sim/sim_executor.h"

namespace divisi {
namespace {

constexpr NodeId kGateway{1}, kPrefill{2}, kDecode{3};
constexpr TransferId kTransfer{kGateway, 7, 1};

Request Prompt(int64_t tokens, int64_t max_tokens) {
  Request request{.max_tokens = max_tokens};
  for (int64_t i = 0; i < tokens; ++i) request.prompt.push_back(static_cast<TokenId>(i));
  return request;
}

void Compute(Worker& worker, SimExecutor& executor) {
  while (worker.HasWork()) {
    const StepPlan& plan = worker.Plan(Seconds(0));
    worker.Commit(executor.Execute(plan), Seconds(0));
  }
}

// The first token was the last while pages of an earlier chunk are still being written: the
// gateway's word ends both the writing and the answer that waits for it.
TEST(WorkerTest, AnAbortEndsAnAnswerWhosePagesAreStillBeingWritten) {
  Worker worker(kPrefill, {.max_batched_tokens = 16, .blocks = 8}, {});
  SimExecutor executor({.blocks = 8});
  worker.Receive(
      kGateway,
      PrefillMessage{
          .id = kTransfer, .request = Prompt(40, 1), .decode = kDecode, .pages = {0, 1, 2}},
      Seconds(0));
  Compute(worker, executor);
  const auto writes = worker.TakeWrites();
  ASSERT_FALSE(writes.empty());
  worker.Receive(kGateway, AbortMessage{kTransfer}, Seconds(0));
  EXPECT_EQ(worker.stats().incoming, 0);
  EXPECT_EQ(worker.stats().outgoing, 1);  // D hears that it stopped after the last write.
  worker.TakeMessages();
  for (const PageWrite& write : writes) worker.WriteDone(write.id, true, Seconds(0));
  EXPECT_EQ(worker.stats().outgoing, 0);
  const auto messages = worker.TakeMessages();
  ASSERT_EQ(messages.size(), 1);
  EXPECT_EQ(messages[0].to, kDecode);
  EXPECT_TRUE(std::holds_alternative<StoppedMessage>(messages[0].message));
  worker.Verify();
}

// What the gateway hears comes before what makes D speak to the gateway: D says that its writer
// gave the request up, which would have it tried again.
void ExpectGatewayFirst(const std::vector<Outgoing>& messages) {
  ASSERT_EQ(messages.size(), 2);
  EXPECT_EQ(messages[0].to, kGateway);
  EXPECT_EQ(messages[1].to, kDecode);
  EXPECT_TRUE(std::holds_alternative<StoppedMessage>(messages[1].message));
}

TEST(WorkerTest, AnAnswerOfOneTokenIsSentBeforeItsDecodeWorkerIsTold) {
  Worker worker(kPrefill, {.blocks = 8}, {});
  SimExecutor executor({.blocks = 8});
  worker.Receive(
      kGateway,
      PrefillMessage{.id = kTransfer, .request = Prompt(10, 1), .decode = kDecode, .pages = {0}},
      Seconds(0));
  Compute(worker, executor);
  const auto messages = worker.TakeMessages();
  ExpectGatewayFirst(messages);
  EXPECT_TRUE(std::holds_alternative<TokensMessage>(messages[0].message));
}

TEST(WorkerTest, WhatAPrefillWorkerCanNotRunIsRefusedBeforeItsDecodeWorkerIsTold) {
  Worker worker(kPrefill, {.blocks = 2}, {});
  worker.Receive(
      kGateway,
      PrefillMessage{
          .id = kTransfer, .request = Prompt(100, 5), .decode = kDecode, .pages = {0, 1, 2, 3}},
      Seconds(0));
  const auto messages = worker.TakeMessages();
  ExpectGatewayFirst(messages);
  EXPECT_TRUE(std::holds_alternative<RefusedMessage>(messages[0].message));
}

}  // namespace
}  // namespace divisi
