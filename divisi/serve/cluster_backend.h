// The gateway's side of a cluster: a RequestBackend that runs requests on workers, which connect to
// it. It passes on what they say to each other, so that a worker that was declared dead reaches
// nobody any more. control/gateway_core.h decides; here are its connections, clock and clients.
//
// Threads: one loop runs connections, timers and sinks; Submit, Cancel and the rest are called from
// any.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "divisi/control/etcd_directory.h"
#include "divisi/control/frame_connection.h"
#include "divisi/control/gateway_core.h"
#include "divisi/control/membership.h"
#include "divisi/core/clock.h"
#include "divisi/core/log.h"
#include "divisi/serve/cluster_events.h"
#include "divisi/serve/foreign_engines.h"
#include "divisi/serve/gateway_backend.h"

namespace divisi {

class ClusterBackend final : public RequestBackend {
 public:
  // clock and logger outlive this.
  // The line that logs a request says how its workers were chosen, as GatewayCoreOptions' dispatch
  // .keep_choices asks: the chosen ones and, with all_routes, what they were compared with.
  ClusterBackend(GatewayCoreOptions options, const Clock& clock, Logger& logger,
                 bool all_routes = false);
  ~ClusterBackend() override;

  // Before Listen. Errors: as FrameLoop::UseTls.
  Result<void> UseTls(const TlsFiles& files);
  // Takes workers from now on; returns the port. Errors: as FrameLoop::Listen.
  Result<int> Listen(const std::string& host, int port);
  // Tells the cluster's directory that workers reach this gateway at `address`, and decides deaths
  // by it (RegistryOptions::lease is to be its lease). Once. Errors: as EtcdDirectory::Open.
  Result<void> Join(const EtcdOptions& etcd, const GatewayAddress& address);
  // The stores of the remote pool publish there. Once. Errors: as ClusterEvents::FollowStores;
  // kInvalidArgument without a directory of pages (GatewayCoreOptions::pages).
  Result<void> FollowStores(std::vector<PoolStoreEvents> stores);

  // Engines of other makers: `divisi explain-route` says what they hold of a prompt. Before the
  // first Submit, once. Errors: as ForeignEngines::Follow.
  Result<void> FollowForeign(std::vector<ForeignEngine> engines);

  Result<RequestId> Submit(Request request, Engine::EventSink sink) override;
  void Cancel(RequestId id) override;
  void Label(RequestId id, std::string_view label) override;
  EngineStats stats() const override;
  std::string NotReady() const override;
  std::string Metrics(std::string_view labels) const override;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace divisi
