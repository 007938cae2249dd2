// The KV tiers of a simulated worker, as TierDriver has them: pages that are read and written after
// a while, some of which get lost, a disk that outlives the process, a pool that all workers share,
// and each other's host memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "divisi/engine/prefix_loader.h"
#include "divisi/sim/sim_executor.h"
#include "divisi/sim/sim_world.h"

namespace divisi {

using SimPageMap = std::map<BlockKey, std::vector<std::byte>>;

// What survives its process.
struct SimDisk {
  SimPageMap pages;
  std::map<BlockKey, PageName> names;
};

// Of all workers of a cluster.
struct SimPool {
  SimPageMap pages;
  // Of all tiers
  int64_t loads = 0;  // That brought all of their pages
  int64_t failed_loads = 0;
  int64_t pages_read = 0;                             // Of the pool
  int64_t peer_pages = 0;                             // Of other workers' host memory
  std::map<std::string, const SimPageMap*> exported;  // Of the workers that are up, by address
};

class SimTiers {
 public:
  // Runs something after a wait, unless the life has ended by then.
  using Later = std::function<void(Seconds wait, std::function<void()>)>;

  // All outlive this.
  SimTiers(const SimWorld& world, SimExecutor& device, SimDisk& disk)
      : world_(world), device_(device), disk_(disk) {}
  ~SimTiers() { Withdraw(); }

  // Others read its host memory by that name until it is withdrawn.
  void Export(std::string address);
  void Withdraw();
  bool exports() const { return !exported_at_.empty(); }
  PrefixLoaderOptions Options() const;
  void Restore(PrefixLoader& loader);
  // Does what the loader asks for.
  void Carry(PrefixLoader& loader, const Later& later);

 private:
  SimPageMap& In(Tier tier);
  // Null: nobody answers there.
  const SimPageMap* Source(const LoadOrder& order, Tier tier);
  void Load(PrefixLoader& loader, const LoadOrder& order);
  void Remove(const TierAction& action);
  void Copy(PrefixLoader& loader, const TierAction& action);
  void Answer(PrefixLoader& loader, const PoolQuestion& question);
  Seconds Wait() const;

  const SimWorld world_;
  SimExecutor& device_;
  SimDisk& disk_;
  SimPageMap host_;
  std::string exported_at_;
};

}  // namespace divisi
