// For tests of TierManager: chains of pages, and a driver.
#pragma once

#include <algorithm>
#include <vector>

#include "divisi/kv/tier_manager.h"

namespace divisi {

inline BlockKey KeyOf(int64_t number) {
  BlockKey key;
  for (int i = 0; i < 8; ++i) key.bytes[i] = static_cast<uint8_t>(number >> (8 * i));
  return key;
}

inline std::vector<BlockKey> Chain(int64_t first, int64_t pages) {
  std::vector<BlockKey> keys;
  for (int64_t i = 0; i < pages; ++i) keys.push_back(KeyOf(first + i));
  return keys;
}

inline PageName NameOf(const std::vector<BlockKey>& chain, size_t i) {
  return {.key = chain[i],
          .parent = i == 0 ? KeyOf(0) : chain[i - 1],
          .root = KeyOf(0),
          .position = static_cast<int64_t>(i)};
}

// A manager with a driver that ends every copy when asked to.
class Driver {
 public:
  explicit Driver(const TierOptions& options) : tiers(options) {}

  void CarryOut(bool ok = true) {
    for (auto actions = tiers.TakeActions(); !actions.empty(); actions = tiers.TakeActions()) {
      for (const TierAction& action : actions) {
        taken.push_back(action);
        if (action.kind == TierAction::Kind::kCopy) tiers.Done(action.id, ok, now);
      }
    }
    tiers.Verify();
  }

  void Start(const std::vector<BlockKey>& chain) {
    tiers.Used(chain);
    for (size_t i = 0; i < chain.size(); ++i) tiers.Complete(NameOf(chain, i), BlockId(i), now);
  }

  void Serve(const std::vector<BlockKey>& chain) {
    tiers.Used(chain);
    for (size_t i = 0; i < chain.size(); ++i) {
      tiers.Complete(NameOf(chain, i), BlockId(i), now);
      CarryOut();
    }
  }

  int64_t Copies(Tier to) const {
    return std::ranges::count_if(taken, [&](const TierAction& action) {
      return action.kind == TierAction::Kind::kCopy && action.to == to;
    });
  }

  TierManager tiers;
  Seconds now{0};
  std::vector<TierAction> taken;
};

inline TierOptions Sizes(int64_t host, int64_t disk) {
  return {.host_pages = host, .disk_pages = disk, .budget = {1000, 1000}};
}

}  // namespace divisi
