// The fields of each event in the order of the positional shape, which reading and writing share.
#pragma once

#include <array>
#include <string_view>

#include "divisi/core/check.h"
#include "divisi/kv/kv_event.h"

namespace divisi {

// kAlways: fields of the positional shape that every version sends. kMapAlways: those that have no
// default, which the map shape always has. Visit calls use(field number `index` of the event).
template <typename Event>
struct EventFields;

template <typename Field>
bool IsFieldSet(const Field&) {
  return true;
}
template <typename T>
bool IsFieldSet(const std::optional<T>& field) {
  return field.has_value();
}

template <>
struct EventFields<StoredEvent> {
  static constexpr const char* kType = "BlockStored";
  static constexpr std::array<const char*, 11> kNames = {"block_hashes",
                                                         "parent_block_hash",
                                                         "token_ids",
                                                         "block_size",
                                                         "lora_id",
                                                         "medium",
                                                         "lora_name",
                                                         "extra_keys",
                                                         "group_idx",
                                                         "kv_cache_spec_kind",
                                                         "kv_cache_spec_sliding_window"};
  static constexpr size_t kAlways = 5;
  static constexpr size_t kMapAlways = 7;
  template <typename E, typename Use>
  static auto Visit(E& event, size_t index, Use use) {
    switch (index) {
      case 0:
        return use(event.hashes);
      case 1:
        return use(event.parent);
      case 2:
        return use(event.tokens);
      case 3:
        return use(event.block_size);
      case 4:
        return use(event.lora_id);
      case 5:
        return use(event.medium);
      case 6:
        return use(event.lora_name);
      case 7:
        return use(event.extra_keys);
      case 8:
        return use(event.group);
      case 9:
        return use(event.spec_kind);
      default:
        return use(event.sliding_window);
    }
  }
  static bool IsSet(const StoredEvent& event, size_t index) {
    return Visit(event, index, [](const auto& field) { return IsFieldSet(field); });
  }
};

template <>
struct EventFields<RemovedEvent> {
  static constexpr const char* kType = "BlockRemoved";
  static constexpr std::array<const char*, 3> kNames = {"block_hashes", "medium", "group_idx"};
  static constexpr size_t kAlways = 1;
  static constexpr size_t kMapAlways = 2;
  template <typename E, typename Use>
  static auto Visit(E& event, size_t index, Use use) {
    switch (index) {
      case 0:
        return use(event.hashes);
      case 1:
        return use(event.medium);
      default:
        return use(event.group);
    }
  }
  static bool IsSet(const RemovedEvent& event, size_t index) {
    return Visit(event, index, [](const auto& field) { return IsFieldSet(field); });
  }
};

template <>
struct EventFields<ClearedEvent> {
  static constexpr const char* kType = "AllBlocksCleared";
  static constexpr std::array<const char*, 0> kNames = {};
  static constexpr size_t kAlways = 0;
  static constexpr size_t kMapAlways = 0;
  template <typename E, typename Use>
  static bool Visit(E&, size_t, Use) {
    return false;
  }
  static bool IsSet(const ClearedEvent&, size_t) { return false; }
};

}  // namespace divisi
