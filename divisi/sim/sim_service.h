// A cluster without faults under a load, on a virtual clock: the production dispatcher and workers
// over modelled steps and links. What its requests wait, and what each worker did: for comparing
// policies, and for holding counters against a plan.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "divisi/control/dispatcher.h"
#include "divisi/control/worker.h"
#include "divisi/sim/sim_executor.h"

namespace divisi {

struct ServiceWorker {
  WorkerRole role = WorkerRole::kReplica;
  SimRates rates;
  SchedulerOptions scheduler;
};

struct ServiceRequest {
  Seconds arrival;
  int64_t prompt = 1;  // Tokens, those of no other request
  int64_t output = 1;
};

struct ServiceScenario {
  DispatcherOptions dispatch;
  std::vector<ServiceWorker> workers;
  std::vector<ServiceRequest> requests;  // By arrival
  Seconds message{2e-4};                 // Until one is there
  Seconds page{1e-4};                    // Of a worker's page after the one before
  Seconds report{0.5};
};

struct ServiceOutcome {
  std::optional<Error> error;  // Refused, or failed
  Seconds first_token, finished;
  int64_t tokens = 0;
};

struct ServiceReport {
  std::vector<ServiceOutcome> outcomes;  // As the scenario's requests
  std::vector<WorkerStats> workers;
  DispatcherStats dispatcher;
  int64_t most_live = 0;  // Requests at once
  std::string fault;      // Empty: none

  // Of those that got a first token. quantile: 0 < q <= 1.
  Seconds MeanTtft(const ServiceScenario& scenario) const;
  Seconds TtftQuantile(const ServiceScenario& scenario, double q) const;
};

ServiceReport RunService(const ServiceScenario& scenario);

}  // namespace divisi
