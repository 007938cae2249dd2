// A recorded or drawn load on a modelled cluster: what each routing policy makes requests wait. The
// cluster is the simulation's (sim/sim_service.h): the gateway and workers that serve, over steps
// by the cost model and KV tiers over links.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "divisi/catalog/catalog.h"
#include "divisi/control/route_choice.h"
#include "divisi/core/json.h"
#include "divisi/core/result.h"
#include "divisi/sim/sim_service.h"

namespace divisi {

struct SimulateOptions {
  std::string trace;     // Empty: conversations are drawn.
  int64_t requests = 0;  // The first this many; 0: all of the trace, 1000 conversations' turns
  uint64_t seed = 1;
  int64_t workers = 16;
  std::string model = "Qwen3-8B";
  std::string card = "A100 80GB SXM";
  double efficiency = 0.5;  // Of the card's peaks
  int64_t step_tokens = 2048;
  int64_t sequences = 64;
  Bytes host{int64_t{128} << 30};
  Bytes disk;
  Bytes pool{int64_t{2} << 40};
  bool peers = false;  // Workers read each other's host memory.
  BytesPerSecond pool_link{25e9};
  BytesPerSecond network{25e9};
  Seconds lookup{1e-3};
  Seconds event{5e-3};  // From what happened to a page until the gateway knows
  std::vector<RoutePolicy> policies;
  std::vector<RouteObjective> objectives{RouteObjective::kRequest};  // Of kExpectedTtft
  // Arrivals, in parts of what round robin can serve; `speed` times the trace's where empty.
  std::vector<double> loads;
  double speed = 1;
};

// The modelled cluster and its load, at the trace's speed.
// Errors: of the trace, and of names that the catalogue lacks, with the flag.
Result<ServiceScenario> SimulatedService(const SimulateOptions& options, const Catalog& catalog);

struct SimulatedRun {
  RoutePolicy policy = RoutePolicy::kRoundRobin;
  RouteObjective objective = RouteObjective::kRequest;
  double load = 0;  // 0: not asked for
  double speed = 1;
  int64_t requests = 0, failed = 0;
  Seconds mean, p50, p90, p99;  // TTFT
  double hit_rate = 0;          // Of prompt tokens
  int64_t computed_tokens = 0;  // Of prompts
  Bytes from_pool, from_peers;
};

// Called now and then: which of the runs it is, and the part of it that is done.
using SimulateProgress = std::function<void(const std::string& run, double part)>;

// The rate at which round robin clears the load when all of it is there at once.
PerSecond RoundRobinCapacity(ServiceScenario scenario, const SimulateProgress& progress);

// Every policy at every load. Fault: of the simulation itself; an error of kInternal.
Result<std::vector<SimulatedRun>> Simulate(const SimulateOptions& options, const Catalog& catalog,
                                           const SimulateProgress& progress);

std::string SimulateTable(const std::vector<SimulatedRun>& runs);
Json SimulateJson(const std::vector<SimulatedRun>& runs);

}  // namespace divisi
