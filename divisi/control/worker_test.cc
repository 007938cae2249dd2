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

bool IsRefused(const std::vector<Outgoing>& messages, Code code) {
  return messages.size() == 1 && std::holds_alternative<RefusedMessage>(messages[0].message) &&
         std::get<RefusedMessage>(messages[0].message).error.code == code;
}

bool IsReserved(const std::vector<Outgoing>& messages) {
  return messages.size() == 1 && std::holds_alternative<ReservedMessage>(messages[0].message);
}

// P is silent, a stopped process say, and its writes may be under way: D asks again and again, and
// gives the pages to nobody, until P is fenced. What P then says of the old transfer changes
// nothing.
TEST(WorkerTest, PagesOfAnAbortedPromptAreReusedOnlyWhenNoWriteCanLand) {
  Worker worker(kDecode, {.blocks = 4}, {});
  const auto reserve = [&](TransferId id, NodeId prefill, double now) {
    worker.Receive(kGateway, ReserveMessage{id, Prompt(40, 5), prefill}, Seconds(now));
    return worker.TakeMessages();
  };
  constexpr TransferId kNext{kGateway, 8, 1};
  constexpr NodeId kOther{4};
  ASSERT_TRUE(IsReserved(reserve(kTransfer, kPrefill, 0)));
  worker.Receive(kGateway, AbortMessage{kTransfer}, Seconds(1));
  int asked = static_cast<int>(worker.TakeMessages().size());
  for (int i = 2; i < 30; ++i) {  // Beyond every lease.
    worker.Tick(Seconds(i));
    for (const Outgoing& outgoing : worker.TakeMessages()) {
      EXPECT_EQ(outgoing.to, kPrefill);
      EXPECT_TRUE(std::holds_alternative<AbortMessage>(outgoing.message));
      ++asked;
    }
    EXPECT_EQ(worker.stats().stopping, 1);
    EXPECT_EQ(worker.stats().scheduler.blocks_used, 3);
    EXPECT_TRUE(IsRefused(reserve({kGateway, 100 + static_cast<uint64_t>(i), 1}, kOther, i),
                          Code::kResourceExhausted));
  }
  EXPECT_GT(asked, 20);
  worker.Receive({4}, HandoverMessage{kTransfer, {}, {}}, Seconds(29));  // Not its writer.
  EXPECT_EQ(worker.stats().stopping, 1);
  worker.PeerGone(kPrefill, Seconds(30));
  worker.TakeMessages();
  EXPECT_EQ(worker.stats().scheduler.blocks_used, 0);
  ASSERT_TRUE(IsReserved(reserve(kNext, kOther, 31)));
  worker.Receive(kPrefill, HandoverMessage{kTransfer, {}, {}}, Seconds(32));
  worker.Receive(kPrefill, StoppedMessage{kNext}, Seconds(32));  // Not its transfer.
  EXPECT_EQ(worker.stats().scheduler.reserved, 1);
  EXPECT_EQ(worker.stats().scheduler.blocks_used, 3);
  worker.Verify();
}

// A request handed over, answered and forgotten; eight hours of nothing; another one.
TEST(WorkerTest, AfterHoursWithoutWorkItServesAsBefore) {
  Worker worker(kDecode, {.blocks = 8, .share_prefixes = false}, {});
  SimExecutor executor({.blocks = 8});
  double now = 0;
  for (uint64_t number = 1; number <= 3; ++number) {
    const TransferId id{kGateway, number, 1};
    worker.Receive(kGateway, ReserveMessage{id, Prompt(40, 1), kPrefill}, Seconds(now));
    ASSERT_TRUE(IsReserved(worker.TakeMessages())) << number;
    worker.Receive(kPrefill, HandoverMessage{id, {.token = 5}, {}}, Seconds(now + 1));
    EXPECT_EQ(worker.TakeMessages().size(), 2u) << number;  // Taken, and the token.
    worker.Receive(kGateway, AbortMessage{id}, Seconds(now + 2));
    for (int minute = 0; minute < 8 * 60; ++minute) worker.Tick(Seconds(now += 60));
    EXPECT_FALSE(worker.NextTimer()) << number;  // Nothing is remembered.
    EXPECT_EQ(worker.stats().incoming, 0);
    EXPECT_EQ(worker.stats().scheduler.blocks_used, 0);
    EXPECT_EQ(worker.stats().counters.expired_leases, 0);
    worker.Verify();
  }
}

// A gateway or worker of another build, or one that is not what it says it is: what is no token of
// this model is refused where it comes, and nothing of it is computed.
TEST(WorkerTest, TokensThatTheModelDoesNotHaveAreRefused) {
  const auto changed = [](auto change) {
    Request request = Prompt(20, 5);
    change(request);
    return request;
  };
  for (const TokenId bad : {-1, 50, 1 << 30}) {
    for (const Request& request :
         {changed([&](Request& r) { r.prompt[7] = bad; }), changed([&](Request& r) {
            r.sampling.logit_bias = {{bad, 1.0f}};
          }),
          changed([&](Request& r) {
            r.stop_token_ids = {3, bad};
          })}) {
      Worker worker(kDecode, {.blocks = 8, .vocab = 50}, {});
      worker.Receive(kGateway, ServeMessage{kTransfer, request}, Seconds(0));
      EXPECT_TRUE(IsRefused(worker.TakeMessages(), Code::kInvalidArgument));
      worker.Receive(kGateway, ReserveMessage{kTransfer, request, kPrefill}, Seconds(0));
      EXPECT_TRUE(IsRefused(worker.TakeMessages(), Code::kInvalidArgument));
      worker.Receive(
          kGateway,
          PrefillMessage{.id = kTransfer, .request = request, .decode = kDecode, .pages = {0, 1}},
          Seconds(0));
      const auto messages = worker.TakeMessages();
      ExpectGatewayFirst(messages);
      EXPECT_TRUE(std::holds_alternative<RefusedMessage>(messages[0].message));
      EXPECT_FALSE(worker.HasWork());
      EXPECT_EQ(worker.stats().scheduler.blocks_used, 0);
    }
  }
}

TEST(WorkerTest, AHandoverWithATokenThatTheModelDoesNotHaveIsGivenBack) {
  SampledToken bad_top{.token = 3};
  bad_top.top = {{.token = 50}};
  for (const HandoverMessage& handover :
       {HandoverMessage{kTransfer, {.token = 50}, {}}, HandoverMessage{kTransfer, bad_top, {}},
        HandoverMessage{kTransfer, {.token = 3}, {{.token = -1}}}}) {
    Worker worker(kDecode, {.blocks = 8, .vocab = 50}, {});
    worker.Receive(kGateway, ReserveMessage{kTransfer, Prompt(20, 5), kPrefill}, Seconds(0));
    ASSERT_TRUE(IsReserved(worker.TakeMessages()));
    worker.Receive(kPrefill, handover, Seconds(1));
    const auto messages = worker.TakeMessages();
    ASSERT_EQ(messages.size(), 2u);
    const auto* refused = std::get_if<RefusedMessage>(&messages[0].message);
    ASSERT_NE(refused, nullptr);
    EXPECT_EQ(refused->error.code, Code::kDataLoss);  // It is tried elsewhere.
    EXPECT_EQ(messages[1].to, kPrefill);
    EXPECT_TRUE(std::holds_alternative<AbortMessage>(messages[1].message));
    EXPECT_FALSE(worker.HasWork());
    EXPECT_EQ(worker.stats().scheduler.blocks_used, 0);
    worker.Verify();
  }
}

// When each part of a handover was over: the prompt computed, its last page written, D's word.
TEST(WorkerTest, AHandoverHasItsTimes) {
  Worker worker(kPrefill, {.blocks = 8}, {});
  SimExecutor executor({.blocks = 8});
  worker.Receive(kGateway,
                 PrefillMessage{.id = kTransfer,
                                .request = Prompt(40, 5),
                                .decode = kDecode,
                                .pages = {0, 1, 2},
                                .present = 1},
                 Seconds(10));
  const StepPlan& plan = worker.Plan(Seconds(11));
  worker.Commit(executor.Execute(plan), Seconds(13));
  double now = 13;
  for (const PageWrite& write : worker.TakeWrites())
    worker.WriteDone(write.id, true, Seconds(++now));
  worker.Receive(kDecode, TakenMessage{kTransfer}, Seconds(15.5));
  worker.Receive(kDecode, TakenMessage{kTransfer}, Seconds(19));  // It comes twice.
  const auto handovers = worker.TakeHandovers();
  ASSERT_EQ(handovers.size(), 1u);
  EXPECT_EQ(handovers[0].id, kTransfer);
  EXPECT_EQ(handovers[0].pages, 2);
  EXPECT_EQ(handovers[0].computing, Seconds(3));
  EXPECT_EQ(handovers[0].writing, Seconds(2));
  EXPECT_EQ(handovers[0].taking, Seconds(0.5));
  EXPECT_TRUE(worker.TakeHandovers().empty());
}

// What there was of a prompt's prefix, of the messages' first tokens.
std::vector<PagesFound> Found(Worker& worker) {
  std::vector<PagesFound> found;
  for (const Outgoing& outgoing : worker.TakeMessages()) {
    if (const auto* tokens = std::get_if<TokensMessage>(&outgoing.message)) {
      EXPECT_EQ(tokens->found.has_value(), tokens->start == 0);
      if (tokens->found) found.push_back(*tokens->found);
    } else if (const auto* over = std::get_if<HandoverMessage>(&outgoing.message)) {
      found.push_back(over->found);
    }
  }
  return found;
}

TEST(WorkerTest, TheFirstTokensSayWhatThereWasOfThePrefix) {
  Worker worker(kPrefill, {.blocks = 16}, {});
  SimExecutor executor({.blocks = 16});
  for (const uint64_t number : {7, 8}) {
    worker.Receive(kGateway, ServeMessage{{kGateway, number, 1}, Prompt(40, 3)}, Seconds(0));
    Compute(worker, executor);
    EXPECT_EQ(Found(worker), std::vector<PagesFound>{PagesFound({number == 8 ? 2 : 0, 0, 0, 0})});
  }
  // P tells D, and D the gateway.
  worker.Receive(
      kGateway,
      PrefillMessage{
          .id = {kGateway, 9, 1}, .request = Prompt(40, 3), .decode = kDecode, .pages = {0, 1, 2}},
      Seconds(0));
  Compute(worker, executor);
  for (const PageWrite& write : worker.TakeWrites()) worker.WriteDone(write.id, true, Seconds(0));
  const std::vector<PagesFound> told = Found(worker);
  ASSERT_EQ(told, std::vector<PagesFound>{PagesFound({2, 0, 0, 0})});
  Worker decode(kDecode, {.blocks = 16}, {});
  SimExecutor other({.blocks = 16});
  decode.Receive(kGateway, ReserveMessage{{kGateway, 9, 1}, Prompt(40, 3), kPrefill}, Seconds(0));
  decode.Receive(kPrefill, HandoverMessage{.id = {kGateway, 9, 1}, .first = {1}, .found = told[0]},
                 Seconds(0));
  EXPECT_EQ(Found(decode), told);
}

// A page that comes late does not make those before it missing.
TEST(WorkerTest, OfAPrefixThatDidNotComeWholeWhatCameWasThere) {
  const SchedulerOptions options{.blocks = 16, .report_pages = true};
  Worker worker(kPrefill, options, {});
  worker.UseTiers({.tiers = {.host_pages = 4, .disk_pages = 8},
                   .page = Bytes(1000),
                   .layers = 2,
                   .most_loading = 8});
  PrefixLoader& loader = *worker.prefixes();
  const Request request = Prompt(57, 1);
  const BlockKey root = RootKey(KeySpaceOf(options, request));
  std::vector<BlockKey> keys;
  ExtendKeys(root, request.prompt, 3, keys);
  for (int64_t i = 0; i < 3; ++i) {
    const BlockKey parent = i == 0 ? root : keys[i - 1];
    ASSERT_TRUE(
        loader.tiers().Restore({.key = keys[i], .parent = parent, .root = root, .position = i}));
  }
  worker.Receive(kGateway, ServeMessage{kTransfer, request}, Seconds(0));
  loader.Tick(Seconds(0));
  const auto loads = loader.TakeLoads();
  ASSERT_EQ(loads.size(), 1u);
  ASSERT_EQ(loads[0].pages.size(), 3u);
  loads[0].gate->Open(1);
  loader.Tick(Seconds(0.1));  // Computing follows it,
  ASSERT_EQ(worker.Plan(Seconds(0.1)).slices.size(), 1u);
  worker.Commit({{.lost = true}}, Seconds(0.1));  // and the next layer does not come.
  loader.LoadEnded({.id = loads[0].id, .pages = 2});
  SimExecutor executor({.blocks = 16});
  Compute(worker, executor);
  EXPECT_EQ(Found(worker), std::vector<PagesFound>{PagesFound({0, 0, 2, 0, 0})});
}

// The gateway sends equal prompts where the first went: there they share what it computes.
TEST(WorkerTest, EqualPromptsThatComeAtOnceAreComputedOnce) {
  Worker worker(kPrefill, {.max_batched_tokens = 64, .blocks = 256}, {});
  SimExecutor executor({.blocks = 256});
  for (uint64_t number = 1; number <= 8; ++number) {
    worker.Receive(kGateway, ServeMessage{{kGateway, number, 1}, Prompt(305, 3)}, Seconds(0));
  }
  Compute(worker, executor);
  EXPECT_EQ(worker.stats().counters.prefill_tokens, 305 + 7 * 1);
  EXPECT_EQ(executor.first_fault(), "");
  std::map<uint64_t, std::vector<TokenId>> tokens;
  for (const Outgoing& outgoing : worker.TakeMessages()) {
    const auto& m = std::get<TokensMessage>(outgoing.message);
    for (const SampledToken& token : m.tokens) tokens[m.id.number].push_back(token.token);
  }
  for (uint64_t number = 2; number <= 8; ++number) EXPECT_EQ(tokens[number], tokens[1]);
  EXPECT_EQ(tokens[1].size(), 3u);
}

// Transfers of a prefill worker that end in every way there is.
class TransferEndsTest : public testing::Test {
 protected:
  TransferId Begin(uint64_t number, int64_t max_tokens, double now) {
    const TransferId id{kGateway, number, 1};
    worker_.Receive(
        kGateway,
        PrefillMessage{
            .id = id, .request = Prompt(40, max_tokens), .decode = kDecode, .pages = {0, 1, 2}},
        Seconds(now));
    Compute(worker_, executor_);
    return id;
  }
  void Written(bool ok, double now) {
    for (const PageWrite& write : worker_.TakeWrites())
      worker_.WriteDone(write.id, ok, Seconds(now));
  }
  std::vector<std::string> Refusals() {
    std::vector<std::string> why;
    for (const Outgoing& outgoing : worker_.TakeMessages()) {
      if (const auto* refused = std::get_if<RefusedMessage>(&outgoing.message))
        why.push_back(refused->error.message);
    }
    return why;
  }
  WorkerCounters counters() const { return worker_.stats().counters; }

  Worker worker_{kPrefill, {.blocks = 64, .share_prefixes = false}, {}};
  SimExecutor executor_{{.blocks = 64}};
};

TEST_F(TransferEndsTest, EachIsCountedOnce) {
  Begin(1, 5, 0);
  Written(true, 0);
  worker_.Receive(kDecode, TakenMessage{{kGateway, 1, 1}}, Seconds(0));
  Begin(2, 5, 0);
  Written(false, 0);  // All three fail, the first ends it.
  Begin(3, 1, 0);     // One token
  Written(true, 0);
  worker_.Receive(kGateway, AbortMessage{Begin(4, 5, 0)}, Seconds(0));
  worker_.Receive(kDecode, AbortMessage{Begin(5, 5, 0)}, Seconds(0));
  Written(true, 0);
  Begin(6, 5, 0);
  Written(true, 0);
  for (int i = 1; i < 11; ++i) {
    worker_.Receive(kGateway, RenewMessage{{kGateway, 6, 1}}, Seconds(i));
    worker_.Tick(Seconds(i));
  }
  EXPECT_EQ(counters().transfers_failed, 2);  // Of D that did not take
  EXPECT_EQ(counters().transfers_aborted, 2);
  Begin(7, 5, 11);
  worker_.Tick(Seconds(30));  // No word of the gateway
  Written(true, 30);
  EXPECT_EQ(counters().transfers_aborted, 3);
  Begin(8, 5, 31);
  worker_.PeerGone(kDecode, Seconds(31));
  Written(false, 31);
  const WorkerCounters all = counters();
  EXPECT_EQ(all.transfers, 8);
  EXPECT_EQ(all.handovers, 1);
  EXPECT_EQ(all.transfers_failed, 3);
  EXPECT_EQ(all.transfers_aborted, 3);
  EXPECT_EQ(all.transfers_answered, 1);
  EXPECT_EQ(worker_.stats().outgoing, 0);
  worker_.Verify();
}

// Nothing was answered, also where the gateway hears of it as of a last token.
TEST_F(TransferEndsTest, APromptThatCannotBeComputedHasFailed) {
  const TransferId id{kGateway, 1, 1};
  worker_.Receive(
      kGateway,
      PrefillMessage{.id = id, .request = Prompt(40, 5), .decode = kDecode, .pages = {0, 1, 2}},
      Seconds(0));
  const StepPlan& plan = worker_.Plan(Seconds(0));
  ASSERT_EQ(plan.slices.size(), 1);
  std::vector<SliceResult> results(1);
  results[0].failure = Error{Code::kInternal, "broken"};
  worker_.Commit(std::move(results), Seconds(0));
  Written(true, 0);
  EXPECT_EQ(counters().transfers_failed, 1);
  EXPECT_EQ(counters().transfers_answered, 0);
  EXPECT_EQ(worker_.stats().outgoing, 0);
  worker_.Verify();
}

TEST_F(TransferEndsTest, WhoeverWasSilentIsNamed) {
  Begin(1, 5, 0);
  Written(true, 0);
  Refusals();
  worker_.Tick(Seconds(9.9));
  EXPECT_TRUE(Refusals().empty());
  worker_.Tick(Seconds(10));  // Gateway and D were silent alike: it is the gateway that hears this.
  const auto why = Refusals();
  ASSERT_EQ(why.size(), 1);
  EXPECT_NE(why[0].find("the gateway was not heard"), std::string::npos) << why[0];
  EXPECT_EQ(counters().expired_leases, 1);
  EXPECT_EQ(counters().transfers_failed, 0);
  Begin(2, 5, 20);
  Written(true, 20);
  Refusals();
  worker_.Receive(kGateway, RenewMessage{{kGateway, 2, 1}}, Seconds(25));
  worker_.Tick(Seconds(30));
  const auto untaken = Refusals();
  ASSERT_EQ(untaken.size(), 1);
  EXPECT_NE(untaken[0].find("did not take"), std::string::npos) << untaken[0];
  EXPECT_EQ(counters().expired_leases, 1);  // Nobody's lease ended.
  EXPECT_EQ(counters().transfers_failed, 1);
}

}  // namespace
}  // namespace divisi
