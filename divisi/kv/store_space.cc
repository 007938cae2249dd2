#include "divisi/kv/store_space.h"

#include "divisi/core/check.h"

namespace divisi {
namespace {

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

// Those that are being read are passed over: as many as there are readers.
std::optional<StoreSpace::Slot> StoreSpace::FirstUnread(const ByUse& slots) const {
  for (const auto& [use, slot] : slots) {
    if (entries_.at(slot).pins == 0) return slot;
  }
  return std::nullopt;
}

// The longest unused page that none follows; where all of these are being read, one that is
// followed.
bool StoreSpace::EvictOne() {
  auto victim = FirstUnread(ends_);
  if (!victim) victim = FirstUnread(followed_);
  if (!victim) return false;
  Hide(entries_.find(*victim));
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
  entry->second.used = ++uses_;
  ListOf(entry->second).emplace(uses_, slot);
  Follow(parent);
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

StoreSpace::Entry* StoreSpace::VisibleAt(const BlockKey& key) {
  const auto found = slots_.find(key);
  if (found == slots_.end()) return nullptr;
  Entry& entry = entries_.at(found->second);
  return entry.state == State::kVisible ? &entry : nullptr;
}

void StoreSpace::Use(Slot slot, Entry& entry) {
  ByUse& list = ListOf(entry);
  list.erase(entry.used);
  entry.used = ++uses_;
  list.emplace_hint(list.end(), uses_, slot);
}

void StoreSpace::Follow(const BlockKey& parent) {
  if (parent == BlockKey() || ++children_[parent] > 1) return;
  if (const Entry* entry = VisibleAt(parent)) followed_.insert(ends_.extract(entry->used));
}

void StoreSpace::Unfollow(const BlockKey& parent) {
  const auto children = children_.find(parent);
  if (children == children_.end() || --children->second > 0) return;
  children_.erase(children);
  if (const Entry* entry = VisibleAt(parent)) ends_.insert(followed_.extract(entry->used));
}

void StoreSpace::Touch(const BlockKey& key) {
  if (key == BlockKey()) return;
  if (Entry* entry = VisibleAt(key)) Use(slots_.at(key), *entry);
}

std::optional<StoreSpace::Object> StoreSpace::Read(const BlockKey& key) {
  Entry* const entry = VisibleAt(key);
  if (entry == nullptr) return std::nullopt;
  const Slot slot = slots_.at(key);
  ++entry->pins;
  Use(slot, *entry);
  Touch(entry->parent);
  return Object{slot, entry->offset, entry->length};
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
  while (objects() > 0) {
    Hide(entries_.find((ends_.empty() ? followed_ : ends_).begin()->second));
  }
  return count;
}

void StoreSpace::Hide(Entries::iterator entry) {
  ListOf(entry->second).erase(entry->second.used);
  slots_.erase(entry->second.key);
  Unfollow(entry->second.parent);
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
