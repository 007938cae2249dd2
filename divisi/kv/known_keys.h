// A bounded set of keys: the one that was set longest ago is forgotten first.
#pragma once

#include <cstddef>
#include <list>
#include <unordered_map>

#include "divisi/kv/block_key.h"

namespace divisi {

class KnownKeys {
 public:
  explicit KnownKeys(size_t most) : most_(most) {}

  void Set(const BlockKey& key, bool known) {
    const auto found = places_.find(key);
    if (found != places_.end()) {
      by_time_.erase(found->second);
      places_.erase(found);
    }
    if (!known || most_ == 0) return;
    if (places_.size() >= most_) {
      places_.erase(by_time_.front());
      by_time_.pop_front();
    }
    places_[key] = by_time_.insert(by_time_.end(), key);
  }
  bool Has(const BlockKey& key) const { return places_.contains(key); }
  size_t size() const { return places_.size(); }
  void Clear() {
    places_.clear();
    by_time_.clear();
  }

 private:
  size_t most_;
  std::list<BlockKey> by_time_;  // Oldest first.
  std::unordered_map<BlockKey, std::list<BlockKey>::iterator, BlockKeyHash> places_;
};

}  // namespace divisi
