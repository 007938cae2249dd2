#include "divisi/serve/cluster_events.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace divisi {
namespace {

// Of one turn under the gateway's lock: less than a millisecond at 3 million pages a second.
constexpr size_t kPagesAtATime = 2048;
// A store without a connection for so long is taken for gone: its process ended, or nobody reaches
// it. It may be slow to start, too.
constexpr Seconds kStoreLost{3};

}  // namespace

size_t PagesOf(const EventUpdate& update) {
  size_t pages = 1;
  for (const KvEvent& event : update.events) {
    if (const auto* stored = std::get_if<StoredEvent>(&event)) pages += stored->hashes.size();
    if (const auto* removed = std::get_if<RemovedEvent>(&event)) pages += removed->hashes.size();
  }
  return pages;
}

ClusterEvents::ClusterEvents(const Clock& clock, Logger& logger, std::function<void()> wake)
    : logger_(logger), subscriber_(EventSubscriber::Open(clock, logger, std::move(wake))) {}

void ClusterEvents::Follow(const FollowAction& action) {
  const auto source = subscriber_->Follow({.endpoint = action.endpoints.live,
                                           .replay_endpoint = action.endpoints.replay,
                                           .topic = action.endpoints.topic});
  if (!source) {
    return logger_.Log(LogLevel::kWarning, "KV events are not followed",
                       {{"endpoint", action.endpoints.live}, {"why", source.error().message}});
  }
  members_[action.node] = *source;
  nodes_[*source] = action.node;
}

void ClusterEvents::Unfollow(NodeId node) {
  const auto found = members_.find(node);
  if (found == members_.end()) return;
  subscriber_->Drop(found->second);
  nodes_.erase(found->second);
  members_.erase(found);
}

Result<void> ClusterEvents::FollowStores(std::vector<PoolStoreEvents> stores) {
  for (PoolStoreEvents& at : stores) {
    Store store{.at = std::move(at)};
    RETURN_IF_ERROR(FollowStore(store));
    stores_.push_back(std::move(store));
  }
  return {};
}

Result<void> ClusterEvents::FollowStore(Store& store) {
  ASSIGN_OR_RETURN(store.source,
                   subscriber_->Follow({.endpoint = store.at.endpoint,
                                        .replay_endpoint = store.at.replay_endpoint}));
  store.lost_at.reset();
  store.forgotten = false;
  return {};
}

bool ClusterEvents::Tell(GatewayCore& core, Seconds now) {
  for (size_t pages = 0; pages < kPagesAtATime; heard_.pop_front()) {
    // Nobody wakes for what comes before all was taken.
    if (heard_.empty()) std::ranges::move(subscriber_->Take(), std::back_inserter(heard_));
    if (heard_.empty()) return false;
    const auto& [source, update] = heard_.front();
    pages += PagesOf(update);
    if (const auto node = nodes_.find(source); node != nodes_.end()) {
      core.Heard(node->second, update, now);
      continue;
    }
    const auto store = std::ranges::find(stores_, source, &Store::source);
    if (store == stores_.end()) continue;  // Of one that is not followed any more
    core.HeardStore(static_cast<uint64_t>(store - stores_.begin()), update, now);
  }
  return true;
}

void ClusterEvents::LookAfterStores(GatewayCore& core, Seconds now) {
  if (stores_.empty()) return;
  const std::vector<SourceStatus> statuses = subscriber_->statuses();
  for (size_t i = 0; i < stores_.size(); ++i) {
    Store& store = stores_[i];
    const auto status = std::ranges::find(statuses, store.source, &SourceStatus::source);
    if (status == statuses.end()) continue;
    if (status->stream.connected) {
      store.lost_at.reset();
      store.forgotten = false;
      continue;
    }
    if (!store.lost_at) store.lost_at = now;
    if (store.forgotten || now - *store.lost_at < kStoreLost) continue;
    logger_.Log(LogLevel::kWarning, "a store of the pool is lost",
                {{"endpoint", store.at.endpoint}});
    subscriber_->Drop(store.source);
    core.HeardStore(i, {.forget = true}, now);
    (void)FollowStore(store);  // Its endpoint was one before.
    store.forgotten = true;
  }
}

ClusterEventStats ClusterEvents::stats() const {
  ClusterEventStats stats;
  stats.stores.resize(stores_.size());
  for (const SourceStatus& status : subscriber_->statuses()) {
    if (const auto node = nodes_.find(status.source); node != nodes_.end()) {
      stats.members[node->second] = status;
      continue;
    }
    const auto store = std::ranges::find(stores_, status.source, &Store::source);
    if (store != stores_.end()) stats.stores[store - stores_.begin()] = status;
  }
  return stats;
}

}  // namespace divisi
