// A cluster without faults under a load, on a virtual clock: the production GatewayCore and
// WorkerCores over modelled steps, links and KV tiers. What its requests wait, and what each worker
// did: for comparing policies, and for holding counters against a plan.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "divisi/control/dispatcher.h"
#include "divisi/control/worker.h"
#include "divisi/sim/service_load.h"
#include "divisi/sim/service_tiers.h"
#include "divisi/sim/service_worker.h"

namespace divisi {

struct ServiceScenario {
  DispatcherOptions dispatch;
  std::vector<ServiceWorker> workers;
  std::optional<ServicePool> pool;       // Of the workers that have tiers
  bool peers = false;                    // They read each other's host memory
  std::vector<ServiceRequest> requests;  // By arrival
  Seconds message{2e-4};                 // Until one is there
  Seconds page{1e-4};                    // Of a worker's page after the one before
  int64_t directory = 0;  // Pages that the gateway knows of; 0: it does not follow events
  Seconds event{5e-3};    // From what happened to a page until the gateway knows
  // Pages have contents, which every step reads, and plans are checked; without it is faster.
  bool contents = true;
  // Called now and then with the part of the requests that has ended.
  std::function<void(double)> progress;
};

struct ServiceOutcome {
  std::optional<Error> error;  // Refused, or failed
  Seconds first_token, finished;
  int64_t tokens = 0;
  int64_t cached_tokens = 0;     // Of the prompt, found
  std::vector<TokenId> sampled;  // With contents: what it got
  // With dispatch.keep_choices: of the last attempt.
  std::optional<RouteChoice> choice;
};

struct ServiceReport {
  std::vector<ServiceOutcome> outcomes;  // As the scenario's requests
  std::vector<WorkerStats> workers;
  std::vector<PrefixLoaderStats> tiers;  // Of workers that have some, in their order
  DispatcherStats dispatcher;
  int64_t most_live = 0;  // Requests at once
  Bytes from_pool;        // That its link carried to workers
  Bytes from_peers;       // That workers read of each other's host memory
  // With a directory, of each worker by tier: the odds that a copy is there which is shown
  // (CopyOdds)
  std::vector<std::array<double, kSources>> odds;
  std::string fault;  // Empty: none

  // Of those that got a first token. quantile: 0 < q <= 1.
  Seconds MeanTtft(const ServiceScenario& scenario) const;
  Seconds TtftQuantile(const ServiceScenario& scenario, double q) const;
  // Prompt tokens that were computed, and the part of all that was found instead.
  int64_t PromptTokensComputed() const;
  double HitRate() const;
};

// The worker of that index in the scenario.
NodeId ServiceWorkerId(size_t index);

ServiceReport RunService(const ServiceScenario& scenario);

}  // namespace divisi
