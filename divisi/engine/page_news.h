// What one life of a worker says of the pages that it holds: changes of its device's pages and of
// the tiers below, as KV events (kv/kv_event.h), in order. It stands between the thread that
// decides, which must not wait, and an EventPublisher, which takes some at a time.
//
// What waits here is bounded. Where more happens than is taken it is dropped, and once there is
// room all that is held is told anew, after a ClearedEvent: whoever follows ends up with the truth.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <unordered_map>
#include <vector>

#include "divisi/engine/scheduler.h"
#include "divisi/kv/kv_event.h"
#include "divisi/kv/tier_manager.h"

namespace divisi {

struct PageNewsStats {
  int64_t held = 0;     // Pages, once for each tier
  int64_t waiting = 0;  // Events
  int64_t retold = 0;   // Times that all was told anew
};

// Pure; one owner.
class PageNews {
 public:
  // 300 bytes each: as many as a publisher takes at once.
  static constexpr size_t kMostWaiting = size_t{1} << 18;
  explicit PageNews(size_t most_waiting = kMostWaiting) : most_waiting_(most_waiting) {}

  // What happened, in order. A page that is stored where it is, or removed where it isn't, is no
  // news.
  void Take(std::vector<PageChange> changes);
  void Take(const std::vector<TierEvent>& events);

  // The next events, `most` at most.
  std::vector<KvEvent> Next(size_t most);
  PageNewsStats stats() const;

 private:
  struct Page {
    std::optional<BlockKey> parent;  // None: a prompt's first
    uint64_t order = 0;
  };
  // A page came or went; with `cleared` nothing else counts.
  struct News {
    bool stored = false;
    bool cleared = false;
    Tier tier = Tier::kDevice;
    BlockKey key;
    std::optional<BlockKey> parent;
    std::vector<TokenId> tokens;
  };
  using Pages = std::unordered_map<BlockKey, Page, BlockKeyHash>;

  void Add(News news);
  void Clear(Tier tier);
  void Retell();
  static KvEvent EventOf(News& news);

  size_t most_waiting_;
  std::array<Pages, kTiers> held_;
  uint64_t order_ = 0;
  std::deque<News> retelling_;  // Before waiting_; as many as are held
  std::deque<News> waiting_;
  bool dropped_ = false;  // All is to be told anew.
  int64_t retold_ = 0;
};

}  // namespace divisi
