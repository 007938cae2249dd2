// Objects that failed verification: not offered again until they are written anew, and after
// kMostRewrites of these not written any more, so that a page that never comes out whole is
// computed instead. Bounded: the one that failed longest ago is forgotten first.
#pragma once

#include <cstdint>
#include <list>
#include <map>
#include <utility>

#include "divisi/kv/block_key.h"
#include "divisi/plan/kv_tiers.h"

namespace divisi {

class PageQuarantine {
 public:
  static constexpr int kMostRewrites = 3;

  explicit PageQuarantine(int64_t most_objects) : most_(most_objects) {}

  void Failed(const BlockKey& key, Tier tier);
  // Of a page that host memory has again, what other workers had of it is forgotten, too: it is
  // asked of them only when it is gone from there, and of whoever has it then.
  void Rewritten(const BlockKey& key, Tier tier);

  bool Holds(const BlockKey& key, Tier tier) const;  // Failed, and not rewritten since.
  bool Bars(const BlockKey& key, Tier tier) const;   // Not to be written again.

  int64_t size() const { return static_cast<int64_t>(entries_.size()); }
  int64_t failures() const { return failures_; }  // Since the start.

 private:
  using Name = std::pair<BlockKey, Tier>;
  struct Entry {
    int failures = 0;
    bool rewritten = false;
    std::list<Name>::iterator place;
  };
  int64_t most_;
  int64_t failures_ = 0;
  std::list<Name> by_failure_;  // Oldest first.
  std::map<Name, Entry> entries_;
};

}  // namespace divisi
