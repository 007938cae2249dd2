// divisi store: one node of the remote pool, or what a running one says of itself.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <string>

#include "divisi/cli/commands.h"
#include "divisi/cli/control_options.h"
#include "divisi/cli/event_setup.h"
#include "divisi/cli/host_port.h"
#include "divisi/cli/stop_signal.h"
#include "divisi/control/store_client.h"
#include "divisi/control/store_server.h"
#include "divisi/core/clock.h"
#include "divisi/core/file.h"
#include "divisi/core/format.h"
#include "divisi/core/huge_memory.h"
#include "divisi/core/log.h"
#include "divisi/core/random.h"
#include "divisi/net/ucx_transport.h"

namespace divisi {
namespace {

struct StoreCommandOptions {
  std::string listen = "127.0.0.1:7100";
  std::string data_listen = "127.0.0.1:0";
  std::string data_advertise;
  std::string memory = "8GiB";
  std::string port_file;
  std::string status;
  ControlTlsOptions tls;
  EventCommandOptions events;
  bool log_json = false;
};

constexpr Seconds kPatience{5};
constexpr Bytes kLeast{int64_t{1} << 20};

constexpr const char* kFooter =
    "A pool is one or more of these processes, each with its own memory; workers are told all of\n"
    "them, and spread the pages over them. Nothing is kept on disk: a node that starts is empty.\n"
    "  divisi store --listen 10.0.0.7:7100 --data-listen 10.0.0.7:0 --memory 64GiB\n"
    "  divisi store --status 10.0.0.7:7100\n"
    "Who reaches --data-listen is trusted: keep it and --listen on a private network, the latter\n"
    "with --control-cert, --control-key and --control-ca. For RDMA memory is pinned: raise\n"
    "`ulimit -l`. UCX_TLS and UCX_NET_DEVICES choose the network.";

Result<void> PrintStatus(const StoreCommandOptions& options) {
  ASSIGN_OR_RETURN(const auto address, ParseHostPort("--status", options.status));
  ASSIGN_OR_RETURN(const auto tls, options.tls.Files());
  ASSIGN_OR_RETURN(const StoreCounters counters, AskStore(address, tls, kPatience));
  std::fputs(StoreMetrics(counters).c_str(), stdout);
  return {};
}

Result<void> Serve(const StoreCommandOptions& options, StopSignal& signal) {
  Logger logger({.json = options.log_json});
  const SteadyClock clock;
  ASSIGN_OR_RETURN(const auto address, ParseListenAt("--listen", options.listen));
  ASSIGN_OR_RETURN(const auto tls, options.tls.Files());
  ASSIGN_OR_RETURN(const Bytes size, ParseBytes(options.memory));
  if (size < kLeast) {
    return Error{Code::kInvalidArgument,
                 Format("--memory {}: a node needs 1MiB or more", options.memory)};
  }
  ASSIGN_OR_RETURN(const HugeMemory memory, HugeMemory::Reserve(size, "the store (--memory)"));
  const NodeId self{SystemRandom() | 1};
  auto transport = OpenUcxTransport(
      {.self = self, .listen = options.data_listen, .advertise = options.data_advertise}, clock);
  if (!transport) return WithContext(transport.error(), "--data-listen, --data-advertise");
  const std::string data = (*transport)->address();
  ASSIGN_OR_RETURN(
      const auto events,
      OpenEvents({.options = options.events, .listen = options.data_listen}, clock, logger));
  ASSIGN_OR_RETURN(
      const auto server,
      MakeStoreServer({.self = self,
                       .host = address.first,
                       .port = address.second,
                       .tls = tls,
                       .events = events.get()},
                      std::move(*transport), {memory.data(), static_cast<size_t>(size.value)},
                      clock, logger));
  const std::atomic<bool>& stop = signal.Serve();
  if (!options.port_file.empty()) {
    RETURN_IF_ERROR(WriteFileAtomic(options.port_file, Format("{}\n", server->port())));
  }
  logger.Log(LogLevel::kInfo, "store is ready",
             {{"host", address.first},
              {"port", static_cast<int64_t>(server->port())},
              {"data", data},
              {"memory_bytes", size.value},
              {"tls", tls.has_value()}});
  server->Run(stop);
  logger.Log(LogLevel::kInfo, "store ends");
  return {};
}

}  // namespace

void AddStoreCommand(CLI::App& app) {
  auto options = std::make_shared<StoreCommandOptions>();
  CLI::App& command = *app.add_subcommand(
      "store", "One node of the remote pool: keeps pages of KV in memory for workers");
  command.footer(kFooter);
  command
      .add_option("--listen", options->listen,
                  "HOST:PORT where workers ask; port 0 takes any free one")
      ->capture_default_str();
  command
      .add_option("--data-listen", options->data_listen,
                  "HOST:PORT where workers' pages arrive; port 0 takes any free one")
      ->capture_default_str();
  command.add_option("--data-advertise", options->data_advertise,
                     "The host that workers are told, where it differs from the one listened on");
  command
      .add_option("--memory", options->memory,
                  "Memory for pages, such as 64GiB; the least recently used give way")
      ->capture_default_str();
  command.add_option("--port-file", options->port_file,
                     "Write the port of --listen there once it serves");
  command.add_option("--status", options->status,
                     "HOST:PORT of a running node: print its counters as Prometheus has them, "
                     "and end");
  AddEventOptions(command, options->events);
  AddControlTlsOptions(command, options->tls);
  command.add_flag("--log-json", options->log_json, "Log JSON, one object a line");
  command.callback([options] {
    if (!options->status.empty()) {
      if (const auto printed = PrintStatus(*options); !printed) FailCommand(printed.error());
      return;
    }
    auto* signal = new StopSignal;  // For the process's life, as its header asks.
    if (const auto served = Serve(*options, *signal); !served) FailCommand(served.error());
  });
}

}  // namespace divisi
