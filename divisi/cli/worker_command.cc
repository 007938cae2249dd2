// divisi worker: one worker of a cluster.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <functional>
#include <memory>
#include <vector>

#include "divisi/cli/commands.h"
#include "divisi/cli/control_options.h"
#include "divisi/cli/event_setup.h"
#include "divisi/cli/host_port.h"
#include "divisi/cli/model_setup.h"
#include "divisi/cli/peer_setup.h"
#include "divisi/cli/serve_options.h"
#include "divisi/cli/stop_signal.h"
#include "divisi/cli/tier_setup.h"
#include "divisi/control/worker_host.h"
#include "divisi/core/clock.h"
#include "divisi/core/format.h"
#include "divisi/core/log.h"
#include "divisi/net/ucx_transport.h"

namespace divisi {
namespace {

struct WorkerCommandOptions {
  ServeOptions serve;
  std::string role = "replica";
  std::vector<std::string> gateways;
  std::string name;
  double patience_seconds = 30;
  ControlTlsOptions tls;
  EtcdCommandOptions etcd;
  EventCommandOptions events{.live = "auto"};
};

Compatibility CompatibilityOf(const ServeOptions& options, ServedModel& model) {
  const KvLayout& layout = model.executor->pages().layout();
  return {.model = model.fingerprint,
          .tokenizer = TokenizerFingerprint(options.model),
          .kv_type = ComputeTypeName(layout.type),
          .kv_layout = Format("{} layers of {} heads of {}", layout.layers, layout.kv_heads,
                              layout.head_dim),
          .page_tokens = kBlockTokens,
          .page_format = PageFormat(layout)};
}

Result<std::vector<GatewayAddress>> GatewaysOf(const WorkerCommandOptions& options) {
  if (options.gateways.empty() && options.etcd.endpoints.empty()) {
    return std::vector{GatewayAddress{"127.0.0.1", 8001}};
  }
  std::vector<GatewayAddress> gateways;
  for (const std::string& text : options.gateways) {
    ASSIGN_OR_RETURN(const auto parsed, ParseHostPort("--gateway", text));
    gateways.push_back({parsed.first, parsed.second});
  }
  return gateways;
}

// The port of --data-listen is taken by then, for other workers' pages.
ServeOptions ForPool(ServeOptions options) {
  const size_t colon = options.data_listen.rfind(':');
  if (colon != std::string::npos) options.data_listen.replace(colon, std::string::npos, ":0");
  return options;
}

void Run(const WorkerCommandOptions& options) {
  auto* signal = new StopSignal;  // For the process's life, as its header asks.
  Logger logger(LogOptions(options.serve));
  const SteadyClock clock;
  const auto role = ParseRole(options.role);
  if (!role) FailCommand(WithContext(role.error(), "--role"));
  const auto gateways = GatewaysOf(options);
  if (!gateways) FailCommand(gateways.error());
  const auto tls = options.tls.Files();
  if (!tls) FailCommand(tls.error());
  auto model = LoadServedModel(options.serve, clock, logger);
  if (!model) FailCommand(model.error());
  KvPages& pages = model->executor->pages();
  const auto make_carrier =
      [&](NodeId self, std::function<void()> wake) -> Result<std::unique_ptr<PageCarrier>> {
    auto transport = OpenUcxTransport({.self = self,
                                       .listen = options.serve.data_listen,
                                       .advertise = options.serve.data_advertise},
                                      clock);
    if (!transport) return WithContext(transport.error(), "--data-listen, --data-advertise");
    return MakePageCarrier(std::move(*transport), pages.memory(), Bytes(pages.layout().PageBytes()),
                           std::move(wake));
  };
  std::function<Result<std::unique_ptr<TierDriver>>(bool)> open_tiers;
  if (options.serve.HasTiers()) {
    open_tiers = [&](bool disk) {
      ServeOptions its = ForPool(options.serve);
      if (!disk) its.kv_disk.clear();
      return OpenTiers(its, *tls, *model, logger);
    };
  }
  const ServeOptions exporting = ForPool(options.serve);
  const ExportSetup exports{.options = exporting,
                            .tls = *tls,
                            .memory = RemotePageStore::MemoryFor(PageShapeOf(pages.layout()))};
  const std::string name = options.name.empty() ? ProcessName() : options.name;
  const EventSetup events{.options = options.events,
                          .listen = options.serve.data_listen,
                          .topic = EventTopic(name, ServedNames(options.serve).front())};
  WorkerHost host({.core = {.role = *role,
                            .name = name,
                            .gateways = *gateways,
                            .compatibility = CompatibilityOf(options.serve, *model),
                            .scheduler = model->Scheduling(options.serve),
                            .page = Bytes(pages.layout().PageBytes()),
                            .tell_pages = events.options.on(),
                            .patience = Seconds(options.patience_seconds)},
                   .etcd = options.etcd.Options(),
                   .tls = *tls,
                   .open_tiers = std::move(open_tiers),
                   .open_export =
                       [&](std::shared_ptr<HostStore> host) {
                         return OpenExport(exports, std::move(host), logger);
                       },
                   .open_events = [&] { return OpenEvents(events, clock, logger); },
                   .events_topic = events.topic},
                  *model->executor, make_carrier, clock, logger);
  const auto ended =
      host.Run({.stop = signal->Serve(), .drain = Seconds(options.serve.drain_seconds)});
  if (!ended) FailCommand(ended.error());
}

}  // namespace

void AddWorkerCommand(CLI::App& app) {
  auto options = std::make_shared<WorkerCommandOptions>();
  CLI::App& command =
      *app.add_subcommand("worker", "One worker of a cluster: a replica, prefill or decode");
  ServeOptions& serve = options->serve;
  command.add_option("--model", serve.model, "Checkpoint directory (Hugging Face format)")
      ->required();
  command.add_option("--role", options->role, "What it does: replica, prefill or decode")
      ->capture_default_str();
  command
      .add_option("--gateway", options->gateways,
                  "HOST:PORT of the control port of each gateway, with commas [127.0.0.1:8001]")
      ->delimiter(',');
  command.add_option("--name", options->name, "How status and logs call it [host-pid]")
      ->check(NotEmpty());
  AddDataOptions(command, serve);
  command
      .add_option("--patience-seconds", options->patience_seconds,
                  "How long it looks for its gateway before it gives up")
      ->capture_default_str()
      ->check(CLI::Range(0.0, 1e9));
  AddEtcdOptions(command, options->etcd);
  AddControlTlsOptions(command, options->tls);
  AddComputeOptions(command, serve);
  AddLimitOptions(command, serve);
  AddTierOptions(command, serve);
  AddPeerOptions(command, serve);
  AddEventOptions(command, options->events);
  AddProcessOptions(command, serve);
  command.callback([options] { Run(*options); });
}

}  // namespace divisi
