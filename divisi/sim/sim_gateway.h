// A simulated gateway process: the production Dispatcher and Registry, joined as ClusterBackend
// joins them. What it wants done is left for the cluster to take.
#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "divisi/control/dispatcher.h"
#include "divisi/control/registry.h"

namespace divisi {

struct SimFrame {
  LinkId link = 0;
  ClusterMessage message;
};

class SimGateway {
 public:
  SimGateway(NodeId id, const DispatcherOptions& dispatch, RegistryOptions registry)
      : id_(id), dispatcher_(id, dispatch), registry_(id, std::move(registry)) {}

  NodeId id() const { return id_; }
  Dispatcher& dispatcher() { return dispatcher_; }
  const Dispatcher& dispatcher() const { return dispatcher_; }
  Registry& registry() { return registry_; }
  const Registry& registry() const { return registry_; }

  void Frame(LinkId link, ClusterMessage message, Seconds now);
  void Ended(LinkId link, Seconds now) { registry_.Ended(link, "lost", now); }
  void Tick(Seconds now);
  // Does what the registry asks for, and routes what the dispatcher says.
  void Settle(Seconds now);

  std::vector<SimFrame> TakeFrames() { return std::exchange(frames_, {}); }
  std::vector<LinkId> TakeCloses() { return std::exchange(closes_, {}); }
  std::vector<VouchAction> TakeVouches() { return std::exchange(vouches_, {}); }
  std::vector<NodeId> TakeBurials() { return std::exchange(burials_, {}); }

 private:
  void Relay(NodeId from, RelayMessage relay, Seconds now);
  void Do(SendAction& action, Seconds) { frames_.push_back({action.link, action.message}); }
  void Do(CloseAction& action, Seconds) { closes_.push_back(action.link); }
  void Do(JoinedAction& action, Seconds now);
  void Do(DrainAction& action, Seconds now);
  void Do(LostAction& action, Seconds now) { dispatcher_.RemoveWorker(action.node, now); }
  void Do(VouchAction& action, Seconds) { vouches_.push_back(action); }
  void Do(BuryAction& action, Seconds) { burials_.push_back(action.node); }
  void Do(NoteAction&, Seconds) {}

  const NodeId id_;
  Dispatcher dispatcher_;
  Registry registry_;
  std::vector<SimFrame> frames_;
  std::vector<LinkId> closes_;
  std::vector<VouchAction> vouches_;
  std::vector<NodeId> burials_;
};

}  // namespace divisi
