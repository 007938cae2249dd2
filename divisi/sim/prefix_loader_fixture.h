// For tests of PrefixLoader: it stands over the real scheduler and tier manager, and tiers are
// maps.
#pragma once

#include <gtest/gtest.h>

#include <deque>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "divisi/engine/prefix_loader.h"
#include "divisi/sim/sim_executor.h"

namespace divisi {

inline std::vector<TokenId> RisingTokens(int64_t count, TokenId first = 0) {
  std::vector<TokenId> tokens;
  for (int64_t i = 0; i < count; ++i) tokens.push_back(static_cast<TokenId>(first + i));
  return tokens;
}

inline Request Prompt(RequestId id, int64_t tokens, TokenId first = 0) {
  return {.id = id, .prompt = RisingTokens(tokens, first), .max_tokens = 3};
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
  using Kind = SchedulerEvent::Kind;

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

inline std::vector<TokenId> Alone(const Request& request) {
  Tiers none;
  HostSetup setup;
  setup.loader.tiers.host_pages = 0;
  Host host(setup, none);
  EXPECT_TRUE(host.Add(request).ok());
  host.RunAll();
  return host.tokens_.at(request.id);
}

// Other prompts push what the pool caches out of it.
inline void PushOut(Host& host) {
  for (RequestId id = 900; id < 903; ++id) {
    ASSERT_TRUE(host.Add(Prompt(id, 100, static_cast<TokenId>(id * 1000))).ok());
    host.RunAll();
  }
}

}  // namespace divisi
