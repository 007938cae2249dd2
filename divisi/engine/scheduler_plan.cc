#include <algorithm>

#include "divisi/core/check.h"
#include "divisi/engine/scheduler_state.h"

namespace divisi {
namespace {

// A prefill that will not end in a step leaves one part in this many of it to shorter prompts.
constexpr int64_t kShortShare = 4;
// Waiting requests looked at and passed over in one Plan: bounds its time when many wait.
constexpr int kMaxPassed = 64;
// Steps that a request waits for another to compute its prefix: a prompt of 128 Ki tokens in chunks
// of 512. Progress would be bounded without it too, by the other's prefill; this keeps a chain of
// such waits from adding up.
constexpr int kMaxHolds = 256;

}  // namespace

// ---- Plan

const StepPlan& Scheduler::State::Plan() {
  CHECK(planned_.empty(), "the last plan is not committed");
  plan_ = {};
  prefill_under_way_ = false;
  prefill_slice_.reset();
  pages_owed_ = 0;
  PlanDecodes();
  PlanPrefill();
  Admit();
  WidenPrefill();
  CHECK(!planned_.empty() || !HasWork() || Pinned(),
        "{} running and {} waiting requests, and no plan", running_.size(), waiting_.size());
  return plan_;
}

void Scheduler::State::PlanDecodes() {
  for (size_t i = 0; i < running_.size(); ++i) {
    ScheduledRequest& entry = *running_[i];
    if (entry.remaining() != 1) continue;
    if (MakeRoom(entry)) AddSlice(entry, 1);
  }
}

// A page for the entry's next token, by preempting the youngest that can be; false when the entry
// does not run on: preempted itself, or waiting for pages that other workers will free.
bool Scheduler::State::MakeRoom(ScheduledRequest& entry) {
  while (!TryGrow(entry, entry.size())) {
    if (StripYoungest(0)) continue;
    const auto youngest = std::find_if(
        running_.rbegin(), running_.rend(),
        [](const ScheduledRequest* other) { return !other->sequence.request.hold_after_prompt; });
    const bool others = running_.size() > 1;
    CHECK(others || Pinned(), "request {} does not fit alone", entry.id());
    if (youngest == running_.rend() || (*youngest)->planned) return false;
    if (*youngest == &entry && !others) return false;
    Preempt(**youngest);
    if (!entry.running) return false;
  }
  return true;
}

void Scheduler::State::PlanPrefill() {
  const auto found =
      std::ranges::find_if(running_, [](const ScheduledRequest* entry) { return !entry->planned; });
  if (found == running_.end()) return;
  ScheduledRequest& entry = **found;
  const int64_t chunk = ChunkFor(entry, BudgetLeft(), !waiting_.empty());
  while (RoomFor(entry) < chunk && StripYoungest(0)) continue;
  const int64_t count = std::min(chunk, RoomFor(entry));
  if (count > 0) {
    CHECK(TryGrow(entry, entry.sequence.computed + count));
    AddSlice(entry, count);
  } else {
    NotePrefillUnderWay(entry);
  }
}

// Tokens that the entry can compute with its pages and all that are to be had.
int64_t Scheduler::State::RoomFor(const ScheduledRequest& entry) const {
  const int64_t pages = static_cast<int64_t>(entry.pages.size()) + pool_.available();
  return pages * kBlockTokens - entry.sequence.computed;
}

// The entry's share of `left` tokens of the step.
int64_t Scheduler::State::ChunkFor(const ScheduledRequest& entry, int64_t left,
                                   bool others_wait) const {
  if (entry.remaining() <= left) return entry.remaining();
  const int64_t chunk = others_wait ? left - left / kShortShare : left;
  // Ends at a page's end where it can: that page is then complete and can be shared.
  const int64_t end = entry.sequence.computed + chunk;
  const int64_t aligned = end - end % kBlockTokens;
  return aligned > entry.sequence.computed ? aligned - entry.sequence.computed : chunk;
}

// Gives the prefill under way what it left to shorter prompts and none of them took.
void Scheduler::State::WidenPrefill() {
  if (!prefill_slice_) return;
  ScheduledRequest& entry = *planned_[*prefill_slice_];
  StepSlice& slice = plan_.slices[*prefill_slice_];
  const int64_t count =
      std::min(ChunkFor(entry, slice.count + BudgetLeft(), false), RoomFor(entry));
  if (count <= slice.count) return;
  CHECK(TryGrow(entry, slice.start + count));
  plan_.tokens += count - slice.count;
  slice.count = count;
  slice.blocks = entry.pages;
  slice.sample = slice.start + count == entry.size();
}

void Scheduler::State::AddSlice(ScheduledRequest& entry, int64_t count) {
  const int64_t start = entry.sequence.computed;
  const bool sample = start + count == entry.size();
  plan_.slices.push_back({.sequence = &entry.sequence,
                          .start = start,
                          .count = count,
                          .blocks = entry.pages,
                          .sample = sample,
                          .gate = entry.gate.get()});
  plan_.tokens += count;
  planned_.push_back(&entry);
  entry.planned = true;
  if (sample) return;
  prefill_slice_ = planned_.size() - 1;
  NotePrefillUnderWay(entry);
}

void Scheduler::State::NotePrefillUnderWay(const ScheduledRequest& entry) {
  CHECK(!prefill_under_way_, "a second prefill under way: request {}", entry.id());
  prefill_under_way_ = true;
  pages_owed_ = PagesFor(entry.size()) - static_cast<int64_t>(entry.pages.size());
}

void Scheduler::State::Preempt(ScheduledRequest& entry) {
  CHECK(!entry.planned, "request {} is planned", entry.id());
  EraseRunning(entry);
  ReleasePages(entry);
  entry.passed_as_long = false;
  waiting_.emplace(entry.arrival, &entry);
  plan_events_.push_back({.kind = SchedulerEvent::Kind::kPreempted, .request = entry.id()});
  ++preemptions_;
}

void Scheduler::State::Admit() {
  int passed = 0;
  bool blocked = false;
  for (auto at = waiting_.begin(); at != waiting_.end() && !blocked && passed < kMaxPassed;) {
    if (BudgetLeft() == 0 || static_cast<int64_t>(running_.size()) >= max_running_) return;
    const bool admitted = TryAdmit(*at->second, blocked);
    blocked_ = blocked ? std::optional(at->first) : std::nullopt;
    if (admitted) {
      at = waiting_.erase(at);
    } else {
      ++at;
      ++passed;
    }
  }
}

// False when the entry goes on waiting; `blocked` then says that those behind it wait too.
bool Scheduler::State::TryAdmit(ScheduledRequest& entry, bool& blocked) {
  if (prefill_under_way_ && entry.passed_as_long) return false;
  if (entry.holds > 0 && KeepsHolding(entry, entry.awaited)) return false;
  const bool has_pages = !entry.pages.empty();  // They were loaded.
  const std::vector<BlockId> shared = has_pages ? std::vector<BlockId>{} : FindShared(entry);
  const size_t next = has_pages ? entry.pages.size() : shared.size();
  const bool may_share = !has_pages && static_cast<int64_t>(next) < ShareablePages(entry);
  if (may_share && KeepsHolding(entry, next)) return false;
  const int64_t uncached = entry.size() - static_cast<int64_t>(next) * kBlockTokens;
  entry.passed_as_long = prefill_under_way_ && uncached > BudgetLeft();
  if (entry.passed_as_long) return false;
  while (!PagesFit(entry, shared)) {
    if (StripYoungest(entry.arrival + 1)) continue;
    blocked = true;
    return false;
  }
  Start(entry, shared);
  const int64_t count = ChunkFor(entry, BudgetLeft(), waiting_.size() > 1);
  CHECK(TryGrow(entry, entry.sequence.computed + count));
  AddSlice(entry, count);
  return true;
}

// Whether the entry waits another step for a page that a running request is about to compute.
bool Scheduler::State::KeepsHolding(ScheduledRequest& entry, size_t page) const {
  if (entry.holds >= kMaxHolds || !promises_.contains(entry.keys[page])) return false;
  entry.awaited = page;
  ++entry.holds;
  return true;
}

void Scheduler::State::Start(ScheduledRequest& entry, const std::vector<BlockId>& shared) {
  if (entry.pages.empty()) {
    for (const BlockId block : shared) pool_.Reference(block);
    entry.pages = shared;
    entry.published = static_cast<int64_t>(shared.size());
    entry.sequence.computed = entry.published * kBlockTokens;
  }
  entry.promised = std::max(entry.published, static_cast<int64_t>(entry.keys.size()));
  for (int64_t page = entry.published; page < entry.promised; ++page) {
    promises_.try_emplace(entry.keys[static_cast<size_t>(page)], &entry);
  }
  InsertRunning(entry);
  if (entry.started) return;
  entry.started = true;
  --unstarted_;
  if (options_.share_prefixes && entry.sequence.request.prompt_logprobs < 0) {
    prefix_queried_ += entry.size();
    entry.hit_tokens = entry.sequence.computed;
    prefix_hit_ += entry.hit_tokens;
    entry.loaded_tokens = (entry.loaded_until - entry.loaded_from) * kBlockTokens;
    prefix_loaded_ += entry.loaded_tokens;
  }
  plan_events_.push_back({.kind = SchedulerEvent::Kind::kScheduled,
                          .request = entry.id(),
                          .cached_tokens = entry.sequence.computed});
}

// ---- Pages

// Pages for the first `tokens` tokens. What it got stays with the entry when it is not enough.
bool Scheduler::State::TryGrow(ScheduledRequest& entry, int64_t tokens) {
  while (static_cast<int64_t>(entry.pages.size()) < PagesFor(tokens)) {
    std::optional<BlockKey> evicted;
    const std::optional<BlockId> block = pool_.Allocate(&evicted);
    if (!block) return false;
    entry.pages.push_back(*block);
    if (evicted && options_.report_pages) {
      changes_.push_back({.kind = PageChange::Kind::kRemoved, .key = *evicted});
    }
  }
  return true;
}

void Scheduler::State::ReleasePages(ScheduledRequest& entry) {
  for (; entry.promised > entry.published; --entry.promised) {
    const auto promise = promises_.find(entry.keys[static_cast<size_t>(entry.promised - 1)]);
    if (promise != promises_.end() && promise->second == &entry) promises_.erase(promise);
  }
  Detach(entry);
  pool_.Release(entry.pages);
  entry.pages.clear();
  entry.published = entry.promised = 0;
  entry.loaded_from = entry.loaded_until = 0;
  entry.sequence.computed = 0;
}

int64_t Scheduler::State::ShareablePages(const ScheduledRequest& entry) const {
  if (!options_.share_prefixes) return 0;
  const int64_t tokens = entry.scoring() ? entry.scored : entry.size() - 1;
  return tokens / kBlockTokens;
}

std::vector<BlockId> Scheduler::State::FindShared(ScheduledRequest& entry) const {
  if (!options_.share_prefixes) return {};
  ExtendKeys(entry.root, entry.sequence.tokens, entry.sequence.tokens.size() / kBlockTokens,
             entry.keys);
  std::vector<BlockId> shared;
  const int64_t most = ShareablePages(entry);
  while (static_cast<int64_t>(shared.size()) < most) {
    const std::optional<BlockId> block = pool_.Find(entry.keys[shared.size()]);
    if (!block) break;
    shared.push_back(*block);
  }
  return shared;
}

// Whether all of the entry's tokens find pages beside what the running requests may soon take. With
// nothing running they do, because CheckRequest let the request in. They do not while the prefill
// under way lacks pages, nor in the step that preempted the entry: it gave up fewer than it needs.
bool Scheduler::State::PagesFit(const ScheduledRequest& entry,
                                const std::vector<BlockId>& shared) const {
  const int64_t revived =
      std::ranges::count_if(shared, [this](BlockId block) { return pool_.references(block) == 0; });
  const auto has = static_cast<int64_t>(shared.size() + entry.pages.size());
  const int64_t fresh = PagesFor(entry.size()) - has;
  const int64_t reserve = static_cast<int64_t>(running_.size()) + reserved_ + pages_owed_;
  return fresh + revived + reserve <= pool_.available();
}

void Scheduler::State::PublishFullPages(ScheduledRequest& entry) {
  if (!options_.share_prefixes) return;
  const int64_t full = entry.sequence.computed / kBlockTokens;
  ExtendKeys(entry.root, entry.sequence.tokens, static_cast<size_t>(full), entry.keys);
  for (; entry.published < full; ++entry.published) {
    const size_t page = static_cast<size_t>(entry.published);
    if (pool_.Publish(entry.pages[page], entry.keys[page])) NoteStored(entry, page);
    const auto promise = promises_.find(entry.keys[page]);
    if (promise != promises_.end() && promise->second == &entry) promises_.erase(promise);
  }
  entry.promised = std::max(entry.promised, entry.published);
}

}  // namespace divisi
