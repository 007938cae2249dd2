#include "divisi/kv/store_space.h"

#include "divisi/core/check.h"

namespace divisi {
namespace {

// Of one search for what gives way: the pages of a prompt of 32k tokens, some 0.3 ms at the worst.
constexpr int kMostLooked = 2048;

Bytes RoundUp(Bytes length) {
  return Bytes((length.value + kStoreAlignment - 1) / kStoreAlignment * kStoreAlignment);
}

}  // namespace

StoreSpace::StoreSpace(Bytes size, bool report) : size_(size), report_(report) {
  Give(Bytes(0), size);
}

// The smallest hole that holds it.
std::optional<Bytes> StoreSpace::Take(Bytes space) {
  const auto hole = free_by_size_.lower_bound({space.value, 0});
  if (hole == free_by_size_.end()) return std::nullopt;
  const auto [size, offset] = *hole;
  free_by_size_.erase(hole);
  free_.erase(offset);
  if (size > space.value) Give(Bytes(offset + space.value), Bytes(size - space.value));
  return Bytes(offset);
}

void StoreSpace::Give(Bytes offset, Bytes space) {
  if (space.value == 0) return;
  int64_t begin = offset.value;
  int64_t end = offset.value + space.value;
  auto next = free_.lower_bound(begin);
  if (next != free_.end() && next->first == end) {
    end += next->second;
    free_by_size_.erase({next->second, next->first});
    next = free_.erase(next);
  }
  if (next != free_.begin()) {
    const auto before = std::prev(next);
    if (before->first + before->second == begin) {
      begin = before->first;
      free_by_size_.erase({before->second, before->first});
      free_.erase(before);
    }
  }
  free_.emplace(begin, end - begin);
  free_by_size_.emplace(end - begin, begin);
}

// Of the longest unused, what is neither read nor followed; where no such is among them, or the end
// of each chain is being read, the first that is not read.
bool StoreSpace::EvictOne() {
  auto victim = entries_.end();
  int looked = 0;
  for (auto slot = recent_.rbegin(); slot != recent_.rend(); ++slot) {
    const auto entry = entries_.find(*slot);
    const bool enough = ++looked >= kMostLooked && victim != entries_.end();
    if (enough) break;
    if (entry->second.pins > 0) continue;
    const bool followed = IsFollowed(entry->second);
    if (victim == entries_.end() || !followed) victim = entry;
    if (!followed) break;
  }
  if (victim == entries_.end()) return false;
  Hide(victim);
  ++evictions_;
  return true;
}

StoreSpace::Placing StoreSpace::Place(const BlockKey& key, Bytes length) {
  if (slots_.contains(key)) return {StoreStatus::kPresent, {}};
  const Bytes space = RoundUp(length);
  if (length.value <= 0 || space > size_) return {StoreStatus::kTooLarge, {}};
  auto offset = Take(space);
  while (!offset && EvictOne()) offset = Take(space);
  if (!offset) return {StoreStatus::kNoRoom, {}};
  const Slot slot = ++last_slot_;
  entries_.emplace(slot, Entry{.key = key, .offset = *offset, .length = length, .space = space});
  slots_.emplace(key, slot);
  used_ += space;
  ++placed_;
  return {StoreStatus::kOk, {slot, *offset, length}};
}

void StoreSpace::Publish(Slot slot, const BlockKey& parent) {
  const auto entry = entries_.find(slot);
  CHECK(entry != entries_.end() && entry->second.state == State::kPlaced);
  entry->second.state = State::kVisible;
  entry->second.parent = parent;
  if (parent != BlockKey()) ++children_[parent];
  recent_.push_front(slot);
  entry->second.recent = recent_.begin();
  --placed_;
  if (report_) changes_.push_back({entry->second.key, true});
}

void StoreSpace::Abandon(Slot slot) {
  const auto entry = entries_.find(slot);
  CHECK(entry != entries_.end() && entry->second.state == State::kPlaced);
  slots_.erase(entry->second.key);
  --placed_;
  Drop(entry);
}

void StoreSpace::Touch(const BlockKey& key) {
  const auto found = key == BlockKey() ? slots_.end() : slots_.find(key);
  if (found == slots_.end()) return;
  const Entry& entry = entries_.at(found->second);
  if (entry.state == State::kVisible) recent_.splice(recent_.begin(), recent_, entry.recent);
}

std::optional<StoreSpace::Object> StoreSpace::Read(const BlockKey& key) {
  const auto found = slots_.find(key);
  if (found == slots_.end()) return std::nullopt;
  Entry& entry = entries_.at(found->second);
  if (entry.state != State::kVisible) return std::nullopt;
  ++entry.pins;
  recent_.splice(recent_.begin(), recent_, entry.recent);
  Touch(entry.parent);
  return Object{found->second, entry.offset, entry.length};
}

void StoreSpace::Unpin(Slot slot) {
  const auto entry = entries_.find(slot);
  CHECK(entry != entries_.end() && entry->second.pins > 0);
  if (--entry->second.pins == 0 && entry->second.state == State::kRemoved) Drop(entry);
}

bool StoreSpace::Has(const BlockKey& key) const {
  const auto found = slots_.find(key);
  return found != slots_.end() && entries_.at(found->second).state == State::kVisible;
}

bool StoreSpace::Remove(const BlockKey& key) {
  if (!Has(key)) return false;
  Hide(entries_.find(slots_.at(key)));
  return true;
}

int64_t StoreSpace::Clear() {
  const int64_t count = objects();
  while (!recent_.empty()) Hide(entries_.find(recent_.front()));
  return count;
}

void StoreSpace::Hide(Entries::iterator entry) {
  slots_.erase(entry->second.key);
  recent_.erase(entry->second.recent);
  const auto children = children_.find(entry->second.parent);
  if (children != children_.end() && --children->second == 0) children_.erase(children);
  if (report_) changes_.push_back({entry->second.key, false});
  entry->second.state = State::kRemoved;
  if (entry->second.pins == 0) Drop(entry);
}

void StoreSpace::Drop(Entries::iterator entry) {
  used_ = used_ - entry->second.space;
  Give(entry->second.offset, entry->second.space);
  entries_.erase(entry);
}

}  // namespace divisi
