#include "divisi/control/dispatcher.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "divisi/core/format.h"

namespace divisi {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr NodeId kSelf{1}, kReplica{11}, kReplicaToo{12}, kPrefill{21}, kPrefillToo{22},
    kDecode{31}, kDecodeToo{32};
const Error kNoRoom{Code::kResourceExhausted, "no room for another request now; retry later"};

std::string Name(NodeId node) { return Format("{}", node.value); }

Request Prompt(int64_t tokens = 4) {
  Request request{.max_tokens = 8};
  request.prompt.assign(static_cast<size_t>(tokens), 7);
  return request;
}

// A dispatcher whose messages and events are looked at one by one.
class DispatcherTest : public testing::Test {
 protected:
  void Make(DispatcherOptions options) {
    dispatcher_ = std::make_unique<Dispatcher>(kSelf, options);
  }
  void SetUp() override { Make({.policy = RoutePolicy::kLeastLoaded}); }
  void TearDown() override { dispatcher_->Verify(); }

  uint64_t Submit(int64_t tokens = 4) {
    const auto number = dispatcher_->Submit(Prompt(tokens), now_);
    EXPECT_TRUE(number.ok());
    return number.ok() ? *number : 0;
  }

  // What was sent since the last time.
  std::vector<Outgoing> Sent() {
    dispatcher_->Verify();
    return dispatcher_->TakeMessages();
  }
  template <typename M>
  std::vector<std::pair<uint64_t, M>> Sent() {
    std::vector<std::pair<uint64_t, M>> of;
    for (const Outgoing& message : Sent()) {
      if (const M* m = std::get_if<M>(&message.message)) of.emplace_back(message.to.value, *m);
    }
    return of;
  }
  // The numbers of requests to which a message of the kind was sent, in order.
  template <typename M>
  std::vector<uint64_t> Numbers() {
    std::vector<uint64_t> numbers;
    for (const auto& [to, m] : Sent<M>()) numbers.push_back(m.id.number);
    return numbers;
  }
  template <typename M>
  std::vector<uint64_t> Receivers() {
    std::vector<uint64_t> receivers;
    for (const auto& [to, m] : Sent<M>()) receivers.push_back(to);
    return receivers;
  }

  void Tokens(NodeId from, TransferId id, int64_t start, int64_t count,
              std::optional<FinishReason> finish = {}) {
    TokensMessage message{.id = id, .start = start, .finish = finish};
    for (int64_t i = 0; i < count; ++i) {
      message.tokens.push_back({.token = static_cast<TokenId>(100 + start + i)});
    }
    dispatcher_->Receive(from, std::move(message), now_);
  }
  void Refuse(NodeId from, TransferId id, const Error& why) {
    dispatcher_->Receive(from, RefusedMessage{id, why}, now_);
  }
  void Reserve(NodeId from, TransferId id) {
    dispatcher_->Receive(from, ReservedMessage{.id = id, .pages = {0}}, now_);
  }
  void After(double seconds) {
    now_ += Seconds(seconds);
    dispatcher_->Tick(now_);
  }

  // The code of the error that ended the request, and its text.
  std::optional<Error> EndedBy(uint64_t request) {
    for (const DispatchEvent& event : dispatcher_->TakeEvents()) {
      if (event.request == request && event.finish) return event.error;
    }
    return std::nullopt;
  }
  int64_t Retried(RetryReason reason) {
    return dispatcher_->stats().retried[static_cast<size_t>(reason)];
  }
  WorkerLoad LoadOf(NodeId node) {
    for (const WorkerLoad& load : dispatcher_->loads(now_)) {
      if (load.node == node) return load;
    }
    return {};
  }

  static TransferId Attempt(uint64_t number, uint32_t attempt = 1) {
    return {kSelf, number, attempt};
  }

  Seconds now_{100};
  std::unique_ptr<Dispatcher> dispatcher_;
};

TEST_F(DispatcherTest, RunsARequestOnPrefillAndDecode) {
  dispatcher_->AddWorker(kPrefill, WorkerRole::kPrefill);
  dispatcher_->AddWorker(kDecode, WorkerRole::kDecode);
  const uint64_t number = Submit();
  EXPECT_THAT(Receivers<ReserveMessage>(), ElementsAre(kDecode.value));
  Reserve(kDecode, Attempt(number));
  EXPECT_THAT(Receivers<PrefillMessage>(), ElementsAre(kPrefill.value));
  EXPECT_EQ(LoadOf(kPrefill).requests, 1);
  EXPECT_GT(LoadOf(kPrefill).queue, Seconds(0));
  Tokens(kDecode, Attempt(number), 0, 2);
  EXPECT_EQ(LoadOf(kPrefill).requests, 0);  // Its part is over.
  EXPECT_EQ(LoadOf(kPrefill).queue, Seconds(0));
  EXPECT_EQ(LoadOf(kDecode).decoding, 1);
  EXPECT_EQ(dispatcher_->waiting(), 0);
  Tokens(kDecode, Attempt(number), 2, 1, FinishReason::kStop);
  const auto events = dispatcher_->TakeEvents();
  ASSERT_EQ(events.size(), 2);
  EXPECT_EQ(events[0].tokens.size(), 2);
  EXPECT_EQ(events[1].finish, FinishReason::kStop);
  EXPECT_EQ(dispatcher_->live(), 0);
  EXPECT_EQ(LoadOf(kDecode).requests, 0);
}

TEST_F(DispatcherTest, RepeatedTokensAreLeftOutAndGapsWait) {
  dispatcher_->AddWorker(kReplica, WorkerRole::kReplica);
  const uint64_t number = Submit();
  for (const int64_t start : {0, 0, 3, -1}) Tokens(kReplica, Attempt(number), start, 2);
  dispatcher_->Receive(kReplica, TokensMessage{Attempt(number), INT64_MIN, {{.token = 1}}}, now_);
  Tokens(kReplica, Attempt(number), 1, 3, FinishReason::kLength);
  std::vector<TokenId> tokens;
  for (const DispatchEvent& event : dispatcher_->TakeEvents()) {
    for (const SampledToken& token : event.tokens) tokens.push_back(token.token);
  }
  EXPECT_THAT(tokens, ElementsAre(100, 101, 102, 103));
}

TEST_F(DispatcherTest, WithoutWorkersItIsUnavailableBeyondTheBoundExhausted) {
  EXPECT_EQ(dispatcher_->Submit(Prompt(), now_).error().code, Code::kUnavailable);
  dispatcher_->AddWorker(kPrefill, WorkerRole::kPrefill);  // Which ends no request.
  EXPECT_EQ(dispatcher_->Submit(Prompt(), now_).error().code, Code::kUnavailable);
  Make({.max_waiting = 2});
  dispatcher_->AddWorker(kReplica, WorkerRole::kReplica);
  Submit();
  Submit();
  const auto third = dispatcher_->Submit(Prompt(), now_);
  EXPECT_EQ(third.error().code, Code::kResourceExhausted);
  EXPECT_THAT(third.error().message, HasSubstr("2 requests are waiting"));
  Tokens(kReplica, Attempt(1), 0, 1);
  Submit();  // One has its first token.
}

TEST_F(DispatcherTest, WhatCanNeverRunFailsAtOnce) {
  dispatcher_->AddWorker(kReplica, WorkerRole::kReplica);
  const uint64_t number = Submit();
  Refuse(kReplica, Attempt(number), Error{Code::kOutOfRange, "too long"});
  EXPECT_EQ(EndedBy(number)->code, Code::kOutOfRange);
}

TEST_F(DispatcherTest, ARefusalIsTriedElsewhereAfterAPauseThatGrows) {
  dispatcher_->AddWorker(kReplica, WorkerRole::kReplica);
  const uint64_t number = Submit();
  double pause = HandoffTimes().backoff.value;
  for (uint32_t attempt = 1; attempt < 5; ++attempt) {
    Sent();
    Refuse(kReplica, Attempt(number, attempt), Error{Code::kUnavailable, "not now"});
    EXPECT_THAT(Receivers<ServeMessage>(), IsEmpty());
    After(pause * 0.9);
    EXPECT_THAT(Receivers<ServeMessage>(), IsEmpty()) << attempt;
    After(pause * 0.2);
    EXPECT_THAT(Receivers<ServeMessage>(), ElementsAre(kReplica.value)) << attempt;
    pause *= 2;
  }
  EXPECT_EQ(Retried(RetryReason::kRefused), 4);
}

TEST_F(DispatcherTest, AWorkerThatFailedGetsTheRequestAgainOnlyAlone) {
  dispatcher_->AddWorker(kReplica, WorkerRole::kReplica);
  dispatcher_->AddWorker(kReplicaToo, WorkerRole::kReplica);
  const uint64_t number = Submit();
  EXPECT_THAT(Receivers<ServeMessage>(), ElementsAre(kReplica.value));
  Refuse(kReplica, Attempt(number), Error{Code::kUnavailable, "broken"});
  After(0.1);
  EXPECT_THAT(Receivers<ServeMessage>(), ElementsAre(kReplicaToo.value));
  Refuse(kReplicaToo, Attempt(number, 2), Error{Code::kUnavailable, "broken"});
  After(0.2);
  EXPECT_EQ(Receivers<ServeMessage>().size(), 1);
}

TEST_F(DispatcherTest, ASilentDecodeWorkerIsLeftForAnother) {
  dispatcher_->AddWorker(kPrefill, WorkerRole::kPrefill);
  dispatcher_->AddWorker(kDecode, WorkerRole::kDecode);
  dispatcher_->AddWorker(kDecodeToo, WorkerRole::kDecode);
  const uint64_t number = Submit();
  EXPECT_THAT(Receivers<ReserveMessage>(), ElementsAre(kDecode.value));
  After(2.1);
  EXPECT_EQ(Retried(RetryReason::kTimeout), 1);
  After(0.1);
  EXPECT_THAT(Receivers<ReserveMessage>(), ElementsAre(kDecodeToo.value));
  // An answer of the attempt that is over is answered with an abort.
  Reserve(kDecode, Attempt(number));
  EXPECT_THAT(Receivers<AbortMessage>(), ElementsAre(kDecode.value));
}

TEST_F(DispatcherTest, ALostWorkerIsAnotherAttemptBeforeTheFirstTokenAndAnErrorAfter) {
  dispatcher_->AddWorker(kReplica, WorkerRole::kReplica);
  dispatcher_->AddWorker(kReplicaToo, WorkerRole::kReplica);
  const uint64_t waiting = Submit();
  const uint64_t other = Submit();
  Tokens(kReplicaToo, Attempt(other), 0, 1);
  dispatcher_->TakeEvents();
  dispatcher_->RemoveWorker(kReplicaToo, now_);
  const auto error = EndedBy(other);
  ASSERT_TRUE(error);
  EXPECT_THAT(error->message, HasSubstr("lost while it generated"));
  dispatcher_->RemoveWorker(kReplica, now_);
  EXPECT_EQ(dispatcher_->live(), 1);
  dispatcher_->AddWorker(kReplica, WorkerRole::kReplica);
  After(1);
  Tokens(kReplica, Attempt(waiting, 2), 0, 1, FinishReason::kStop);
  EXPECT_EQ(dispatcher_->live(), 0);
  EXPECT_EQ(Retried(RetryReason::kWorkerGone), 1);
}

TEST_F(DispatcherTest, CancelTellsEveryWorkerAndNothingFollows) {
  dispatcher_->AddWorker(kPrefill, WorkerRole::kPrefill);
  dispatcher_->AddWorker(kDecode, WorkerRole::kDecode);
  const uint64_t number = Submit();
  Reserve(kDecode, Attempt(number));
  Sent();
  Tokens(kDecode, Attempt(number), 0, 1);
  dispatcher_->Cancel(number, now_);
  EXPECT_THAT(Receivers<AbortMessage>(), ElementsAre(kDecode.value));
  EXPECT_THAT(dispatcher_->TakeEvents(), IsEmpty());
  dispatcher_->Cancel(number, now_);
  Tokens(kDecode, Attempt(number), 1, 1);
  EXPECT_THAT(Receivers<AbortMessage>(), ElementsAre(kDecode.value));
  EXPECT_EQ(dispatcher_->live(), 0);
}

TEST_F(DispatcherTest, TheTotalTimeIsTheEnd) {
  dispatcher_->AddWorker(kReplica, WorkerRole::kReplica);
  const uint64_t number = Submit();
  for (uint32_t attempt = 1; dispatcher_->live() > 0; ++attempt) {
    ASSERT_LT(attempt, 1000);
    Refuse(kReplica, Attempt(number, attempt), Error{Code::kUnavailable, "broken"});
    After(1);
  }
  EXPECT_LE(now_.value, 100 + 122);
  const auto error = EndedBy(number);
  EXPECT_EQ(error->code, Code::kDeadlineExceeded);
  EXPECT_THAT(error->message, HasSubstr("broken"));
}

// ---- Room

TEST_F(DispatcherTest, ADecodeWorkerGetsNoMoreThanItCanRun) {
  dispatcher_->AddWorker(kPrefill, WorkerRole::kPrefill);
  dispatcher_->AddWorker(kDecode, WorkerRole::kDecode, {.max_sequences = 2});
  for (int i = 0; i < 4; ++i) Submit();
  EXPECT_THAT(Numbers<ReserveMessage>(), ElementsAre(1, 2));
  EXPECT_EQ(dispatcher_->stats().queued, 2);
  Tokens(kDecode, Attempt(2), 0, 1, FinishReason::kStop);
  EXPECT_THAT(Numbers<ReserveMessage>(), ElementsAre(3));
  dispatcher_->Cancel(1, now_);
  EXPECT_THAT(Numbers<ReserveMessage>(), ElementsAre(4));
}

TEST_F(DispatcherTest, ThoseThatWaitForRoomGoInTheOrderTheyCame) {
  dispatcher_->AddWorker(kPrefill, WorkerRole::kPrefill);
  dispatcher_->AddWorker(kDecode, WorkerRole::kDecode);
  Submit();
  Submit();
  Submit();
  Sent();
  Reserve(kDecode, Attempt(1));
  Refuse(kDecode, Attempt(3), kNoRoom);
  Refuse(kDecode, Attempt(2), kNoRoom);
  Submit();  // A late one does not overtake.
  EXPECT_THAT(Numbers<ReserveMessage>(), IsEmpty());
  EXPECT_EQ(Retried(RetryReason::kNoRoom), 2);
  EXPECT_TRUE(LoadOf(kDecode).full);
  // One ends: one is tried, the oldest. Refused, it is the first again.
  Tokens(kDecode, Attempt(1), 0, 1, FinishReason::kStop);
  EXPECT_THAT(Numbers<ReserveMessage>(), ElementsAre(2));
  Refuse(kDecode, Attempt(2, 2), kNoRoom);
  EXPECT_THAT(Numbers<ReserveMessage>(), IsEmpty());
  // Room may come unheard: after a pause it is tried again, and each that is taken makes way.
  After(1);
  EXPECT_THAT(Numbers<ReserveMessage>(), ElementsAre(2));
  Reserve(kDecode, Attempt(2, 3));
  EXPECT_THAT(Numbers<ReserveMessage>(), ElementsAre(3));
  Reserve(kDecode, Attempt(3, 2));
  EXPECT_THAT(Numbers<ReserveMessage>(), ElementsAre(4));
  Reserve(kDecode, Attempt(4));
  EXPECT_FALSE(LoadOf(kDecode).full);
  Submit();
  Submit();
  EXPECT_THAT(Numbers<ReserveMessage>(), ElementsAre(5, 6));
}

TEST_F(DispatcherTest, AFullWorkerDoesNotKeepThoseWhoPauseFromWaiting) {
  dispatcher_->AddWorker(kReplica, WorkerRole::kReplica);
  Submit();
  Refuse(kReplica, Attempt(1), Error{Code::kUnavailable, "broken"});
  Sent();
  Submit();  // The first one pauses; the second may go.
  EXPECT_THAT(Numbers<ServeMessage>(), ElementsAre(2));
}

TEST_F(DispatcherTest, WithoutRoomUntilTheEndIsExhausted) {
  dispatcher_->AddWorker(kPrefill, WorkerRole::kPrefill);
  dispatcher_->AddWorker(kDecode, WorkerRole::kDecode, {.max_sequences = 1});
  Submit();
  const uint64_t number = Submit();
  for (int i = 0; i < 25; ++i) {
    Tokens(kDecode, Attempt(1), i, 1);
    After(5);
  }
  const auto error = EndedBy(number);
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code, Code::kResourceExhausted);
}

// ---- Ways

TEST_F(DispatcherTest, ShortPromptsRunWholeOnTheDecodeWorker) {
  Make({.disaggregate_from = 100, .policy = RoutePolicy::kLeastLoaded});
  dispatcher_->AddWorker(kPrefill, WorkerRole::kPrefill);
  dispatcher_->AddWorker(kDecode, WorkerRole::kDecode);
  Submit(99);
  EXPECT_THAT(Receivers<ServeMessage>(), ElementsAre(kDecode.value));
  Submit(100);
  EXPECT_THAT(Receivers<ReserveMessage>(), ElementsAre(kDecode.value));
  EXPECT_EQ(dispatcher_->stats().whole, 1);
  EXPECT_EQ(dispatcher_->stats().apart, 1);
}

TEST_F(DispatcherTest, TheThresholdFollowsWhatWorkersMeasure) {
  Make({.disaggregate_from = std::nullopt});
  EXPECT_FALSE(dispatcher_->threshold(now_));
  dispatcher_->AddWorker(kPrefill, WorkerRole::kPrefill, {.page = Bytes(16000)});
  dispatcher_->AddWorker(kDecode, WorkerRole::kDecode, {.page = Bytes(16000)});
  const WorkerRates slow{.step = Seconds(4e-3), .per_token = Seconds(1e-3), .prompt_steps = 1};
  for (const NodeId node : {kPrefill, kDecode}) dispatcher_->Report(node, slow, 0, now_);
  EXPECT_EQ(dispatcher_->threshold(now_)->from, 6);  // 1 ms to reserve and 4 of a step
  const WorkerRates fast{.step = Seconds(4e-3), .per_token = Seconds(1e-5), .prompt_steps = 1};
  for (const NodeId node : {kPrefill, kDecode}) dispatcher_->Report(node, fast, 0, now_);
  EXPECT_EQ(dispatcher_->threshold(now_)->from, 544);  // 0.8 us a token over the link
}

TEST_F(DispatcherTest, WhoHasComputedNoPromptIsTakenToBeAsOthers) {
  Make({.disaggregate_from = std::nullopt});
  dispatcher_->AddWorker(kPrefill, WorkerRole::kPrefill);
  dispatcher_->AddWorker(kDecode, WorkerRole::kDecode);
  dispatcher_->Report(kPrefill, {.per_token = Seconds(1e-3), .prompt_steps = 5}, 0, now_);
  dispatcher_->Report(kDecode, {.step = Seconds(3e-3), .per_token = Seconds(9), .steps = 7}, 0,
                      now_);
  EXPECT_EQ(dispatcher_->threshold(now_)->work_per_token, Seconds(1e-3));
  EXPECT_EQ(dispatcher_->threshold(now_)->step, Seconds(3e-3));
}

TEST_F(DispatcherTest, TheExpectedQueueIsOwnAndOthersPrompts) {
  Make({.policy = RoutePolicy::kExpectedTtft, .keep_choices = true});
  dispatcher_->AddWorker(kReplica, WorkerRole::kReplica);
  dispatcher_->AddWorker(kReplicaToo, WorkerRole::kReplica);
  const WorkerRates rates{.step = Seconds(0),
                          .per_token = Seconds(1e-3),
                          .per_sequence = Seconds(0),
                          .prompt_steps = 1};
  dispatcher_->Report(kReplica, rates, 0, now_);
  dispatcher_->Report(kReplicaToo, rates, 2000, now_);  // Another gateway's
  Submit(1000);
  Submit(500);
  EXPECT_EQ(LoadOf(kReplica).queue, Seconds(1.5));
  EXPECT_EQ(LoadOf(kReplicaToo).queue, Seconds(2));
  Submit(1000);
  EXPECT_EQ(LoadOf(kReplica).queue, Seconds(2.5));
  Submit(100);
  EXPECT_EQ(LoadOf(kReplicaToo).queue, Seconds(2.1));
  now_ += Seconds(0.75);  // Three quarters of the first prompt are through.
  EXPECT_NEAR(LoadOf(kReplica).queue.value, 1.75, 1e-9);
  const auto choices = dispatcher_->TakeChoices();
  ASSERT_EQ(choices.size(), 4);
  EXPECT_EQ(choices[3].request, 4);
  EXPECT_THAT(choices[3].choice.Text(Name), HasSubstr("whole 12 ttft 2100.00 ms (queue 2000.00"));
  EXPECT_THAT(choices[3].choice.Text(Name), HasSubstr("; whole 11 ttft 2600.00 ms"));
}

// ---- Operators

TEST_F(DispatcherTest, ADrainedWorkerKeepsWhatItHasBegun) {
  dispatcher_->AddWorker(kReplica, WorkerRole::kReplica);
  for (int i = 0; i < 3; ++i) Submit();
  Tokens(kReplica, Attempt(1), 0, 1);
  dispatcher_->AddWorker(kReplicaToo, WorkerRole::kReplica);
  Sent();
  dispatcher_->Drain(kReplica, now_, Seconds(60));
  // The first generates, the second is being computed, the third has not begun.
  EXPECT_EQ(Numbers<ServeMessage>(), std::vector<uint64_t>{3});
  EXPECT_EQ(Retried(RetryReason::kDrained), 1);
  EXPECT_EQ(LoadOf(kReplica).requests, 2);
  EXPECT_TRUE(LoadOf(kReplica).draining);
  EXPECT_EQ(LoadOf(kReplica).drain_left, Seconds(60));
  Submit();
  EXPECT_THAT(Receivers<ServeMessage>(), ElementsAre(kReplicaToo.value));
}

TEST_F(DispatcherTest, ADrainEndsInBoundedTime) {
  dispatcher_->AddWorker(kReplica, WorkerRole::kReplica);
  dispatcher_->AddWorker(kReplicaToo, WorkerRole::kReplica);
  for (int i = 0; i < 4; ++i) Submit();
  Tokens(kReplica, Attempt(1), 0, 1);
  dispatcher_->TakeEvents();
  Sent();
  dispatcher_->Drain(kReplica, now_, Seconds(10));
  After(9);
  EXPECT_EQ(LoadOf(kReplica).requests, 2);
  After(1);
  EXPECT_EQ(LoadOf(kReplica).requests, 0);
  const auto error = EndedBy(1);
  ASSERT_TRUE(error);
  EXPECT_THAT(error->message, HasSubstr("its worker was drained"));
  EXPECT_THAT(Numbers<ServeMessage>(), ElementsAre(3));  // Without a token: elsewhere
}

TEST_F(DispatcherTest, ADrainedPrefillWorkersPromptsGoElsewhere) {
  dispatcher_->AddWorker(kPrefill, WorkerRole::kPrefill);
  dispatcher_->AddWorker(kDecode, WorkerRole::kDecode);
  Submit();
  Submit();
  Reserve(kDecode, Attempt(1));
  Sent();
  dispatcher_->AddWorker(kPrefillToo, WorkerRole::kPrefill);
  dispatcher_->Drain(kPrefill, now_, Seconds(10));
  const auto reserves = Sent<ReserveMessage>();
  ASSERT_EQ(reserves.size(), 1);
  EXPECT_EQ(reserves[0].second.id, Attempt(2, 2));
  EXPECT_EQ(reserves[0].second.prefill, kPrefillToo);
}

TEST_F(DispatcherTest, ADrainThatIsTakenBackGetsRequestsAgain) {
  dispatcher_->AddWorker(kReplica, WorkerRole::kReplica);
  Submit();
  Tokens(kReplica, Attempt(1), 0, 1);
  dispatcher_->Drain(kReplica, now_, Seconds(10));
  EXPECT_FALSE(dispatcher_->Submit(Prompt(), now_));
  dispatcher_->AddWorker(kReplica, WorkerRole::kReplica);
  After(11);
  EXPECT_EQ(LoadOf(kReplica).requests, 1);  // Nothing ends by it any more.
  Submit();
}

TEST_F(DispatcherTest, ARoleChangeLosesNothing) {
  dispatcher_->AddWorker(kPrefill, WorkerRole::kPrefill);
  dispatcher_->AddWorker(kDecode, WorkerRole::kDecode);
  const uint64_t number = Submit();
  Reserve(kDecode, Attempt(number));
  Sent();
  dispatcher_->AddWorker(kPrefill, WorkerRole::kDecode);
  dispatcher_->AddWorker(kDecode, WorkerRole::kPrefill);
  const uint64_t after = Submit();
  const auto reserves = Sent<ReserveMessage>();
  ASSERT_EQ(reserves.size(), 1);
  EXPECT_EQ(reserves[0].first, kPrefill.value);
  EXPECT_EQ(reserves[0].second.prefill, kDecode);
  Tokens(kDecode, Attempt(number), 0, 1, FinishReason::kStop);
  dispatcher_->Cancel(after, now_);
  EXPECT_EQ(dispatcher_->live(), 0);
}

TEST_F(DispatcherTest, LeasesAreRenewed) {
  dispatcher_->AddWorker(kPrefill, WorkerRole::kPrefill);
  dispatcher_->AddWorker(kDecode, WorkerRole::kDecode);
  const uint64_t number = Submit();
  Reserve(kDecode, Attempt(number));
  Sent();
  After(2);
  EXPECT_THAT(Receivers<RenewMessage>(), ElementsAre(kDecode.value, kPrefill.value));
  Tokens(kDecode, Attempt(number), 0, 3);
  After(2);
  const auto renewals = Sent<RenewMessage>();
  ASSERT_EQ(renewals.size(), 1);
  EXPECT_EQ(renewals[0].second.have, 3);
}

}  // namespace
}  // namespace divisi
