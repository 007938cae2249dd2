#include <algorithm>

#include "divisi/core/check.h"
#include "divisi/core/format.h"
#include "divisi/engine/scheduler_state.h"

namespace divisi {
namespace {

Error NoPages() { return {Code::kResourceExhausted, "no pages for what would be loaded"}; }

}  // namespace

Result<PrefixLoad> Scheduler::State::AddLoading(Request request, std::vector<BlockKey> keys,
                                                int64_t until) {
  ASSIGN_OR_RETURN(std::unique_ptr<ScheduledRequest> entry, MakeEntry(std::move(request)));
  if (unstarted_ >= options_.max_waiting) return NoPages();
  entry->keys = std::move(keys);
  ASSIGN_OR_RETURN(PrefixLoad load, BeginLoad(*entry, until));
  entry->arrival = arrivals_++;
  ++unstarted_;
  const RequestId id = entry->id();
  entries_.emplace(id, std::move(entry));
  return load;
}

Result<PrefixLoad> Scheduler::State::LoadWaiting(RequestId id, int64_t until) {
  const auto found = entries_.find(id);
  const bool waits = found != entries_.end() && waiting_.contains(found->second->arrival);
  if (!waits || found->second->started || !found->second->pages.empty()) {
    return Error{Code::kNotFound, Format("request {} does not wait without pages", id)};
  }
  ScheduledRequest& entry = *found->second;
  ASSIGN_OR_RETURN(PrefixLoad load, BeginLoad(entry, until));
  waiting_.erase(entry.arrival);
  entry.passed_as_long = false;
  entry.holds = 0;
  return load;
}

// The entry, which has no pages, gets those until `until`, and waits for them.
Result<PrefixLoad> Scheduler::State::BeginLoad(ScheduledRequest& entry, int64_t until) {
  std::vector<BlockId> shared = FindShared(entry);
  CHECK(until <= ShareablePages(entry) && until <= static_cast<int64_t>(entry.keys.size()));
  const auto present = static_cast<int64_t>(shared.size());
  CHECK(present < until, "{} pages are there, and {} wanted", present, until);
  const int64_t revived =
      std::ranges::count_if(shared, [this](BlockId block) { return pool_.references(block) == 0; });
  const int64_t reserve = static_cast<int64_t>(running_.size()) + reserved_ + pages_owed_;
  if (until - present + revived + reserve > pool_.available()) return NoPages();
  for (const BlockId block : shared) pool_.Reference(block);
  entry.pages = std::move(shared);
  entry.published = entry.promised = present;
  CHECK(TryGrow(entry, until * kBlockTokens), "request {}: pages went away", entry.id());
  for (; entry.promised < until; ++entry.promised) {
    promises_.try_emplace(entry.keys[static_cast<size_t>(entry.promised)], &entry);
  }
  Load& load = loads_[++last_load_];
  load.pages.assign(entry.pages.begin() + present, entry.pages.end());
  load.entry = &entry;
  for (const BlockId block : load.pages) pool_.Reference(block);
  entry.loading = true;
  entry.load = last_load_;
  ++loading_;
  return PrefixLoad{.id = last_load_, .present = present, .pages = load.pages};
}

void Scheduler::State::FollowLoad(uint64_t id, std::shared_ptr<LayerGate> gate) {
  const auto found = loads_.find(id);
  if (found == loads_.end() || found->second.entry == nullptr) return;
  ScheduledRequest& entry = *found->second.entry;
  if (!entry.loading) return;
  entry.loading = false;
  --loading_;
  entry.gate = std::move(gate);
  entry.loaded_from = entry.published;
  entry.loaded_until = static_cast<int64_t>(entry.pages.size());
  entry.sequence.computed = static_cast<int64_t>(entry.pages.size()) * kBlockTokens;
  waiting_.emplace(entry.arrival, &entry);
}

void Scheduler::State::EndLoad(uint64_t id, int64_t loaded) {
  const auto found = loads_.find(id);
  CHECK(found != loads_.end(), "load {} is not under way", id);
  const Load load = std::move(found->second);
  loads_.erase(found);
  CHECK(loaded >= 0 && loaded <= static_cast<int64_t>(load.pages.size()), "{} pages of {}", loaded,
        load.pages.size());
  if (load.entry != nullptr) {
    ScheduledRequest& entry = *load.entry;
    entry.load = 0;
    // In a step or past it, held for another worker too, the gate decides: a step that went through
    // it has all pages.
    if (!entry.running && !entry.held) TakeLoaded(entry, loaded);
  }
  pool_.Release(load.pages);
}

// The entry waits with the pages that it got.
void Scheduler::State::TakeLoaded(ScheduledRequest& entry, int64_t loaded) {
  const bool waits = !entry.loading;
  const int64_t present = entry.published;
  const auto kept = static_cast<size_t>(present + loaded);
  for (size_t page = entry.pages.size(); page-- > kept;) {
    const auto promise = promises_.find(entry.keys[page]);
    if (promise != promises_.end() && promise->second == &entry) promises_.erase(promise);
  }
  pool_.Release(std::span(entry.pages).subspan(kept));
  entry.pages.resize(kept);
  entry.promised = static_cast<int64_t>(kept);
  entry.loaded_from = present;
  entry.loaded_until = present + loaded;
  entry.gate.reset();
  entry.sequence.computed = static_cast<int64_t>(kept) * kBlockTokens;
  PublishFullPages(entry);
  if (waits) return;
  entry.loading = false;
  --loading_;
  waiting_.emplace(entry.arrival, &entry);
}

// What is still loaded into the entry's pages is for nobody.
void Scheduler::State::Detach(ScheduledRequest& entry) {
  entry.gate.reset();
  const auto found = loads_.find(std::exchange(entry.load, 0));
  if (found != loads_.end()) found->second.entry = nullptr;
}

// A running entry whose prefix did not come: all is computed anew.
void Scheduler::State::Requeue(ScheduledRequest& entry, std::vector<SchedulerEvent>& events) {
  entry.running = false;  // Commit takes it out of running_.
  prefix_hit_ -= entry.hit_tokens;
  prefix_loaded_ -= entry.loaded_tokens;
  entry.hit_tokens = entry.loaded_tokens = 0;
  ++lost_prefixes_;
  ReleasePages(entry);
  entry.passed_as_long = false;
  waiting_.emplace(entry.arrival, &entry);
  events.push_back({.kind = SchedulerEvent::Kind::kLost, .request = entry.id()});
}

// Takes the pages of the youngest waiting request that has some, and came at `arrival` or later.
bool Scheduler::State::StripYoungest(uint64_t arrival) {
  for (auto at = waiting_.rbegin(); at != waiting_.rend() && at->first >= arrival; ++at) {
    ScheduledRequest& entry = *at->second;
    if (entry.pages.empty() || entry.load != 0) continue;
    ReleasePages(entry);
    if (options_.report_pages) stripped_.push_back(entry.id());
    return true;
  }
  return false;
}

int64_t Scheduler::State::CachedPages(std::span<const BlockKey> keys) const {
  const auto missing =
      std::ranges::find_if(keys, [this](const BlockKey& key) { return !pool_.Find(key); });
  return missing - keys.begin();
}

bool Scheduler::State::PinPage(BlockId block, const BlockKey& key) {
  if (pool_.key(block) != key) return false;
  pool_.Reference(block);
  ++pins_[block];
  return true;
}

void Scheduler::State::UnpinPage(BlockId block) {
  const auto found = pins_.find(block);
  CHECK(found != pins_.end(), "block {} is not pinned", block);
  if (--found->second == 0) pins_.erase(found);
  pool_.Release({&block, 1});
}

void Scheduler::State::NoteStored(const ScheduledRequest& entry, size_t page) {
  if (!options_.report_pages) return;
  const auto first = static_cast<int64_t>(page) * kBlockTokens;
  const auto tokens = entry.sequence.tokens.begin() + first;
  const auto number = static_cast<int64_t>(page);
  changes_.push_back({.kind = PageChange::Kind::kStored,
                      .key = entry.keys[page],
                      .parent = page == 0 ? entry.root : entry.keys[page - 1],
                      .root = entry.root,
                      .position = first,
                      .block = entry.pages[page],
                      .tokens = {tokens, tokens + kBlockTokens},
                      .loaded = number >= entry.loaded_from && number < entry.loaded_until});
}

// Of every page: requests that have it, loads that fill it, and pins.
void Scheduler::State::CountHolders(std::unordered_map<BlockId, int64_t>& holders) const {
  for (const auto& [id, entry] : entries_) {
    for (const BlockId block : entry->pages) ++holders[block];
  }
  for (const std::unique_ptr<ScheduledRequest>& entry : cancelled_) {
    for (const BlockId block : entry->pages) ++holders[block];
  }
  for (const auto& [id, load] : loads_) {
    for (const BlockId block : load.pages) ++holders[block];
  }
  for (const auto& [block, count] : pins_) holders[block] += count;
}

}  // namespace divisi
