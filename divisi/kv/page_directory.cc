#include "divisi/kv/page_directory.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "divisi/core/check.h"

namespace divisi {
namespace {

// Places swept for each page of an update: a table of ten million is through after 1.5 million
// updates, half a second of them, at a fifth of an update's cost.
constexpr int64_t kSweptPerUpdate = 8;
// For one new page where the table is full: what it takes to find a forgotten holder's page soon.
constexpr int64_t kSweptWhenFull = 1024;

// Of capacity, by promise: 150,000 pages in 10 million; where it is small, more closely, for
// prompts are as long there.
constexpr int64_t kPagesPerPromise = 64;
constexpr int64_t kFewPagesPerPromise = 16;
constexpr int64_t kManyPromises = 131'072;  // Sixteen prompts of 128k tokens
constexpr int64_t kLeastPromises = 1024;

int64_t MostPromises(int64_t pages) {
  return std::max({pages / kPagesPerPromise, std::min(pages / kFewPagesPerPromise, kManyPromises),
                   kLeastPromises});
}

uint64_t BitOf(int slot) { return uint64_t{1} << (slot % 64); }

}  // namespace

BlockKey KeyOfHash(uint64_t hash) {
  BlockKey key;
  for (int i = 0; i < 8; ++i) key.bytes[31 - i] = static_cast<uint8_t>(hash >> (8 * i));
  return key;
}

BlockKey KeyOfHash(std::span<const uint8_t> digest) {
  BlockKey key;
  std::copy_n(digest.begin(), std::min(digest.size(), key.bytes.size()), key.bytes.begin());
  return key;
}

Result<PageDirectory> PageDirectory::Create(const DirectoryOptions& options) {
  auto pages = Pages::Create(options.pages, options.seed, "the directory's pages");
  if (!pages) return pages.error();
  const int64_t shared = options.shared_pages > 0 ? options.shared_pages : options.pages;
  auto sets = HolderSets::Create(shared, options.pages);
  if (!sets) return sets.error();
  auto promises =
      PromiseTable::Create(MostPromises(options.pages), options.seed, "the directory's promises");
  if (!promises) return promises.error();
  return PageDirectory(*std::move(pages), *std::move(sets), *std::move(promises));
}

PageDirectory::PageDirectory(Pages pages, HolderSets sets, PromiseTable promises)
    : pages_(std::move(pages)), sets_(std::move(sets)), promises_(std::move(promises)) {}

int PageDirectory::SlotOf(NodeId holder) const {
  const auto found = by_life_.find(holder.value);
  return found == by_life_.end() ? -1 : found->second;
}

Result<void> PageDirectory::Join(NodeId holder) {
  if (SlotOf(holder) >= 0) return {};
  const auto slot = TakeSlot();
  if (!slot) return slot.error();
  slots_[*slot].odds = CopyOdds();
  Occupy(*slot, holder);
  return {};
}

Result<int> PageDirectory::TakeSlot() {
  const auto lowest = [this] {
    return std::ranges::find(slots_, SlotState::kFree, &Slot::state) - slots_.begin();
  };
  if (lowest() == kHolderSlots && unswept_ > 0) Sweep(pages_.places());
  if (lowest() == kHolderSlots) {
    return Error{Code::kResourceExhausted,
                 Format("the directory has {} holders, as many as it can tell apart; forget those "
                        "that have left",
                        kHolderSlots)};
  }
  return static_cast<int>(lowest());
}

void PageDirectory::Occupy(int slot, NodeId holder) {
  Slot& taken = slots_[slot];
  taken.state = SlotState::kLive;
  taken.holder = holder;
  taken.life = ++lives_ * kHolderSlots + static_cast<uint32_t>(slot);
  live_[slot / 64] |= BitOf(slot);
  by_life_[holder.value] = static_cast<uint8_t>(slot);
}

void PageDirectory::Retire(int slot) {
  Slot& left = slots_[slot];
  by_life_.erase(left.holder.value);
  live_[slot / 64] &= ~BitOf(slot);
  left.life = 0;
  left.by_tier = {};
  if (left.pages == 0) {
    left.state = SlotState::kFree;
    return;
  }
  left.state = SlotState::kUnswept;
  left.pages = 0;
  left.swept_at = swept_ + pages_.places();
  if (unswept_++ == 0) first_free_ = left.swept_at;
}

void PageDirectory::Forget(NodeId holder) {
  const int slot = SlotOf(holder);
  if (slot >= 0) Retire(slot);
}

void PageDirectory::Clear(NodeId holder) {
  const int slot = SlotOf(holder);
  if (slot < 0) return;
  const CopyOdds odds = slots_[slot].odds;
  Retire(slot);
  const auto next = TakeSlot();
  CHECK(next.ok(), "one slot at least was retired");
  slots_[*next].odds = odds;
  Occupy(*next, holder);
}

// The memory that each of a group of pages needs is asked for before the first is worked on.
template <typename Apply>
void PageDirectory::ForEachPage(std::span<const BlockKey> keys, Apply apply) {
  std::array<Pages::Place, kGroup> places;
  std::array<Pages::Index, kGroup> indices;
  for (size_t begin = 0; begin < keys.size(); begin += kGroup) {
    const auto group = keys.subspan(begin, std::min(kGroup, keys.size() - begin));
    pages_.Approach(
        group.size(), [&](size_t i) -> const BlockKey& { return group[i]; }, places.data(),
        indices.data());
    for (size_t i = 0; i < group.size(); ++i) {
      if (indices[i] != Pages::kNone) sets_.Prefetch(pages_[indices[i]].value, kSlotWords);
    }
    for (size_t i = 0; i < group.size(); ++i) apply(group[i], places[i]);
    if (unswept_ > 0) Sweep(kSweptPerUpdate * static_cast<int64_t>(group.size()));
  }
}

void PageDirectory::Stored(NodeId holder, Tier tier, std::span<const BlockKey> keys) {
  const int slot = SlotOf(holder);
  if (slot < 0) {
    ++counted_.strangers;
    return;
  }
  ForEachPage(keys, [&](const BlockKey& key, const Pages::Place& place) {
    StoreOne(slot, tier, key, place);
    if (promises_.size() > 0) Fulfil(slots_[slot].life, key);
  });
}

void PageDirectory::StoreOne(int slot, Tier tier, const BlockKey& key, const Pages::Place& place) {
  Pages::Index index = pages_.Find(place, key);
  if (index == Pages::kNone) index = InsertPage(key, place);
  if (index == Pages::kNone) {
    ++counted_.refused_pages;
    return;
  }
  HolderSet& set = pages_[index].value;
  if (unswept_ > 0) sets_.Keep(set, live_);
  const auto added = sets_.Add(set, static_cast<uint8_t>(slot), tier);
  using Added = HolderSets::Added;
  if (added == Added::kHolder) ++slots_[slot].pages;
  if (added == Added::kHolder || added == Added::kTier) {
    ++slots_[slot].by_tier[static_cast<size_t>(tier)];
  }
  if (added == HolderSets::Added::kRefused) ++counted_.refused_holders;
}

PageDirectory::Pages::Index PageDirectory::InsertPage(const BlockKey& key,
                                                      const Pages::Place& place) {
  // A page that moves may move past the sweep.
  const auto moved = [this](Pages::Index index) {
    if (unswept_ > 0) SweepPlace(index);
  };
  const Pages::Index index = pages_.Insert(place, key, moved);
  if (index != Pages::kNone || unswept_ == 0) return index;
  Sweep(kSweptWhenFull);
  return pages_.Insert(place, key, moved);
}

void PageDirectory::Removed(NodeId holder, Tier tier, std::span<const BlockKey> keys) {
  const int slot = SlotOf(holder);
  if (slot < 0) {
    ++counted_.strangers;
    return;
  }
  ForEachPage(keys, [&](const BlockKey& key, const Pages::Place& place) {
    RemoveOne(slot, tier, key, place);
  });
}

void PageDirectory::RemoveOne(int slot, Tier tier, const BlockKey& key, const Pages::Place& place) {
  const Pages::Index index = pages_.Find(place, key);
  if (index == Pages::kNone) {
    ++counted_.unknown_removals;
    return;
  }
  HolderSet& set = pages_[index].value;
  if (unswept_ > 0) sets_.Keep(set, live_);
  const auto removed = sets_.Remove(set, static_cast<uint8_t>(slot), tier);
  using Removed = HolderSets::Removed;
  if (removed == Removed::kHolder) --slots_[slot].pages;
  if (removed == Removed::kHolder || removed == Removed::kTier) {
    --slots_[slot].by_tier[static_cast<size_t>(tier)];
  }
  if (removed == HolderSets::Removed::kAbsent) ++counted_.unknown_removals;
  if (set.empty()) pages_.Erase(index);
}

bool PageDirectory::Sweep(int64_t places) {
  if (unswept_ == 0) return true;
  constexpr int64_t kAhead = 8;
  const int64_t all = pages_.places();
  int64_t at = swept_ % all;
  for (int64_t left = std::min(places, all); left > 0; --left) {
    const int64_t ahead = at + kAhead;
    if (ahead < all && pages_.Occupied(static_cast<Pages::Index>(ahead))) {
      sets_.Prefetch(pages_[static_cast<Pages::Index>(ahead)].value, kSlotWords);
    }
    SweepPlace(static_cast<Pages::Index>(at));
    ++swept_;
    if (++at == all) at = 0;
  }
  if (swept_ >= first_free_) FreeSweptSlots();
  return unswept_ == 0;
}

void PageDirectory::SweepPlace(Pages::Index index) {
  if (!pages_.Occupied(index)) return;
  HolderSet& set = pages_[index].value;
  sets_.Keep(set, live_);
  if (set.empty()) pages_.Erase(index);
}

void PageDirectory::FreeSweptSlots() {
  first_free_ = INT64_MAX;
  for (Slot& slot : slots_) {
    if (slot.state != SlotState::kUnswept) continue;
    if (slot.swept_at <= swept_) {
      slot.state = SlotState::kFree;
      --unswept_;
    } else {
      first_free_ = std::min(first_free_, slot.swept_at);
    }
  }
}

bool PageDirectory::Counts(const Promises& promises, int entry, Seconds now) const {
  const uint32_t life = promises.lives[entry];
  return life != 0 && promises.until[entry] > now.value && slots_[life % kHolderSlots].life == life;
}

void PageDirectory::Promise(NodeId holder, std::span<const BlockKey> keys, Seconds until,
                            Seconds now) {
  const int slot = SlotOf(holder);
  if (slot < 0) {
    ++counted_.strangers;
    return;
  }
  SweepPromises(2 * static_cast<int64_t>(keys.size()), now);
  for (const BlockKey& key : keys) PromiseOne(slots_[slot].life, key, until, now);
}

void PageDirectory::PromiseOne(uint32_t life, const BlockKey& key, Seconds until, Seconds now) {
  const auto place = promises_.PlaceOf(key);
  auto index = promises_.Find(place, key);
  if (index == PromiseTable::kNone) index = promises_.Insert(place, key);
  if (index == PromiseTable::kNone) {
    ++counted_.refused_promises;
    return;
  }
  Promises& promises = promises_[index].value;
  int entry = promises.until[1] < promises.until[0] ? 1 : 0;
  for (int i = 0; i < 2; ++i) {
    if (!Counts(promises, i, now)) entry = i;
  }
  for (int i = 0; i < 2; ++i) {
    if (promises.lives[i] == life) entry = i;
  }
  promises.lives[entry] = life;
  promises.until[entry] = until.value;
}

void PageDirectory::Fulfil(uint32_t life, const BlockKey& key) {
  const auto index = promises_.Find(key);
  if (index == PromiseTable::kNone) return;
  Promises& promises = promises_[index].value;
  for (uint32_t& other : promises.lives) {
    if (other == life) other = 0;
  }
  if (promises.lives[0] == 0 && promises.lives[1] == 0) promises_.Erase(index);
}

void PageDirectory::Break(NodeId holder, std::span<const BlockKey> keys) {
  const int slot = SlotOf(holder);
  if (slot < 0 || promises_.size() == 0) return;
  for (const BlockKey& key : keys) Fulfil(slots_[slot].life, key);
}

void PageDirectory::SweepPromises(int64_t places, Seconds now) {
  if (promises_.size() == 0) return;
  for (int64_t left = std::min(places, promises_.places()); left > 0; --left) {
    const auto index = static_cast<PromiseTable::Index>(promises_swept_++ % promises_.places());
    if (!promises_.Occupied(index)) continue;
    const Promises& promises = promises_[index].value;
    if (!Counts(promises, 0, now) && !Counts(promises, 1, now)) promises_.Erase(index);
  }
}

void PageDirectory::Used(NodeId holder, Tier tier, int64_t shown, int64_t there) {
  const int slot = SlotOf(holder);
  if (slot < 0 || shown <= 0) return;
  slots_[slot].odds.Saw(tier, static_cast<double>(there) / static_cast<double>(shown));
}

double PageDirectory::Odds(NodeId holder, Tier tier) const {
  const int slot = SlotOf(holder);
  return slot < 0 ? CopyOdds().At(tier) : slots_[slot].odds.At(tier);
}

CopyChances PageDirectory::Chances(NodeId holder) const {
  return {.device = Odds(holder, Tier::kDevice), .host_copy = Odds(holder, Tier::kHost)};
}

int64_t PageDirectory::pages_of(NodeId holder) const {
  const int slot = SlotOf(holder);
  return slot < 0 ? 0 : slots_[slot].pages;
}

std::array<int64_t, kTiers> PageDirectory::tier_pages_of(NodeId holder) const {
  const int slot = SlotOf(holder);
  return slot < 0 ? std::array<int64_t, kTiers>{} : slots_[slot].by_tier;
}

DirectoryStats PageDirectory::stats() const {
  DirectoryStats stats = counted_;
  stats.pages = pages_.size();
  for (const Slot& slot : slots_) stats.pairs += slot.pages;
  stats.shared_pages = sets_.shared();
  stats.promises = promises_.size();
  stats.holders = static_cast<int64_t>(by_life_.size());
  stats.unswept_slots = unswept_;
  stats.bytes = pages_.bytes() + sets_.bytes() + promises_.bytes() + Bytes(sizeof *this);
  stats.uncounted = sets_.uncounted();
  return stats;
}

void PageDirectory::Verify() const {
  pages_.Verify();
  promises_.Verify();
  std::array<int64_t, kHolderSlots> pages{};
  std::vector<uint32_t> blocks;
  for (Pages::Index index = 0; index < static_cast<Pages::Index>(pages_.places()); ++index) {
    if (!pages_.Occupied(index)) continue;
    const HolderSet& set = pages_[index].value;
    if (set.shared()) blocks.push_back(set.block());
    const SlotMask holders = sets_.Holders(set);
    int count = 0;
    for (int slot = 0; slot < kHolderSlots; ++slot) {
      if ((holders[slot / 64] & BitOf(slot)) == 0) continue;
      CHECK(slots_[slot].state != SlotState::kFree, "slot {} is free and has a page", slot);
      if (slots_[slot].state == SlotState::kLive) ++pages[slot];
      ++count;
    }
    CHECK(count > 0, "a page without a holder");
    CHECK(set.shared() == (count > HolderSet::kListed), "{} holders of a page", count);
    CHECK(set.shared() || count == set.size, "a holder is listed twice");
  }
  std::ranges::sort(blocks);
  CHECK(std::ranges::adjacent_find(blocks) == blocks.end(), "two pages share a set");
  CHECK(static_cast<int64_t>(blocks.size()) == sets_.shared(), "shared sets");
  VerifySlots(pages);
}

void PageDirectory::VerifySlots(const std::array<int64_t, kHolderSlots>& pages) const {
  int unswept = 0;
  size_t live = 0;
  for (int i = 0; i < kHolderSlots; ++i) {
    const Slot& slot = slots_[i];
    const bool is_live = slot.state == SlotState::kLive;
    CHECK(is_live == ((live_[i / 64] & BitOf(i)) != 0), "slot {}", i);
    CHECK(slot.pages == pages[i], "slot {}: {} pages counted, {} there", i, slot.pages, pages[i]);
    if (is_live) {
      ++live;
      CHECK(SlotOf(slot.holder) == i, "slot {} of {}", i, slot.holder.value);
    }
    if (slot.state == SlotState::kUnswept) {
      ++unswept;
      CHECK(slot.swept_at >= first_free_ && slot.swept_at > swept_, "slot {} waits for ever", i);
    }
  }
  CHECK(unswept == unswept_ && live == by_life_.size(), "slots");
}

}  // namespace divisi
