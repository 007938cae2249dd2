#include "divisi/kv/trace_replay.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <list>
#include <set>

#include "divisi/core/random.h"

namespace divisi {
namespace {

using Trace = std::vector<TraceRequest>;

// Conversations that take turns: each turn sends its chain, grown by some blocks.
Trace Conversations(uint64_t seed, int64_t turns) {
  Random random(seed);
  std::vector<std::vector<uint64_t>> sessions(static_cast<size_t>(random.Between(2, 12)));
  uint64_t next = 1;
  Trace trace;
  for (int64_t turn = 0; turn < turns; ++turn) {
    auto& chain = sessions[random.Next64() % sessions.size()];
    if (chain.size() > 12 || chain.empty()) chain = {0};
    for (int64_t grown = random.Between(0, 3); grown > 0; --grown) chain.push_back(next++);
    trace.push_back({.at = Seconds(0.5 * static_cast<double>(turn)),
                     .blocks = chain,
                     .answer_tokens = random.Between(1, 500)});
  }
  return trace;
}

std::vector<uint64_t> Accesses(const Trace& trace) {
  std::vector<uint64_t> accesses;
  for (const TraceRequest& request : trace) {
    accesses.insert(accesses.end(), request.blocks.begin(), request.blocks.end());
  }
  return accesses;
}

int64_t NaiveLru(const Trace& trace, size_t blocks) {
  std::list<uint64_t> recent;  // Newest first.
  int64_t hits = 0;
  for (const uint64_t block : Accesses(trace)) {
    const auto found = std::ranges::find(recent, block);
    if (found != recent.end()) {
      ++hits;
      recent.erase(found);
    }
    recent.push_front(block);
    if (recent.size() > blocks) recent.pop_back();
  }
  return hits;
}

// Belady: of what is held and the new one, the farthest next use goes.
int64_t NaiveOptimum(const Trace& trace, size_t blocks) {
  const std::vector<uint64_t> accesses = Accesses(trace);
  const auto next_use = [&](uint64_t block, size_t after) {
    const auto next =
        std::find(accesses.begin() + static_cast<int64_t>(after) + 1, accesses.end(), block);
    return static_cast<int64_t>(next - accesses.begin());
  };
  std::set<uint64_t> held;
  int64_t hits = 0;
  for (size_t i = 0; i < accesses.size(); ++i) {
    hits += held.contains(accesses[i]);
    held.insert(accesses[i]);
    if (held.size() <= blocks) continue;
    held.erase(*std::ranges::max_element(
        held, {}, [&](uint64_t block) { return std::pair(next_use(block, i), block); }));
  }
  return hits;
}

int64_t Hits(const Trace& trace, const ReplayOptions& options) {
  return ReplayTrace(trace, options).Hits();
}

TEST(TraceReplayTest, LruAgreesWithAListToTheHit) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE(seed);
    const Trace trace = Conversations(seed, 150);
    for (const int64_t blocks : {1, 2, 7, 30, 1000}) {
      EXPECT_EQ(Hits(trace, {.policy = ReplayPolicy::kLru, .host_blocks = blocks}),
                NaiveLru(trace, static_cast<size_t>(blocks)));
    }
  }
}

TEST(TraceReplayTest, TheOptimumAgreesWithBelady) {
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    SCOPED_TRACE(seed);
    const Trace trace = Conversations(seed, 100);
    for (const int64_t blocks : {3, 10, 25, 60, 1000}) {
      EXPECT_EQ(Hits(trace, {.policy = ReplayPolicy::kOptimum, .host_blocks = blocks}),
                NaiveOptimum(trace, static_cast<size_t>(blocks)));
    }
  }
}

TEST(TraceReplayTest, NoPolicyBeatsTheOptimumAndTheWholeQueueReachesIt) {
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    SCOPED_TRACE(seed);
    const Trace trace = Conversations(seed, 200);
    for (const int64_t blocks : {5, 20, 60}) {
      const int64_t best = Hits(trace, {.policy = ReplayPolicy::kOptimum, .host_blocks = blocks});
      for (const ReplayPolicy policy :
           {ReplayPolicy::kLru, ReplayPolicy::kLfu, ReplayPolicy::kQueue}) {
        EXPECT_LE(Hits(trace, {.policy = policy, .host_blocks = blocks, .lookahead = 8}), best);
      }
      EXPECT_EQ(Hits(trace, {.policy = ReplayPolicy::kQueue,
                             .host_blocks = blocks,
                             .lookahead = static_cast<int64_t>(trace.size())}),
                best);
    }
  }
}

TEST(TraceReplayTest, ChainsAreKeptFromTheirHead) {
  const Trace trace = Conversations(5, 400);
  for (const int64_t lookahead : {0, 8, 64}) {
    const ReplayResult replay = ReplayTrace(
        trace, {.policy = ReplayPolicy::kQueue, .host_blocks = 25, .lookahead = lookahead});
    EXPECT_EQ(replay.prefix_hits, replay.Hits());
  }
}

TEST(TraceReplayTest, ADiskThatTakesAllIsACacheOfItsSize) {
  const Trace trace = Conversations(9, 300);
  const ReplayResult all = ReplayTrace(trace, {.policy = ReplayPolicy::kQueue,
                                               .host_blocks = 20,
                                               .disk_blocks = 10000,
                                               .lookahead = 16,
                                               .disk_writes = DiskWrites::kAll});
  EXPECT_EQ(all.Hits(), NaiveLru(trace, 100000));
  const ReplayResult some = ReplayTrace(trace, {.policy = ReplayPolicy::kQueue,
                                                .host_blocks = 20,
                                                .disk_blocks = 10000,
                                                .lookahead = 16,
                                                .budget = {0.2, 20}});
  EXPECT_LE(some.Hits(), all.Hits());
  EXPECT_LE(some.tiers.disk_writes, 10 + 0.2 * trace.back().at.value);
  EXPECT_GT(some.tiers.disk_writes, 0);
}

TEST(TraceReplayTest, ABlockThatIsNotFullIsNotKept) {
  const Trace trace = {{.blocks = {1, 2}, .last_is_full = false},
                       {.blocks = {1, 2}, .last_is_full = false}};
  EXPECT_EQ(Hits(trace, {.policy = ReplayPolicy::kQueue, .host_blocks = 10}), 1);
  EXPECT_EQ(Hits(trace, {.policy = ReplayPolicy::kLru, .host_blocks = 10}), 2);
}

}  // namespace
}  // namespace divisi
