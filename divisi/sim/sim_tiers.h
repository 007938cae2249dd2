// The KV tiers of a simulated worker, as TierDriver has them: pages that are read and written after
// a while, whole or layer by layer, some of which get lost, a disk that outlives the process, a
// pool that all workers share, which forgets pages and is away at times, and each other's host
// memory.
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

// Of all workers of a cluster: one node, that tells gateways what it has.
struct SimPool {
  static constexpr NodeId kLife{500};  // Between those of gateways and workers

  // What is there is left.
  void Put(const BlockKey& key, const std::vector<std::byte>& content);
  void Erase(const BlockKey& key);
  // Each page with that chance: as those of a full pool, in no order that anybody knows. How many.
  int64_t Lose(double part, Random& random);
  void Clear();

  SimPageMap pages;
  SimEvents* events = nullptr;  // Null: nobody hears of it
  bool away = false;            // It does not answer
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

  // All outlive this. The device has as many layers as the options say.
  SimTiers(const SimWorld& world, const PrefixLoaderOptions& options, SimExecutor& device,
           SimDisk& disk);
  ~SimTiers() { Withdraw(); }

  // Others read its host memory by that name until it is withdrawn.
  void Export(std::string address);
  void Withdraw();
  bool exports() const { return !exported_at_.empty(); }
  const PrefixLoaderOptions& options() const { return options_; }
  void Restore(PrefixLoader& loader);
  // Does what the loader asks for.
  void Carry(PrefixLoader& loader, const Later& later);

 private:
  struct Loading {
    LoadOrder order;
    LoadOutcome outcome;
    bool by_page = false;  // As PageLoading reads it
    size_t usable = 0;     // Pages before the first bad one
    int layers = 0;        // That were read of them
  };

  SimPageMap& In(Tier tier);
  // Null: nobody answers there.
  const SimPageMap* Source(const LoadOrder& order, Tier tier);
  const std::vector<std::byte>* Find(Loading& load, size_t index);
  void Begin(PrefixLoader& loader, LoadOrder order, const Later& later);
  void ReadSoon(PrefixLoader& loader, uint64_t id, const Later& later);
  void Read(PrefixLoader& loader, uint64_t id, const Later& later);
  void ReadPages(Loading& load);
  bool ReadLayer(Loading& load);
  void End(PrefixLoader& loader, uint64_t id, const Later& later);
  void GiveUp(PrefixLoader& loader, uint64_t id, const Later& later);
  void Remove(const TierAction& action);
  void Copy(PrefixLoader& loader, const TierAction& action);
  void Answer(PrefixLoader& loader, const PoolQuestion& question);
  Seconds Wait() const;

  const SimWorld world_;
  const PrefixLoaderOptions options_;
  TierSpeeds speeds_;
  SimExecutor& device_;
  SimDisk& disk_;
  SimPageMap host_;
  std::map<uint64_t, Loading> loading_;
  std::string exported_at_;
};

}  // namespace divisi
