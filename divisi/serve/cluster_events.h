// What a gateway process follows of its cluster's KV events: members as its core asks for, and the
// stores of the remote pool that its operator named. Not safe from several threads at once.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "divisi/control/gateway_core.h"
#include "divisi/core/clock.h"
#include "divisi/core/log.h"
#include "divisi/kv/event_socket.h"

namespace divisi {

// A store's PUB and ROUTER sockets; without the latter a gap costs all that was known of it.
struct PoolStoreEvents {
  std::string endpoint;
  std::string replay_endpoint;
};

// What telling it costs, in pages.
size_t PagesOf(const EventUpdate& update);

// By what is followed.
struct ClusterEventStats {
  std::map<NodeId, SourceStatus> members;
  std::vector<SourceStatus> stores;  // In the order in which they were named
};

class ClusterEvents {
 public:
  // wake: from another thread, when Tell has something to do. clock and logger outlive this.
  ClusterEvents(const Clock& clock, Logger& logger, std::function<void()> wake);

  void Follow(const FollowAction& action);
  void Unfollow(NodeId node);
  // Once. Errors: kInvalidArgument for an endpoint that is none.
  Result<void> FollowStores(std::vector<PoolStoreEvents> stores);

  // Gives the core some of what came, so that whoever waits for it has its turn. True: there is
  // more.
  bool Tell(GatewayCore& core, Seconds now);
  // Stores that are lost are forgotten, and followed anew. Every second or so.
  void LookAfterStores(GatewayCore& core, Seconds now);
  ClusterEventStats stats() const;

 private:
  struct Store {
    PoolStoreEvents at;
    SourceId source = 0;
    std::optional<Seconds> lost_at;
    bool forgotten = false;
  };
  Result<void> FollowStore(Store& store);

  Logger& logger_;
  std::unique_ptr<EventSubscriber> subscriber_;
  std::map<NodeId, SourceId> members_;
  std::map<SourceId, NodeId> nodes_;
  std::vector<Store> stores_;
  std::deque<SourceUpdate> heard_;
};

}  // namespace divisi
