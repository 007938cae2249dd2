// What one life of a worker publishes: numbered batches of events, the last of them kept for those
// who missed some, and a whole account for those who missed more.
//
// Batches are numbered from 0 in each life. A consumer that asks for a number that the ring no
// longer has gets a snapshot instead: batches of which the first begins with AllBlocksCleared and
// which together store everything held, numbered so that they end with the last number published.
// There are always enough numbers, since all that it missed have theirs. To a consumer of vLLM's
// format this is a replay with a jump at its start (as vLLM's own is, when its ring is too short),
// in rising order and without a number twice, that clears and stores; nothing about it is new to
// one. So it ends up with exactly what is held, which a replay of vLLM itself can't give.
#pragma once

#include <cstdint>
#include <deque>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "divisi/kv/kv_event.h"

namespace divisi {

struct NumberedBatch {
  uint64_t sequence = 0;
  // Shared by the ring and by replays that are on their way.
  std::shared_ptr<const std::string> payload;
};

// One page of this project, as an event: what a tier manager tells. parent: nullptr for a first
// page. tokens: the page's; may be empty.
StoredEvent PageStored(const BlockKey& key, const BlockKey* parent, std::span<const TokenId> tokens,
                       EventTier tier);
RemovedEvent PageRemoved(const BlockKey& key, EventTier tier);

// Pure: no clock, threads or sockets; one owner.
class EventLog {
 public:
  struct Options {
    EventShape shape = EventShape::kMap;
    std::optional<int64_t> data_parallel_rank;
    size_t ring_batches = 10'000;             // As vLLM's.
    size_t ring_bytes = size_t{256} << 20;    // At least the last batch is kept.
    size_t batch_blocks = 1024;               // 0.1 MB of 16 tokens a block.
    size_t pending_blocks = size_t{1} << 16;  // Between two calls of Flush.
  };
  struct Stats {
    uint64_t published = 0;  // Batches; also the next one's number.
    size_t held = 0;         // Blocks, once for each tier.
    size_t ring = 0;         // Batches in the ring.
    uint64_t snapshots = 0;  // Answers with everything held.
    uint64_t overflows = 0;  // More pending than there is room for, so everything was told anew.
  };
  explicit EventLog(Options options) : options_(options) {}

  // Takes what happened. Idempotent: a block that is stored where it is already, or removed where
  // it isn't, changes nothing and is not told. Events of other types are passed over.
  void Add(const KvEvent& event);
  bool pending() const { return overflowed_ || !pending_.empty(); }

  // Batches of what was added since, in order: for the PUB socket. Blocks that follow each other
  // go into one event. Empty where nothing was added.
  std::vector<NumberedBatch> Flush(double unix_seconds);

  // The batches from number `first` on, or a snapshot. Requires: nothing pending, or what it tells
  // would be told twice.
  std::vector<NumberedBatch> Since(uint64_t first, double unix_seconds);

  Stats stats() const;

 private:
  struct Place {
    EventHash hash;
    EventTier tier;
    int64_t group;
    friend bool operator==(const Place&, const Place&) = default;
  };
  struct PlaceHash {
    size_t operator()(const Place& place) const;
  };
  // What blocks have in common: an event without hashes, tokens and extra keys.
  using Common = std::shared_ptr<const StoredEvent>;
  struct Block {
    Common common;
    EventHash hash;
    std::optional<EventHash> parent;
    std::vector<TokenId> tokens;
    BlockExtras extras;
  };
  // Stored: block; removed: place and medium; cleared: neither.
  struct Step {
    std::shared_ptr<const Block> block;
    std::optional<RemovedEvent> removed;
  };

  void Store(const StoredEvent& event);
  void Remove(const RemovedEvent& event);
  void Push(Step step);
  Common CommonOf(const StoredEvent& event);
  std::vector<Step> Everything() const;
  static bool Joins(const KvEvent& event, const Step& step);
  static KvEvent EventOf(const Step& step);
  static void Join(KvEvent& event, const Step& step);
  std::vector<std::string> Pack(const std::vector<Step>& steps, size_t batches,
                                double unix_seconds) const;

  Options options_;
  uint64_t next_ = 0;
  uint64_t snapshots_ = 0;
  uint64_t overflows_ = 0;
  bool overflowed_ = false;
  std::vector<Step> pending_;
  std::deque<NumberedBatch> ring_;
  size_t ring_bytes_ = 0;
  std::list<std::shared_ptr<const Block>> held_;  // In the order in which they came.
  std::unordered_map<Place, std::list<std::shared_ptr<const Block>>::iterator, PlaceHash> places_;
  Common last_common_;
};

}  // namespace divisi
