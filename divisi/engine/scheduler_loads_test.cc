// Prefixes that are loaded into a request's pages from elsewhere.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "divisi/core/random.h"
#include "divisi/engine/scheduler.h"
#include "divisi/sim/sim_executor.h"

namespace divisi {
namespace {

using Kind = SchedulerEvent::Kind;
using testing::ElementsAre;
using testing::SizeIs;

std::vector<TokenId> Tokens(int64_t count, TokenId first = 0) {
  std::vector<TokenId> tokens;
  for (int64_t i = 0; i < count; ++i) tokens.push_back(static_cast<TokenId>(first + i));
  return tokens;
}

Request Prompt(RequestId id, int64_t tokens, int64_t max_tokens = 3) {
  return {.id = id, .prompt = Tokens(tokens), .max_tokens = max_tokens};
}

// A scheduler, what stands for its model, and another tier that holds pages by their keys.
struct Host {
  explicit Host(SchedulerOptions given)
      : options(given), scheduler(given), executor({.blocks = given.blocks}) {}

  std::vector<BlockKey> Keys(const Request& request) const {
    std::vector<BlockKey> keys;
    ExtendKeys(RootKey(KeySpaceOf(options, request)), request.prompt,
               request.prompt.size() / kBlockTokens, keys);
    return keys;
  }
  Result<PrefixLoad> AddLoading(const Request& request, int64_t until) {
    return scheduler.AddLoading(request, Keys(request), until);
  }
  // lost: requests whose gates fail in this step.
  std::vector<SchedulerEvent> Step(const std::vector<RequestId>& lost = {}) {
    const StepPlan& plan = scheduler.Plan();
    if (plan.slices.empty()) return {};
    std::vector<SliceResult> results = executor.Execute(plan);
    for (size_t i = 0; i < results.size(); ++i) {
      results[i].lost = std::ranges::count(lost, plan.slices[i].sequence->request.id) > 0;
    }
    auto events = scheduler.Commit(std::move(results));
    scheduler.Verify();
    for (const PageChange& change : scheduler.TakePageChanges()) {
      if (change.kind == PageChange::Kind::kStored) Save(change);
    }
    return events;
  }
  void Save(const PageChange& page) { tier[page.key] = executor.ReadPage(page.block); }
  void Fill(const PrefixLoad& load, const Request& request) {
    const std::vector<BlockKey> keys = Keys(request);
    for (size_t i = 0; i < load.pages.size(); ++i) {
      executor.WritePage(load.pages[i], tier.at(keys[static_cast<size_t>(load.present) + i]));
    }
  }
  std::map<RequestId, std::vector<TokenId>> RunAll() {
    std::map<RequestId, std::vector<TokenId>> tokens;
    while (scheduler.HasWork()) {
      const auto events = Step();
      EXPECT_FALSE(events.empty()) << "no progress";
      if (events.empty()) return tokens;
      for (const SchedulerEvent& event : events) {
        if (event.kind == Kind::kToken) tokens[event.request].push_back(event.token.token);
      }
    }
    return tokens;
  }

  SchedulerOptions options;
  Scheduler scheduler;
  SimExecutor executor;
  std::map<BlockKey, std::vector<std::byte>> tier;
};

const SchedulerOptions kOptions{.max_batched_tokens = 64, .blocks = 12, .report_pages = true};

// One whose tier holds the pages of Prompt(., 50) and whose pool does not.
struct HostWithTier : Host {
  explicit HostWithTier(SchedulerOptions options = kOptions) : Host(options) {
    Host first(kOptions);
    EXPECT_TRUE(first.scheduler.Add(Prompt(1, 50, 1)).ok());
    first.RunAll();
    tier = first.tier;
  }
};

std::vector<TokenId> Alone(const Request& request) {
  Host host({.max_batched_tokens = 64, .blocks = 100});
  EXPECT_TRUE(host.scheduler.Add(request).ok());
  return host.RunAll()[request.id];
}

TEST(SchedulerLoadsTest, ALoadedPrefixGivesTheSameTokens) {
  HostWithTier host;
  const Request request = Prompt(7, 50);
  const PrefixLoad load = host.AddLoading(request, 3).value();
  EXPECT_EQ(load.present, 0);
  EXPECT_THAT(load.pages, SizeIs(3));
  host.scheduler.Verify();
  EXPECT_FALSE(host.scheduler.HasWork());
  EXPECT_EQ(host.scheduler.stats().loading, 1);
  host.Fill(load, request);
  host.scheduler.EndLoad(load.id, 3);
  host.scheduler.Verify();
  const auto tokens = host.RunAll();
  EXPECT_EQ(tokens.at(7), Alone(request));
  EXPECT_EQ(host.scheduler.stats().prefix_hit_tokens, 48);
  EXPECT_EQ(host.scheduler.stats().prefix_loaded_tokens, 48);
  EXPECT_EQ(host.executor.first_fault(), "");
  EXPECT_EQ(host.scheduler.stats().blocks_used, 0);
}

TEST(SchedulerLoadsTest, PagesThatDidNotComeAreComputed) {
  for (int64_t came = 0; came <= 3; ++came) {
    HostWithTier host;
    const Request request = Prompt(7, 50);
    const PrefixLoad load = host.AddLoading(request, 3).value();
    host.Fill(load, request);
    host.scheduler.EndLoad(load.id, came);
    host.scheduler.Verify();
    EXPECT_EQ(host.RunAll().at(7), Alone(request));
    EXPECT_EQ(host.scheduler.stats().prefix_hit_tokens, came * 16);
    EXPECT_EQ(host.scheduler.stats().blocks_used, 0);
  }
}

TEST(SchedulerLoadsTest, RunsWhileItsPagesAreFilled) {
  HostWithTier host;
  const Request request = Prompt(7, 50);
  const PrefixLoad load = host.AddLoading(request, 3).value();
  host.scheduler.FollowLoad(load.id, nullptr);
  host.scheduler.Verify();
  host.Fill(load, request);  // As the layers of the step would find it.
  EXPECT_THAT(host.Step().front().cached_tokens, 48);
  host.scheduler.EndLoad(load.id, 3);
  host.scheduler.Verify();
  EXPECT_EQ(host.scheduler.CachedPages(host.Keys(request)), 3);
}

// Its layers were all there before the load was heard to have ended.
TEST(SchedulerLoadsTest, AHeldPromptKeepsItsPagesWhenTheLoadBehindItEnds) {
  HostWithTier host;
  Request request = Prompt(7, 50);
  request.hold_after_prompt = true;
  const PrefixLoad load = host.AddLoading(request, 2).value();
  host.scheduler.FollowLoad(load.id, nullptr);
  host.Fill(load, request);
  host.Step();
  EXPECT_EQ(host.scheduler.PagesOf(7).size(), 4);
  host.scheduler.EndLoad(load.id, 2);
  host.scheduler.Verify();
  EXPECT_EQ(host.scheduler.PagesOf(7).size(), 4);
  EXPECT_TRUE(host.scheduler.Cancel(7));
  host.scheduler.Verify();
  EXPECT_EQ(host.scheduler.stats().blocks_used, 0);
}

TEST(SchedulerLoadsTest, ALostPrefixIsComputedAnew) {
  HostWithTier host;
  const Request request = Prompt(7, 50);
  const PrefixLoad load = host.AddLoading(request, 3).value();
  host.scheduler.FollowLoad(load.id, nullptr);
  const auto events = host.Step({7});
  ASSERT_THAT(events, SizeIs(2));
  EXPECT_EQ(events[0].kind, Kind::kScheduled);
  EXPECT_EQ(events[1].kind, Kind::kLost);
  EXPECT_EQ(host.scheduler.CachedPages(host.Keys(request)), 0);
  EXPECT_EQ(host.scheduler.stats().lost_prefixes, 1);
  EXPECT_EQ(host.scheduler.stats().prefix_hit_tokens, 0);
  // Its pages are kept until nothing is written to them any more.
  EXPECT_EQ(host.scheduler.stats().blocks_used, 3);
  EXPECT_EQ(host.RunAll().at(7), Alone(request));
  EXPECT_EQ(host.scheduler.stats().blocks_used, 3);
  host.scheduler.EndLoad(load.id, 0);
  EXPECT_EQ(host.scheduler.stats().blocks_used, 0);
}

TEST(SchedulerLoadsTest, ACancelledRequestsPagesWaitForTheLoad) {
  HostWithTier host;
  const Request request = Prompt(7, 50);
  const PrefixLoad load = host.AddLoading(request, 3).value();
  EXPECT_TRUE(host.scheduler.Cancel(7));
  host.scheduler.Verify();
  EXPECT_EQ(host.scheduler.stats().blocks_used, 3);
  host.scheduler.FollowLoad(load.id, nullptr);
  EXPECT_FALSE(host.scheduler.HasWork());
  host.scheduler.EndLoad(load.id, 3);
  EXPECT_EQ(host.scheduler.stats().blocks_used, 0);
  EXPECT_EQ(host.scheduler.stats().loading, 0);
}

TEST(SchedulerLoadsTest, OthersWaitToShareWhatIsLoaded) {
  HostWithTier host;
  const Request request = Prompt(7, 50);
  const PrefixLoad load = host.AddLoading(request, 3).value();
  ASSERT_TRUE(host.scheduler.Add(Prompt(8, 50)).ok());
  EXPECT_TRUE(host.scheduler.Plan().slices.empty());
  host.Fill(load, request);
  host.scheduler.EndLoad(load.id, 3);
  const auto tokens = host.RunAll();
  EXPECT_EQ(tokens.at(7), tokens.at(8));
  EXPECT_EQ(host.scheduler.stats().prefix_hit_tokens, 96);
}

TEST(SchedulerLoadsTest, KeepsItsPlaceAndGivesItsPagesToWhoIsAhead) {
  HostWithTier host({.max_batched_tokens = 64, .blocks = 5, .report_pages = true});
  Request elder = Prompt(6, 70);
  elder.prompt = Tokens(70, 1000);
  ASSERT_TRUE(host.scheduler.Add(elder).ok());
  const Request request = Prompt(7, 50);
  const PrefixLoad load = host.AddLoading(request, 3).value();
  EXPECT_TRUE(host.scheduler.Plan().slices.empty());  // Pages are lacking while they are filled.
  host.Fill(load, request);
  host.scheduler.EndLoad(load.id, 3);
  EXPECT_EQ(host.Step().front().request, 6);
  const auto tokens = host.RunAll();
  EXPECT_EQ(tokens.at(7), Alone(request));
}

TEST(SchedulerLoadsTest, WithoutPagesNothingIsLoaded) {
  HostWithTier host({.max_batched_tokens = 64, .blocks = 4, .report_pages = true});
  ASSERT_TRUE(host.AddLoading(Prompt(7, 50), 3).ok());
  Request other = Prompt(8, 50);
  other.cache_salt = "other";
  const auto refused = host.AddLoading(other, 3);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, Code::kResourceExhausted);
  EXPECT_TRUE(host.scheduler.Add(other).ok());
}

TEST(SchedulerLoadsTest, ASaltKeepsPagesApart) {
  Host host(kOptions);
  Request salted = Prompt(1, 50, 1);
  salted.cache_salt = "a";
  ASSERT_TRUE(host.scheduler.Add(salted).ok());
  host.RunAll();
  EXPECT_EQ(host.scheduler.CachedPages(host.Keys(salted)), 3);
  EXPECT_EQ(host.scheduler.CachedPages(host.Keys(Prompt(2, 50))), 0);
  ASSERT_TRUE(host.scheduler.Add(Prompt(2, 50, 1)).ok());
  host.RunAll();
  EXPECT_EQ(host.scheduler.stats().prefix_hit_tokens, 0);
}

TEST(SchedulerLoadsTest, TellsWhatIsStoredAndRemoved) {
  Host host({.max_batched_tokens = 64, .blocks = 4, .report_pages = true});
  const Request request = Prompt(1, 33, 1);
  ASSERT_TRUE(host.scheduler.Add(request).ok());
  std::vector<SliceResult> results = host.executor.Execute(host.scheduler.Plan());
  host.scheduler.Commit(std::move(results));
  const std::vector<BlockKey> keys = host.Keys(request);
  auto changes = host.scheduler.TakePageChanges();
  ASSERT_THAT(changes, SizeIs(2));
  EXPECT_EQ(changes[1].key, keys[1]);
  EXPECT_EQ(changes[1].parent, keys[0]);
  EXPECT_EQ(changes[1].position, 16);
  EXPECT_EQ(changes[1].tokens.front(), 16);
  EXPECT_FALSE(changes[1].loaded);
  const BlockId pinned = changes[0].block;
  EXPECT_TRUE(host.scheduler.PinPage(pinned, keys[0]));
  EXPECT_FALSE(host.scheduler.PinPage(pinned, keys[1]));
  Request other = Prompt(2, 47, 1);
  other.prompt = Tokens(47, 500);
  ASSERT_TRUE(host.scheduler.Add(other).ok());
  host.scheduler.Commit(host.executor.Execute(host.scheduler.Plan()));
  changes = host.scheduler.TakePageChanges();
  ASSERT_FALSE(changes.empty());
  EXPECT_EQ(changes[0].kind, PageChange::Kind::kRemoved);
  EXPECT_EQ(changes[0].key, keys[1]);  // The pinned one stays.
  host.scheduler.UnpinPage(pinned);
  host.scheduler.Verify();
}

}  // namespace
}  // namespace divisi
