// A cluster's part of /metrics: what each role does, beside what the gateway sees of its clients
// (metrics.h). Names follow vLLM's where it has such.
#pragma once

#include <string>
#include <string_view>

#include "divisi/control/dispatcher.h"
#include "divisi/control/registry.h"
#include "divisi/serve/cluster_totals.h"

namespace divisi {

// labels: of every sample, "model_name=...", may be empty.
std::string ClusterMetrics(const ClusterTotals& totals, const Registry& registry,
                           const Dispatcher& dispatcher, Seconds now, std::string_view labels);

}  // namespace divisi
