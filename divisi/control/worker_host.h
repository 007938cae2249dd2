// A worker process: the Worker with a clock, an executor, a connection to its gateway and a carrier
// of pages. One thread computes and decides; the connection's loop only puts frames into its inbox.
//
// A worker that loses its gateway goes on with what it has until the leases end, and tries to come
// back. One that the gateway has declared dead becomes a new one: all it had is dropped.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "divisi/control/cluster_message.h"
#include "divisi/control/page_carrier.h"
#include "divisi/control/worker.h"
#include "divisi/core/clock.h"
#include "divisi/core/log.h"
#include "divisi/engine/executor.h"
#include "divisi/engine/scheduler.h"

namespace divisi {

struct WorkerHostOptions {
  WorkerRole role = WorkerRole::kReplica;
  std::string name;  // For people
  std::string gateway_host = "127.0.0.1";
  int gateway_port = 0;
  Compatibility compatibility;
  SchedulerOptions scheduler;
  HandoffTimes times;
};

class WorkerHost {
 public:
  // Makes the carrier of one life of the worker; `wake` is to be called when its Poll has
  // something.
  using CarrierMaker =
      std::function<Result<std::unique_ptr<PageCarrier>>(NodeId self, std::function<void()> wake)>;

  // executor, clock and logger outlive this.
  WorkerHost(WorkerHostOptions options, Executor& executor, CarrierMaker make_carrier,
             const Clock& clock, Logger& logger);
  ~WorkerHost();

  // Serves until `stop` is set: then what runs may go on for `drain`, and it returns.
  // Errors: kUnavailable when no gateway was reached for `patience`; kInvalidArgument when the
  // gateway refuses this worker (another model, say), with its reason; those of the carrier's
  // maker.
  Result<void> Run(const std::atomic<bool>& stop, Seconds drain, Seconds patience);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace divisi
