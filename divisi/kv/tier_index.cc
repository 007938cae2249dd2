#include "divisi/kv/tier_index.h"

#include "divisi/core/check.h"

namespace divisi {

TierIndex::Page& TierIndex::At(const BlockKey& key, State state) {
  const auto found = pages_.find(key);
  CHECK(found != pages_.end(), "page {} is in no such tier", key.Hex());
  CHECK(found->second.state == state, "page {} is in state {}", key.Hex(),
        static_cast<int>(found->second.state));
  return found->second;
}

bool TierIndex::Reserve(const BlockKey& key) {
  if (full() || !pages_.try_emplace(key).second) return false;
  ++arriving_;
  return true;
}

void TierIndex::Publish(const BlockKey& key, const EvictionRank& rank) {
  Page& page = At(key, State::kArriving);
  page.state = State::kPresent;
  page.rank = rank;
  order_.emplace(rank, key);
  --arriving_;
  ++present_;
}

void TierIndex::Cancel(const BlockKey& key) {
  At(key, State::kArriving);
  pages_.erase(key);
  --arriving_;
}

void TierIndex::Pin(const BlockKey& key) {
  Page& page = At(key, State::kPresent);
  if (page.pins++ > 0) return;
  order_.erase({page.rank, key});
  ++pinned_;
}

bool TierIndex::Unpin(const BlockKey& key) {
  const auto found = pages_.find(key);
  CHECK(found != pages_.end() && found->second.pins > 0, "page {} is not pinned", key.Hex());
  Page& page = found->second;
  if (--page.pins > 0) return false;
  --pinned_;
  if (page.state == State::kPresent) {
    order_.emplace(page.rank, key);
    return false;
  }
  pages_.erase(found);
  return true;
}

void TierIndex::Rerank(const BlockKey& key, const EvictionRank& rank) {
  const auto found = pages_.find(key);
  if (found == pages_.end() || found->second.state != State::kPresent) return;
  Page& page = found->second;
  if (page.pins == 0 && page.rank != rank) {
    auto node = order_.extract({page.rank, key});
    node.value().first = rank;
    order_.insert(std::move(node));
  }
  page.rank = rank;
}

bool TierIndex::Remove(const BlockKey& key) {
  Page& page = At(key, State::kPresent);
  --present_;
  if (page.pins > 0) {
    page.state = State::kHidden;
    return false;
  }
  order_.erase({page.rank, key});
  pages_.erase(key);
  return true;
}

std::vector<BlockKey> TierIndex::RemoveAll() {
  std::vector<BlockKey> gone;
  gone.reserve(order_.size());
  for (const auto& [rank, key] : order_) gone.push_back(key);
  for (const BlockKey& key : gone) pages_.erase(key);
  order_.clear();
  for (auto& [key, page] : pages_) {
    if (page.state == State::kPresent) page.state = State::kHidden;
  }
  present_ = 0;
  return gone;
}

std::optional<TierIndex::Victim> TierIndex::First() const {
  if (order_.empty()) return std::nullopt;
  return Victim{order_.begin()->second, order_.begin()->first};
}

bool TierIndex::Has(const BlockKey& key) const {
  const auto found = pages_.find(key);
  return found != pages_.end() && found->second.state == State::kPresent;
}

bool TierIndex::Pinned(const BlockKey& key) const {
  const auto found = pages_.find(key);
  return found != pages_.end() && found->second.pins > 0;
}

void TierIndex::Verify() const {
  int64_t arriving = 0, present = 0, pinned = 0, ordered = 0;
  for (const auto& [key, page] : pages_) {
    arriving += page.state == State::kArriving;
    present += page.state == State::kPresent;
    pinned += page.pins > 0;
    CHECK(page.state != State::kHidden || page.pins > 0, "page {} is hidden for nobody", key.Hex());
    CHECK(page.state != State::kArriving || page.pins == 0, "page {} is read too soon", key.Hex());
    const bool can_go = page.state == State::kPresent && page.pins == 0;
    CHECK(order_.contains({page.rank, key}) == can_go, "page {} in the order", key.Hex());
    ordered += can_go;
  }
  CHECK(ordered == static_cast<int64_t>(order_.size()), "{} of {} pages in the order are known",
        ordered, order_.size());
  CHECK(arriving == arriving_ && present == present_ && pinned == pinned_,
        "{} arriving, {} present, {} pinned; counted {}, {}, {}", arriving, present, pinned,
        arriving_, present_, pinned_);
  CHECK(size() <= capacity_, "{} pages in a tier of {}", size(), capacity_);
}

}  // namespace divisi
