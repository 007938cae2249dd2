// KV cache events: what a worker says that it now holds, or no longer does, in the format of vLLM,
// which SGLang and others share (docs/kv.md, "Events"). One message is a batch: MessagePack
// [time, [event...], data-parallel rank].
//
// An event comes in one of two shapes. Positional: [type, field...], with as many fields as its
// sender's version knew. Map: {"type": ..., field: ...}, without fields that have their default.
// Both are read, whole or cut short, and either is written.
// Sources: vLLM distributed/kv_events.py, and pull request 42892 for the maps.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "divisi/core/ids.h"
#include "divisi/core/result.h"
#include "divisi/kv/event_hash.h"

namespace divisi {

class Json;

// A field that this version does not know, as it came: MessagePack. Positional ones have no name.
struct EventField {
  std::string name;
  std::string value;
  friend bool operator==(const EventField&, const EventField&) = default;
};

// What a block's hash covers besides tokens: a LoRA's name, a salt (kText), an image with its first
// token relative to the block's (kPair), a digest of embeddings (kBytes).
struct ExtraKey {
  enum class Kind { kText, kBytes, kPair, kOther };
  Kind kind = Kind::kText;
  std::string text;    // Of kOther: its MessagePack.
  int64_t offset = 0;  // Of kPair.
  friend bool operator==(const ExtraKey&, const ExtraKey&) = default;
};
using BlockExtras = std::optional<std::vector<ExtraKey>>;

// Blocks that follow each other: hashes[0] follows parent, hashes[i] follows hashes[i - 1].
struct StoredEvent {
  std::vector<EventHash> hashes;
  std::optional<EventHash> parent;  // None: the first block is a prompt's first.
  std::vector<TokenId> tokens;  // block_size for each hash; may be empty (offloading tells none).
  int64_t block_size = 0;
  std::optional<int64_t> lora_id;
  std::optional<std::string> medium;
  std::optional<std::string> lora_name;
  std::optional<std::vector<BlockExtras>> extra_keys;  // One per hash.
  std::optional<int64_t> group;                        // Layers that share one kind of cache.
  std::optional<std::string> spec_kind;
  std::optional<int64_t> sliding_window;
  std::vector<EventField> more;

  // Of block `index`; empty where the event tells none, or not block_size for each hash.
  std::span<const TokenId> TokensOf(size_t index) const;
  friend bool operator==(const StoredEvent&, const StoredEvent&) = default;
};
struct RemovedEvent {
  std::vector<EventHash> hashes;
  std::optional<std::string> medium;
  std::optional<int64_t> group;
  std::vector<EventField> more;
  friend bool operator==(const RemovedEvent&, const RemovedEvent&) = default;
};
// All that was stored before is gone, on every medium.
struct ClearedEvent {
  std::vector<EventField> more;
  friend bool operator==(const ClearedEvent&, const ClearedEvent&) = default;
};
// An event of a type that this version does not know, or whose fields are not what they should be.
struct OtherEvent {
  std::string type;   // Empty where it has none.
  std::string value;  // The whole event's MessagePack.
  friend bool operator==(const OtherEvent&, const OtherEvent&) = default;
};
using KvEvent = std::variant<StoredEvent, RemovedEvent, ClearedEvent, OtherEvent>;

struct EventBatch {
  double time_seconds = 0;  // Of the sender's clock, Unix epoch.
  std::vector<KvEvent> events;
  std::optional<int64_t> data_parallel_rank;
  std::vector<std::string> more;  // What follows the rank: MessagePack.
  friend bool operator==(const EventBatch&, const EventBatch&) = default;
};

// Bounds of one foreign batch. A prompt of a million tokens is 65,536 blocks and 5 MB.
inline constexpr size_t kMaxBatchBytes = size_t{16} << 20;
inline constexpr size_t kMaxBatchEvents = size_t{1} << 16;
inline constexpr size_t kMaxBatchHashes = size_t{1} << 18;  // Also of extra keys. 64 MiB here.
inline constexpr size_t kMaxHashBytes = 64;

// Errors: kDataLoss for bytes that are no batch, kOutOfRange for one beyond the bounds. Single
// events that make no sense are OtherEvents.
Result<EventBatch> DecodeEventBatch(std::string_view bytes);

enum class EventShape { kPositional, kMap };
// Positional: fields up to the last that is set, at least those that every version has. Unknown
// fields go out in the shape in which they came, and in that alone.
std::string EncodeEventBatch(const EventBatch& batch, EventShape shape);

// Where a medium's name says that blocks lie.
enum class EventTier { kDevice, kHost, kDisk, kRemote, kUnknown };
inline constexpr int kEventTiers = 5;
const char* EventTierName(EventTier tier);  // "device", "host", "disk", "remote", "unknown"
// GPU or none: device. CPU, CPU_PINNED, CPU_TIER1, CPU_TIER2: host. FS, DISK, and STORAGE, which
// may also be an object store: disk. OBJ, EXTERNAL: remote. Others: unknown.
EventTier TierOfMedium(const std::optional<std::string>& medium);
// What this project writes: "GPU", "CPU", "DISK", "EXTERNAL". Requires: not kUnknown.
const char* MediumOfTier(EventTier tier);

// Whether blocks of a group of that kind hold all that computing on needs of their tokens: full
// attention of any form, or no kind told. A window, a recurrent state or an encoder's cache says
// nothing about the prefix before it.
bool IsPrefixEvidence(const std::optional<std::string>& spec_kind);

// The time, rank and events, for people and programs: {"time_seconds", "data_parallel_rank",
// "events": [{"type", "block_hashes", ...}]}. Hashes are text.
Json EventBatchJson(const EventBatch& batch);

}  // namespace divisi
