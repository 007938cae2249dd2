// What a dispatcher knows of its workers' prefixes and links when it chooses, and what it learns.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "divisi/control/dispatcher.h"
#include "divisi/control/route_prefix.h"
#include "divisi/core/check.h"

namespace divisi {
namespace {

using testing::Each;
using testing::ElementsAre;

constexpr NodeId kSelf{1}, kFirst{11}, kSecond{12}, kThird{13}, kPrefill{21}, kDecode{31};
constexpr auto kDisk = static_cast<size_t>(Tier::kDisk);
constexpr auto kPool = static_cast<size_t>(Tier::kRemote);
constexpr auto kPeer = static_cast<size_t>(Tier::kPeer);

// 1 ms a token; a page of 16 kB in 1.6 ms from the disk, the pool and a peer.
WorkerRates Rates() {
  WorkerRates rates{.step = Seconds(0),
                    .per_token = Seconds(1e-3),
                    .per_sequence = Seconds(0),
                    .steps = 1,
                    .prompt_steps = 1};
  rates.read[kDisk] = rates.read[kPool] = rates.read[kPeer] = BytesPerSecond(1e7);
  rates.read_measured[kDisk] = rates.read_measured[kPool] = rates.read_measured[kPeer] = true;
  rates.lookup = Seconds(0);
  rates.lookup_measured = true;
  return rates;
}

class DispatcherRoutesTest : public testing::Test {
 protected:
  DispatcherRoutesTest() : directory_(Create()) {}
  static PageDirectory Create() {
    auto directory = PageDirectory::Create({.pages = 10'000});
    CHECK(directory.ok());
    return *std::move(directory);
  }
  void Make(DispatcherOptions options) {
    options.keep_choices = true;
    dispatcher_ = std::make_unique<Dispatcher>(kSelf, options, &directory_);
  }
  void SetUp() override { Make({}); }
  void TearDown() override { dispatcher_->Verify(); }

  void Join(std::initializer_list<NodeId> nodes, WorkerRole role = WorkerRole::kReplica) {
    for (const NodeId node : nodes) {
      CHECK(directory_.Join(node).ok());
      WorkerCapacity capacity{.page = Bytes(16'000), .pool = true};
      capacity.reads_peers = peers_;
      if (peers_) capacity.exported_at = "10.0.0.1:" + std::to_string(node.value);
      dispatcher_->AddWorker(node, role, capacity);
      dispatcher_->Report(node, Rates(), 0, now_);
    }
  }
  static Request Prompt(int64_t tokens, TokenId first = 0) {
    Request request{.max_tokens = 8};
    for (int64_t i = 0; i < tokens; ++i) {
      request.prompt.push_back(first + static_cast<TokenId>(i));
    }
    return request;
  }
  static std::vector<BlockKey> Pages(const Request& request) {
    return SharedPromptKeys({}, request);
  }
  static std::vector<BlockKey> First(const Request& request, size_t pages) {
    std::vector<BlockKey> keys = Pages(request);
    keys.resize(pages);
    return keys;
  }
  // Where it went.
  RouteOption Submit(const Request& request) {
    number_ = dispatcher_->Submit(request, now_, Pages(request)).value();
    auto choices = dispatcher_->TakeChoices();
    CHECK(choices.size() == 1);
    note_ = choices[0];
    return choices[0].choice.chosen;
  }
  NodeId Target(const Request& request) { return Submit(request).target; }
  void FirstToken(NodeId from, PagesFound found) {
    dispatcher_->Receive(
        from, TokensMessage{.id = {kSelf, number_, 1}, .tokens = {{.token = 1}}, .found = found},
        now_);
  }

  bool peers_ = false;  // Workers read each other's host memory.
  Seconds now_{100};
  PageDirectory directory_;
  std::unique_ptr<Dispatcher> dispatcher_;
  uint64_t number_ = 0;
  RouteNote note_;
};

TEST_F(DispatcherRoutesTest, TheNextTurnGoesToThePrefixUnlessItsWorkerIsBusy) {
  Join({kFirst, kSecond});
  const Request turn = Prompt(1009);
  directory_.Stored(kSecond, Tier::kDevice, Pages(turn));
  EXPECT_EQ(Target(turn), kSecond);
  EXPECT_EQ(note_.prompt_tokens, 1009);
  EXPECT_EQ(note_.at, now_);
  EXPECT_EQ(note_.choice.options.size(), 2u);
  FirstToken(kSecond, {63, 0, 0, 0});
  dispatcher_->Report(kSecond, Rates(), 2000, now_);  // Two seconds of another gateway's prompts
  EXPECT_EQ(Target(turn), kFirst);
}

TEST_F(DispatcherRoutesTest, ABurstOfEqualPromptsGoesWhereTheFirstWent) {
  Join({kFirst, kSecond, kThird});
  std::vector<NodeId> targets;
  for (int i = 0; i < 8; ++i) targets.push_back(Target(Prompt(1009)));
  EXPECT_THAT(targets, Each(targets[0]));
  EXPECT_EQ(note_.choice.chosen.at.awaited, 1008);
  // One prompt's work is there, and seven last tokens.
  EXPECT_NEAR(note_.choice.chosen.times().queue.value, 1.009 + 6 * 1e-3, 1e-9);
  // Other prompts go elsewhere,
  EXPECT_NE(Target(Prompt(1009, 5000)), targets[0]);
}

TEST_F(DispatcherRoutesTest, ABurstIsNotFollowedWhereWaitingIsWorse) {
  Join({kFirst, kSecond});
  const NodeId first = Target(Prompt(1009));
  dispatcher_->Report(first, Rates(), 3000, now_);
  EXPECT_NE(Target(Prompt(1009)), first);
}

// A worker reports all of a prompt as to be computed until it has looked what it has of it.
TEST_F(DispatcherRoutesTest, AHitThatWaitsIsNotTakenForAnothersPrompt) {
  Join({kFirst, kSecond});
  const Request turn = Prompt(1009);
  directory_.Stored(kSecond, Tier::kDevice, Pages(turn));
  for (int i = 0; i < 3; ++i) EXPECT_EQ(Target(turn), kSecond);
  dispatcher_->Report(kSecond, Rates(), 3 * 1009, now_);
  EXPECT_NEAR(Submit(turn).at.times.queue.value, 3e-3, 1e-9);
  dispatcher_->Report(kSecond, Rates(), 4 * 1009 + 500, now_);
  EXPECT_NEAR(Submit(turn).at.times.queue.value, 4e-3 + 0.5, 1e-9);
}

// It counts the tokens of a step that runs until the step ends.
TEST_F(DispatcherRoutesTest, AStepThatRunsIsNotTakenForAnothersPrompt) {
  Join({kFirst});
  Submit(Prompt(1009));
  now_ += Seconds(0.5);
  dispatcher_->Report(kFirst, Rates(), 1009, now_);
  EXPECT_NEAR(Submit(Prompt(1009, 5000)).at.times.queue.value, 0.509, 1e-9);
}

TEST_F(DispatcherRoutesTest, APromiseEndsWithItsTime) {
  Join({kFirst, kSecond});
  Target(Prompt(1009));
  // Its worker, which tells of no pages, has other work by then.
  FirstToken(note_.choice.chosen.target, {0, 0, 0, 0});
  now_ += Seconds(1.009 * 2 + 1.1);
  EXPECT_EQ(Submit(Prompt(1009)).at.cached, 0);
}

// What nobody computes any more is not waited for.
TEST_F(DispatcherRoutesTest, APromiseEndsWithItsAttempt) {
  Join({kFirst, kSecond});
  const NodeId first = Target(Prompt(1009));
  dispatcher_->Cancel(number_, now_);
  dispatcher_->Report(first, Rates(), 500, now_);
  EXPECT_EQ(Submit(Prompt(1009)).at.awaited, 0);
  EXPECT_NE(note_.choice.chosen.target, first);
}

TEST_F(DispatcherRoutesTest, APromiseEndsWhereItsWorkerRefuses) {
  Join({kFirst, kSecond});
  const NodeId first = Target(Prompt(1009));
  const RefusedMessage refused{{kSelf, number_, 1}, Error{Code::kUnavailable, "it leaves"}};
  dispatcher_->Receive(first, refused, now_);  // Its next attempt waits a while.
  dispatcher_->Report(first, Rates(), 500, now_);
  EXPECT_EQ(Submit(Prompt(1009)).at.awaited, 0);
  EXPECT_NE(note_.choice.chosen.target, first);
}

TEST_F(DispatcherRoutesTest, APromiseHoldsAsFarAsAnotherPromptIsOnItsWay) {
  Join({kFirst, kSecond});
  const NodeId first = Target(Prompt(1009));
  dispatcher_->Report(first == kFirst ? kSecond : kFirst, Rates(), 3000, now_);
  const uint64_t gone = number_;
  Request half = Prompt(1009);
  std::fill(half.prompt.begin() + 512, half.prompt.end(), 7);
  EXPECT_EQ(Target(half), first);
  const uint64_t other = number_;
  dispatcher_->Cancel(gone, now_);
  EXPECT_EQ(Submit(Prompt(1009)).at.awaited, 512);
  EXPECT_EQ(note_.choice.chosen.target, first);
  dispatcher_->Cancel(number_, now_);
  dispatcher_->Cancel(other, now_);
  EXPECT_EQ(Submit(Prompt(1009)).at.awaited, 0);
}

// One that has computed it has it, whatever becomes of the request.
TEST_F(DispatcherRoutesTest, APromiseOutlivesARequestWhosePromptIsThrough) {
  Join({kFirst, kSecond});
  const NodeId first = Target(Prompt(1009));
  FirstToken(first, {0, 0, 0, 0});
  dispatcher_->Cancel(number_, now_);
  EXPECT_EQ(directory_.FindExactly(first, Pages(Prompt(1009)), now_).promised, 63);
}

TEST_F(DispatcherRoutesTest, WhatWasNotThereIsLearned) {
  Join({kFirst});
  const Request turn = Prompt(1009);
  directory_.Stored(kFirst, Tier::kDevice, First(turn, 31));
  directory_.Stored(kFirst, Tier::kDisk, Pages(turn));
  const double device = directory_.Odds(kFirst, Tier::kDevice);
  const double disk = directory_.Odds(kFirst, Tier::kDisk);
  const RouteOption option = Submit(turn);
  EXPECT_THAT(option.at.from, ElementsAre(496, 0, 512, 0, 0));
  // All of the device's, of the disk's 32 pages none.
  FirstToken(kFirst, {31, 0, 0, 0});
  EXPECT_GT(directory_.Odds(kFirst, Tier::kDevice), device);
  EXPECT_LT(directory_.Odds(kFirst, Tier::kDisk), disk - 0.1);
  // What is known by a promise alone teaches nothing.
  const double before = directory_.Odds(kFirst, Tier::kDevice);
  Submit(Prompt(1009, 5000));
  Submit(Prompt(1009, 5000));
  EXPECT_GT(note_.choice.chosen.at.awaited, 0);
  FirstToken(kFirst, {0, 0, 0, 0});
  EXPECT_EQ(directory_.Odds(kFirst, Tier::kDevice), before);
}

TEST_F(DispatcherRoutesTest, ReadsAheadOnALinkAreWaitedForUntilTheyEnd) {
  Join({kFirst});
  const Request turn = Prompt(1009);
  directory_.Stored(kFirst, Tier::kDisk, Pages(turn));
  EXPECT_EQ(Submit(turn).at.links, Seconds(0));
  const Request other = Prompt(1009, 5000);
  directory_.Stored(kFirst, Tier::kDisk, Pages(other));
  // 63 pages of 1.6 ms; half of them 50.4 ms later.
  EXPECT_NEAR(Submit(other).at.links.value, 0.1008, 1e-6);
  now_ += Seconds(0.0504);
  const Request third = Prompt(1009, 7000);
  directory_.Stored(kFirst, Tier::kDisk, Pages(third));
  EXPECT_NEAR(Submit(third).at.links.value, 0.0504 + 0.1008 * 0.75, 1e-6);
}

TEST_F(DispatcherRoutesTest, ReadersOfThePoolShareIt) {
  Join({kFirst, kSecond});
  CHECK(directory_.Join(kPoolHolder).ok());
  const Request one = Prompt(1009), two = Prompt(1009, 5000);
  directory_.Stored(kPoolHolder, Tier::kRemote, Pages(one));
  directory_.Stored(kPoolHolder, Tier::kRemote, Pages(two));
  const RouteOption first = Submit(one);
  EXPECT_EQ(first.at.from[kPool], 1008);
  EXPECT_NEAR(first.at.reading.value, 0.1008, 1e-6);
  // The other one reads beside it, at what the first one was measured to get alone.
  const RouteOption second = Submit(two);
  EXPECT_NE(second.target, first.target);
  EXPECT_NEAR(second.at.reading.value, 0.2016, 1e-6);
}

TEST_F(DispatcherRoutesTest, RatesOfReadingAreOthersWhereNoneWereMeasured) {
  Join({kFirst, kSecond});
  WorkerRates unknown = Rates();
  unknown.read_measured = {};
  unknown.read[kDisk] = BytesPerSecond(1);
  dispatcher_->Report(kSecond, unknown, 0, now_);
  const Request turn = Prompt(1009);
  directory_.Stored(kSecond, Tier::kDisk, Pages(turn));
  const RouteOption option = Submit(turn);
  EXPECT_EQ(option.target, kSecond);
  EXPECT_NEAR(option.at.reading.value, 0.1008, 1e-6);
}

TEST_F(DispatcherRoutesTest, TotalWeighsThePromptsThatCome) {
  Make({.objective = RouteObjective::kTotal});
  Join({kFirst});
  Submit(Prompt(101));
  // One prompt in ten seconds: 0.1 a second while 101 ms of work are caught up.
  EXPECT_NEAR(note_.choice.chosen.at.delay.value, 0.101 * 0.1 * 0.101, 1e-9);
  now_ += Seconds(10);
  FirstToken(kFirst, {});
  Submit(Prompt(101));
  const double rate = 0.1 + 0.1 * std::exp(-1);
  EXPECT_NEAR(note_.choice.chosen.at.delay.value, 0.101 * (1 + rate * 0.101), 1e-9);
}

TEST_F(DispatcherRoutesTest, AQuantileCountsOnWhatIsAlmostSurelyThere) {
  Make({.quantile = 0.99});
  Join({kFirst, kSecond});
  const Request turn = Prompt(1009);
  directory_.Stored(kSecond, Tier::kDevice, Pages(turn));
  EXPECT_NEAR(Submit(turn).expected().value, 1.009, 1e-9);  // 95 % are assumed.
}

// Its worker is busy: the other one is told where the prefix is.
TEST_F(DispatcherRoutesTest, ABusyWorkersHostMemoryIsReadByAnother) {
  peers_ = true;
  Join({kFirst, kSecond});
  const Request turn = Prompt(1009);
  directory_.Stored(kFirst, Tier::kHost, Pages(turn));
  dispatcher_->Report(kFirst, Rates(), 2000, now_);
  const RouteOption option = Submit(turn);
  EXPECT_EQ(option.target, kSecond);
  EXPECT_EQ(option.at.from[kPeer], 1008);
  EXPECT_EQ(option.at.peer, kFirst);
  EXPECT_NEAR(option.at.reading.value, 0.1008, 1e-6);
  const auto sent = dispatcher_->TakeMessages();
  ASSERT_EQ(sent.size(), 1u);
  const auto* serve = std::get_if<ServeMessage>(&sent[0].message);
  ASSERT_TRUE(serve != nullptr);
  EXPECT_EQ(serve->request.peer, (PrefixPeer{"10.0.0.1:11", 63}));
  const auto name = [](NodeId node) { return "w" + std::to_string(node.value); };
  EXPECT_NE(note_.choice.Text(name).find("1008 peer w11"), std::string::npos);
  // Half of it was there.
  const double odds = directory_.Odds(kFirst, Tier::kPeer);
  const double own = directory_.Odds(kFirst, Tier::kHost);
  FirstToken(kSecond, {0, 0, 0, 0, 31});
  EXPECT_LT(directory_.Odds(kFirst, Tier::kPeer), odds - 0.05);
  EXPECT_EQ(directory_.Odds(kFirst, Tier::kHost), own);
}

TEST_F(DispatcherRoutesTest, ReadersOfAPeerShareItsLink) {
  peers_ = true;
  Join({kFirst, kSecond, kThird});
  const Request one = Prompt(1009), two = Prompt(1009, 5000);
  for (const Request& request : {one, two}) {
    directory_.Stored(kFirst, Tier::kHost, Pages(request));
  }
  dispatcher_->Report(kFirst, Rates(), 3000, now_);
  EXPECT_NEAR(Submit(one).at.reading.value, 0.1008, 1e-6);
  const RouteOption second = Submit(two);
  EXPECT_EQ(second.at.peer, kFirst);
  EXPECT_NEAR(second.at.reading.value, 0.2016, 1e-6);
}

// An attempt that goes elsewhere is not told of what the one before was.
TEST_F(DispatcherRoutesTest, APeerIsOfOneAttempt) {
  peers_ = true;
  Join({kFirst, kSecond});
  const Request turn = Prompt(1009);
  directory_.Stored(kFirst, Tier::kHost, Pages(turn));
  dispatcher_->Report(kFirst, Rates(), 2000, now_);
  ASSERT_EQ(Target(turn), kSecond);
  dispatcher_->TakeMessages();
  dispatcher_->Report(kFirst, Rates(), 0, now_);
  dispatcher_->RemoveWorker(kSecond, now_);
  now_ += Seconds(1);
  dispatcher_->Tick(now_);
  for (const Outgoing& sent : dispatcher_->TakeMessages()) {
    if (const auto* serve = std::get_if<ServeMessage>(&sent.message)) {
      EXPECT_EQ(sent.to, kFirst);
      EXPECT_FALSE(serve->request.peer);
      return;
    }
  }
  ADD_FAILURE() << "it was not tried again";
}

TEST_F(DispatcherRoutesTest, ADecodeWorkersPagesCount) {
  Make({.disaggregate_from = 0});
  Join({kPrefill}, WorkerRole::kPrefill);
  Join({kDecode}, WorkerRole::kDecode);
  const Request turn = Prompt(1009);
  directory_.Stored(kPrefill, Tier::kDevice, First(turn, 60));
  directory_.Stored(kDecode, Tier::kDevice, Pages(turn));
  const RouteOption option = Submit(turn);
  EXPECT_EQ(option.at.cached, 960);
  EXPECT_EQ(option.present, 1008);
}

TEST_F(DispatcherRoutesTest, ExplainsWithoutChangingAnything) {
  Join({kFirst, kSecond});
  const auto choice =
      dispatcher_->Explain({.prompt_tokens = 1009, .held = {{kSecond, Tier::kDisk, 1008}}}, now_);
  ASSERT_TRUE(choice);
  EXPECT_EQ(choice->chosen.target, kSecond);
  EXPECT_EQ(choice->chosen.at.from[kDisk], 1008);
  EXPECT_EQ(dispatcher_->live(), 0);
  EXPECT_TRUE(dispatcher_->TakeChoices().empty());
  const Request turn = Prompt(1009);
  directory_.Stored(kFirst, Tier::kDevice, Pages(turn));
  const auto known = dispatcher_->Explain({.prompt_tokens = 1009, .pages = Pages(turn)}, now_);
  EXPECT_EQ(known->chosen.target, kFirst);
  Make({});
  EXPECT_FALSE(dispatcher_->Explain({.prompt_tokens = 1}, now_));
}

}  // namespace
}  // namespace divisi
