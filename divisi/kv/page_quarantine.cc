#include "divisi/kv/page_quarantine.h"

namespace divisi {

void PageQuarantine::Failed(const BlockKey& key, Tier tier) {
  ++failures_;
  const Name name(key, tier);
  auto found = entries_.find(name);
  if (found == entries_.end()) {
    if (size() >= most_ && !by_failure_.empty()) {
      entries_.erase(by_failure_.front());
      by_failure_.pop_front();
    }
    found = entries_.try_emplace(name).first;
    found->second.place = by_failure_.insert(by_failure_.end(), name);
  }
  by_failure_.splice(by_failure_.end(), by_failure_, found->second.place);
  ++found->second.failures;
  found->second.rewritten = false;
}

void PageQuarantine::Rewritten(const BlockKey& key, Tier tier) {
  const auto found = entries_.find({key, tier});
  if (found != entries_.end()) found->second.rewritten = true;
  if (tier != Tier::kHost) return;
  const auto peers = entries_.find({key, Tier::kPeer});
  if (peers == entries_.end()) return;
  by_failure_.erase(peers->second.place);
  entries_.erase(peers);
}

bool PageQuarantine::Holds(const BlockKey& key, Tier tier) const {
  const auto found = entries_.find({key, tier});
  return found != entries_.end() && !found->second.rewritten;
}

bool PageQuarantine::Bars(const BlockKey& key, Tier tier) const {
  const auto found = entries_.find({key, tier});
  return found != entries_.end() && found->second.failures > kMostRewrites;
}

}  // namespace divisi
