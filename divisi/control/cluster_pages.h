// Which pages the members of a cluster hold, as one gateway hears it: it follows each member's
// events (kv/event_stream.h) and keeps the PageDirectory by them. A part of GatewayCore, pure like
// it.
//
// A member is followed from when it joins until it is no member any more: one that is lost for a
// while, or doubted, keeps what is known of it. A new life is another holder and starts empty. The
// stores of the remote pool together are one holder, whose pages every worker that uses the pool
// can have.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <unordered_set>
#include <variant>
#include <vector>

#include "divisi/control/cluster_message.h"
#include "divisi/control/registry.h"
#include "divisi/kv/block_key.h"
#include "divisi/kv/event_stream.h"
#include "divisi/kv/page_directory.h"

namespace divisi {

// A member's events are to be followed: each EventUpdate goes to Heard.
struct FollowAction {
  NodeId node;
  EventEndpoints endpoints;
};
struct UnfollowAction {
  NodeId node;
};

class ClusterPages {
 public:
  using Action = std::variant<FollowAction, UnfollowAction>;

  // None: nothing is followed or known.
  explicit ClusterPages(std::optional<PageDirectory> directory);

  PageDirectory* directory() { return directory_ ? &*directory_ : nullptr; }
  const PageDirectory* directory() const { return directory_ ? &*directory_ : nullptr; }

  // Who is there now.
  void Members(const Registry& registry);
  std::vector<Action> TakeActions();

  // In the order in which they came. Of one that is not followed: nothing.
  void Heard(NodeId holder, const EventUpdate& update);
  // Of one of the pool's stores, each a number.
  void HeardStore(uint64_t store, const EventUpdate& update);

 private:
  using Keys = std::unordered_set<BlockKey, BlockKeyHash>;

  void TakeStore(Keys& held, const KvEvent& event);
  void ForgetStore(Keys& held);

  std::optional<PageDirectory> directory_;
  std::map<NodeId, bool> followed_;  // Or not, where the directory has no slot left
  // By store, so that one can be forgotten: a page may lie on several.
  std::map<uint64_t, Keys> stores_;
  std::vector<Action> actions_;
};

}  // namespace divisi
