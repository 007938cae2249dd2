#include "divisi/kv/held_blocks.h"

#include <algorithm>
#include <array>
#include <optional>

namespace divisi {
namespace {

// Groups of one worker are few; a foreign stream must not make this set grow.
constexpr size_t kMostGroups = 64;

}  // namespace

void HeldBlocks::Clear() {
  blocks_.clear();
  groups_.clear();
}

void HeldBlocks::Store(const StoredEvent& event, std::vector<HeldChange>& changes) {
  const EventTier tier = TierOfMedium(event.medium);
  const int64_t group = event.group.value_or(0);
  if (tier == EventTier::kUnknown || !IsPrefixEvidence(event.spec_kind)) return;
  if (!groups_.contains(group) && groups_.size() >= kMostGroups) return;
  groups_.insert(group);
  for (const EventHash& hash : event.hashes) {
    auto block = blocks_.find(hash);
    if (block == blocks_.end()) {
      if (blocks_.size() >= most_) {
        ++refused_;
        continue;
      }
      block = blocks_.try_emplace(hash).first;
    }
    auto& copies = block->second;
    const auto same = std::ranges::find_if(
        copies, [&](const Copies& c) { return c.group == group && c.tier == tier; });
    if (same != copies.end()) {
      ++same->count;
      continue;
    }
    copies.push_back({group, tier, 1});
    std::ranges::sort(copies, {}, [](const Copies& c) { return std::pair(c.group, c.tier); });
    changes.push_back({HeldChange::Kind::kStored, hash, tier, group});
  }
}

void HeldBlocks::Remove(const RemovedEvent& event, std::vector<HeldChange>& changes) {
  const EventTier tier = TierOfMedium(event.medium);
  const int64_t group = event.group.value_or(0);
  for (const EventHash& hash : event.hashes) {
    const auto block = blocks_.find(hash);
    if (block == blocks_.end()) continue;
    auto& copies = block->second;
    const auto same = std::ranges::find_if(
        copies, [&](const Copies& c) { return c.group == group && c.tier == tier; });
    if (same == copies.end() || --same->count > 0) continue;
    copies.erase(same);
    if (copies.empty()) blocks_.erase(block);
    changes.push_back({HeldChange::Kind::kRemoved, hash, tier, group});
  }
}

std::vector<HeldChange> HeldBlocks::Apply(const KvEvent& event) {
  std::vector<HeldChange> changes;
  if (const auto* stored = std::get_if<StoredEvent>(&event)) Store(*stored, changes);
  if (const auto* removed = std::get_if<RemovedEvent>(&event)) Remove(*removed, changes);
  if (std::holds_alternative<ClearedEvent>(event)) {
    Clear();
    changes.push_back({.kind = HeldChange::Kind::kCleared, .hash = {}});
  }
  return changes;
}

std::vector<EventTier> HeldBlocks::Prefix(std::span<const EventHash> chain) const {
  std::vector<EventTier> tiers;
  for (const EventHash& hash : chain) {
    const auto block = blocks_.find(hash);
    if (block == blocks_.end()) break;
    // Sorted by group, then tier: the first of each group is its nearest.
    size_t groups = 0;
    std::optional<int64_t> last;
    EventTier farthest = EventTier::kDevice;
    for (const Copies& copies : block->second) {
      if (last == copies.group) continue;
      last = copies.group;
      ++groups;
      farthest = std::max(farthest, copies.tier);
    }
    if (groups < groups_.size()) break;
    tiers.push_back(farthest);
  }
  return tiers;
}

bool HeldBlocks::Holds(const EventHash& hash, EventTier tier) const {
  const auto block = blocks_.find(hash);
  return block != blocks_.end() &&
         std::ranges::any_of(block->second, [&](const Copies& c) { return c.tier == tier; });
}

size_t HeldBlocks::On(EventTier tier) const {
  return static_cast<size_t>(std::ranges::count_if(blocks_, [&](const auto& block) {
    return std::ranges::any_of(block.second, [&](const Copies& c) { return c.tier == tier; });
  }));
}

}  // namespace divisi
