// A simulated worker process: the production WorkerCore over modelled connections, pages, steps and
// a modelled directory, as WorkerHost is over real ones. A process has lives: one that was declared
// dead goes on as a new one, and one that ended is started again.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "divisi/control/worker_core.h"
#include "divisi/sim/sim_directory.h"
#include "divisi/sim/sim_executor.h"
#include "divisi/sim/sim_tiers.h"
#include "divisi/sim/sim_world.h"

namespace divisi {

class SimWorker {
 public:
  // index: as SimLinks has it. What world has outlives this.
  SimWorker(size_t index, WorkerCoreOptions options, const SimWorld& world);

  // The process starts, with this as its first life.
  void Start(NodeId life);
  // The process goes on with another.
  void BeNew(NodeId life);
  // It is gone, with its word to the directory or without any.
  void Leave();
  void Crash();
  bool up() const { return up_; }

  size_t index() const { return index_; }
  NodeId life() const { return core_->self(); }
  // Of the last life, where it is not up.
  WorkerCore& core() { return *core_; }
  const WorkerCore& core() const { return *core_; }
  SimExecutor& executor() { return *executor_; }
  const SimExecutor& executor() const { return *executor_; }

  // Does what the core asks for, and begins its next step.
  void Settle();
  // What it still holds, or is busy with; empty: nothing.
  std::string Left() const;
  // Steps of this life that ran behind a load.
  int64_t following_steps() const { return following_steps_; }

  // Its writes to peers that it was not told of, and those of peers that it has barred, fail.
  bool Knows(NodeId peer) const { return peers_.contains(peer); }
  bool Bars(NodeId peer) const { return barred_.contains(peer); }

 private:
  void StartStep();
  void EndStep(const StepPlan& plan, bool patient);
  void CarryTiers();
  void Do(const DialAction& dial);
  void Do(SendAction& action);
  void Do(const AddPeerAction& action) { peers_.insert(action.node); }
  void Do(const BarAction& action);
  void Do(const PageWrite& write);
  void Do(const DirectoryAction& action);
  void Do(const LogAction&) {}
  // Runs it later, if that life still is.
  template <typename Fn>
  void Later(Seconds wait, Fn fn);

  const size_t index_;
  const WorkerCoreOptions options_;
  const SimWorld world_;
  bool up_ = false;
  SimDirectory::Client client_ = 0;
  std::optional<WorkerCore> core_;
  // Of this life
  std::unique_ptr<SimExecutor> executor_;
  std::set<NodeId> peers_, barred_;
  std::unique_ptr<SimTiers> tiers_;
  int64_t following_steps_ = 0;
  SimDisk disk_;  // Of all lives
};

}  // namespace divisi
