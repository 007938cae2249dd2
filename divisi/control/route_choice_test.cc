#include "divisi/control/route_choice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "divisi/core/format.h"

namespace divisi {
namespace {

using testing::HasSubstr;
using testing::Not;

// 1 ms a step, 1 ms for 10 tokens, a tenth of a millisecond a stream, 100 MB/s.
constexpr WorkerRates kRates{.step = Seconds(1e-3),
                             .per_token = Seconds(1e-4),
                             .per_pair = Seconds(0),
                             .per_sequence = Seconds(1e-4),
                             .write = BytesPerSecond(1e8)};
constexpr NodeId kReplica{1}, kReplicaToo{2}, kPrefill{3}, kPrefillToo{4}, kDecode{5},
    kDecodeToo{6};

RouteWorker Worker(NodeId node, WorkerRole role) {
  return {.node = node, .role = role, .chunk = 256, .rates = kRates};
}

// 10 us a token over the link; D answers in 2 ms.
RouteRules Rules(RoutePolicy policy = RoutePolicy::kExpectedTtft) {
  return {.policy = policy, .reserve = Seconds(2e-3), .estimate = {.bytes_per_token = Bytes(1000)}};
}

std::string Name(NodeId node) { return Format("{}", node.value); }

RouteChoice Choose(int64_t tokens, const std::vector<RouteWorker>& workers,
                   const RouteRules& rules) {
  RouteTurns turns;
  const auto choice = ChooseRoute(tokens, workers, rules, turns);
  EXPECT_TRUE(choice);
  return choice.value_or(RouteChoice{});
}

std::vector<RouteWorker> Apart() {
  return {Worker(kPrefill, WorkerRole::kPrefill), Worker(kPrefillToo, WorkerRole::kPrefill),
          Worker(kDecode, WorkerRole::kDecode), Worker(kDecodeToo, WorkerRole::kDecode)};
}

TEST(RouteChoiceTest, NobodyWhoCanIsNoChoice) {
  RouteTurns turns;
  EXPECT_FALSE(ChooseRoute(10, {}, Rules(), turns));
  const std::vector<RouteWorker> prefill = {Worker(kPrefill, WorkerRole::kPrefill)};
  EXPECT_FALSE(ChooseRoute(10, prefill, Rules(), turns));
}

TEST(RouteChoiceTest, RoundRobinTakesEachInTurnAndSkipsWhoIsAway) {
  std::vector<RouteWorker> workers;
  for (const uint64_t node : {9, 3, 7}) {
    workers.push_back(Worker(NodeId{node}, WorkerRole::kReplica));
  }
  RouteTurns turns;
  std::vector<uint64_t> taken;
  for (int i = 0; i < 5; ++i) {
    const auto choice = ChooseRoute(10, workers, Rules(RoutePolicy::kRoundRobin), turns);
    taken.push_back(choice->chosen.target.value);
    if (i == 3) workers.pop_back();
  }
  EXPECT_EQ(taken, (std::vector<uint64_t>{3, 7, 9, 3, 9}));
}

TEST(RouteChoiceTest, RoundRobinTurnsEachRoleOnItsOwn) {
  RouteRules rules = Rules(RoutePolicy::kRoundRobin);
  rules.disaggregate_from = 0;
  RouteTurns turns;
  std::vector<std::pair<uint64_t, uint64_t>> taken;
  for (int i = 0; i < 3; ++i) {
    const auto choice = ChooseRoute(10, Apart(), rules, turns);
    taken.emplace_back(choice->chosen.prefill->value, choice->chosen.target.value);
  }
  EXPECT_EQ(taken, (std::vector<std::pair<uint64_t, uint64_t>>{{3, 5}, {4, 6}, {3, 5}}));
}

TEST(RouteChoiceTest, LeastLoadedCountsRequests) {
  std::vector<RouteWorker> workers = Apart();
  workers[0].requests = 2;
  workers[1].requests = 1;
  workers[2].requests = 3;
  workers[3].requests = 4;
  RouteRules rules = Rules(RoutePolicy::kLeastLoaded);
  rules.disaggregate_from = 0;
  const RouteChoice choice = Choose(10, workers, rules);
  EXPECT_EQ(choice.chosen.prefill, kPrefillToo);
  EXPECT_EQ(choice.chosen.target, kDecode);
}

TEST(RouteChoiceTest, ExpectedTtftIsTheSumOfItsTerms) {
  std::vector<RouteWorker> workers = Apart();
  workers.resize(3);
  workers.erase(workers.begin() + 1);
  workers[0].queue = Seconds(0.5);
  workers[1].decoding = 10;
  RouteRules rules = Rules();
  rules.disaggregate_from = 0;
  const RouteChoice choice = Choose(1000, workers, rules);
  ASSERT_TRUE(choice.chosen.apart());
  // 4 chunks: 4 steps and 1000 tokens; 256 tokens over the link; a step of 10 streams.
  EXPECT_NEAR(choice.chosen.times().compute.value, 4e-3 + 0.1 + 2.56e-3 + 2e-3, 1e-9);
  // D answers while the prompt waits for P.
  EXPECT_NEAR(choice.chosen.ttft().value, 0.5 + choice.chosen.times().compute.value, 1e-9);
  workers[0].queue = Seconds(0);
  EXPECT_NEAR(Choose(1000, workers, rules).chosen.ttft().value,
              2e-3 + choice.chosen.times().compute.value, 1e-9);
}

// Requests whose prompts are still computed elsewhere count: they decode when this one does.
TEST(RouteChoiceTest, ExpectedTtftSpreadsABurstOverDecodeWorkers) {
  std::vector<RouteWorker> workers = Apart();
  workers[3].rates.step = workers[2].rates.step * 1.05;
  RouteRules rules = Rules();
  rules.disaggregate_from = 0;
  for (int i = 0; i < 40; ++i) {
    const NodeId target = Choose(100, workers, rules).chosen.target;
    ++(target == kDecode ? workers[2] : workers[3]).requests;
  }
  EXPECT_GE(workers[2].requests, 15);
  EXPECT_GE(workers[3].requests, 15);
}

TEST(RouteChoiceTest, ExpectedTtftPrefersAFastWorkerToAShortLine) {
  std::vector<RouteWorker> workers = {Worker(kReplica, WorkerRole::kReplica),
                                      Worker(kReplicaToo, WorkerRole::kReplica)};
  workers[0].rates.per_token = Seconds(1e-3);
  workers[1].queue = Seconds(0.3);
  workers[1].requests = 5;
  // 1000 tokens: 1 s at the slow one, 0.3 + 0.1 at the other; 100 tokens: 0.1 against 0.31.
  EXPECT_EQ(Choose(1000, workers, Rules()).chosen.target, kReplicaToo);
  EXPECT_EQ(Choose(100, workers, Rules()).chosen.target, kReplica);
}

TEST(RouteChoiceTest, ExpectedTtftCountsTheQuadraticTerm) {
  std::vector<RouteWorker> workers = {Worker(kReplica, WorkerRole::kReplica),
                                      Worker(kReplicaToo, WorkerRole::kReplica)};
  workers[0].rates.per_token = Seconds(0.5e-4);
  workers[0].rates.per_pair = Seconds(1e-6);
  // 40 tokens cost 2 + 0.8 ms against 4; 1000 cost 50 + 500 ms against 100.
  EXPECT_EQ(Choose(40, workers, Rules()).chosen.target, kReplica);
  EXPECT_EQ(Choose(1000, workers, Rules()).chosen.target, kReplicaToo);
}

TEST(RouteChoiceTest, LikeTimesGoToWhoHasFewer) {
  std::vector<RouteWorker> workers = {Worker(kReplica, WorkerRole::kReplica),
                                      Worker(kReplicaToo, WorkerRole::kReplica)};
  workers[0].requests = 1;
  EXPECT_EQ(Choose(10, workers, Rules()).chosen.target, kReplicaToo);
}

TEST(RouteChoiceTest, ShortPromptsStayWhereTheyAreDecoded) {
  // Away: 2 ms, a step of 1 or 1.4 ms, 10 us a token. Here: 100 us a token, for each stream.
  std::vector<RouteWorker> workers = Apart();
  const HandoverThreshold alone = ThresholdOf(workers[0], workers[2], Rules());
  EXPECT_EQ(alone.from, 34);  // 3 ms / 90 us
  EXPECT_EQ(alone.streams, 1);
  EXPECT_FALSE(Choose(33, workers, Rules()).chosen.apart());
  EXPECT_TRUE(Choose(34, workers, Rules()).chosen.apart());
  workers[2].decoding = workers[3].decoding = 4;
  const HandoverThreshold busy = ThresholdOf(workers[0], workers[2], Rules());
  EXPECT_EQ(busy.from, 9);  // 3.4 ms / (400 - 10) us
  EXPECT_EQ(busy.streams, 4);
}

TEST(RouteChoiceTest, ASlowPrefillWorkerRaisesTheThreshold) {
  std::vector<RouteWorker> workers = Apart();
  workers[0].rates.per_token = Seconds(1.5e-4);
  EXPECT_EQ(ThresholdOf(workers[0], workers[2], Rules()).from, 75);  // 3 ms / (100 - 50 - 10) us
  workers[0].rates.per_token = Seconds(3e-4);
  EXPECT_FALSE(ThresholdOf(workers[0], workers[2], Rules()).from);  // Never worth it
  EXPECT_FALSE(Choose(100000, {workers[0], workers[2]}, Rules()).chosen.apart());
}

TEST(RouteChoiceTest, ASlowLinkRaisesTheThresholdUntilChunksHideIt) {
  RouteRules rules = Rules();
  rules.estimate.bytes_per_token = Bytes(100000);  // 1 ms a token: ten times what computing takes
  const auto workers = Apart();
  // The last chunk's 256 ms and 3 ms are worth 2590 tokens.
  EXPECT_EQ(ThresholdOf(workers[0], workers[2], rules).from, 2590);
}

TEST(RouteChoiceTest, TheOperatorsThresholdHolds) {
  RouteRules rules = Rules();
  rules.disaggregate_from = 1000;
  EXPECT_FALSE(Choose(999, Apart(), rules).chosen.apart());
  EXPECT_TRUE(Choose(1000, Apart(), rules).chosen.apart());
  EXPECT_TRUE(Choose(1000, Apart(), rules).threshold.given);
  rules.disaggregate_from = 0;
  EXPECT_TRUE(Choose(1, Apart(), rules).chosen.apart());
}

TEST(RouteChoiceTest, ShortPromptsGoToReplicasWhereTheyAre) {
  std::vector<RouteWorker> workers = Apart();
  workers.push_back(Worker(kReplica, WorkerRole::kReplica));
  RouteRules rules = Rules(RoutePolicy::kLeastLoaded);
  EXPECT_EQ(Choose(10, workers, rules).chosen.target, kReplica);
  EXPECT_TRUE(Choose(1000, workers, rules).chosen.apart());
}

// Long prompts wait for a prefill worker's room rather than hold up the streams of another.
TEST(RouteChoiceTest, WhoHasNoRoomIsNotChosenButStillDecidesTheWay) {
  std::vector<RouteWorker> workers = Apart();
  workers[0].room = workers[1].room = false;
  RouteTurns turns;
  EXPECT_FALSE(ChooseRoute(1000, workers, Rules(), turns));
  EXPECT_EQ(Choose(10, workers, Rules()).chosen.target, kDecode);
  workers[0].room = true;
  workers[2].room = false;
  EXPECT_EQ(Choose(1000, workers, Rules()).chosen.prefill, kPrefill);
  EXPECT_EQ(Choose(1000, workers, Rules()).chosen.target, kDecodeToo);
}

TEST(RouteChoiceTest, ADecodeWorkerAloneRunsTheWholeRequest) {
  const RouteChoice choice =
      Choose(100000, {Worker(kDecode, WorkerRole::kDecode)}, Rules(RoutePolicy::kLeastLoaded));
  EXPECT_FALSE(choice.chosen.apart());
  EXPECT_EQ(choice.chosen.target, kDecode);
}

TEST(RouteChoiceTest, SaysWhatItCompared) {
  std::vector<RouteWorker> workers = Apart();
  workers.push_back(Worker(kReplica, WorkerRole::kReplica));
  workers.back().queue = Seconds(1);
  const RouteChoice choice = Choose(1000, workers, Rules());
  EXPECT_EQ(choice.options.size(), 4);
  EXPECT_THAT(choice.Text(Name),
              testing::StartsWith("apart 3->5 ttft 109.56 ms (queue 0.00, ready 2.00"));
  EXPECT_THAT(choice.Text(Name), HasSubstr("; apart 4->5 ttft"));
  EXPECT_THAT(choice.Text(Name), HasSubstr("; apart 3->6 ttft"));
  EXPECT_THAT(choice.Text(Name), HasSubstr("; whole 1 ttft 1104.00 ms (queue 1000.00"));
  EXPECT_THAT(choice.Text(Name, 1), Not(HasSubstr(";")));
}

// ---- Prefixes

RouteWorker Holds(RouteWorker worker, int64_t tokens, double odds = 1) {
  worker.prefix.tokens.fill(tokens);
  worker.prefix.odds.fill(odds);
  return worker;
}

std::vector<RouteWorker> Replicas() {
  return {Worker(kReplica, WorkerRole::kReplica), Worker(kReplicaToo, WorkerRole::kReplica)};
}

TEST(RouteChoiceTest, SaysWhereThePrefixComesFrom) {
  std::vector<RouteWorker> workers = {Holds(Worker(kReplica, WorkerRole::kReplica), 960, 0.9)};
  workers[0].prefix.tokens = {480, 480, 960, 960};
  workers[0].rates.read[static_cast<size_t>(Tier::kDisk)] = BytesPerSecond(1e9);
  const RouteChoice choice = Choose(1000, workers, Rules());
  // 480 kB at 1 GB/s from the disk; 40 tokens and a step.
  EXPECT_EQ(choice.Text(Name),
            "whole 1 ttft 5.48 ms (queue 0.00, ready 0.48, compute 5.00; 960 tokens cached: 480 "
            "device, 480 disk; odds 0.810, expected 19.79)");
}

TEST(RouteChoiceTest, ExpectedTtftGoesToThePrefixUnlessItsWorkerIsBusy) {
  std::vector<RouteWorker> workers = Replicas();
  workers[1] = Holds(workers[1], 960);
  workers[1].requests = 5;
  // 5 ms there, 104 ms elsewhere; a tenth more may be waited.
  workers[1].queue = Seconds(0.109);
  EXPECT_EQ(Choose(1000, workers, Rules()).chosen.target, kReplicaToo);
  workers[1].queue = Seconds(0.11);
  EXPECT_EQ(Choose(1000, workers, Rules()).chosen.target, kReplica);
}

TEST(RouteChoiceTest, ACopyThatIsSeldomThereIsNotGoneTo) {
  std::vector<RouteWorker> workers = Replicas();
  workers[1] = Holds(workers[1], 960, 0.5);
  workers[1].queue = Seconds(0.06);
  // Half of 65 ms and half of 164 against 104; then half of 50 and of 149.
  EXPECT_EQ(Choose(1000, workers, Rules()).chosen.target, kReplica);
  workers[1].queue = Seconds(0.045);
  EXPECT_EQ(Choose(1000, workers, Rules()).chosen.target, kReplicaToo);
  // For the tail it counts as gone.
  RouteRules tail = Rules();
  tail.estimate.quantile = 0.99;
  EXPECT_EQ(Choose(1000, workers, tail).chosen.target, kReplica);
}

// Waiting 150 ms for a hit leaves the other worker's streams alone.
TEST(RouteChoiceTest, TotalWaitsForAHitWhereMovingItDelaysOthers) {
  std::vector<RouteWorker> workers = Replicas();
  workers[0].decoding = 4;
  workers[1] = Holds(workers[1], 960);
  workers[1].queue = Seconds(0.15);
  RouteRules rules = Rules();
  EXPECT_EQ(Choose(1000, workers, rules).chosen.target, kReplica);
  rules.estimate.objective = RouteObjective::kTotal;
  const RouteChoice choice = Choose(1000, workers, rules);
  EXPECT_EQ(choice.chosen.target, kReplicaToo);
  // Four streams wait for 100 ms of work.
  EXPECT_THAT(choice.Text(Name), HasSubstr("; others 400.00 later"));
}

// A prompt that comes at once with an equal one: computing it elsewhere would be as soon.
TEST(RouteChoiceTest, HalfTheWorkMayTakeATenthLonger) {
  std::vector<RouteWorker> workers = Replicas();
  workers[1].queue = Seconds(0.104);
  workers[1].prefix.promised = 960;
  EXPECT_EQ(Choose(1000, workers, Rules()).chosen.target, kReplicaToo);  // 109 ms against 104
  workers[1].queue = Seconds(0.110);
  EXPECT_EQ(Choose(1000, workers, Rules()).chosen.target, kReplica);  // 115
  workers[1].queue = Seconds(0.054);
  workers[1].prefix.promised = 480;
  EXPECT_EQ(Choose(1000, workers, Rules()).chosen.target, kReplica);  // 109, and 52 ms of work
}

TEST(RouteChoiceTest, CacheFirstTakesTheLongestPrefixThenTheFewestRequests) {
  std::vector<RouteWorker> workers = Replicas();
  workers[0].requests = 1;
  const RouteRules rules = Rules(RoutePolicy::kCacheFirst);
  EXPECT_EQ(Choose(1000, workers, rules).chosen.target, kReplicaToo);
  workers[0] = Holds(workers[0], 320);
  workers[0].requests = 9;
  workers[0].queue = Seconds(10);
  EXPECT_EQ(Choose(1000, workers, rules).chosen.target, kReplica);
  // What is being computed counts, what everybody has in the pool does not.
  workers[1].prefix.promised = 640;
  EXPECT_EQ(Choose(1000, workers, rules).chosen.target, kReplicaToo);
  workers[0].prefix.tokens[3] = 960;
  EXPECT_EQ(Choose(1000, workers, rules).chosen.target, kReplicaToo);
}

TEST(RouteChoiceTest, APrefillWorkersPrefixCounts) {
  std::vector<RouteWorker> workers = Apart();
  workers[1] = Holds(workers[1], 960);
  RouteRules rules = Rules();
  rules.disaggregate_from = 0;
  const RouteChoice choice = Choose(1000, workers, rules);
  EXPECT_EQ(choice.chosen.prefill, kPrefillToo);
  // 40 tokens and a step, after which all 1000 are written. D's step.
  EXPECT_NEAR(choice.chosen.transfer.value, 10e-3, 1e-9);
  EXPECT_NEAR(choice.chosen.ttft().value, 2e-3 + 5e-3 + 10e-3 + 1e-3, 1e-9);
}

TEST(RouteChoiceTest, PagesThatADecodeWorkerHasAreNotWritten) {
  std::vector<RouteWorker> workers = Apart();
  workers[3] = Holds(workers[3], 960);
  RouteRules rules = Rules();
  rules.disaggregate_from = 0;
  const RouteChoice choice = Choose(1000, workers, rules);
  EXPECT_EQ(choice.chosen.target, kDecodeToo);
  EXPECT_EQ(choice.chosen.present, 960);
  EXPECT_NEAR(choice.chosen.transfer.value, 0.4e-3, 1e-9);  // 40 tokens
}

// The next turn of a conversation has little left to compute where the last one was decoded.
TEST(RouteChoiceTest, AShortRestRunsWholeWhereItsPrefixIs) {
  std::vector<RouteWorker> workers = Apart();
  workers[3] = Holds(workers[3], 960);
  EXPECT_FALSE(Choose(990, workers, Rules()).chosen.apart());  // 30 of 34
  EXPECT_EQ(Choose(990, workers, Rules()).chosen.target, kDecodeToo);
  EXPECT_TRUE(Choose(1400, workers, Rules()).chosen.apart());
  RouteRules rules = Rules();
  rules.disaggregate_from = 500;
  EXPECT_TRUE(Choose(990, workers, rules).chosen.apart());
}

TEST(RouteChoiceTest, PoliciesAreKnownByName) {
  EXPECT_EQ(*ParsePolicy("round-robin"), RoutePolicy::kRoundRobin);
  EXPECT_EQ(*ParsePolicy("least-loaded"), RoutePolicy::kLeastLoaded);
  EXPECT_EQ(*ParsePolicy("cache-first"), RoutePolicy::kCacheFirst);
  EXPECT_EQ(*ParsePolicy("expected-ttft"), RoutePolicy::kExpectedTtft);
  EXPECT_THAT(ParsePolicy("expected").error().message, HasSubstr("'expected' is no policy"));
  EXPECT_EQ(ParsePolicy("x").error().message,
            "'x' is no policy; known are round-robin, least-loaded, cache-first, expected-ttft");
}

}  // namespace
}  // namespace divisi
