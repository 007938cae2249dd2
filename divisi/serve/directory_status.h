// What a gateway knows of its workers' KV, for operators: in `divisi cluster status` and /metrics.
#pragma once

#include <string>
#include <string_view>

#include "divisi/control/gateway_core.h"
#include "divisi/core/json.h"
#include "divisi/serve/cluster_events.h"

namespace divisi {

// "kv" of one worker: its pages by tier, odds and how well its events come. Null where it is not
// followed. Requires: gateway.pages().
Json WorkerKvStatus(const GatewayCore& gateway, const ClusterEventStats& events, NodeId worker);
// "directory" of all: its size, what it refused, and the pool's pages and stores. The same.
Json DirectoryStatus(const GatewayCore& gateway, const ClusterEventStats& events);

// labels: of every sample, may be empty. Empty where there is no directory.
std::string DirectoryMetrics(const GatewayCore& gateway, const ClusterEventStats& events,
                             std::string_view labels);

}  // namespace divisi
