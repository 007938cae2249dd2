// divisi worker: one worker of a cluster.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <atomic>
#include <charconv>
#include <cstdio>
#include <memory>
#include <thread>

#include "divisi/cli/commands.h"
#include "divisi/cli/model_setup.h"
#include "divisi/cli/serve_options.h"
#include "divisi/cli/stop_signal.h"
#include "divisi/core/clock.h"
#include "divisi/core/file.h"
#include "divisi/core/format.h"
#include "divisi/core/log.h"
#include "divisi/kv/sha256.h"
#include "divisi/serve/worker_host.h"

namespace divisi {
namespace {

struct WorkerCommandOptions {
  ServeOptions serve;
  std::string role = "replica";
  std::string gateway = "127.0.0.1:8001";
  std::string name;
  double patience_seconds = 30;
};

WorkerRole RoleOf(const std::string& name) {
  for (const WorkerRole role : {WorkerRole::kReplica, WorkerRole::kPrefill, WorkerRole::kDecode}) {
    if (name == RoleName(role)) return role;
  }
  return WorkerRole::kReplica;  // CLI11 has let nothing else through.
}

std::string DefaultName() {
  char host[256] = "host";
  gethostname(host, sizeof host - 1);
  return Format("{}-{}", host, getpid());
}

Result<std::pair<std::string, int>> HostAndPort(const std::string& text) {
  const size_t colon = text.rfind(':');
  int port = 0;
  const char* end = text.data() + text.size();
  if (colon != std::string::npos && colon > 0) {
    const auto [stop, status] = std::from_chars(text.data() + colon + 1, end, port);
    if (status == std::errc() && stop == end && port > 0 && port < 65536) {
      return std::pair{text.substr(0, colon), port};
    }
  }
  return Error{Code::kInvalidArgument,
               Format("--gateway {}: expected HOST:PORT, as in 127.0.0.1:8001", text)};
}

Compatibility CompatibilityOf(const ServeOptions& options, ServedModel& model) {
  constexpr size_t kMostTokenizerBytes = size_t{256} << 20;
  const KvLayout& layout = model.executor->pages().layout();
  Compatibility compatibility{.model = model.fingerprint,
                              .kv_type = ComputeTypeName(layout.type),
                              .kv_layout = Format("{} layers of {} heads of {}", layout.layers,
                                                  layout.kv_heads, layout.head_dim),
                              .page_tokens = kBlockTokens};
  Sha256 hash;
  if (const auto text = ReadFile(options.model / "tokenizer.json", kMostTokenizerBytes)) {
    hash.Add(std::as_bytes(std::span(*text)));
  }
  compatibility.tokenizer = hash.FinishHex();
  return compatibility;
}

void Run(const WorkerCommandOptions& options) {
  auto* signal = new StopSignal;  // For the process's life, as its header asks.
  Logger logger({.json = options.serve.log_json});
  const SteadyClock clock;
  const auto gateway = HostAndPort(options.gateway);
  if (!gateway) FailCommand(gateway.error());
  auto model = LoadServedModel(options.serve, clock, logger);
  if (!model) FailCommand(model.error());
  const auto carrier = NoPageCarrier();
  WorkerHost host({.role = RoleOf(options.role),
                   .name = options.name.empty() ? DefaultName() : options.name,
                   .gateway_host = gateway->first,
                   .gateway_port = gateway->second,
                   .compatibility = CompatibilityOf(options.serve, *model),
                   .scheduler = model->Scheduling(options.serve)},
                  *model->executor, *carrier, clock, logger);
  static std::atomic<bool> stop{false};  // The waiting thread is never joined.
  std::thread([signal] {
    signal->ServeUntilAsked();
    stop = true;
  }).detach();
  const auto ended =
      host.Run(stop, Seconds(options.serve.drain_seconds), Seconds(options.patience_seconds));
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
  command.add_option("--role", options->role, "What it does")
      ->capture_default_str()
      ->check(CLI::IsMember({"replica", "prefill", "decode"}));
  command.add_option("--gateway", options->gateway, "HOST:PORT of the gateway's control port")
      ->capture_default_str();
  command.add_option("--name", options->name, "How status and logs call it [host-pid]");
  command
      .add_option("--patience-seconds", options->patience_seconds,
                  "How long it looks for its gateway before it gives up")
      ->capture_default_str()
      ->check(CLI::Range(0.0, 1e9));
  AddComputeOptions(command, serve);
  AddLimitOptions(command, serve);
  AddProcessOptions(command, serve);
  command.callback([options] { Run(*options); });
}

}  // namespace divisi
