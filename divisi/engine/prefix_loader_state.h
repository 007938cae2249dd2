// The loader's state, shared by prefix_loader.cc (requests and loads that begin) and
// prefix_loader_ends.cc (what becomes of them). Included by those two alone.
#pragma once

#include <array>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "divisi/engine/prefix_loader.h"

namespace divisi {

// Whether the TierManager knows it: the pool's pages, and a peer's, are others' to keep.
inline bool IsOfTiers(Tier tier) { return tier == Tier::kHost || tier == Tier::kDisk; }

struct PrefixLoader::State {
  State(Scheduler& s, const SchedulerOptions& scheduling_options, PrefixLoaderOptions given)
      : scheduler(s),
        scheduling(scheduling_options),
        options(std::move(given)),
        tiers(options.tiers) {}

  // A request that the scheduler has not got yet.
  struct Candidate {
    Request request;
    BlockKey root;
    std::vector<BlockKey> keys;             // Of the prompt's full pages.
    std::array<int64_t, kSources> found{};  // Pages by tier, below the device.
  };
  // One that it has.
  struct Waiting {
    BlockKey root;
    std::vector<BlockKey> keys;
    size_t shareable = 0;  // Of them
    SessionState session = SessionState::kUnknown;
    std::array<int64_t, kSources> found{};  // As of Candidate, without those that did not come.
    std::string peer;                       // Where those of kPeer are
    int64_t loading = 0;                    // Pages that it was given room for.
    int64_t loaded = 0;                     // Of those, that came.
    int64_t present = 0;                    // Pages that the pool held before.
    // Of one that found no room: those that another worker or the remote pool had when it came.
    Tier away = Tier::kRemote;
    size_t away_from = 0, away_until = 0;
    size_t cached = 0;  // Of one that is watched: pages that the pool held
    int64_t answer_tokens = 0;
    bool started = false;
    bool lost = false;  // What was loaded came too late for its step.
  };
  struct Question {
    Candidate candidate;
    int64_t from = 0;  // keys[from...] were asked for.
    Seconds until;     // kAskPool after it was.
  };
  struct Load {
    RequestId request = 0;
    std::vector<LoadOrder::Page> pages;
    std::shared_ptr<LayerGate> gate;
    int preload = 0;                 // Layers that must be there before computing follows.
    std::optional<Seconds> look_at;  // None: not to be followed (any more).
    Seconds read;                    // What reading takes
    bool used = false;  // Its request has ended already, behind the gate: all pages come.
  };

  Result<void> Add(Request request, Seconds now);
  Result<void> AddAtOnce(Candidate candidate, Seconds now);
  void Expect(Seconds now);
  Result<void> Decide(Candidate candidate, const std::vector<Tier>& run, Seconds now);
  bool AddPeer(const Candidate& candidate, size_t from, std::vector<Tier>& run) const;
  int64_t Room() const;
  int64_t Worth(const std::vector<Tier>& run) const;
  Seconds ReadTime(Tier tier) const;
  Seconds ComputeTime(int64_t pages) const;
  Result<void> AddWithoutRoom(Candidate candidate, const std::vector<Tier>& run, int64_t from,
                              Seconds now);
  bool AddAway(const Waiting& waiting, size_t from, std::vector<Tier>& run) const;
  bool LoadLater(RequestId request, Seconds now);
  void LookAgain(Seconds now);
  void WatchCached();
  void TakeStripped();
  void BeginLoad(const PrefixLoad& load, RequestId request, const std::vector<Tier>& run,
                 Seconds now);
  void PlanFollowing(Load& load, Seconds read, Seconds now);
  int64_t Shareable(const Request& request) const;
  void Forget(RequestId request, Seconds now);
  void Start(Waiting& waiting, RequestId request, Seconds now);
  void TakeChanges(Seconds now);
  void TakeTierActions(Seconds now);
  void Follow(Seconds now);
  void GiveUpQuestions(Seconds now);

  Scheduler& scheduler;
  const SchedulerOptions scheduling;
  const PrefixLoaderOptions options;
  TierManager tiers;
  TierSpeeds speeds;
  Seconds lookup;
  std::map<RequestId, Waiting> requests;
  std::deque<RequestId> beyond;        // Those that the tiers do not expect yet, in queue order
  std::deque<RequestId> without_room;  // Those that wait for their turn, and were to be loaded
  bool room_freed = false;             // Since these were looked at
  // Those that wait for their turn with what the pool caches, in the order in which they were found
  // to, and whether any of that may have given way since they were looked at.
  std::deque<RequestId> watched;
  bool pages_removed = false;
  std::map<uint64_t, Question> questions;
  uint64_t last_question = 0;
  std::map<uint64_t, Load> loads;
  std::unordered_set<BlockKey, BlockKeyHash> on_their_way;  // Keys of loads
  std::map<uint64_t, BlockId> saving;                       // Device pages, pinned, by copy
  Seconds backlog;                                          // Of loads, to be read
  int64_t reserved = 0;                                     // Of options.most_loading
  std::vector<LoadOrder> load_orders;
  std::vector<uint64_t> unwanted;  // Loads, under way, of requests that went away
  std::vector<TierAction> actions;
  std::vector<PoolQuestion> pool_questions;
  std::vector<PageChange> changes;
  std::vector<uint64_t> pending_answers;  // Questions that nobody answered
  PrefixLoaderStats counts;
};

}  // namespace divisi
