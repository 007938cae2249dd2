// A worker process: the Worker with a clock, an executor, a connection to its gateway and a carrier
// of pages. One thread computes and decides; the connection's loop only puts frames into its inbox.
//
// A worker that loses its gateway goes on with what it has until the leases end, and tries to come
// back. One that the gateway has declared dead becomes a new one: all it had is dropped.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "divisi/core/clock.h"
#include "divisi/core/log.h"
#include "divisi/serve/cluster_message.h"
#include "divisi/serve/executor.h"
#include "divisi/serve/scheduler.h"
#include "divisi/serve/worker.h"

namespace divisi {

// Carries pages of this worker's memory into that of others, one-sided. Used by one thread.
class PageCarrier {
 public:
  struct Done {
    uint64_t write = 0;
    bool ok = false;
  };
  virtual ~PageCarrier() = default;
  // How others reach this memory; empty where they cannot.
  virtual std::string address() const = 0;
  virtual std::vector<std::byte> descriptor() const = 0;
  virtual void AddPeer(NodeId node, const std::string& address,
                       std::span<const std::byte> descriptor) = 0;
  // No write from or to the peer lands after this.
  virtual void RemovePeer(NodeId node) = 0;
  // Begins a write; Poll answers it, at once with false where the peer cannot be reached.
  virtual void Write(const PageWrite& write) = 0;
  virtual std::vector<Done> Poll() = 0;
};

// For workers that take part in no transfer: every write fails.
std::unique_ptr<PageCarrier> NoPageCarrier();

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
  // executor, carrier, clock and logger outlive this.
  WorkerHost(WorkerHostOptions options, Executor& executor, PageCarrier& carrier,
             const Clock& clock, Logger& logger);
  ~WorkerHost();

  // Serves until `stop` is set: then what runs may go on for `drain`, and it returns.
  // Errors: kUnavailable when no gateway was reached for `patience`; kInvalidArgument when the
  // gateway refuses this worker (another model, say), with its reason.
  Result<void> Run(const std::atomic<bool>& stop, Seconds drain, Seconds patience);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace divisi
