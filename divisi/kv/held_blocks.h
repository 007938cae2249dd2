// What one worker holds, as its events tell: the seam between a stream of events (event_stream.h)
// and whoever asks where a prompt's prefix lies.
#pragma once

#include <cstddef>
#include <cstdint>
#include <set>
#include <span>
#include <unordered_map>
#include <vector>

#include "divisi/kv/event_hash.h"
#include "divisi/kv/kv_event.h"

namespace divisi {

// A block came to a tier, or its last copy there went. Of kCleared only the kind counts.
struct HeldChange {
  enum class Kind { kStored, kRemoved, kCleared };
  Kind kind = Kind::kStored;
  EventHash hash;
  EventTier tier = EventTier::kDevice;
  int64_t group = 0;
  friend bool operator==(const HeldChange&, const HeldChange&) = default;
};

// Invariants:
// 1. A block counts once for each time it was stored on a tier for a group: engines announce a
//    block that several parts of an offloaded chunk share with each of them.
// 2. Groups of kinds that are no evidence of a prefix (IsPrefixEvidence) and media of unknown names
//    are not held at all.
// 3. At most `most` blocks: further ones are not held, which costs a hit and no more.
class HeldBlocks {
 public:
  // 16 million tokens at 16 a block; some 200 MB.
  static constexpr size_t kMost = size_t{1} << 20;
  explicit HeldBlocks(size_t most = kMost) : most_(most) {}

  // What that changed. Events must come once each and in order, as EventStream gives them.
  std::vector<HeldChange> Apply(const KvEvent& event);
  void Clear();

  // Tiers of the blocks that are held from the first of `chain` on, up to the first that is not:
  // for each block the nearest tier, and of several groups the farthest of theirs. A block counts
  // where every group that the worker has spoken of holds it.
  std::vector<EventTier> Prefix(std::span<const EventHash> chain) const;
  bool Holds(const EventHash& hash, EventTier tier) const;  // For any group.

  size_t size() const { return blocks_.size(); }
  size_t refused() const { return refused_; }  // Blocks that were not held for the bound.
  // Blocks on a tier, by any group.
  size_t On(EventTier tier) const;

  // The same blocks on the same tiers, as often.
  friend bool operator==(const HeldBlocks& a, const HeldBlocks& b) {
    return a.blocks_ == b.blocks_;
  }

 private:
  struct Copies {
    int64_t group = 0;
    EventTier tier = EventTier::kDevice;
    int64_t count = 0;
    friend bool operator==(const Copies&, const Copies&) = default;
  };
  void Store(const StoredEvent& event, std::vector<HeldChange>& changes);
  void Remove(const RemovedEvent& event, std::vector<HeldChange>& changes);

  size_t most_;
  size_t refused_ = 0;
  std::unordered_map<EventHash, std::vector<Copies>, EventHashHash> blocks_;
  std::set<int64_t> groups_;
};

}  // namespace divisi
