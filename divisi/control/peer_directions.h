// Which peer has a key, as was told last. Bounded: the key that was told of longest ago is
// forgotten first.
#pragma once

#include <cstddef>
#include <list>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>

#include "divisi/kv/block_key.h"

namespace divisi {

class PeerDirections {
 public:
  using Address = std::pair<std::string, int>;  // Host and port

  explicit PeerDirections(size_t most) : most_(most) {}

  void Set(std::span<const BlockKey> keys, const Address& peer) {
    for (const BlockKey& key : keys) {
      const auto [entry, added] = by_key_.try_emplace(key);
      entry->second.peer = peer;
      if (added) {
        entry->second.place = by_time_.insert(by_time_.end(), key);
      } else {
        by_time_.splice(by_time_.end(), by_time_, entry->second.place);
      }
    }
    for (; by_time_.size() > most_; by_time_.pop_front()) by_key_.erase(by_time_.front());
  }
  std::optional<Address> Of(const BlockKey& key) const {
    const auto found = by_key_.find(key);
    return found == by_key_.end() ? std::nullopt : std::optional(found->second.peer);
  }

 private:
  struct Entry {
    Address peer;
    std::list<BlockKey>::iterator place;
  };
  const size_t most_;
  std::list<BlockKey> by_time_;  // Oldest first.
  std::unordered_map<BlockKey, Entry, BlockKeyHash> by_key_;
};

}  // namespace divisi
