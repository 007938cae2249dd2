// How a PageDirectory answers.
#include <algorithm>
#include <bit>

#include "divisi/core/check.h"
#include "divisi/kv/page_directory.h"

namespace divisi {
template <int kWords>
PageDirectory::Masks<kWords> PageDirectory::LiveMasks() const {
  Masks<kWords> live;
  for (auto& level : live.at) std::copy_n(live_.begin(), kWords, level.begin());
  return live;
}

// Who has a page; each level has what the one before has.
template <int kWords>
void PageDirectory::ReadSet(const HolderSet& set, Masks<kWords>& masks) const {
  if (set.shared()) {
    const SharedSet& shared = sets_.Shared(set);
    for (int word = 0; word < kWords; ++word) {
      uint64_t any = 0;
      for (int tier = 0; tier < kTiers; ++tier) {
        any |= shared.words[word][tier] & live_[word];
        masks.at[tier][word] = any;
      }
      masks.at[kTiers][word] = any;
    }
    return;
  }
  for (auto& level : masks.at) {
    for (uint64_t& word : level) word = 0;
  }
  for (int i = 0; i < set.size; ++i) {
    const int word = set.slots[i] / 64;
    if (word >= kWords) continue;
    const uint64_t bit = uint64_t{1} << (set.slots[i] % 64) & live_[word];
    for (int level = std::countr_zero(set.counts[i]) / 4; level < kLevels; ++level) {
      masks.at[level][word] |= bit;
    }
  }
}

// In steps for up to kGroup pages, so that a page's misses (tags, record, shared set) overlap with
// those of the others.
template <int kWords>
void PageDirectory::Look(std::span<const BlockKey* const> keys, Seconds now,
                         std::span<Masks<kWords>> masks) const {
  std::array<Pages::Place, kGroup> places;
  std::array<Pages::Index, kGroup> indices;
  const size_t count = keys.size();
  CHECK(count <= kGroup, "a group of {}", count);
  pages_.Approach(
      count, [&](size_t i) -> const BlockKey& { return *keys[i]; }, places.data(), indices.data());
  for (size_t i = 0; i < count; ++i) {
    if (indices[i] == Pages::kNone) continue;
    if (!pages_.IsAt(indices[i], *keys[i])) indices[i] = pages_.Find(places[i], *keys[i]);
    if (indices[i] != Pages::kNone) sets_.Prefetch(pages_[indices[i]].value, kWords);
  }
  for (size_t i = 0; i < count; ++i) {
    const bool known = indices[i] != Pages::kNone;
    ReadSet<kWords>(known ? pages_[indices[i]].value : HolderSet{}, masks[i]);
  }
  if (promises_.size() > 0) LookForPromises<kWords>(keys, now, masks);
}

template <int kWords>
void PageDirectory::LookForPromises(std::span<const BlockKey* const> keys, Seconds now,
                                    std::span<Masks<kWords>> masks) const {
  std::array<PromiseTable::Place, kGroup> places;
  std::array<PromiseTable::Index, kGroup> indices;
  promises_.Approach(
      keys.size(), [&](size_t i) -> const BlockKey& { return *keys[i]; }, places.data(),
      indices.data());
  for (size_t i = 0; i < keys.size(); ++i) {
    if (indices[i] == PromiseTable::kNone) continue;
    const auto index = promises_.Find(places[i], *keys[i]);
    if (index == PromiseTable::kNone) continue;
    const Promises& promises = promises_[index].value;
    for (int entry = 0; entry < 2; ++entry) {
      if (!Counts(promises, entry, now)) continue;
      const int slot = promises.lives[entry] % kHolderSlots;
      masks[i].at[kTiers][slot / 64] |= uint64_t{1} << (slot % 64);
    }
  }
}

template <int kWords>
std::vector<HolderMatch> PageDirectory::FindIn(std::span<const BlockKey> keys, Seconds now) {
  auto& search = std::get<ChainSearch<kLevels, kWords>>(searches_);
  typename ChainSearch<kLevels, kWords>::Ends ends;
  const auto look = [&](std::span<const int32_t> positions, std::span<Masks<kWords>> masks) {
    std::array<const BlockKey*, kGroup> group;
    for (size_t begin = 0; begin < positions.size(); begin += kGroup) {
      const size_t count = std::min(kGroup, positions.size() - begin);
      for (size_t i = 0; i < count; ++i) group[i] = &keys[positions[begin + i]];
      Look<kWords>(std::span(group).first(count), now, masks.subspan(begin, count));
    }
    counted_.looked_pages += static_cast<int64_t>(positions.size());
  };
  search.Run(static_cast<int32_t>(keys.size()), LiveMasks<kWords>(), look, ends);

  std::vector<HolderMatch> matches;
  matches.reserve(by_life_.size());
  for (int slot = 0; slot < 64 * kWords; ++slot) {
    if (slots_[slot].state != SlotState::kLive) continue;
    HolderMatch& match = matches.emplace_back();
    match.holder = slots_[slot].holder;
    for (int tier = 0; tier < kTiers; ++tier) match.pages[tier] = ends[tier][slot];
    match.promised = ends[kTiers][slot];
  }
  return matches;
}

std::vector<HolderMatch> PageDirectory::Find(std::span<const BlockKey> keys, Seconds now) {
  CHECK(keys.size() <= (ChainSearch<kLevels, 1>::kMostPages), "a chain of {} pages", keys.size());
  if ((live_[2] | live_[3]) != 0) return FindIn<kSlotWords>(keys, now);
  return live_[1] != 0 ? FindIn<2>(keys, now) : FindIn<1>(keys, now);
}

HolderMatch PageDirectory::FindExactly(NodeId holder, std::span<const BlockKey> keys, Seconds now) {
  HolderMatch match{.holder = holder};
  const int slot = SlotOf(holder);
  if (slot < 0) return match;
  std::array<const BlockKey*, kGroup> group;
  std::array<Masks<kSlotWords>, kGroup> masks;
  std::array<int32_t, kLevels> ends{};
  size_t looked = 0;
  while (looked < keys.size() && ends[kTiers] == static_cast<int32_t>(looked)) {
    const size_t count = std::min(kGroup, keys.size() - looked);
    for (size_t i = 0; i < count; ++i) group[i] = &keys[looked + i];
    Look<kSlotWords>(std::span(group).first(count), now, std::span(masks).first(count));
    for (size_t i = 0; i < count; ++i) {
      for (int level = 0; level < kLevels; ++level) {
        const bool has = (masks[i].at[level][slot / 64] >> (slot % 64) & 1) != 0;
        if (has && ends[level] == static_cast<int32_t>(looked + i)) ++ends[level];
      }
    }
    looked += count;
  }
  counted_.looked_pages += static_cast<int64_t>(looked);
  std::copy_n(ends.begin(), kTiers, match.pages.begin());
  match.promised = ends[kTiers];
  return match;
}

}  // namespace divisi
