// The KV tiers of a worker without faults, as TierDriver has them, over modelled links: loads one
// after the other, each over the network or from the disk first and then over PCIe; saves beside
// them. As TierIo's they end when nobody wants them any more and at their deadlines, also while
// they wait, with what was read of the pool's and other workers' pages, which come whole; too many
// at once are refused. Links are shared by what is on its way: PCIe and a network card by what
// their worker moves, and what others read of its host memory, the pool's link by all workers.
// Rates are measured, not told.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "divisi/engine/prefix_loader.h"
#include "divisi/kv/kv_event.h"
#include "divisi/kv/store_space.h"
#include "divisi/kv/tier_rates.h"
#include "divisi/sim/sim_executor.h"
#include "divisi/sim/sim_flows.h"
#include "divisi/sim/sim_schedule.h"
#include "divisi/sim/sim_tiers.h"

namespace divisi {

// Of one worker. Rates are of each direction.
struct ServiceTiers {
  int64_t host_pages = 0;
  int64_t disk_pages = 0;
  BytesPerSecond pcie{25e9};
  BytesPerSecond network{25e9};
  BytesPerSecond disk_read{6e9}, disk_write{3e9};
  DiskWrites disk_writes = DiskWrites::kAdmitted;
  WriteBudget disk_budget;
  int64_t loading_pages = 0;  // At most, of device pages; 0: three quarters, as TierDriver
};

// Of all workers that have tiers.
struct ServicePool {
  Bytes memory;
  BytesPerSecond link{25e9};  // Each direction
  Seconds lookup{1e-3};       // Until it is known which pages it has
};

// The pool itself.
class ServiceStore {
 public:
  ServiceStore(const ServicePool& pool, SimFlows& flows)
      : options(pool),
        space(pool.memory, /*report=*/true),
        out(flows.AddLink(pool.link)),
        in(flows.AddLink(pool.link)) {}

  const ServicePool options;
  StoreSpace space;
  const SimFlows::Link out, in;
  // What came and went since the last call.
  void TellNews();

  SimPageMap contents;                             // Where contents are checked
  std::function<void(std::vector<KvEvent>)> news;  // Empty: nobody follows its events
};

class ServiceTierDriver;
// Workers whose host memory others read, by address.
using ServicePeers = std::map<std::string, ServiceTierDriver*>;

class ServiceTierDriver {
 public:
  struct World {
    SimSchedule& schedule;
    SimFlows& flows;
    ServiceStore* store = nullptr;  // Null: there is no pool.
    ServicePeers* peers = nullptr;  // Null: nobody reads another's.
    SimExecutor& device;
    bool contents = true;         // Pages hold what the executor reads
    std::function<void()> moved;  // Something ended: to be called back into Carry soon
  };

  // What world refers to outlives this.
  ServiceTierDriver(const ServiceTiers& tiers, Bytes page, World world);

  PrefixLoaderOptions Options(int64_t device_pages) const;
  // Does what the loader asks for. The loader outlives what it asked for.
  void Carry(PrefixLoader& loader, Seconds per_token);

  int64_t late_loads() const { return late_loads_; }
  Bytes from_peers() const { return from_peers_; }
  TierSpeeds speeds() const;

 private:
  struct Loading {
    LoadOrder order;
    std::vector<StoreSpace::Slot> pinned;  // At the pool
    int64_t pages = 0;                     // The first this many can be read
    ServiceTierDriver* peer = nullptr;     // Whose host memory it reads, too,
    SimPageMap copied;                     // as it was when the load began
    std::array<Bytes, kSources> bytes{};   // By tier
    std::array<Seconds, kSources> took{};
    Tier reading = Tier::kRemote;  // The leg at hand; kDevice: over PCIe
    Seconds begun, since;          // Of all; of that leg
    SimFlows::Flow flow = 0;
  };

  void Ask(LoadOrder order);
  void GiveUp(uint64_t load);
  void StartLoad();
  bool Begin(Loading& load, const LoadOrder::Page& page);
  bool Gives(const BlockKey& key) const;
  void Read(Tier tier);
  void ReadAfter(Tier tier);
  void Upload();
  int64_t ReadUntilNow(Bytes left) const;
  void GiveUpLoad(bool late);
  void EndLoad(bool whole, int64_t pages);
  void CarrySoon();
  void Save(std::vector<TierAction> actions);
  void EndSave(const std::vector<TierAction>& actions,
               const std::map<uint64_t, StoreSpace::Slot>& placed);
  bool Keep(const TierAction& action, const std::map<uint64_t, StoreSpace::Slot>& placed);
  std::vector<SimFlows::Link> PathOf(const TierAction& action) const;
  SimPageMap& In(Tier tier);

  const ServiceTiers tiers_;
  const Bytes page_;
  const World world_;
  const SimFlows::Link to_device_, from_device_, net_in_, net_out_, disk_out_, disk_in_;
  PrefixLoader* loader_ = nullptr;
  std::deque<LoadOrder> loads_;
  std::optional<Loading> loading_;
  std::array<MeasuredRate, kSources> rates_;
  SimPageMap host_, disk_;
  int64_t late_loads_ = 0;
  Bytes from_peers_;
};

}  // namespace divisi
