#include "divisi/engine/scheduler.h"

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "divisi/core/check.h"
#include "divisi/core/format.h"
#include "divisi/engine/scheduler_state.h"

namespace divisi {

int64_t ContextLimit(const SchedulerOptions& options) {
  return std::min(options.max_model_len, options.blocks * kBlockTokens);
}

Result<void> CheckTokenId(const SchedulerOptions& options, TokenId id, const char* where) {
  if (options.vocab == 0 || (id >= 0 && id < options.vocab)) return {};
  return Error{Code::kInvalidArgument,
               Format("{} holds token id {}, but this model's ids are 0 to {}", where, id,
                      options.vocab - 1)};
}

KeySpace KeySpaceOf(const SchedulerOptions& options, const Request& request) {
  return {.model_fingerprint = options.model_fingerprint,
          .page_format = options.page_format,
          .tenant_salt = request.cache_salt};
}

Result<void> CheckRequest(const SchedulerOptions& options, const Request& request) {
  if (request.prompt.empty()) return Error{Code::kInvalidArgument, "the prompt has no tokens"};
  if (request.max_tokens < 0) {
    return Error{Code::kInvalidArgument,
                 Format("max_tokens is {}; it must be at least 0", request.max_tokens)};
  }
  const int64_t limit = ContextLimit(options);
  const int64_t prompt = static_cast<int64_t>(request.prompt.size());
  if (prompt + std::min<int64_t>(1, request.max_tokens) > limit) {
    return Error{Code::kOutOfRange,
                 Format("the prompt has {} tokens{} in a context of {}; shorten it", prompt,
                        prompt > limit ? "" : " and leaves no room for output", limit)};
  }
  for (const TokenId id : request.prompt) RETURN_IF_ERROR(CheckTokenId(options, id, "the prompt"));
  for (const TokenId id : request.stop_token_ids) {
    RETURN_IF_ERROR(CheckTokenId(options, id, "stop_token_ids"));
  }
  for (const auto& [id, bias] : request.sampling.logit_bias) {
    RETURN_IF_ERROR(CheckTokenId(options, id, "logit_bias"));
  }
  return {};
}

// ---- Requests in and out

Result<std::unique_ptr<ScheduledRequest>> Scheduler::State::MakeEntry(Request request) {
  RETURN_IF_ERROR(CheckRequest(options_, request));
  if (entries_.contains(request.id)) {
    return Error{Code::kInvalidArgument, Format("request id {} is in use", request.id)};
  }
  auto entry = std::make_unique<ScheduledRequest>();
  entry->sequence.tokens = request.prompt;
  entry->root = request.cache_salt.empty() ? root_ : RootKey(KeySpaceOf(options_, request));
  entry->sequence.request = std::move(request);
  return entry;
}

Result<void> Scheduler::State::Add(Request request) {
  ASSIGN_OR_RETURN(std::unique_ptr<ScheduledRequest> entry, MakeEntry(std::move(request)));
  if (unstarted_ >= options_.max_waiting) {
    return Error{Code::kResourceExhausted,
                 Format("{} requests are waiting, which is the limit; retry later", unstarted_)};
  }
  entry->arrival = arrivals_++;
  waiting_.emplace(entry->arrival, entry.get());
  ++unstarted_;
  const RequestId id = entry->id();
  entries_.emplace(id, std::move(entry));
  return {};
}

Result<Reservation> Scheduler::State::Reserve(Request request) {
  ASSIGN_OR_RETURN(std::unique_ptr<ScheduledRequest> entry, MakeEntry(std::move(request)));
  const Error full{Code::kResourceExhausted, "no room for another request now; retry later"};
  if (static_cast<int64_t>(running_.size()) + reserved_ >= max_running_) return full;
  const std::vector<BlockId> shared = FindShared(*entry);
  if (!PagesFit(*entry, shared)) return full;
  entry->arrival = arrivals_++;
  for (const BlockId block : shared) pool_.Reference(block);
  entry->pages = shared;
  entry->published = entry->promised = static_cast<int64_t>(shared.size());
  CHECK(TryGrow(*entry, entry->size()), "request {}: pages went away", entry->id());
  entry->started = entry->reserved = true;
  ++reserved_;
  Reservation reservation{.pages = entry->pages, .present = entry->published};
  const RequestId id = entry->id();
  entries_.emplace(id, std::move(entry));
  return reservation;
}

std::vector<SchedulerEvent> Scheduler::State::Adopt(RequestId id, SampledToken first) {
  std::vector<SchedulerEvent> events;
  const auto found = entries_.find(id);
  if (found == entries_.end() || !found->second->reserved) return events;
  ScheduledRequest& entry = *found->second;
  entry.reserved = false;
  --reserved_;
  events.push_back({.kind = SchedulerEvent::Kind::kScheduled,
                    .request = id,
                    .cached_tokens = entry.published * kBlockTokens});
  entry.sequence.computed = entry.size();
  PublishFullPages(entry);
  InsertRunning(entry);
  TakeToken(entry, std::move(first), events);
  if (!entry.ended) return events;
  EraseRunning(entry);
  ReleasePages(entry);
  entries_.erase(found);
  return events;
}

std::span<const BlockId> Scheduler::State::PagesOf(RequestId id) const {
  const auto found = entries_.find(id);
  if (found == entries_.end()) return {};
  return found->second->pages;
}

bool Scheduler::State::Cancel(RequestId id) {
  const auto found = entries_.find(id);
  if (found == entries_.end()) return false;
  std::unique_ptr<ScheduledRequest> entry = std::move(found->second);
  entries_.erase(found);
  std::erase_if(plan_events_, [id](const SchedulerEvent& event) { return event.request == id; });
  if (!entry->started) --unstarted_;
  if (entry->planned) {
    entry->ended = true;
    cancelled_.push_back(std::move(entry));
  } else if (entry->running) {
    EraseRunning(*entry);
    ReleasePages(*entry);
  } else if (entry->held || entry->reserved) {
    --(entry->held ? held_ : reserved_);
    ReleasePages(*entry);
  } else if (entry->loading) {
    --loading_;
    ReleasePages(*entry);
  } else {
    waiting_.erase(entry->arrival);
    ReleasePages(*entry);
  }
  return true;
}

void Scheduler::State::InsertRunning(ScheduledRequest& entry) {
  entry.running = true;
  running_.insert(std::ranges::upper_bound(running_, entry.arrival, {}, &ScheduledRequest::arrival),
                  &entry);
}

void Scheduler::State::EraseRunning(ScheduledRequest& entry) {
  const auto at = std::ranges::lower_bound(running_, entry.arrival, {}, &ScheduledRequest::arrival);
  CHECK(at != running_.end() && *at == &entry, "request {} is not running", entry.id());
  running_.erase(at);
  entry.running = false;
}

// ---- Commit

std::vector<SchedulerEvent> Scheduler::State::Commit(std::vector<SliceResult> results) {
  CHECK(!planned_.empty(), "there is no plan");
  CHECK(results.size() == planned_.size(), "{} results for {} slices", results.size(),
        planned_.size());
  std::vector<SchedulerEvent> events = std::exchange(plan_events_, {});
  for (size_t i = 0; i < planned_.size(); ++i) {
    ScheduledRequest& entry = *planned_[i];
    const StepSlice& slice = plan_.slices[i];
    entry.planned = false;
    entry.sequence.computed += slice.count;
    if (results[i].lost && !entry.ended) {
      Requeue(entry, events);
    } else {
      TakeResult(entry, slice, std::move(results[i]), events);
    }
    if (entry.ended) ReleasePages(entry);
  }
  std::erase_if(running_, [](const ScheduledRequest* entry) {
    return entry->ended || entry->held || !entry->running;
  });
  for (const ScheduledRequest* entry : planned_) {
    if (!entry->ended) continue;
    // A cancelled one has left already, and its id may have been taken again.
    const auto found = entries_.find(entry->id());
    if (found != entries_.end() && found->second.get() == entry) entries_.erase(found);
  }
  cancelled_.clear();
  planned_.clear();
  return events;
}

// A failed step's pages are not published: others would fail by them, or worse.
void Scheduler::State::TakeResult(ScheduledRequest& entry, const StepSlice& slice,
                                  SliceResult result, std::vector<SchedulerEvent>& events) {
  if (!result.failure && !result.lost) PublishFullPages(entry);
  entry.gate.reset();       // What it kept back is there.
  if (entry.ended) return;  // Cancelled meanwhile.
  if (result.failure) {
    entry.ended = true;
    events.push_back({.kind = SchedulerEvent::Kind::kFinished,
                      .request = entry.id(),
                      .reason = FinishReason::kError,
                      .error = std::move(result.failure)});
    return;
  }
  TakeScores(entry, slice.start, std::move(result.prompt_scores), events);
  const Request& request = entry.sequence.request;
  if (request.hold_after_prompt) {
    events.push_back({.kind = SchedulerEvent::Kind::kComputed,
                      .request = request.id,
                      .computed_tokens = entry.sequence.computed});
  }
  CHECK(result.sampled.has_value() == slice.sample, "request {}", entry.id());
  if (slice.sample) TakeToken(entry, *std::move(result.sampled), events);
  if (!slice.sample || entry.ended || !request.hold_after_prompt) return;
  entry.held = true;
  entry.running = false;
  ++held_;
  events.push_back({.kind = SchedulerEvent::Kind::kHeld, .request = request.id});
}

// Scores that were given out before a preemption come again with the recomputed tokens: dropped.
void Scheduler::State::TakeScores(ScheduledRequest& entry, int64_t start,
                                  std::vector<SampledToken> scores,
                                  std::vector<SchedulerEvent>& events) {
  const int64_t known = std::min(entry.scored - start, static_cast<int64_t>(scores.size()));
  if (known > 0) scores.erase(scores.begin(), scores.begin() + known);
  if (scores.empty()) return;
  CHECK(start <= entry.scored, "request {}: scores from {} after {}", entry.id(), start,
        entry.scored);
  entry.scored += static_cast<int64_t>(scores.size());
  events.push_back({.kind = SchedulerEvent::Kind::kPromptScores,
                    .request = entry.id(),
                    .prompt_scores = std::move(scores)});
}

void Scheduler::State::TakeToken(ScheduledRequest& entry, SampledToken token,
                                 std::vector<SchedulerEvent>& events) {
  const Request& request = entry.sequence.request;
  if (request.max_tokens == 0) {  // Drawn only because a prompt's last row has no other use.
    entry.ended = true;
    events.push_back({.kind = SchedulerEvent::Kind::kFinished,
                      .request = request.id,
                      .reason = FinishReason::kLength});
    return;
  }
  const TokenId id = token.token;
  entry.sequence.tokens.push_back(id);
  events.push_back(
      {.kind = SchedulerEvent::Kind::kToken, .request = request.id, .token = std::move(token)});
  const bool stop = std::ranges::find(request.stop_token_ids, id) != request.stop_token_ids.end();
  entry.ended =
      stop || entry.sequence.OutputTokens() >= request.max_tokens || entry.size() >= limit_;
  if (!entry.ended) return;
  events.push_back({.kind = SchedulerEvent::Kind::kFinished,
                    .request = request.id,
                    .reason = stop ? FinishReason::kStop : FinishReason::kLength});
}

// ---- Watching

SchedulerStats Scheduler::State::stats() const {
  int64_t backlog = 0;
  for (const auto& [id, entry] : entries_) {
    if (entry->held || entry->reserved) continue;
    const int64_t prompt = static_cast<int64_t>(entry->sequence.request.prompt.size());
    backlog += std::max<int64_t>(prompt - entry->sequence.computed, 0);
  }
  return {.running = static_cast<int64_t>(running_.size()),
          .held = held_,
          .reserved = reserved_,
          .loading = loading_,
          .waiting = static_cast<int64_t>(waiting_.size()),
          .prompt_backlog = backlog,
          .blocks_total = pool_.total(),
          .blocks_used = pool_.referenced(),
          .blocks_cached = pool_.cached(),
          .preemptions = preemptions_,
          .evictions = pool_.evictions(),
          .prefix_queried_tokens = prefix_queried_,
          .prefix_hit_tokens = prefix_hit_,
          .prefix_loaded_tokens = prefix_loaded_,
          .lost_prefixes = lost_prefixes_};
}

void Scheduler::State::Verify() const {
  pool_.Verify();
  std::unordered_map<BlockId, int64_t> holders;
  for (const ScheduledRequest* entry : running_) {
    CHECK(entry->running && entry->started);
    CHECK(static_cast<int64_t>(entry->pages.size()) >= PagesFor(entry->sequence.computed));
  }
  int64_t held = 0, reserved = 0, loading = 0;
  for (const auto& [id, entry] : entries_) {
    held += entry->held;
    reserved += entry->reserved;
    loading += entry->loading;
    if (!entry->held && !entry->reserved && !entry->loading) continue;
    CHECK(!entry->running && !entry->planned &&
          entry->held + entry->reserved + entry->loading == 1);
  }
  CHECK(held == held_ && reserved == reserved_ && loading == loading_,
        "{}, {} and {}, not {}, {} and {}", held, reserved, loading, held_, reserved_, loading_);
  CountHolders(holders);
  CHECK(std::ranges::is_sorted(running_, {}, &ScheduledRequest::arrival));
  CHECK(static_cast<int64_t>(holders.size()) == pool_.referenced(), "{} pages held, {} referenced",
        holders.size(), pool_.referenced());
  for (const auto& [block, count] : holders) {
    CHECK(pool_.references(block) == count, "block {}: {} of {} references", block, count,
          pool_.references(block));
  }
  const auto prefills = std::ranges::count_if(
      running_, [](const ScheduledRequest* entry) { return entry->remaining() > 1; });
  CHECK(!planned_.empty() || prefills <= 1, "{} prefills are under way", prefills);
  int64_t unstarted = 0;
  for (const auto& [arrival, entry] : waiting_) {
    CHECK(!entry->running && !entry->loading &&
          entry->sequence.computed == static_cast<int64_t>(entry->pages.size()) * kBlockTokens);
    CHECK(!entry->pages.empty() || (entry->published == 0 && entry->promised == 0));
    unstarted += !entry->started;
  }
  for (const auto& [id, entry] : entries_) unstarted += entry->loading && !entry->started;
  CHECK(unstarted == unstarted_);
  for (const auto& [key, entry] : promises_) {
    CHECK(std::ranges::find(running_, entry) != running_.end() || !entry->pages.empty(),
          "a promise of nobody");
  }
  CHECK(entries_.size() + cancelled_.size() ==
        running_.size() + waiting_.size() + static_cast<size_t>(held_ + reserved_ + loading_));
}

// ---- The public face

Scheduler::Scheduler(SchedulerOptions options)
    : state_(std::make_unique<State>(std::move(options))) {}
Scheduler::~Scheduler() = default;
Result<void> Scheduler::Add(Request request) { return state_->Add(std::move(request)); }
Result<Reservation> Scheduler::Reserve(Request request) {
  return state_->Reserve(std::move(request));
}
std::vector<SchedulerEvent> Scheduler::Adopt(RequestId id, SampledToken first) {
  return state_->Adopt(id, std::move(first));
}
Result<PrefixLoad> Scheduler::AddLoading(Request request, std::vector<BlockKey> keys,
                                         int64_t until) {
  return state_->AddLoading(std::move(request), std::move(keys), until);
}
Result<PrefixLoad> Scheduler::LoadWaiting(RequestId request, int64_t until) {
  return state_->LoadWaiting(request, until);
}
void Scheduler::FollowLoad(uint64_t load, std::shared_ptr<LayerGate> gate) {
  state_->FollowLoad(load, std::move(gate));
}
void Scheduler::EndLoad(uint64_t load, int64_t loaded) { state_->EndLoad(load, loaded); }
int64_t Scheduler::CachedPages(std::span<const BlockKey> keys) const {
  return state_->CachedPages(keys);
}
int64_t Scheduler::Room() const { return state_->Room(); }
std::vector<PageChange> Scheduler::TakePageChanges() { return state_->TakePageChanges(); }
bool Scheduler::Blocked() const { return state_->Blocked(); }
std::vector<RequestId> Scheduler::TakeStripped() { return state_->TakeStripped(); }
bool Scheduler::PinPage(BlockId block, const BlockKey& key) { return state_->PinPage(block, key); }
void Scheduler::UnpinPage(BlockId block) { state_->UnpinPage(block); }
std::span<const BlockId> Scheduler::PagesOf(RequestId id) const { return state_->PagesOf(id); }
bool Scheduler::Cancel(RequestId id) { return state_->Cancel(id); }
const StepPlan& Scheduler::Plan() { return state_->Plan(); }
std::vector<SchedulerEvent> Scheduler::Commit(std::vector<SliceResult> results) {
  return state_->Commit(std::move(results));
}
bool Scheduler::HasWork() const { return state_->HasWork(); }
SchedulerStats Scheduler::stats() const { return state_->stats(); }
void Scheduler::Verify() const { state_->Verify(); }

}  // namespace divisi
