// A worker process of a cluster without faults: the production WorkerCore over modelled steps,
// tiers and pages, as WorkerHost is over real ones.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "divisi/control/worker_core.h"
#include "divisi/sim/service_tiers.h"
#include "divisi/sim/sim_executor.h"
#include "divisi/sim/step_time.h"

namespace divisi {

struct ServiceWorker {
  WorkerRole role = WorkerRole::kReplica;
  SimRates rates;
  std::optional<SimDevice> device;  // Its steps in place of rates; its pages are the model's.
  SchedulerOptions scheduler;
  std::optional<ServiceTiers> tiers;
};

class ServiceNode {
 public:
  // What is asked of the others.
  struct Others {
    std::function<void(ClusterMessage)> to_gateway;
    std::function<void(const PageWrite&)> write;
    std::function<void(std::vector<KvEvent>)> news;  // Empty: nobody follows its events
  };
  struct World {
    SimSchedule& schedule;
    SimFlows& flows;
    ServiceStore* store = nullptr;
    ServicePeers* peers = nullptr;  // Outlives it
    HandoffTimes times;
    bool contents = true;
  };

  // What world refers to outlives this.
  ServiceNode(NodeId self, const ServiceWorker& from, const World& world, Others others);

  NodeId self() const { return core_.self(); }
  WorkerCore& core() { return core_; }
  SimExecutor& executor() { return executor_; }
  const ServiceTierDriver* tiers() const { return tiers_.get(); }

  void Receive(ClusterMessage message);
  void Tick();
  // Does what the core asks for, and begins its next step.
  void Settle();
  Seconds link_free;  // When its last page is through to another worker

 private:
  void StartStep();
  void TellNews();
  void Do(SendAction& action) { others_.to_gateway(std::move(action.message)); }
  void Do(const DialAction& dial);
  void Do(const PageWrite& write) { others_.write(write); }
  template <typename Other>
  void Do(const Other&) {}

  const World world_;
  const Others others_;
  LinkId link_ = 0;  // To the gateway
  SimExecutor executor_;
  std::unique_ptr<ServiceTierDriver> tiers_;
  WorkerCore core_;
};

}  // namespace divisi
