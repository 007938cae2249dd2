// The gateway's side of a cluster: the registry of its workers, and a RequestBackend that runs
// requests on them. Workers connect to it; it passes on what they say to each other, so that a
// worker that was declared dead reaches nobody any more.
//
// A worker that lost its connection has `grace` to come back as the same; then it is gone: its
// requests are tried elsewhere or fail, the others are told, and if it comes back it is told to be
// a new one. Threads: one loop runs connections, timers and sinks; Submit, Cancel and the rest are
// called from any.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "divisi/control/cluster_message.h"
#include "divisi/core/log.h"
#include "divisi/serve/gateway_backend.h"

namespace divisi {

struct ClusterBackendOptions {
  DispatcherOptions dispatch;
  // What every worker must agree with; absent: with the first that came.
  std::optional<Compatibility> expected;
  Seconds grace{0.5};
};

class ClusterBackend final : public RequestBackend {
 public:
  // clock and logger outlive this.
  ClusterBackend(ClusterBackendOptions options, const Clock& clock, Logger& logger);
  ~ClusterBackend() override;

  // Takes workers from now on; returns the port. Errors: as FrameLoop::Listen.
  Result<int> Listen(const std::string& host, int port);

  Result<RequestId> Submit(Request request, Engine::EventSink sink) override;
  void Cancel(RequestId id) override;
  EngineStats stats() const override;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace divisi
