// What a simulated cluster's run is drawn from: how bad its world is, and the options of its parts.
#pragma once

#include "divisi/control/dispatcher.h"
#include "divisi/control/worker_core.h"
#include "divisi/core/random.h"
#include "divisi/core/units.h"
#include "divisi/engine/prefix_loader.h"
#include "divisi/engine/scheduler.h"

namespace divisi {

// Chances of each message, mean delays, and numbers of faults in the whole run.
struct SimWeather {
  double drop = 0, repeat = 0;
  Seconds delay{0.001};
  Seconds write_delay{0.002};
  int crashes = 0, partitions = 0;
  int drains = 0, role_changes = 0;  // By operators
  int lost_gateways = 0, directory_outages = 0, leaves = 0;
  int pool_losses = 0, pool_outages = 0;  // Pages that gave way; the whole pool
  bool unordered = false;  // Hand-off messages overtake each other on one connection.

  static SimWeather Draw(Random& random);
};

// A tenth of production's, so that a run of a minute sees every one of them end.
HandoffTimes SimTimes();
DispatcherOptions DrawSimDispatcher(Random& random);
// Few pages and sequences: most requests have to wait for some.
SchedulerOptions DrawSimScheduler(Random& random, int64_t most_blocks = 40);
// So small that pages are evicted all the time. Of one life.
PrefixLoaderOptions DrawSimTiers(Random& random);
// All but its gateways
WorkerCoreOptions SimWorkerOptions(WorkerRole role, const SchedulerOptions& scheduler);

}  // namespace divisi
