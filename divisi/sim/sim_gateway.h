// A simulated gateway process: the production GatewayCore over modelled connections and a modelled
// directory, as ClusterBackend is over real ones.
#pragma once

#include <cstddef>
#include <utility>

#include "divisi/control/gateway_core.h"
#include "divisi/sim/sim_directory.h"
#include "divisi/sim/sim_links.h"
#include "divisi/sim/sim_world.h"

namespace divisi {

// Where the gateway of a slot is, for workers.
GatewayAddress SimAddress(size_t slot);
size_t SimSlot(const GatewayAddress& address);

class SimGateway {
 public:
  // What world has outlives this.
  SimGateway(NodeId id, size_t slot, GatewayCoreOptions options, const SimWorld& world);
  // The process is gone without a word.
  ~SimGateway();
  SimGateway(const SimGateway&) = delete;
  SimGateway& operator=(const SimGateway&) = delete;

  GatewayCore& core() { return core_; }
  const GatewayCore& core() const { return core_; }

  // Does what the core asks for.
  void Settle();

 private:
  void Do(SendAction& action) { world_.links.SendToWorker(action.link, std::move(action.message)); }
  void Do(const CloseAction& action) { world_.links.CloseAtGateway(action.link); }
  void Do(const DirectoryAction& action);
  void Do(const ReportedAction&) {}
  void Do(const QueryAction&) {}
  void Do(const NoteAction&) {}
  void Do(const FollowAction& action);
  void Do(const UnfollowAction& action);

  const SimWorld world_;
  const size_t slot_;
  GatewayCore core_;
  SimDirectory::Client client_ = 0;
};

}  // namespace divisi
