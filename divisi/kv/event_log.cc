#include "divisi/kv/event_log.h"

#include <algorithm>

#include "divisi/core/check.h"

namespace divisi {
namespace {

size_t BlocksOf(const EventLog::Options& options, size_t steps, size_t batches) {
  const size_t least = (steps + batches - 1) / batches;
  return std::max({options.batch_blocks, least, size_t{1}});
}

}  // namespace

StoredEvent PageStored(const BlockKey& key, const BlockKey* parent, std::span<const TokenId> tokens,
                       EventTier tier) {
  StoredEvent event;
  event.hashes = {EventHash(key)};
  if (parent != nullptr) event.parent = EventHash(*parent);
  event.tokens.assign(tokens.begin(), tokens.end());
  event.block_size = kBlockTokens;
  event.medium = MediumOfTier(tier);
  return event;
}

RemovedEvent PageRemoved(const BlockKey& key, EventTier tier) {
  return {{EventHash(key)}, MediumOfTier(tier), std::nullopt, {}};
}

size_t EventLog::PlaceHash::operator()(const Place& place) const {
  const auto more =
      static_cast<size_t>(place.group) * kEventTiers + static_cast<size_t>(place.tier);
  return EventHashHash()(place.hash) ^ more * 0x9e3779b97f4a7c15u;
}

EventLog::Common EventLog::CommonOf(const StoredEvent& event) {
  StoredEvent common = event;
  common.hashes.clear();
  common.parent.reset();
  common.tokens.clear();
  common.extra_keys.reset();
  if (last_common_ == nullptr || *last_common_ != common) {
    last_common_ = std::make_shared<const StoredEvent>(std::move(common));
  }
  return last_common_;
}

void EventLog::Push(Step step) {
  if (overflowed_) return;
  pending_.push_back(std::move(step));
  if (pending_.size() <= options_.pending_blocks) return;
  overflowed_ = true;
  ++overflows_;
  pending_ = {};
}

void EventLog::Store(const StoredEvent& event) {
  const Common common = CommonOf(event);
  const EventTier tier = TierOfMedium(event.medium);
  for (size_t i = 0; i < event.hashes.size(); ++i) {
    const auto [place, added] =
        places_.try_emplace({event.hashes[i], tier, event.group.value_or(0)}, held_.end());
    if (!added) continue;
    Block block{common, event.hashes[i], event.parent, {}, {}};
    if (i > 0) block.parent = event.hashes[i - 1];
    const auto tokens = event.TokensOf(i);
    block.tokens.assign(tokens.begin(), tokens.end());
    if (event.extra_keys && i < event.extra_keys->size()) block.extras = (*event.extra_keys)[i];
    held_.push_back(std::make_shared<const Block>(std::move(block)));
    place->second = std::prev(held_.end());
    Push({held_.back(), std::nullopt});
  }
}

void EventLog::Remove(const RemovedEvent& event) {
  const EventTier tier = TierOfMedium(event.medium);
  for (const EventHash& hash : event.hashes) {
    const auto place = places_.find({hash, tier, event.group.value_or(0)});
    if (place == places_.end()) continue;
    held_.erase(place->second);
    places_.erase(place);
    Push({nullptr, RemovedEvent{{hash}, event.medium, event.group, {}}});
  }
}

void EventLog::Add(const KvEvent& event) {
  if (const auto* stored = std::get_if<StoredEvent>(&event)) Store(*stored);
  if (const auto* removed = std::get_if<RemovedEvent>(&event)) Remove(*removed);
  if (!std::holds_alternative<ClearedEvent>(event)) return;
  held_.clear();
  places_.clear();
  // Nothing before it matters any more.
  pending_.clear();
  overflowed_ = false;
  Push({});
}

KvEvent EventLog::EventOf(const Step& step) {
  if (step.removed) return *step.removed;
  if (step.block == nullptr) return ClearedEvent{};
  StoredEvent event = *step.block->common;
  event.hashes = {step.block->hash};
  event.parent = step.block->parent;
  event.tokens = step.block->tokens;
  if (step.block->extras) event.extra_keys = std::vector<BlockExtras>{step.block->extras};
  return event;
}

bool EventLog::Joins(const KvEvent& event, const Step& step) {
  if (const auto* removed = std::get_if<RemovedEvent>(&event)) {
    return step.removed && step.removed->medium == removed->medium &&
           step.removed->group == removed->group;
  }
  const auto* stored = std::get_if<StoredEvent>(&event);
  if (stored == nullptr || step.block == nullptr) return false;
  const Block& block = *step.block;
  const StoredEvent& common = *block.common;
  return block.parent == stored->hashes.back() && block.tokens.empty() == stored->tokens.empty() &&
         common.block_size == stored->block_size && common.medium == stored->medium &&
         common.group == stored->group && common.lora_id == stored->lora_id &&
         common.lora_name == stored->lora_name && common.spec_kind == stored->spec_kind &&
         common.sliding_window == stored->sliding_window && common.more == stored->more;
}

void EventLog::Join(KvEvent& event, const Step& step) {
  if (auto* removed = std::get_if<RemovedEvent>(&event)) {
    removed->hashes.push_back(step.removed->hashes[0]);
    return;
  }
  auto& stored = std::get<StoredEvent>(event);
  const Block& block = *step.block;
  if (block.extras || stored.extra_keys) {
    if (!stored.extra_keys) stored.extra_keys.emplace();
    stored.extra_keys->resize(stored.hashes.size());
    stored.extra_keys->push_back(block.extras);
  }
  stored.hashes.push_back(block.hash);
  stored.tokens.insert(stored.tokens.end(), block.tokens.begin(), block.tokens.end());
}

// The steps as payloads: at most `batches`, and no more blocks in each than that asks for.
std::vector<std::string> EventLog::Pack(const std::vector<Step>& steps, size_t batches,
                                        double unix_seconds) const {
  const size_t blocks = BlocksOf(options_, steps.size(), batches);
  std::vector<std::string> payloads;
  EventBatch batch;
  batch.time_seconds = unix_seconds;
  batch.data_parallel_rank = options_.data_parallel_rank;
  for (size_t i = 0; i < steps.size(); ++i) {
    if (!batch.events.empty() && Joins(batch.events.back(), steps[i])) {
      Join(batch.events.back(), steps[i]);
    } else {
      batch.events.push_back(EventOf(steps[i]));
    }
    if ((i + 1) % blocks == 0 || i + 1 == steps.size()) {
      payloads.push_back(EncodeEventBatch(batch, options_.shape));
      batch.events.clear();
    }
  }
  return payloads;
}

std::vector<EventLog::Step> EventLog::Everything() const {
  std::vector<Step> steps(1);
  for (const auto& block : held_) steps.push_back({block, std::nullopt});
  return steps;
}

std::vector<NumberedBatch> EventLog::Flush(double unix_seconds) {
  if (!pending()) return {};
  const auto steps = overflowed_ ? Everything() : std::move(pending_);
  pending_.clear();
  overflowed_ = false;
  std::vector<NumberedBatch> batches;
  for (std::string& payload : Pack(steps, steps.size(), unix_seconds)) {
    batches.push_back({next_++, std::make_shared<const std::string>(std::move(payload))});
    ring_bytes_ += batches.back().payload->size();
    ring_.push_back(batches.back());
  }
  while (ring_.size() > 1 &&
         (ring_.size() > options_.ring_batches || ring_bytes_ > options_.ring_bytes)) {
    ring_bytes_ -= ring_.front().payload->size();
    ring_.pop_front();
  }
  return batches;
}

std::vector<NumberedBatch> EventLog::Since(uint64_t first, double unix_seconds) {
  CHECK(!pending(), "Flush comes before Since");
  if (first >= next_) return {};
  const uint64_t oldest = ring_.front().sequence;
  if (first >= oldest) {
    return {ring_.begin() + static_cast<std::ptrdiff_t>(first - oldest), ring_.end()};
  }
  ++snapshots_;
  auto payloads = Pack(Everything(), static_cast<size_t>(next_ - first), unix_seconds);
  std::vector<NumberedBatch> batches;
  uint64_t sequence = next_ - payloads.size();
  for (std::string& payload : payloads) {
    batches.push_back({sequence++, std::make_shared<const std::string>(std::move(payload))});
  }
  return batches;
}

EventLog::Stats EventLog::stats() const {
  return {next_, held_.size(), ring_.size(), snapshots_, overflows_};
}

}  // namespace divisi
