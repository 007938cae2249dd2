// Whether what a simulated gateway knows of pages, its workers' and the pool's, is what there is:
// for the end of a run, once all events have come.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <span>
#include <string>

#include "divisi/control/gateway_core.h"
#include "divisi/sim/sim_worker.h"

namespace divisi {

struct SimKnownPages {
  std::string fault;  // Empty: it is
  int64_t pairs = 0;  // Pages of workers that it knows
};

struct SimPagesThere {
  std::span<const std::unique_ptr<SimWorker>> workers;
  const SimPool& pool;
  const std::set<BlockKey>& keys;            // That are looked up one by one, too
  const std::function<bool(NodeId)>& lives;  // Whether a worker's life goes on
};

SimKnownPages CheckKnownPages(GatewayCore& gateway, const SimPagesThere& there, Seconds now);

}  // namespace divisi
