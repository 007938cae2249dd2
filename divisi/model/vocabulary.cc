#include "divisi/model/vocabulary.h"

#include <algorithm>
#include <bit>
#include <functional>
#include <utility>

#include "divisi/core/check.h"
#include "divisi/model/byte_level.h"

namespace divisi {
namespace {

constexpr TokenId kFree = -1;
constexpr size_t kMinSlots = 16;

uint32_t HashOf(std::string_view text) {
  return static_cast<uint32_t>(std::hash<std::string_view>{}(text));
}

}  // namespace

Result<void> Vocabulary::AddEntry(std::string_view text, int64_t id) {
  const std::optional<std::string> bytes = FromByteLevel(text);
  RETURN_IF_ERROR(Insert(text, bytes ? std::string_view(*bytes) : text, id));
  entries_[id].model = true;
  return {};
}

Result<void> Vocabulary::AddToken(std::string_view text, int64_t id, bool special) {
  const std::optional<TokenId> known = Find(text);
  if (!known) {
    RETURN_IF_ERROR(Insert(text, text, id));
  } else if (*known != id) {
    return Error{
        Code::kInvalidArgument,
        Format("added token \"{}\" has id {}, but the vocabulary has it as {}", text, id, *known)};
  }
  Entry& entry = entries_[id];
  entry.bytes = entry.text;
  entry.special = entry.special || special;
  return {};
}

void Vocabulary::Reserve(size_t entries) {
  entries = std::min<size_t>(entries, kMaxId);
  entries_.reserve(entries);
  Rehash(std::bit_ceil(2 * entries + kMinSlots));
}

std::optional<TokenId> Vocabulary::Find(std::string_view text) const {
  if (slots_.empty()) return std::nullopt;
  const TokenId id = slots_[SlotOf(text, HashOf(text))].id;
  return id == kFree ? std::nullopt : std::optional(id);
}

std::optional<TokenId> Vocabulary::FindEntry(std::string_view text) const {
  const std::optional<TokenId> id = Find(text);
  return id && entries_[*id].model ? id : std::nullopt;
}

Result<void> Vocabulary::Insert(std::string_view text, std::string_view bytes, int64_t id) {
  if (id < 0 || id > kMaxId) {
    return Error{Code::kInvalidArgument,
                 Format("token \"{}\" has id {}, which is not in 0..{}", text, id, kMaxId)};
  }
  if (2 * (count_ + 1) > slots_.size()) Rehash(std::max(kMinSlots, 2 * slots_.size()));
  const uint32_t hash = HashOf(text);
  Slot& slot = slots_[SlotOf(text, hash)];
  if (slot.id != kFree) {
    return Error{Code::kInvalidArgument, Format("token \"{}\" is in the vocabulary twice", text)};
  }
  if (id >= end_id()) entries_.resize(id + 1);
  Entry& entry = entries_[id];
  if (entry.used) {
    return Error{Code::kInvalidArgument, Format("tokens \"{}\" and \"{}\" have the same id {}",
                                                Text(static_cast<TokenId>(id)), text, id)};
  }
  entry = {.text = Store(text), .used = true};
  entry.bytes = bytes == text ? entry.text : Store(bytes);
  slot = {hash, static_cast<TokenId>(id)};
  ++count_;
  return {};
}

Vocabulary::Range Vocabulary::Store(std::string_view text) {
  const Range range{static_cast<uint32_t>(arena_.size()), static_cast<uint32_t>(text.size())};
  arena_.append(text);
  CHECK(arena_.size() <= UINT32_MAX, "the arena has {} bytes", arena_.size());
  return range;
}

std::string_view Vocabulary::View(TokenId id, Range Entry::*range) const {
  if (!Has(id)) return {};
  const Range& view = entries_[id].*range;
  return std::string_view(arena_).substr(view.offset, view.length);
}

// The slot that holds `text`, or else the free one where it belongs.
size_t Vocabulary::SlotOf(std::string_view text, uint32_t hash) const {
  const size_t mask = slots_.size() - 1;
  size_t i = hash & mask;
  while (slots_[i].id != kFree && (slots_[i].hash != hash || Text(slots_[i].id) != text)) {
    i = (i + 1) & mask;
  }
  return i;
}

void Vocabulary::Rehash(size_t size) {
  if (size <= slots_.size()) return;
  const std::vector<Slot> old = std::exchange(slots_, std::vector<Slot>(size));
  for (const Slot& slot : old) {
    if (slot.id != kFree) slots_[SlotOf(Text(slot.id), slot.hash)] = slot;
  }
}

}  // namespace divisi
