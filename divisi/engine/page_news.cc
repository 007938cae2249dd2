#include "divisi/engine/page_news.h"

#include <algorithm>
#include <utility>

#include "divisi/kv/event_log.h"

namespace divisi {
namespace {

// Tiers are alike in both.
EventTier EventTierOf(Tier tier) { return static_cast<EventTier>(tier); }
static_assert(static_cast<int>(EventTier::kDevice) == static_cast<int>(Tier::kDevice) &&
              static_cast<int>(EventTier::kHost) == static_cast<int>(Tier::kHost) &&
              static_cast<int>(EventTier::kDisk) == static_cast<int>(Tier::kDisk) &&
              static_cast<int>(EventTier::kRemote) == static_cast<int>(Tier::kRemote));

// A chain's first page has its root for a parent.
std::optional<BlockKey> ParentOf(const BlockKey& parent, const BlockKey& root) {
  return parent == root ? std::nullopt : std::optional(parent);
}

}  // namespace

void PageNews::Take(std::vector<PageChange> changes) {
  for (PageChange& change : changes) {
    const bool stored = change.kind == PageChange::Kind::kStored;
    Add({.stored = stored,
         .tier = Tier::kDevice,
         .key = change.key,
         .parent = stored ? ParentOf(change.parent, change.root) : std::nullopt,
         .tokens = std::move(change.tokens)});
  }
}

void PageNews::Take(const std::vector<TierEvent>& events) {
  for (const TierEvent& event : events) {
    if (event.kind == TierEvent::Kind::kCleared) {
      Clear(event.tier);
      continue;
    }
    Add({.stored = event.kind == TierEvent::Kind::kStored,
         .tier = event.tier,
         .key = event.page.key,
         .parent = ParentOf(event.page.parent, event.page.root)});
  }
}

void PageNews::Add(News news) {
  Pages& pages = held_[static_cast<size_t>(news.tier)];
  const bool changed = news.stored ? pages.try_emplace(news.key, Page{news.parent, ++order_}).second
                                   : pages.erase(news.key) > 0;
  if (!changed || dropped_) return;
  if (waiting_.size() < most_waiting_) return waiting_.push_back(std::move(news));
  retelling_ = {};
  waiting_ = {};
  dropped_ = true;
}

// Events of one tier's end there are none: each page goes.
void PageNews::Clear(Tier tier) {
  std::vector<BlockKey> keys;
  for (const auto& [key, page] : held_[static_cast<size_t>(tier)]) keys.push_back(key);
  std::ranges::sort(keys);  // Equal runs tell alike.
  for (const BlockKey& key : keys) Add({.tier = tier, .key = key});
}

// In the order in which pages came: parents before those that follow them.
void PageNews::Retell() {
  std::vector<std::pair<uint64_t, News>> all;
  for (size_t tier = 0; tier < held_.size(); ++tier) {
    for (const auto& [key, page] : held_[tier]) {
      all.push_back(
          {page.order,
           {.stored = true, .tier = static_cast<Tier>(tier), .key = key, .parent = page.parent}});
    }
  }
  std::ranges::sort(all, {}, [](const auto& each) { return each.first; });
  retelling_.clear();
  retelling_.push_back({.cleared = true});
  for (auto& [order, news] : all) retelling_.push_back(std::move(news));
  dropped_ = false;
  ++retold_;
}

KvEvent PageNews::EventOf(News& news) {
  if (news.cleared) return ClearedEvent{};
  const EventTier tier = EventTierOf(news.tier);
  if (!news.stored) return PageRemoved(news.key, tier);
  return PageStored(news.key, news.parent ? &*news.parent : nullptr, news.tokens, tier);
}

std::vector<KvEvent> PageNews::Next(size_t most) {
  if (dropped_ && most > 0) Retell();
  std::vector<KvEvent> events;
  for (std::deque<News>* news : {&retelling_, &waiting_}) {
    for (; events.size() < most && !news->empty(); news->pop_front()) {
      events.push_back(EventOf(news->front()));
    }
  }
  return events;
}

PageNewsStats PageNews::stats() const {
  PageNewsStats stats{.waiting = static_cast<int64_t>(retelling_.size() + waiting_.size()),
                      .retold = retold_};
  for (const Pages& pages : held_) stats.held += static_cast<int64_t>(pages.size());
  return stats;
}

}  // namespace divisi
