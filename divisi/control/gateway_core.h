// One gateway of a cluster, without its connections, threads and clock: who is there (Registry) and
// who does what (Dispatcher), joined, with what workers hold of KV (ClusterPages). A pure state
// machine that a process and the simulation run alike: what came over connections (which are
// numbers), what happened in the directory, what clients and operators want and the time go in;
// what is to be sent, closed and written comes out.
//
// What comes out is to be done in its order, before the next input.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "divisi/control/cluster_message.h"
#include "divisi/control/cluster_pages.h"
#include "divisi/control/directory.h"
#include "divisi/control/dispatcher.h"
#include "divisi/control/registry.h"

namespace divisi {

struct GatewayCoreOptions {
  DispatcherOptions dispatch;
  RegistryOptions registry;
  std::optional<PageDirectory> pages;  // None: workers' events are not followed
};

// A member's report has come, and lies in the registry.
struct ReportedAction {
  NodeId node;
};
// An operator asks; an AnswerMessage is to be sent.
struct QueryAction {
  LinkId link = 0;
  std::vector<std::string> words;
};
using GatewayAction = std::variant<SendAction, CloseAction, DirectoryAction, ReportedAction,
                                   QueryAction, NoteAction, FollowAction, UnfollowAction>;

class GatewayCore {
 public:
  GatewayCore(NodeId self, GatewayCoreOptions options);

  // ---- The world
  void Receive(LinkId link, ClusterMessage message, Seconds now);
  // The connection is no more; nothing comes over it after that.
  void Ended(LinkId link, const std::string& why, Seconds now);
  // Requires RegistryOptions::lease.
  void Told(const DirectoryEvent& event, Seconds now);
  // What a followed member's events told, in order; of others nothing changes.
  void Heard(NodeId holder, const EventUpdate& update, Seconds now);
  // The same of one of the pool's stores, each a number; one that is lost is told to forget.
  void HeardStore(uint64_t store, const EventUpdate& update, Seconds now);
  // Every 20 ms or so.
  void Tick(Seconds now);

  // ---- Clients: as of Dispatcher
  // pages: the SharedPromptKeys of the request in PageSpace(), where there is one.
  Result<uint64_t> Submit(Request request, Seconds now, std::vector<BlockKey> pages = {});
  void Cancel(uint64_t request, Seconds now);

  // ---- Operators. Requires: a member.
  void Drain(NodeId node, Seconds within, Seconds now);
  // It takes requests, as what it is told to be; what it has under another role it ends.
  // Errors: kInvalidArgument for one that leaves.
  Result<void> Enlist(NodeId node, WorkerRole role, Seconds now);

  std::vector<GatewayAction> TakeActions();
  std::vector<DispatchEvent> TakeEvents() { return dispatcher_.TakeEvents(); }
  std::vector<RouteNote> TakeChoices() { return dispatcher_.TakeChoices(); }

  // What pages of its members' requests are named in, but for the salt. None: what they hold is not
  // known, so that keys are of no use.
  std::optional<KeySpace> PageSpace() const;

  NodeId self() const { return self_; }
  PageDirectory* pages() { return pages_.directory(); }
  const PageDirectory* pages() const { return pages_.directory(); }
  const Dispatcher& dispatcher() const { return dispatcher_; }
  const Registry& registry() const { return registry_; }

 private:
  void On(LinkId link, ClusterMessage message, Seconds now);
  void OnMember(NodeId from, LinkId link, ClusterMessage message, Seconds now);
  void Relay(NodeId from, RelayMessage relay, Seconds now);
  void Take(const DirectoryEvent& event, Seconds now);

  // Turns what registry and dispatcher ask for into actions, after every input.
  void Settle(Seconds now);
  void Do(SendAction& action, Seconds) { actions_.emplace_back(std::move(action)); }
  void Do(CloseAction& action, Seconds) { actions_.emplace_back(std::move(action)); }
  void Do(NoteAction& action, Seconds) { actions_.emplace_back(std::move(action)); }
  void Do(JoinedAction& action, Seconds now);
  void Do(DrainAction& action, Seconds now);
  void Do(LostAction& action, Seconds now) { dispatcher_.RemoveWorker(action.node, now); }
  void Do(VouchAction& action, Seconds now);
  void Do(BuryAction& action, Seconds now);

  const NodeId self_;
  ClusterPages pages_;
  Dispatcher dispatcher_;
  Registry registry_;
  uint64_t members_seen_ = 0;  // Of Registry::changes, by pages_
  std::vector<GatewayAction> actions_;
};

}  // namespace divisi
