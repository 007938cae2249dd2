// The cluster of one machine as a YAML file: what `divisi up` starts.
//
//   model: models/tiny-qwen3              # A checkpoint directory, beside the file or absolute
//   gateway: {host: 127.0.0.1, port: 8000, control_port: 8001, policy: expected-ttft,
//             disaggregate_from: auto, args: [--max-waiting, "512"]}
//   workers:
//     - {role: prefill, count: 1, threads: 1, kv_memory: 256 MiB, args: []}
//     - {role: decode, count: 1, kv_host: 1 GiB}
//   pool: {nodes: 2, port: 7100, events_port: 7116, memory: 1 GiB, copies: 1}
//   # Or {at: [10.0.0.7:7100], events: [LIVE+REPLAY], copies: 1}
//
// The gateway follows the events of the pool's nodes.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "divisi/cli/serve_options.h"
#include "divisi/core/result.h"
#include "divisi/core/units.h"

namespace divisi {

// On one machine.
inline constexpr int64_t kMostClusterWorkers = 64;
inline constexpr int64_t kMostClusterStores = 16;

// A child process: its name in the log, its arguments after the program, and how long these let it
// take to end what it has (--drain-seconds).
struct ClusterProcess {
  std::string name;
  std::vector<std::string> args;
  Seconds drain{kDrainSeconds};
};

struct ClusterPlan {
  ClusterProcess gateway;
  std::vector<ClusterProcess> workers;
  std::vector<ClusterProcess> stores;  // Of the remote pool, as far as it is started here
};

// Instead of the file's; 0: the file's.
struct ClusterPorts {
  int http = 0;
  int control = 0;
};

// Errors: kInvalidArgument with file, line and key, also for a model that is not there.
Result<ClusterPlan> ReadClusterFile(std::string_view text, const std::string& file,
                                    const ClusterPorts& ports);

}  // namespace divisi
