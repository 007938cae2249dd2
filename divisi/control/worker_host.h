// A worker process: the WorkerCore with a clock, an executor, connections to its gateways and a
// carrier of pages. One thread decides; another computes its steps, and the connections' loop only
// puts frames into an inbox. So a message is answered while a step runs.
//
// A worker that loses its gateways goes on with what it has until the leases end, and tries to come
// back. One that was declared dead becomes a new one: all it had is dropped.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>

#include "divisi/control/etcd_directory.h"
#include "divisi/control/frame_connection.h"
#include "divisi/control/page_carrier.h"
#include "divisi/control/page_export.h"
#include "divisi/control/worker_core.h"
#include "divisi/core/clock.h"
#include "divisi/core/log.h"
#include "divisi/engine/executor.h"
#include "divisi/engine/tier_driver.h"
#include "divisi/kv/event_socket.h"

namespace divisi {

struct WorkerHostOptions {
  WorkerCoreOptions core;
  std::optional<EtcdOptions> etcd;  // Gateways are found there too
  std::optional<TlsFiles> tls;
  // Makes the tiers of one life, below the device; core.scheduler reports pages then. Empty: none.
  // disk: that on the disk too, where there is one. Where it can't be had, a life after the first
  // goes on without it: a thread of the one before may hang in a call of the disk, with its lock.
  std::function<Result<std::unique_ptr<TierDriver>>(bool disk)> open_tiers;
  // Lets other workers read the host memory of one life's tiers, where they have that. Empty, or
  // none made: they do not.
  std::function<Result<std::unique_ptr<PageExport>>(std::shared_ptr<HostStore>)> open_export;
  // Publishes what one life holds, with core.tell_pages. Empty: nothing is published.
  std::function<Result<std::unique_ptr<EventPublisher>>()> open_events;
  std::string events_topic;  // Its
};

// When Run returns.
struct WorkerLife {
  const std::atomic<bool>& stop;  // Set: the worker leaves
  Seconds drain;                  // What runs then may go on for so long.
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

  // Serves until it is to stop. Then its gateways are told, what runs goes on until it ends or
  // `drain` is over, and it returns.
  // Errors: those of WorkerCore::Fate, of the makers, of FrameLoop::UseTls and of
  // EtcdDirectory::Open.
  Result<void> Run(const WorkerLife& life);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace divisi
