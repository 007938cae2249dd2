// The scheduler's state, shared by scheduler.cc (requests, commits), scheduler_plan.cc (plans and
// pages) and scheduler_loads.cc (pages that come from elsewhere). Included by those alone.
#pragma once

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "divisi/engine/scheduler.h"
#include "divisi/kv/block_pool.h"

namespace divisi {

// A request inside the scheduler: waiting (with pages only where they were loaded) or running.
struct ScheduledRequest {
  Sequence sequence;
  uint64_t arrival = 0;  // Its place among all requests.
  BlockKey root;         // Of its pages' keys.
  std::vector<BlockId> pages;
  std::vector<BlockKey> keys;  // Of the full pages of `tokens`, as far as needed yet.
  int64_t published = 0;       // Pages already offered for sharing, or taken from there.
  int64_t promised = 0;        // Pages [published, promised) are in `promises_`, or another's are.
  int64_t scored = 0;          // Prompt scores given out.
  int holds = 0;               // Steps it was passed over to share what another computes,
  size_t awaited = 0;          // last for this page.
  bool running = false;
  bool started = false;   // Has run before.
  bool planned = false;   // In the plan in flight.
  bool ended = false;     // To be removed at the end of Commit.
  bool held = false;      // Its prompt is computed for another worker, which has not taken it.
  bool reserved = false;  // Its prompt is computed by another worker.
  bool passed_as_long = false;  // Too long for a step while another prefill is under way.
  bool loading = false;         // Waits for its prefix to be loaded.
  uint64_t load = 0;            // That fills its pages now.
  int64_t loaded_from = 0;      // Pages [loaded_from, loaded_until) of its own a load filled.
  int64_t loaded_until = 0;
  int64_t hit_tokens = 0;           // Counted as found, and of them
  int64_t loaded_tokens = 0;        // as loaded.
  std::shared_ptr<LayerGate> gate;  // Of the load, where it runs before all is there.

  int64_t size() const { return static_cast<int64_t>(sequence.tokens.size()); }
  int64_t remaining() const { return size() - sequence.computed; }
  RequestId id() const { return sequence.request.id; }
  // Output of a request with prompt scores waits for the last of them.
  bool scoring() const {
    return sequence.request.prompt_logprobs >= 0 &&
           scored + 1 < static_cast<int64_t>(sequence.request.prompt.size());
  }
};

class Scheduler::State {
 public:
  explicit State(SchedulerOptions options)
      : options_(std::move(options)),
        limit_(ContextLimit(options_)),
        max_running_(std::min(options_.max_sequences, options_.max_batched_tokens)),
        root_(RootKey(KeySpaceOf(options_, Request{}))),
        pool_(options_.blocks) {
    CHECK(max_running_ >= 1, "max_sequences {}, max_batched_tokens {}", options_.max_sequences,
          options_.max_batched_tokens);
  }

  Result<void> Add(Request request);
  Result<Reservation> Reserve(Request request);
  std::vector<SchedulerEvent> Adopt(RequestId id, SampledToken first);
  std::span<const BlockId> PagesOf(RequestId id) const;
  bool Cancel(RequestId id);
  Result<PrefixLoad> AddLoading(Request request, std::vector<BlockKey> keys, int64_t until);
  Result<PrefixLoad> LoadWaiting(RequestId id, int64_t until);
  void FollowLoad(uint64_t load, std::shared_ptr<LayerGate> gate);
  void EndLoad(uint64_t load, int64_t loaded);
  int64_t CachedPages(std::span<const BlockKey> keys) const;
  int64_t Room() const { return options_.max_waiting - unstarted_; }
  std::vector<PageChange> TakePageChanges() { return std::exchange(changes_, {}); }
  bool Blocked() const { return blocked_ && waiting_.contains(*blocked_); }
  std::vector<RequestId> TakeStripped() { return std::exchange(stripped_, {}); }
  bool PinPage(BlockId block, const BlockKey& key);
  void UnpinPage(BlockId block);
  const StepPlan& Plan();
  std::vector<SchedulerEvent> Commit(std::vector<SliceResult> results);
  bool HasWork() const { return !running_.empty() || !waiting_.empty(); }
  SchedulerStats stats() const;
  void Verify() const;

 private:
  // Plan
  void PlanDecodes();
  void PlanPrefill();
  void Admit();
  bool TryAdmit(ScheduledRequest& entry, bool& blocked);
  void WidenPrefill();
  int64_t RoomFor(const ScheduledRequest& entry) const;
  int64_t ChunkFor(const ScheduledRequest& entry, int64_t left, bool others_wait) const;
  void AddSlice(ScheduledRequest& entry, int64_t count);
  void NotePrefillUnderWay(const ScheduledRequest& entry);
  bool KeepsHolding(ScheduledRequest& entry, size_t page) const;
  void Start(ScheduledRequest& entry, const std::vector<BlockId>& shared);
  void Preempt(ScheduledRequest& entry);
  bool MakeRoom(ScheduledRequest& entry);
  // Pages
  bool TryGrow(ScheduledRequest& entry, int64_t tokens);
  void ReleasePages(ScheduledRequest& entry);
  int64_t ShareablePages(const ScheduledRequest& entry) const;
  std::vector<BlockId> FindShared(ScheduledRequest& entry) const;
  bool PagesFit(const ScheduledRequest& entry, const std::vector<BlockId>& shared) const;
  void PublishFullPages(ScheduledRequest& entry);
  void NoteStored(const ScheduledRequest& entry, size_t page);
  // Loads
  Result<PrefixLoad> BeginLoad(ScheduledRequest& entry, int64_t until);
  void TakeLoaded(ScheduledRequest& entry, int64_t loaded);
  void Detach(ScheduledRequest& entry);
  void Requeue(ScheduledRequest& entry, std::vector<SchedulerEvent>& events);
  bool StripYoungest(uint64_t arrival);
  void CountHolders(std::unordered_map<BlockId, int64_t>& holders) const;
  // Commit
  void TakeResult(ScheduledRequest& entry, const StepSlice& slice, SliceResult result,
                  std::vector<SchedulerEvent>& events);
  void TakeScores(ScheduledRequest& entry, int64_t start, std::vector<SampledToken> scores,
                  std::vector<SchedulerEvent>& events);
  void TakeToken(ScheduledRequest& entry, SampledToken token, std::vector<SchedulerEvent>& events);

  Result<std::unique_ptr<ScheduledRequest>> MakeEntry(Request request);
  // Whether pages are kept by what comes from outside: another worker, a load, who reads them.
  bool Pinned() const { return held_ > 0 || reserved_ > 0 || !loads_.empty() || !pins_.empty(); }
  int64_t BudgetLeft() const { return options_.max_batched_tokens - plan_.tokens; }
  void InsertRunning(ScheduledRequest& entry);
  void EraseRunning(ScheduledRequest& entry);

  const SchedulerOptions options_;
  const int64_t limit_;
  const int64_t max_running_;
  const BlockKey root_;

  BlockPool pool_;
  std::unordered_map<RequestId, std::unique_ptr<ScheduledRequest>> entries_;
  std::map<uint64_t, ScheduledRequest*> waiting_;  // By arrival.
  std::vector<ScheduledRequest*> running_;         // By arrival.
  int64_t unstarted_ = 0;                          // Waiting requests that never ran.
  int64_t held_ = 0;                               // Neither waiting nor running, with pages.
  int64_t reserved_ = 0;                           // The same.
  uint64_t arrivals_ = 0;
  // Pages that a running request is going to compute, and who.
  std::unordered_map<BlockKey, const ScheduledRequest*, BlockKeyHash> promises_;

  // The plan in flight.
  StepPlan plan_;
  std::vector<ScheduledRequest*> planned_;  // One per slice.
  std::vector<SchedulerEvent> plan_events_;
  std::vector<std::unique_ptr<ScheduledRequest>> cancelled_;  // While planned.
  std::optional<size_t> prefill_slice_;  // Of the prefill under way, when it has one.
  bool prefill_under_way_ = false;       // One prefill does not end with this step.
  int64_t pages_owed_ = 0;               // What it will still need.

  // Pages that are being filled, each held here too until the load has ended.
  struct Load {
    std::vector<BlockId> pages;
    ScheduledRequest* entry = nullptr;  // While its pages are for it
  };
  std::map<uint64_t, Load> loads_;
  uint64_t last_load_ = 0;
  int64_t loading_ = 0;  // Entries neither waiting nor running.
  std::unordered_map<BlockId, int64_t> pins_;
  std::vector<PageChange> changes_;
  std::vector<RequestId> stripped_;
  std::optional<uint64_t> blocked_;  // The arrival of who waited for pages in the last step

  int64_t preemptions_ = 0;
  int64_t prefix_queried_ = 0;
  int64_t prefix_hit_ = 0;
  int64_t prefix_loaded_ = 0;
  int64_t lost_prefixes_ = 0;
};

}  // namespace divisi
