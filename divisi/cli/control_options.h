// What gateways, workers and `divisi cluster` are told on the command line about their control
// connections.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "divisi/control/etcd_directory.h"
#include "divisi/control/frame_connection.h"
#include "divisi/core/result.h"

namespace CLI {
class App;
}

namespace divisi {

struct ControlTlsOptions {
  std::string certificate;
  std::string key;
  std::string authority;

  // None where none is given. Errors: kInvalidArgument where some are.
  Result<std::optional<TlsFiles>> Files() const;
};

struct EtcdCommandOptions {
  std::vector<std::string> endpoints;
  std::string cluster = "default";
  double lease_seconds = 5;

  // None without endpoints.
  std::optional<EtcdOptions> Options() const;
};

// The length from which prompts are handed over; none for "auto". Errors: kInvalidArgument.
Result<std::optional<int64_t>> ParseDisaggregateFrom(const std::string& text);

// --control-cert, --control-key, --control-ca
void AddControlTlsOptions(CLI::App& command, ControlTlsOptions& options);
// --etcd, --cluster, --lease-seconds
void AddEtcdOptions(CLI::App& command, EtcdCommandOptions& options);

}  // namespace divisi
