#include "divisi/kv/holder_sets.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "divisi/core/check.h"

namespace divisi {
namespace {

constexpr int kMostCounted = 15;
constexpr size_t kLeastEntries = 64;

int Shift(Tier tier) { return 4 * static_cast<int>(tier); }
int CountOf(uint16_t counts, Tier tier) { return (counts >> Shift(tier)) & 15; }
uint16_t Plus(uint16_t counts, Tier tier) {
  return static_cast<uint16_t>(counts + (1 << Shift(tier)));
}
uint16_t Minus(uint16_t counts, Tier tier) {
  return static_cast<uint16_t>(counts - (1 << Shift(tier)));
}

uint64_t BitOf(uint8_t slot) { return uint64_t{1} << (slot % 64); }

uint64_t Any(const std::array<uint64_t, kTiers>& tiers) {
  return tiers[0] | tiers[1] | tiers[2] | tiers[3];
}

int Position(const HolderSet& set, uint8_t slot) {
  for (int i = 0; i < set.size; ++i) {
    if (set.slots[i] == slot) return i;
  }
  return -1;
}

void Unlist(HolderSet& set, int position) {
  --set.size;
  set.slots[position] = set.slots[set.size];
  set.counts[position] = set.counts[set.size];
}

int HoldersOf(const SharedSet& shared) {
  int holders = 0;
  for (const auto& tiers : shared.words) holders += std::popcount(Any(tiers));
  return holders;
}

template <typename Visit>
void ForEachSlot(const SlotMask& mask, Visit visit) {
  for (int word = 0; word < kSlotWords; ++word) {
    for (uint64_t left = mask[word]; left != 0; left &= left - 1) {
      visit(static_cast<uint8_t>(64 * word + std::countr_zero(left)));
    }
  }
}

}  // namespace

ExtraCounts::ExtraCounts(int64_t most) : most_(most) { Grow(kLeastEntries); }

void ExtraCounts::Grow(size_t entries) {
  const auto old = std::exchange(entries_, std::vector<uint64_t>(entries));
  shift_ = 64 - std::countr_zero(entries);
  for (const uint64_t entry : old) {
    if (entry != 0) entries_[Position(entry >> 16)] = entry;
  }
}

size_t ExtraCounts::Position(uint64_t name) const {
  const size_t mask = entries_.size() - 1;
  size_t at = Home(name);
  while (entries_[at] != 0 && entries_[at] >> 16 != name) at = (at + 1) & mask;
  return at;
}

uint16_t ExtraCounts::Get(uint32_t block, uint8_t slot) const {
  if (size_ == 0) return 0;
  return static_cast<uint16_t>(entries_[Position(uint64_t{block} << 8 | slot)]);
}

bool ExtraCounts::Set(uint32_t block, uint8_t slot, uint16_t counts) {
  const uint64_t name = uint64_t{block} << 8 | slot;
  size_t at = Position(name);
  if (counts == 0) {
    if (entries_[at] != 0) EraseAt(at);
    return true;
  }
  if (entries_[at] == 0) {
    if (size_ == most_) return false;
    if (2 * ++size_ > static_cast<int64_t>(entries_.size())) {
      Grow(2 * entries_.size());
      at = Position(name);
    }
  }
  entries_[at] = name << 16 | counts;
  return true;
}

// What follows moves up where its home allows, so that no trace is left.
void ExtraCounts::EraseAt(size_t position) {
  const size_t mask = entries_.size() - 1;
  size_t hole = position;
  for (size_t next = (hole + 1) & mask; entries_[next] != 0; next = (next + 1) & mask) {
    const size_t home = Home(entries_[next] >> 16);
    if (((next - home) & mask) < ((next - hole) & mask)) continue;
    entries_[hole] = entries_[next];
    hole = next;
  }
  entries_[hole] = 0;
  --size_;
}

Result<HolderSets> HolderSets::Create(int64_t shared, int64_t again) {
  CHECK(shared >= 0 && shared < UINT32_MAX, "{} shared sets", shared);
  auto blocks = HugeMemory::Reserve(Bytes(shared * static_cast<int64_t>(sizeof(SharedSet))),
                                    "the directory's shared pages");
  if (!blocks) return blocks.error();
  return HolderSets(*std::move(blocks), shared, again);
}

HolderSets::Added HolderSets::Add(HolderSet& set, uint8_t slot, Tier tier) {
  if (set.shared()) return AddShared(set, slot, tier);
  const int position = Position(set, slot);
  if (position >= 0) {
    uint16_t& counts = set.counts[position];
    const int count = CountOf(counts, tier);
    if (count < kMostCounted)
      counts = Plus(counts, tier);
    else
      ++uncounted_;
    return count == 0 ? Added::kTier : Added::kAgain;
  }
  if (set.size == HolderSet::kListed) {
    return MakeShared(set) ? AddShared(set, slot, tier) : Added::kRefused;
  }
  set.slots[set.size] = slot;
  set.counts[set.size] = Plus(0, tier);
  ++set.size;
  return Added::kHolder;
}

HolderSets::Added HolderSets::AddShared(HolderSet& set, uint8_t slot, Tier tier) {
  auto& tiers = Blocks()[set.block()].words[slot / 64];
  const uint64_t bit = BitOf(slot);
  uint64_t& word = tiers[static_cast<int>(tier)];
  if ((word & bit) != 0) {
    const uint16_t extra = extra_.Get(set.block(), slot);
    if (CountOf(extra, tier) + 1 < kMostCounted)
      SetExtra(set.block(), slot, Plus(extra, tier));
    else
      ++uncounted_;
    return Added::kAgain;
  }
  const bool known = (Any(tiers) & bit) != 0;
  word |= bit;
  return known ? Added::kTier : Added::kHolder;
}

void HolderSets::SetExtra(uint32_t block, uint8_t slot, uint16_t counts) {
  if (!extra_.Set(block, slot, counts)) ++uncounted_;
}

HolderSets::Removed HolderSets::Remove(HolderSet& set, uint8_t slot, Tier tier) {
  if (set.shared()) return RemoveShared(set, slot, tier);
  const int position = Position(set, slot);
  if (position < 0 || CountOf(set.counts[position], tier) == 0) return Removed::kAbsent;
  uint16_t& counts = set.counts[position];
  counts = Minus(counts, tier);
  if (CountOf(counts, tier) > 0) return Removed::kOnce;
  if (counts != 0) return Removed::kTier;
  Unlist(set, position);
  return Removed::kHolder;
}

HolderSets::Removed HolderSets::RemoveShared(HolderSet& set, uint8_t slot, Tier tier) {
  SharedSet& shared = Blocks()[set.block()];
  auto& tiers = shared.words[slot / 64];
  const uint64_t bit = BitOf(slot);
  uint64_t& word = tiers[static_cast<int>(tier)];
  if ((word & bit) == 0) return Removed::kAbsent;
  const uint16_t extra = extra_.Get(set.block(), slot);
  if (CountOf(extra, tier) > 0) {
    SetExtra(set.block(), slot, Minus(extra, tier));
    return Removed::kOnce;
  }
  word &= ~bit;
  if ((Any(tiers) & bit) != 0) return Removed::kTier;
  if (HoldersOf(shared) <= HolderSet::kListed) ListAgain(set);
  return Removed::kHolder;
}

bool HolderSets::MakeShared(HolderSet& set) {
  if (shared_ == most_) return false;
  ++shared_;
  uint32_t block = fresh_;
  if (free_.empty()) {
    ++fresh_;
  } else {
    block = free_.back();
    free_.pop_back();
  }
  SharedSet& shared = Blocks()[block];
  shared = {};
  for (int i = 0; i < set.size; ++i) {
    uint16_t extra = 0;
    for (int tier = 0; tier < kTiers; ++tier) {
      const int count = CountOf(set.counts[i], static_cast<Tier>(tier));
      if (count == 0) continue;
      shared.words[set.slots[i] / 64][tier] |= BitOf(set.slots[i]);
      extra = static_cast<uint16_t>(extra | ((count - 1) << (4 * tier)));
    }
    if (extra != 0) SetExtra(block, set.slots[i], extra);
  }
  set = HolderSet{};
  set.size = HolderSet::kShared;
  set.counts[0] = static_cast<uint16_t>(block);
  set.counts[1] = static_cast<uint16_t>(block >> 16);
  return true;
}

void HolderSets::ListAgain(HolderSet& set) {
  HolderSet listed;
  ForEachSlot(Holders(set), [&](uint8_t slot) {
    uint16_t counts = extra_.Get(set.block(), slot);
    if (counts != 0) extra_.Set(set.block(), slot, 0);
    for (int tier = 0; tier < kTiers; ++tier) {
      const bool held = (Shared(set).words[slot / 64][tier] & BitOf(slot)) != 0;
      if (held) counts = Plus(counts, static_cast<Tier>(tier));
    }
    listed.slots[listed.size] = slot;
    listed.counts[listed.size] = counts;
    ++listed.size;
  });
  free_.push_back(set.block());
  --shared_;
  set = listed;
}

void HolderSets::Keep(HolderSet& set, const SlotMask& live) {
  if (!set.shared()) {
    for (int i = set.size - 1; i >= 0; --i) {
      if ((live[set.slots[i] / 64] & BitOf(set.slots[i])) == 0) Unlist(set, i);
    }
    return;
  }
  SlotMask gone = Holders(set);
  uint64_t any = 0;
  for (int word = 0; word < kSlotWords; ++word) any |= gone[word] &= ~live[word];
  if (any == 0) return;
  if (extra_.size() > 0) {
    ForEachSlot(gone, [&](uint8_t slot) { extra_.Set(set.block(), slot, 0); });
  }
  SharedSet& shared = Blocks()[set.block()];
  for (int word = 0; word < kSlotWords; ++word) {
    for (uint64_t& tier : shared.words[word]) tier &= live[word];
  }
  if (HoldersOf(shared) <= HolderSet::kListed) ListAgain(set);
}

int HolderSets::Count(const HolderSet& set, uint8_t slot, Tier tier) const {
  if (!set.shared()) {
    const int position = Position(set, slot);
    return position < 0 ? 0 : CountOf(set.counts[position], tier);
  }
  if ((Shared(set).words[slot / 64][static_cast<int>(tier)] & BitOf(slot)) == 0) return 0;
  return 1 + CountOf(extra_.Get(set.block(), slot), tier);
}

SlotMask HolderSets::Holders(const HolderSet& set) const {
  SlotMask holders{};
  if (set.shared()) {
    for (int word = 0; word < kSlotWords; ++word) holders[word] = Any(Shared(set).words[word]);
  } else {
    for (int i = 0; i < set.size; ++i) holders[set.slots[i] / 64] |= BitOf(set.slots[i]);
  }
  return holders;
}

Bytes HolderSets::bytes() const {
  return Bytes(int64_t{fresh_} * static_cast<int64_t>(sizeof(SharedSet)) +
               static_cast<int64_t>(free_.capacity() * sizeof(uint32_t))) +
         extra_.bytes();
}

}  // namespace divisi
