// A simulated worker process: the production Worker and Membership, joined as WorkerHost joins
// them, over an executor that knows what its pages hold. A process has lives: one that was declared
// dead goes on as a new one.
#pragma once

#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "divisi/control/membership.h"
#include "divisi/control/worker.h"
#include "divisi/engine/scheduler.h"
#include "divisi/sim/sim_executor.h"
#include "divisi/sim/sim_gateway.h"

namespace divisi {

class SimWorker {
 public:
  SimWorker(WorkerRole role, SchedulerOptions options, const std::vector<GatewayAddress>& gateways);

  // Begins a life.
  void BeNew(NodeId id);
  NodeId id() const { return id_; }
  WorkerRole role() const { return role_; }
  const SchedulerOptions& options() const { return options_; }
  Membership& membership() { return membership_; }
  Worker& worker() { return *worker_; }
  const Worker& worker() const { return *worker_; }
  SimExecutor& executor() { return *executor_; }
  const SimExecutor& executor() const { return *executor_; }

  void Connected(LinkId link);
  void Frame(LinkId link, ClusterMessage message, Seconds now);
  void Tick(Seconds now);
  void Report();
  // Routes what the worker says.
  void Settle();
  // It asks its gateways for no more requests; LeaveNow ends it.
  void Leave(Seconds drain);
  void LeaveNow();
  void Stay() { drain_.reset(); }  // The next life
  bool leaving() const { return drain_.has_value(); }
  bool Idle() const;

  // A gateway told it that it is dead.
  bool rejected() const { return rejected_; }
  // Its writes to peers that it was not told of, and those of peers that it has barred, fail.
  bool Knows(NodeId peer) const { return peers_.contains(peer); }
  bool Bars(NodeId peer) const { return barred_.contains(peer); }

  std::vector<SimFrame> TakeFrames() { return std::exchange(frames_, {}); }

  bool stepping = false;

 private:
  void TellAll(const ClusterMessage& message);

  const WorkerRole role_;
  const SchedulerOptions options_;
  Membership membership_;
  NodeId id_;
  std::unique_ptr<Worker> worker_;
  std::unique_ptr<SimExecutor> executor_;
  std::set<NodeId> peers_, barred_;
  bool rejected_ = false;
  std::optional<Seconds> drain_;
  std::vector<SimFrame> frames_;
};

}  // namespace divisi
