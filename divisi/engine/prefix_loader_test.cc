// The loader over the real scheduler and tier manager, with tiers that are maps: tokens are those
// of a run without any cache, and every page and every count comes back.
#include "divisi/engine/prefix_loader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>
#include <map>

#include "divisi/core/random.h"
#include "divisi/sim/sim_executor.h"

namespace divisi {
namespace {

using Kind = SchedulerEvent::Kind;

std::vector<TokenId> Tokens(int64_t count, TokenId first = 0) {
  std::vector<TokenId> tokens;
  for (int64_t i = 0; i < count; ++i) tokens.push_back(static_cast<TokenId>(first + i));
  return tokens;
}

Request Prompt(RequestId id, int64_t tokens, TokenId first = 0) {
  return {.id = id, .prompt = Tokens(tokens, first), .max_tokens = 3};
}

struct HostSetup {
  SchedulerOptions scheduler{.max_batched_tokens = 64, .blocks = 12, .report_pages = true};
  PrefixLoaderOptions loader{
      .tiers = {.host_pages = 20, .disk_pages = 100, .disk_writes = DiskWrites::kAll},
      .page = Bytes(1000),
      .layers = 1,
      .most_loading = 8};
};

// A process: its pool, and tiers that another life of it can have too.
struct Tiers {
  std::map<BlockKey, std::vector<std::byte>> of[kSources];
};

class Host {
 public:
  Host(const HostSetup& setup, Tiers& tiers)
      : tiers_(tiers),
        scheduler_(setup.scheduler),
        loader_(scheduler_, setup.scheduler, setup.loader),
        executor_({.blocks = setup.scheduler.blocks}) {}

  Result<void> Add(Request request) { return loader_.Add(std::move(request), now_); }
  bool Cancel(RequestId id) { return loader_.Cancel(id, now_) || scheduler_.Cancel(id); }

  // What tiers do at once; loads and questions wait for Carry.
  void Tick() {
    now_ += Seconds(0.001);
    loader_.Tick(now_);
    for (LoadOrder& order : loader_.TakeLoads()) loads_.push_back(std::move(order));
    for (PoolQuestion& question : loader_.TakeQuestions())
      questions_.push_back(std::move(question));
    while (true) {
      const auto actions = loader_.TakeActions();
      if (actions.empty()) break;
      for (const TierAction& action : actions) Act(action);
      loader_.Tick(now_);
    }
  }
  void Answer() {
    for (const PoolQuestion& question : std::exchange(questions_, {})) {
      std::vector<bool> have;
      for (const BlockKey& key : question.keys) have.push_back(In(Tier::kRemote).contains(key));
      loader_.PoolAnswered(question.id, have, now_);
    }
    Tick();
  }
  // The oldest load; of its pages the first `most` come.
  void Carry(int64_t most = 1000) {
    const LoadOrder order = std::move(loads_.front());
    loads_.pop_front();
    LoadOutcome outcome{.id = order.id};
    for (const LoadOrder::Page& page : order.pages) {
      const auto found = In(page.tier).find(page.key);
      if (found == In(page.tier).end() || outcome.pages >= most) {
        outcome.bad.push_back({page.key, page.tier});
        break;
      }
      executor_.WritePage(page.block, found->second);
      ++outcome.pages;
    }
    if (outcome.bad.empty()) order.gate->Open(1);
    loader_.LoadEnded(outcome);
    Tick();
  }
  bool Step() {
    Tick();
    const StepPlan& plan = scheduler_.Plan();
    if (plan.slices.empty()) return false;
    const auto events = scheduler_.Commit(executor_.Execute(plan));
    for (const SchedulerEvent& event : events) {
      if (event.kind != Kind::kScheduled) continue;
      found_[event.request] = loader_.Found(event.request, event.cached_tokens / kBlockTokens);
    }
    loader_.Note(events, now_);
    for (const SchedulerEvent& event : events) {
      if (event.kind == Kind::kToken) tokens_[event.request].push_back(event.token.token);
      if (event.kind == Kind::kScheduled) cached_[event.request] = event.cached_tokens;
    }
    Tick();
    scheduler_.Verify();
    loader_.Verify();
    return true;
  }
  void RunAll() {
    Tick();
    while (scheduler_.HasWork() || !loads_.empty() || !questions_.empty()) {
      if (!questions_.empty()) Answer();
      if (!loads_.empty()) Carry();
      Step();
    }
    EXPECT_EQ(scheduler_.stats().blocks_used, 0);
    EXPECT_EQ(loader_.stats().loading_pages, 0);
    EXPECT_EQ(executor_.first_fault(), "");
  }

  std::map<BlockKey, std::vector<std::byte>>& In(Tier tier) {
    return tiers_.of[static_cast<size_t>(tier)];
  }
  Tiers& tiers_;
  Scheduler scheduler_;
  PrefixLoader loader_;
  SimExecutor executor_;
  std::deque<LoadOrder> loads_;
  std::vector<PoolQuestion> questions_;
  std::map<RequestId, std::vector<TokenId>> tokens_;
  std::map<RequestId, int64_t> cached_;
  std::map<RequestId, std::array<int64_t, kSources>> found_;
  Seconds now_;

 private:
  void Act(const TierAction& action) {
    const BlockKey& key = action.page.key;
    if (action.kind == TierAction::Kind::kRemove) {
      In(action.from).erase(key);
      return;
    }
    const bool device = action.from == Tier::kDevice;
    In(action.to)[key] = device ? executor_.ReadPage(action.block) : In(action.from).at(key);
    loader_.SaveEnded(action.id, true, now_);
  }
};

std::vector<TokenId> Alone(const Request& request) {
  Tiers none;
  HostSetup setup;
  setup.loader.tiers.host_pages = 0;
  Host host(setup, none);
  EXPECT_TRUE(host.Add(request).ok());
  host.RunAll();
  return host.tokens_.at(request.id);
}

// Other prompts push what the pool caches out of it.
void PushOut(Host& host) {
  for (RequestId id = 900; id < 903; ++id) {
    ASSERT_TRUE(host.Add(Prompt(id, 100, static_cast<TokenId>(id * 1000))).ok());
    host.RunAll();
  }
}

TEST(PrefixLoaderTest, APrefixComesBackFromHostMemory) {
  Tiers tiers;
  HostSetup setup;
  setup.loader.tiers.host_pages = 100;
  Host host(setup, tiers);
  ASSERT_TRUE(host.Add(Prompt(1, 70)).ok());
  host.RunAll();
  PushOut(host);
  ASSERT_TRUE(host.Add(Prompt(2, 70)).ok());
  EXPECT_EQ(host.loader_.stats().loading_pages, 4);
  host.RunAll();
  EXPECT_EQ(host.cached_.at(2), 64);
  EXPECT_EQ(host.tokens_.at(2), Alone(Prompt(2, 70)));
  EXPECT_EQ(host.loader_.stats().pages_read, 4);
  EXPECT_EQ(host.loader_.stats().pages_used, 4);
  EXPECT_EQ(host.found_.at(1), (std::array<int64_t, kSources>{0, 0, 0, 0}));
  EXPECT_EQ(host.found_.at(2), (std::array<int64_t, kSources>{0, 4, 0, 0}));
  // They are on the device now.
  ASSERT_TRUE(host.Add(Prompt(3, 70)).ok());
  host.RunAll();
  EXPECT_EQ(host.found_.at(3), (std::array<int64_t, kSources>{4, 0, 0, 0}));
}

TEST(PrefixLoaderTest, PagesThatDoNotComeAreComputedAndNotAskedForAgain) {
  Tiers tiers;
  HostSetup setup;
  setup.loader.tiers.host_pages = 100;
  Host host(setup, tiers);
  ASSERT_TRUE(host.Add(Prompt(1, 70)).ok());
  host.RunAll();
  PushOut(host);
  ASSERT_TRUE(host.Add(Prompt(2, 70)).ok());
  host.Tick();
  host.Carry(1);
  host.RunAll();
  EXPECT_EQ(host.cached_.at(2), 16);
  EXPECT_EQ(host.tokens_.at(2), Alone(Prompt(2, 70)));
  EXPECT_EQ(host.loader_.stats().loads_failed, 1);
  EXPECT_EQ(host.loader_.stats().pages_read, 1);
  EXPECT_EQ(host.found_.at(2), (std::array<int64_t, kSources>{0, 1, 0, 0}));
}

TEST(PrefixLoaderTest, WhatAnotherHostPutIntoThePoolIsFound) {
  Tiers tiers;
  HostSetup setup;
  setup.loader.tiers = {.pool = true};
  setup.loader.tiers.host_pages = 4;
  Host first(setup, tiers);
  ASSERT_TRUE(first.Add(Prompt(1, 70)).ok());
  first.RunAll();
  EXPECT_GE(first.In(Tier::kRemote).size(), 4);
  Tiers others;
  others.of[3] = tiers.of[3];
  Host second(setup, others);
  ASSERT_TRUE(second.Add(Prompt(2, 70)).ok());
  EXPECT_EQ(second.loader_.asking(), 1);
  EXPECT_EQ(second.loader_.lookup(), Seconds(0));
  second.now_ += Seconds(0.004);
  second.RunAll();
  EXPECT_NEAR(second.loader_.lookup().value, 0.005, 1e-12);  // A tick is 1 ms.
  EXPECT_EQ(second.found_.at(2), (std::array<int64_t, kSources>{0, 0, 0, 4}));
  EXPECT_EQ(second.cached_.at(2), 64);
  EXPECT_EQ(second.tokens_.at(2), Alone(Prompt(2, 70)));
}

// Another worker's host memory goes on where this one's ends, and what came is kept here, too.
TEST(PrefixLoaderTest, APeersPagesAreReadAndKept) {
  Tiers tiers;
  HostSetup setup;
  Host first(setup, tiers);
  ASSERT_TRUE(first.Add(Prompt(1, 70)).ok());
  first.RunAll();
  Tiers others;
  others.of[4] = tiers.of[1];
  setup.loader.peers = true;
  setup.loader.tiers.host_pages = 100;
  Host second(setup, others);
  Request request = Prompt(2, 70);
  request.peer = PrefixPeer{.address = "10.0.0.1:7", .pages = 3};
  ASSERT_TRUE(second.Add(request).ok());
  second.Tick();
  ASSERT_EQ(second.loads_.size(), 1u);
  EXPECT_EQ(second.loads_[0].peer, "10.0.0.1:7");
  second.RunAll();
  EXPECT_EQ(second.found_.at(2), (std::array<int64_t, kSources>{0, 0, 0, 0, 3}));
  EXPECT_EQ(second.cached_.at(2), 48);
  EXPECT_EQ(second.tokens_.at(2), Alone(Prompt(2, 70)));
  EXPECT_EQ(second.In(Tier::kHost).size(), 4) << "three came, one was computed";
  PushOut(second);
  second.In(Tier::kPeer).clear();
  request.id = 3;
  ASSERT_TRUE(second.Add(request).ok());
  second.RunAll();
  EXPECT_EQ(second.found_.at(3), (std::array<int64_t, kSources>{0, 4, 0, 0, 0}));
}

TEST(PrefixLoaderTest, APeerThatLacksPagesOrHasThemDamagedCostsTheirComputing) {
  Tiers tiers;
  HostSetup setup;
  Host first(setup, tiers);
  ASSERT_TRUE(first.Add(Prompt(1, 70)).ok());
  first.RunAll();
  setup.loader = {.tiers = {}, .page = Bytes(1000), .most_loading = 8, .peers = true};
  setup.loader.tiers.pool = true;  // Which is not asked.
  Tiers others;
  others.of[4] = tiers.of[1];
  Host second(setup, others);
  Request request = Prompt(2, 70);
  request.peer = PrefixPeer{.address = "10.0.0.1:7", .pages = 99};
  ASSERT_TRUE(second.Add(request).ok());
  EXPECT_EQ(second.loader_.asking(), 0);
  second.Tick();
  second.Carry(2);  // The third is damaged.
  second.RunAll();
  EXPECT_EQ(second.found_.at(2), (std::array<int64_t, kSources>{0, 0, 0, 0, 2}));
  EXPECT_EQ(second.tokens_.at(2), Alone(Prompt(2, 70)));
  // It is not asked for again.
  PushOut(second);
  second.In(Tier::kRemote).clear();
  request.id = 3;
  ASSERT_TRUE(second.Add(request).ok());
  second.RunAll();
  EXPECT_EQ(second.found_.at(3), (std::array<int64_t, kSources>{0, 0, 0, 0, 2}));
  EXPECT_EQ(second.tokens_.at(3), Alone(Prompt(2, 70)));
}

// Who does not read others' memory computes.
TEST(PrefixLoaderTest, APeerIsNothingToAWorkerWithoutThatTier) {
  Tiers tiers;
  HostSetup setup;
  Host host(setup, tiers);
  Request request = Prompt(1, 70);
  request.peer = PrefixPeer{.address = "10.0.0.1:7", .pages = 4};
  ASSERT_TRUE(host.Add(request).ok());
  host.RunAll();
  EXPECT_EQ(host.cached_.at(1), 0);
  EXPECT_EQ(host.loader_.stats().loads, 0);
}

TEST(PrefixLoaderTest, APoolServesWithoutHostMemory) {
  Tiers tiers;
  HostSetup setup;
  setup.loader.tiers = {.pool = true};
  Host first(setup, tiers);
  ASSERT_TRUE(first.Add(Prompt(1, 70)).ok());
  first.RunAll();
  EXPECT_EQ(first.In(Tier::kRemote).size(), 4);
  Host second(setup, tiers);
  ASSERT_TRUE(second.Add(Prompt(2, 70)).ok());
  second.RunAll();
  EXPECT_EQ(second.cached_.at(2), 64);
  EXPECT_EQ(second.tokens_.at(2), Alone(Prompt(2, 70)));
  EXPECT_EQ(second.loader_.stats().tiers.pool_puts, 0);  // They are there.
}

TEST(PrefixLoaderTest, WhatCameFromThePoolIsInHostMemoryNextTime) {
  Tiers tiers;
  HostSetup setup;
  setup.loader.tiers = {.host_pages = 100, .pool = true};
  Host first(setup, tiers);
  ASSERT_TRUE(first.Add(Prompt(1, 70)).ok());
  first.RunAll();
  Tiers others;
  others.of[3] = tiers.of[3];
  Host second(setup, others);
  ASSERT_TRUE(second.Add(Prompt(2, 70)).ok());
  second.RunAll();
  EXPECT_EQ(second.cached_.at(2), 64);
  EXPECT_EQ(second.In(Tier::kHost).size(), 4);
  EXPECT_EQ(second.loader_.stats().tiers.pool_puts, 0);
  PushOut(second);
  second.In(Tier::kRemote).clear();
  ASSERT_TRUE(second.Add(Prompt(3, 70)).ok());
  second.RunAll();
  EXPECT_EQ(second.cached_.at(3), 64);
}

TEST(PrefixLoaderTest, ADamagedPageOfThePoolIsComputedAndPutAnew) {
  Tiers tiers;
  HostSetup setup;
  setup.loader.tiers = {.pool = true};
  Host first(setup, tiers);
  ASSERT_TRUE(first.Add(Prompt(1, 70)).ok());
  first.RunAll();
  Host second(setup, tiers);
  ASSERT_TRUE(second.Add(Prompt(2, 70)).ok());
  second.Tick();
  second.Answer();
  second.Carry(2);  // The third is bad.
  second.RunAll();
  EXPECT_EQ(second.cached_.at(2), 32);
  EXPECT_EQ(second.tokens_.at(2), Alone(Prompt(2, 70)));
  EXPECT_EQ(second.loader_.stats().tiers.bad_objects, 1);
  EXPECT_EQ(second.loader_.stats().tiers.pool_puts, 1);
  PushOut(second);
  ASSERT_TRUE(second.Add(Prompt(3, 70)).ok());
  second.RunAll();
  EXPECT_EQ(second.cached_.at(3), 64);
}

TEST(PrefixLoaderTest, APoolThatDoesNotAnswerCostsItsBound) {
  Tiers tiers;
  HostSetup setup;
  setup.loader.tiers = {.host_pages = 4, .pool = true};
  Host host(setup, tiers);
  ASSERT_TRUE(host.Add(Prompt(1, 70)).ok());
  host.Tick();
  host.questions_.clear();
  EXPECT_FALSE(host.Step());
  host.now_ = *host.loader_.NextTimer();
  EXPECT_TRUE(host.Step());
  EXPECT_EQ(host.loader_.stats().unanswered, 1);
  host.RunAll();
  EXPECT_EQ(host.tokens_.at(1), Alone(Prompt(1, 70)));
}

TEST(PrefixLoaderTest, WithoutRoomLaterRequestsComputeAtOnce) {
  Tiers tiers;
  HostSetup setup;
  setup.scheduler.blocks = 60;
  setup.loader.tiers.host_pages = 200;
  setup.loader.most_loading = 8;
  Host host(setup, tiers);
  for (RequestId id = 1; id <= 4; ++id) {
    ASSERT_TRUE(host.Add(Prompt(id, 70, static_cast<TokenId>(id * 1000))).ok());
  }
  host.RunAll();
  for (RequestId id = 900; id < 910; ++id) {
    ASSERT_TRUE(host.Add(Prompt(id, 100, static_cast<TokenId>(id * 1000))).ok());
    host.RunAll();
  }
  for (RequestId id = 11; id <= 14; ++id) {
    ASSERT_TRUE(host.Add(Prompt(id, 70, static_cast<TokenId>((id - 10) * 1000))).ok());
  }
  EXPECT_EQ(host.loader_.stats().loading_pages, 8);
  EXPECT_EQ(host.loader_.stats().no_room, 2);
  host.RunAll();
  for (RequestId id = 11; id <= 14; ++id) EXPECT_EQ(host.tokens_.at(id), host.tokens_.at(id - 10));
}

TEST(PrefixLoaderTest, WhoStillWaitsWhenThereIsRoomIsLoaded) {
  Tiers tiers;
  HostSetup setup;
  setup.scheduler.blocks = 60;
  setup.scheduler.max_sequences = 1;
  setup.loader.tiers.host_pages = 200;
  setup.loader.most_loading = 4;
  Host host(setup, tiers);
  for (RequestId id = 1; id <= 3; ++id) {
    ASSERT_TRUE(host.Add(Prompt(id, 70, static_cast<TokenId>(id * 1000))).ok());
  }
  host.RunAll();
  for (RequestId id = 900; id < 910; ++id) {
    ASSERT_TRUE(host.Add(Prompt(id, 100, static_cast<TokenId>(id * 1000))).ok());
    host.RunAll();
  }
  for (RequestId id = 11; id <= 13; ++id) {
    ASSERT_TRUE(host.Add(Prompt(id, 70, static_cast<TokenId>((id - 10) * 1000))).ok());
  }
  EXPECT_EQ(host.loader_.stats().no_room, 2);
  host.Tick();
  host.Carry();
  ASSERT_TRUE(host.Step());  // 11 begins, so there is room, and 12 and 13 wait for it.
  EXPECT_EQ(host.loader_.stats().loaded_later, 1);
  host.RunAll();
  EXPECT_EQ(host.loader_.stats().loaded_later, 2);
  for (RequestId id = 11; id <= 13; ++id) {
    EXPECT_EQ(host.tokens_.at(id), host.tokens_.at(id - 10));
    EXPECT_EQ(host.cached_.at(id), 64) << id;
    EXPECT_EQ(host.found_.at(id), (std::array<int64_t, kSources>{0, 4, 0, 0})) << id;
  }
}

TEST(PrefixLoaderTest, AloneAPrefixMayBeLargerThanTheRoomForLoads) {
  Tiers tiers;
  HostSetup setup;
  setup.loader.tiers.host_pages = 100;
  setup.loader.most_loading = 4;
  Host host(setup, tiers);
  ASSERT_TRUE(host.Add(Prompt(1, 150)).ok());
  host.RunAll();
  PushOut(host);
  ASSERT_TRUE(host.Add(Prompt(2, 150)).ok());
  EXPECT_EQ(host.loader_.stats().loading_pages, 9);
  host.RunAll();
  EXPECT_EQ(host.cached_.at(2), 144);
  EXPECT_EQ(host.tokens_.at(2), Alone(Prompt(2, 150)));
}

TEST(PrefixLoaderTest, ReadingThatTakesLongerThanComputingIsNotBegun) {
  Tiers tiers;
  HostSetup setup;
  setup.loader.tiers.host_pages = 100;
  Host host(setup, tiers);
  ASSERT_TRUE(host.Add(Prompt(1, 70)).ok());
  host.RunAll();
  PushOut(host);
  host.loader_.SetSpeeds({.host = BytesPerSecond(1000), .per_token = Seconds(0.01)});
  ASSERT_TRUE(host.Add(Prompt(2, 70)).ok());
  EXPECT_EQ(host.loader_.stats().not_worth, 1);
  host.RunAll();
  EXPECT_EQ(host.cached_.at(2), 0);
}

TEST(PrefixLoaderTest, WhatTheLookAheadHadNoPlaceForIsExpectedLater) {
  Tiers tiers;
  HostSetup setup;
  setup.scheduler.max_sequences = 1;
  setup.loader.tiers.lookahead = 1;
  Host host(setup, tiers);
  for (RequestId id = 1; id <= 3; ++id) {
    ASSERT_TRUE(host.Add(Prompt(id, 16 + 16 * id, static_cast<TokenId>(id * 1000))).ok());
  }
  EXPECT_TRUE(host.Cancel(2));
  EXPECT_EQ(host.loader_.stats().tiers.awaited_pages, 2);
  EXPECT_TRUE(host.Step());
  EXPECT_EQ(host.loader_.stats().tiers.awaited_pages, 4);
  host.RunAll();
  EXPECT_EQ(host.loader_.stats().tiers.awaited_pages, 0);
}

// Random arrivals, cancellations, failures and late answers: tokens stay, counts return to zero.
TEST(PrefixLoaderTest, RandomLoad) {
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    Tiers tiers;
    HostSetup setup;
    setup.scheduler.blocks = random.Between(9, 30);
    setup.loader.tiers.host_pages = random.Between(0, 30);
    setup.loader.tiers.disk_pages = random.Between(0, 60);
    setup.loader.tiers.pool = random.Chance(0.5);
    setup.loader.most_loading = random.Between(0, 20);
    Host host(setup, tiers);
    std::map<RequestId, Request> asked;
    std::vector<RequestId> cancelled;
    for (RequestId id = 1; id <= 60; ++id) {
      Request request =
          Prompt(id, random.Between(1, 120), static_cast<TokenId>(random.Between(0, 3) * 1000));
      if (host.Add(request).ok()) asked[id] = request;
      for (int64_t i = random.Between(0, 4); i > 0; --i) {
        host.Tick();
        if (!host.questions_.empty() && random.Chance(0.7)) host.Answer();
        if (!host.loads_.empty() && random.Chance(0.7)) {
          host.Carry(random.Chance(0.3) ? random.Between(0, 2) : 1000);
        }
        host.Step();
      }
      if (!random.Chance(0.1) || asked.empty()) continue;
      const RequestId victim = random.Between(1, static_cast<int64_t>(id));
      if (host.Cancel(victim)) asked.erase(victim);
    }
    for (int64_t i = 0; i < 100; ++i) host.Tick();
    host.RunAll();
    for (const auto& [id, request] : asked) {
      ASSERT_EQ(host.tokens_[id], Alone(request)) << "request " << id;
    }
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace divisi
