// divisi serve: one worker that does all, behind its own gateway.
#include <CLI/CLI.hpp>
#include <cstdio>

#include "divisi/cli/commands.h"
#include "divisi/cli/control_options.h"
#include "divisi/cli/event_setup.h"
#include "divisi/cli/model_setup.h"
#include "divisi/cli/serve_options.h"
#include "divisi/cli/stop_signal.h"
#include "divisi/cli/tier_setup.h"
#include "divisi/core/clock.h"
#include "divisi/core/log.h"
#include "divisi/engine/engine.h"
#include "divisi/engine/model_executor.h"
#include "divisi/serve/gateway.h"
#include "divisi/serve/gateway_backend.h"
#include "divisi/serve/http_server.h"
#include "divisi/serve/text_assets.h"

namespace divisi {
namespace {

struct ServeCommandOptions {
  ServeOptions serve;
  ControlTlsOptions tls;  // To the nodes of the pool
  EventCommandOptions events;
};

// The parts of a server, built up in Start and torn down in the reverse order.
class Server {
 public:
  Server(const ServeCommandOptions& options, Logger& logger)
      : options_(options.serve),
        tls_(options.tls),
        publishing_(options.events),
        logger_(logger),
        gateway_({.model_names = ServedNames(options_),
                  .api_key = options_.api_key,
                  .allowed_origin = options_.allowed_origin,
                  .version = DIVISI_VERSION},
                 clock_, logger) {}

  // From when it is loaded, `stop` stops it in order.
  Result<void> Start(StopSignal& stop);
  void Stop() {
    gateway_.Drain();
    http_->Stop(Seconds(options_.drain_seconds));
  }

 private:
  Result<void> LoadModel();
  const ServeOptions& options_;
  const ControlTlsOptions& tls_;
  const EventCommandOptions& publishing_;
  Logger& logger_;
  SteadyClock clock_;
  std::optional<ServedModel> model_;
  std::optional<TextAssets> text_;
  std::unique_ptr<TierDriver> tiers_;
  std::unique_ptr<EventPublisher> events_;
  std::optional<Engine> engine_;
  std::optional<EngineBackend> backend_;
  Gateway gateway_;                 // After what it uses: its thread may be at a large body still.
  std::optional<HttpServer> http_;  // Last: it is stopped before what it serves goes.
};

Result<void> Server::Start(StopSignal& stop) {
  const Seconds began = clock_.Now();
  // Listening comes first: a taken port is known at once, and probes see a server that loads.
  ASSIGN_OR_RETURN(HttpServer http,
                   HttpServer::Start({.host = options_.host, .port = options_.port}, gateway_));
  http_.emplace(std::move(http));
  RETURN_IF_ERROR(LoadModel());
  stop.Serve();
  ModelExecutor& executor = *model_->executor;
  const ModelExecutor::LoadTimes& times = executor.load_times();
  logger_.Log(LogLevel::kInfo, "ready",
              {{"model", ServedNames(options_).front()},
               {"family", executor.spec().family},
               {"parameters", executor.spec().Parameters()},
               {"compute", ComputeTypeName(executor.pages().layout().type)},
               {"isa", IsaName(executor.isa())},
               {"threads", executor.threads()},
               {"kv_pages", executor.pages().pages()},
               {"max_model_len", executor.max_model_len()},
               {"open_seconds", times.open.value},
               {"map_seconds", times.map.value},
               {"warm_up_seconds", times.warm_up.value},
               {"start_seconds", (clock_.Now() - began).value}});
  const bool v6 = options_.host.find(':') != std::string::npos;
  std::printf("listening on http://%s%s%s:%d\n", v6 ? "[" : "", options_.host.c_str(),
              v6 ? "]" : "", http_->port());
  std::fflush(stdout);
  return {};
}

Result<void> Server::LoadModel() {
  ASSIGN_OR_RETURN(model_, LoadServedModel(options_, clock_, logger_));
  ModelExecutor& executor = *model_->executor;
  ASSIGN_OR_RETURN(const auto tls, tls_.Files());
  ASSIGN_OR_RETURN(tiers_, OpenTiers(options_, tls, *model_, logger_));
  ASSIGN_OR_RETURN(events_,
                   OpenEvents({.options = publishing_,
                               .listen = options_.data_listen,
                               .topic = EventTopic(ProcessName(), ServedNames(options_).front())},
                              clock_, logger_));
  engine_.emplace(model_->Scheduling(options_), executor, clock_,
                  EngineKv{.tiers = tiers_.get(), .events = events_.get()});
  backend_.emplace(*engine_);
  ASSIGN_OR_RETURN(text_, LoadServedText(options_, executor.spec(), logger_));
  GatewayModel served = ServedGatewayModel(*text_, executor.spec());
  served.backend = &*backend_;
  served.max_model_len = model_->budget.max_model_len;
  served.limited_by = LimitingFlag(options_, model_->budget, executor.spec());
  gateway_.SetModel(std::move(served));
  return {};
}

void Serve(const ServeCommandOptions& command) {
  const ServeOptions& options = command.serve;
  auto* stop = new StopSignal;  // For the process's life, as its header asks.
  RaiseDescriptorLimit();
  Logger logger(LogOptions(options));
  Server server(command, logger);
  if (const auto started = server.Start(*stop); !started) FailCommand(started.error());
  stop->Serve().wait(false);
  logger.Log(LogLevel::kInfo, "stopping",
             {{"drain_seconds", options.drain_seconds}, {"note", "a second signal stops at once"}});
  server.Stop();
}

}  // namespace

void AddServeCommand(CLI::App& app) {
  // Shared with the callback, which runs later.
  auto command = std::make_shared<ServeCommandOptions>();
  ServeOptions& options = command->serve;
  CLI::App& serve = *app.add_subcommand("serve", "Serve a model over the OpenAI HTTP API");
  serve.footer(
      "Example:\n  divisi serve --model models/tiny-qwen3 --port 8000\n"
      "  curl http://127.0.0.1:8000/v1/completions -H 'Content-Type: application/json' \\\n"
      "    -d '{\"prompt\": \"Once upon a time\", \"max_tokens\": 40}'");
  serve.add_option("--model", options.model, "Checkpoint directory (Hugging Face format)")
      ->required();
  AddHttpOptions(serve, options);
  AddComputeOptions(serve, options);
  AddLimitOptions(serve, options);
  AddTierOptions(serve, options);
  AddEventOptions(serve, command->events);
  AddDataOptions(serve, options);
  AddControlTlsOptions(serve, command->tls);
  AddProcessOptions(serve, options);
  serve.callback([command] { Serve(*command); });
}

}  // namespace divisi
