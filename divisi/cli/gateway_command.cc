// divisi gateway: the OpenAI surface over workers that connect to it.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <optional>

#include "divisi/cli/commands.h"
#include "divisi/cli/control_options.h"
#include "divisi/cli/kv_budget.h"
#include "divisi/cli/model_setup.h"
#include "divisi/cli/serve_options.h"
#include "divisi/cli/stop_signal.h"
#include "divisi/core/clock.h"
#include "divisi/core/format.h"
#include "divisi/core/log.h"
#include "divisi/core/random.h"
#include "divisi/serve/cluster_backend.h"
#include "divisi/serve/gateway.h"
#include "divisi/serve/http_server.h"

namespace divisi {
namespace {

struct GatewayCommandOptions {
  ServeOptions serve;
  std::string control_host = "127.0.0.1";
  int control_port = 8001;
  ControlTlsOptions tls;
  std::string control_advertise;
  EtcdCommandOptions etcd;
  std::string policy = PolicyName(RoutePolicy::kExpectedTtft);
  std::string objective = ObjectiveName(RouteObjective::kRequest);
  double quantile = 0;
  std::string disaggregate_from = "auto";
  int64_t directory_pages = 1'000'000;
  std::vector<std::string> pool_events;
  std::vector<std::string> follow;
};

// None without --kv-directory-pages. Errors: as PageDirectory::Create.
Result<std::optional<PageDirectory>> DirectoryFor(const GatewayCommandOptions& options) {
  if (options.directory_pages == 0) return std::optional<PageDirectory>();
  auto directory =
      PageDirectory::Create({.pages = options.directory_pages, .seed = SystemRandom()});
  if (!directory) return WithContext(directory.error(), "--kv-directory-pages");
  return std::optional(*std::move(directory));
}

// "LIVE+REPLAY" each.
std::vector<PoolStoreEvents> PoolEvents(const GatewayCommandOptions& options) {
  std::vector<PoolStoreEvents> stores;
  for (const std::string& text : options.pool_events) {
    const size_t plus = text.find('+');
    stores.push_back(
        {text.substr(0, plus), plus == std::string::npos ? std::string() : text.substr(plus + 1)});
  }
  return stores;
}

Result<std::vector<ForeignEngine>> ForeignOf(const GatewayCommandOptions& options) {
  std::vector<ForeignEngine> engines;
  for (const std::string& text : options.follow) {
    ASSIGN_OR_RETURN(ForeignEngine engine, ParseForeignEngine(text));
    engines.push_back(std::move(engine));
  }
  return engines;
}

DispatcherOptions DispatchOptions(const GatewayCommandOptions& options) {
  const auto policy = ParsePolicy(options.policy);
  if (!policy) FailCommand(WithContext(policy.error(), "--policy"));
  const auto objective = ParseObjective(options.objective);
  if (!objective) FailCommand(WithContext(objective.error(), "--route-objective"));
  const auto from = ParseDisaggregateFrom(options.disaggregate_from);
  if (!from) FailCommand(WithContext(from.error(), "--disaggregate-from"));
  return {.max_waiting = options.serve.max_waiting,
          .disaggregate_from = *from,
          .policy = *policy,
          .objective = *objective,
          .quantile = options.quantile > 0 ? std::optional(options.quantile) : std::nullopt,
          .keep_choices = true};
}

RegistryOptions MembersOptions(const GatewayCommandOptions& options, int64_t context) {
  RegistryOptions members{.tokenizer = TokenizerFingerprint(options.serve.model),
                          .context = context};
  // A gateway may have a model's text side alone.
  if (const auto checkpoint = Checkpoint::Open(options.serve.model)) {
    members.model = ModelFingerprint(*checkpoint);
  }
  if (!options.etcd.endpoints.empty()) members.lease = Seconds(options.etcd.lease_seconds);
  return members;
}

// What workers find in etcd. Errors: kInvalidArgument for an address that is no place to go.
Result<std::string> AdvertisedHost(const GatewayCommandOptions& options) {
  if (!options.control_advertise.empty()) return options.control_advertise;
  const std::string& host = options.control_host;
  if (host != "0.0.0.0" && host != "::") return host;
  return Error{Code::kInvalidArgument,
               Format("--control-host {} is every interface of this machine, which workers can't "
                      "connect to: give --control-advertise the address that they reach",
                      host)};
}

// The parts of a gateway, torn down in the reverse order.
class GatewayProcess {
 public:
  // core.registry.context: prompt plus output that clients are promised, in tokens.
  GatewayProcess(const GatewayCommandOptions& options, const ModelSpec& spec,
                 GatewayCoreOptions core, Logger& logger)
      : options_(options),
        spec_(spec),
        context_(core.registry.context),
        logger_(logger),
        backend_(std::move(core), clock_, logger, options.serve.log_level == "debug"),
        gateway_({.model_names = ServedNames(options.serve),
                  .api_key = options.serve.api_key,
                  .allowed_origin = options.serve.allowed_origin,
                  .version = DIVISI_VERSION},
                 clock_, logger) {}

  // From when it is loaded, `stop` stops it in order.
  Result<void> Start(StopSignal& stop) {
    ASSIGN_OR_RETURN(const int control, StartControl());
    auto http =
        HttpServer::Start({.host = options_.serve.host, .port = options_.serve.port}, gateway_);
    if (!http) return WithContext(http.error(), "--host, --port");
    http_.emplace(*std::move(http));
    ASSIGN_OR_RETURN(text_, LoadServedText(options_.serve, spec_, logger_));
    GatewayModel model = ServedGatewayModel(*text_, spec_);
    model.backend = &backend_;
    model.max_model_len = context_;
    model.limited_by = context_ < spec_.max_positions ? "--max-model-len" : "";
    gateway_.SetModel(std::move(model));
    stop.Serve();
    std::printf("control on %s:%d\nlistening on http://%s:%d\n", options_.control_host.c_str(),
                control, options_.serve.host.c_str(), http_->port());
    std::fflush(stdout);
    return {};
  }

  // The port that workers connect to.
  Result<int> StartControl() {
    ASSIGN_OR_RETURN(const auto tls, options_.tls.Files());
    if (tls) RETURN_IF_ERROR(backend_.UseTls(*tls));
    if (auto stores = PoolEvents(options_); !stores.empty()) {
      const auto followed = backend_.FollowStores(std::move(stores));
      if (!followed) return WithContext(followed.error(), "--kv-pool-events");
    }
    auto foreign = ForeignOf(options_);
    if (!foreign) return WithContext(foreign.error(), "--kv-follow");
    if (!foreign->empty()) {
      const auto followed = backend_.FollowForeign(*std::move(foreign));
      if (!followed) return WithContext(followed.error(), "--kv-follow");
    }
    const auto port = backend_.Listen(options_.control_host, options_.control_port);
    if (!port) return WithContext(port.error(), "--control-host, --control-port");
    if (const auto etcd = options_.etcd.Options()) {
      ASSIGN_OR_RETURN(const std::string host, AdvertisedHost(options_));
      RETURN_IF_ERROR(backend_.Join(*etcd, {host, *port}));
    }
    return *port;
  }

  void Stop() {
    gateway_.Drain();
    http_->Stop(Seconds(options_.serve.drain_seconds));
  }

 private:
  const GatewayCommandOptions& options_;
  const ModelSpec& spec_;
  const int64_t context_;
  Logger& logger_;
  SteadyClock clock_;
  std::optional<TextAssets> text_;
  ClusterBackend backend_;
  Gateway gateway_;                 // After what it uses.
  std::optional<HttpServer> http_;  // Last: it is stopped before what it serves goes.
};

void Run(const GatewayCommandOptions& options) {
  auto* stop = new StopSignal;  // For the process's life, as its header asks.
  RaiseDescriptorLimit();
  Logger logger(LogOptions(options.serve));
  const auto spec = LoadModelSpec(options.serve.model);
  if (!spec) FailCommand(spec.error());
  const auto context = WantedContext(options.serve, *spec);
  if (!context) FailCommand(context.error());
  auto directory = DirectoryFor(options);
  if (!directory) FailCommand(directory.error());
  GatewayProcess process(options, *spec,
                         {.dispatch = DispatchOptions(options),
                          .registry = MembersOptions(options, *context),
                          .pages = *std::move(directory)},
                         logger);
  if (const auto started = process.Start(*stop); !started) FailCommand(started.error());
  stop->Serve().wait(false);
  logger.Log(LogLevel::kInfo, "stopping", {{"drain_seconds", options.serve.drain_seconds}});
  process.Stop();
}

void AddKvOptions(CLI::App& command, const std::shared_ptr<GatewayCommandOptions>& options) {
  command
      .add_option("--kv-directory-pages", options->directory_pages,
                  "Pages of workers' KV that the gateway knows of, which routes ask: at least the "
                  "sum of all their tiers, 64 bytes each; 0 is not to follow their events")
      ->capture_default_str()
      ->check(CLI::Range(int64_t{0}, (int64_t{1} << 31) - 1));
  command
      .add_option("--kv-pool-events", options->pool_events,
                  "LIVE+REPLAY of each store of the remote pool, with commas: its --kv-events and "
                  "--kv-events-replay, as in tcp://10.0.0.7:7110+tcp://10.0.0.7:7111")
      ->delimiter(',');
  command
      .add_option("--kv-follow", options->follow,
                  "An engine of another maker whose KV events are followed, so that explain-route "
                  "says what it holds: NAME=SCHEME:LIVE[+REPLAY][;block=N][;seed=TEXT]"
                  "[;topic=TEXT][;bytes], SCHEME vllm, sglang or dynamo; may be given several "
                  "times")
      ->take_all();
}

}  // namespace

void AddGatewayCommand(CLI::App& app) {
  auto options = std::make_shared<GatewayCommandOptions>();
  CLI::App& command = *app.add_subcommand(
      "gateway", "The OpenAI HTTP API over the workers of a cluster, which connect to it");
  command.footer(
      "Example, three processes:\n  divisi gateway --model models/tiny-qwen3 --port 8000\n"
      "  divisi worker --model models/tiny-qwen3 --role prefill --gateway 127.0.0.1:8001\n"
      "  divisi worker --model models/tiny-qwen3 --role decode --gateway 127.0.0.1:8001");
  ServeOptions& serve = options->serve;
  command.add_option("--model", serve.model, "Checkpoint directory: for its text side")->required();
  AddHttpOptions(command, serve);
  command.add_option("--control-host", options->control_host, "Address that workers connect to")
      ->capture_default_str();
  command.add_option("--control-port", options->control_port, "Port that workers connect to")
      ->capture_default_str()
      ->check(CLI::Range(0, 65535));
  command
      .add_option("--max-model-len", serve.max_model_len,
                  "Longest prompt plus output, which every worker has to have room for; 0 is what "
                  "the model allows")
      ->capture_default_str()
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 30));
  command
      .add_option("--max-waiting", serve.max_waiting, "Queued requests; beyond it clients get 429")
      ->capture_default_str()
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 20));
  command
      .add_option("--disaggregate-from", options->disaggregate_from,
                  "Prompts of at least this many tokens are handed from prefill to decode workers; "
                  "shorter ones run whole. 0 is all; auto weighs what it costs by measured rates")
      ->capture_default_str();
  command
      .add_option("--policy,--route-policy", options->policy,
                  "Which worker gets a request: round-robin, least-loaded, cache-first, or "
                  "expected-ttft, the shortest expected time to its first token")
      ->capture_default_str();
  command
      .add_option("--route-objective", options->objective,
                  "What expected-ttft makes short: request, its own time to the first token, or "
                  "total, that and the time which it takes from others")
      ->capture_default_str();
  command
      .add_option("--route-quantile", options->quantile,
                  "What expected-ttft expects of pages that may be gone: this quantile of the "
                  "time, 0.99 say; 0 is the mean")
      ->capture_default_str()
      ->check(CLI::Range(0.0, 1.0));
  command
      .add_option("--control-advertise", options->control_advertise,
                  "The host that workers find in etcd, where it differs from --control-host")
      ->check(NotEmpty());
  AddKvOptions(command, options);
  AddEtcdOptions(command, options->etcd);
  AddControlTlsOptions(command, options->tls);
  AddProcessOptions(command, serve);
  command.callback([options] { Run(*options); });
}

}  // namespace divisi
