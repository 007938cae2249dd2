#include "divisi/cli/serve_command.h"

#include <sys/resource.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstdlib>
#include <set>
#include <thread>

#include "divisi/cli/commands.h"
#include "divisi/cli/progress.h"
#include "divisi/cli/stop_signal.h"
#include "divisi/cli/weight_memory.h"
#include "divisi/core/clock.h"
#include "divisi/core/log.h"
#include "divisi/core/process.h"
#include "divisi/model/model_tensors.h"
#include "divisi/model/servable.h"
#include "divisi/serve/engine.h"
#include "divisi/serve/gateway.h"
#include "divisi/serve/gateway_backend.h"
#include "divisi/serve/http_server.h"
#include "divisi/serve/model_executor.h"
#include "divisi/serve/text_assets.h"

namespace divisi {
namespace {

// Each client is a descriptor: take as many as the system lets us.
void RaiseDescriptorLimit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

std::vector<std::string> ServedNames(const ServeOptions& options) {
  if (!options.served_names.empty()) return options.served_names;
  std::error_code error;  // Without a working directory the path as given has to do.
  std::filesystem::path full = std::filesystem::absolute(options.model, error);
  if (error) full = options.model;
  full = full.lexically_normal();
  return {full.has_filename() ? full.filename().string() : full.parent_path().filename().string()};
}

// Tensors that the model has no place for: a config that does not match its weights, or parts that
// this family does not use. Not an error, since checkpoints carry such, but never silent.
void WarnOfUnusedTensors(const Checkpoint& checkpoint, Logger& logger) {
  std::set<std::string> used = {"lm_head.weight"};  // Some store it though it is tied.
  for (ModelTensor& tensor : ModelTensors(checkpoint.spec())) {
    if (tensor.name.starts_with("model.")) used.insert(tensor.name.substr(6));  // Base models.
    used.insert(std::move(tensor.name));
  }
  constexpr size_t kNamed = 3;
  size_t unused = 0;
  std::string names;
  for (const auto& [name, view] : checkpoint.tensors()) {
    if (used.contains(name)) continue;
    if (++unused <= kNamed) names += Format("{}{}", names.empty() ? "" : ", ", name);
  }
  if (unused == 0) return;
  logger.Log(LogLevel::kWarning, "tensors without a place in the model",
             {{"count", static_cast<int64_t>(unused)},
              {"first", names},
              {"remedy", "check that config.json belongs to these weights"}});
}

// The flag that holds the context below the model's own; empty: none does.
const char* LimitingFlag(const ServeOptions& options, const KvBudget& budget,
                         const ModelSpec& spec) {
  if (budget.max_model_len >= spec.max_positions) return "";
  return options.max_model_len > 0 ? "--max-model-len" : "--kv-memory";
}

// The parts of a server, built up in Start and torn down in the reverse order.
class Server {
 public:
  Server(const ServeOptions& options, Logger& logger)
      : options_(options),
        logger_(logger),
        gateway_({.model_names = ServedNames(options),
                  .api_key = options.api_key,
                  .allowed_origin = options.allowed_origin,
                  .version = DIVISI_VERSION},
                 clock_, logger) {}

  Result<void> Start();
  void Stop() {
    gateway_.Drain();
    http_->Stop(Seconds(options_.drain_seconds));
  }

 private:
  Result<void> LoadModel();
  // Empty where there is no template.
  std::function<Result<std::string>(const Json&, double)> ChatRenderer() const {
    if (!text_->chat_template) return {};
    return [this](const Json& variables, double now_unix_seconds) {
      return text_->chat_template->Render(variables, now_unix_seconds);
    };
  }

  const ServeOptions& options_;
  Logger& logger_;
  SteadyClock clock_;
  std::unique_ptr<ModelExecutor> executor_;
  std::optional<TextAssets> text_;
  std::optional<Engine> engine_;
  std::optional<EngineBackend> backend_;
  Gateway gateway_;                 // After what it uses: its thread may be at a large body still.
  std::optional<HttpServer> http_;  // Last: it is stopped before what it serves goes.
};

Result<void> Server::Start() {
  const Seconds began = clock_.Now();
  // Listening comes first: a taken port is known at once, and probes see a server that loads.
  ASSIGN_OR_RETURN(HttpServer http,
                   HttpServer::Start({.host = options_.host, .port = options_.port}, gateway_));
  http_.emplace(std::move(http));
  RETURN_IF_ERROR(LoadModel());
  const ModelExecutor::LoadTimes& times = executor_->load_times();
  logger_.Log(LogLevel::kInfo, "ready",
              {{"model", ServedNames(options_).front()},
               {"family", executor_->spec().family},
               {"parameters", executor_->spec().Parameters()},
               {"compute", ComputeTypeName(executor_->pages().layout().type)},
               {"isa", IsaName(executor_->isa())},
               {"threads", executor_->threads()},
               {"kv_pages", executor_->pages().pages()},
               {"max_model_len", executor_->max_model_len()},
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
  ASSIGN_OR_RETURN(const ModelSpec spec, LoadModelSpec(options_.model));
  RETURN_IF_ERROR(CheckServable(spec));
  const ComputeType compute = ChooseComputeType(options_.dtype, spec.stored_type);
  ASSIGN_OR_RETURN(const Isa isa, ChooseIsa(options_.isa));
  const KvLayout layout{
      .layers = spec.layers, .kv_heads = spec.kv_heads, .head_dim = spec.head_dim, .type = compute};
  const Bytes available = AvailableMemory();
  const Bytes weights(spec.Parameters() * ElementBytes(spec.stored_type));
  ASSIGN_OR_RETURN(const KvBudget budget, PlanKvMemory(options_, spec, layout, available));
  ASSIGN_OR_RETURN(text_, LoadTextAssets(options_.model, spec, options_.chat_template));
  if (!text_->chat_template) {
    logger_.Log(LogLevel::kWarning, "no chat", {{"reason", text_->no_template_reason}});
  }
  const int cores = static_cast<int>(std::thread::hardware_concurrency());
  ProgressBar bar("loading");
  ASSIGN_OR_RETURN(
      executor_,
      ModelExecutor::Load(
          {.directory = options_.model,
           .compute = compute,
           .threads = options_.threads > 0 ? options_.threads : std::max(1, cores),
           .isa = isa,
           .max_model_len = budget.max_model_len,
           .kv_memory = budget.memory,
           .copy_weights = ShouldCopyWeights(options_.weights, weights, budget.memory, available),
           .progress = [&](Bytes done, Bytes total) { bar.Show(done, total); }},
          clock_));
  WarnOfUnusedTensors(executor_->checkpoint(), logger_);
  const std::string name = ServedNames(options_).front();
  engine_.emplace(SchedulerOptions{.max_sequences = options_.max_num_seqs,
                                   .max_batched_tokens = options_.max_num_batched_tokens,
                                   .max_model_len = budget.max_model_len,
                                   .max_waiting = options_.max_waiting,
                                   .blocks = budget.pages,
                                   .share_prefixes = options_.share_prefixes,
                                   // Pages never leave this process, which has one model.
                                   .model_fingerprint = {name.begin(), name.end()}},
                  *executor_, clock_);
  backend_.emplace(*engine_);
  gateway_.SetModel({.backend = &*backend_,
                     .tokenizer = &text_->tokenizer,
                     .render_chat = ChatRenderer(),
                     .no_chat_reason = text_->no_template_reason,
                     .template_variables = text_->template_variables,
                     .defaults = ParseGenerationDefaults(text_->generation_config),
                     .eos_token_ids = text_->eos_token_ids,
                     .vocab_size = executor_->spec().vocab,
                     .max_model_len = budget.max_model_len,
                     .limited_by = LimitingFlag(options_, budget, spec)});
  return {};
}

void Serve(const ServeOptions& options) {
  auto* stop = new StopSignal;  // For the process's life, as its header asks.
  RaiseDescriptorLimit();
  Logger logger({.json = options.log_json});
  Server server(options, logger);
  if (const auto started = server.Start(); !started) FailCommand(started.error());
  stop->ServeUntilAsked();
  logger.Log(LogLevel::kInfo, "stopping",
             {{"drain_seconds", options.drain_seconds}, {"note", "a second signal stops at once"}});
  server.Stop();
}

// An empty value is a variable that was not set, hardly what was meant.
CLI::Validator NotEmpty() {
  return CLI::Validator(
      [](const std::string& value) {
        return value.empty() ? std::string("the value is empty") : std::string();
      },
      "");
}

// What the model is computed in and with.
void AddComputeOptions(CLI::App& serve, ServeOptions& options) {
  serve
      .add_option("--dtype", options.dtype,
                  "Compute type: auto is bfloat16 for BF16 weights, float32 for others")
      ->capture_default_str()
      ->check(CLI::IsMember({"auto", "bfloat16", "float32"}));
  std::vector<std::string> isas = {"auto"};
  for (const Isa isa : SupportedIsas()) isas.push_back(IsaName(isa));
  serve.add_option("--isa", options.isa, "Instruction set; all give the same tokens")
      ->capture_default_str()
      ->check(CLI::IsMember(isas));
  serve.add_option("--threads", options.threads, "Compute threads; 0 is one per core")
      ->capture_default_str()
      ->check(CLI::Range(0, 1024));
  serve
      .add_option("--weights", options.weights,
                  "Use weights as the files are mapped, or copied to huge pages: faster to read, "
                  "but in memory twice while the files stay cached; auto copies where both fit")
      ->capture_default_str()
      ->check(CLI::IsMember({"auto", "mapped", "copied"}));
}

}  // namespace

void AddServeCommand(CLI::App& app) {
  auto options = std::make_shared<ServeOptions>();  // Shared with the callback, which runs later.
  CLI::App& serve = *app.add_subcommand("serve", "Serve a model over the OpenAI HTTP API");
  serve.footer(
      "Example:\n  divisi serve --model models/tiny-qwen3 --port 8000\n"
      "  curl http://127.0.0.1:8000/v1/completions -H 'Content-Type: application/json' \\\n"
      "    -d '{\"prompt\": \"Once upon a time\", \"max_tokens\": 40}'");
  serve.add_option("--model", options->model, "Checkpoint directory (Hugging Face format)")
      ->required();
  serve.add_option("--host", options->host, "Address to listen on")->capture_default_str();
  serve.add_option("--port", options->port, "Port to listen on; 0 takes any free one")
      ->capture_default_str()
      ->check(CLI::Range(0, 65535));
  serve
      .add_option("--served-model-name", options->served_names,
                  "Names that requests may use; the first is what answers say [the directory's]")
      ->check(NotEmpty());
  serve.add_option("--api-key", options->api_key, "Key that clients must send as a bearer token")
      ->envname("DIVISI_API_KEY")
      ->check(NotEmpty());
  serve.add_option("--chat-template", options->chat_template,
                   "Jinja file to use instead of the checkpoint's template");
  AddComputeOptions(serve, *options);
  serve.add_option("--max-num-seqs", options->max_num_seqs, "Requests running at once")
      ->capture_default_str()
      ->check(CLI::Range(int64_t{1}, int64_t{65536}));
  serve
      .add_option("--max-num-batched-tokens", options->max_num_batched_tokens,
                  "Tokens of one step: larger helps prompts, smaller helps running streams")
      ->capture_default_str()
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 20));
  serve
      .add_option("--max-model-len", options->max_model_len,
                  "Longest prompt plus output; 0 is what model and memory allow")
      ->capture_default_str()
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 30));
  serve
      .add_option("--max-waiting", options->max_waiting,
                  "Queued requests; beyond it clients get 429")
      ->capture_default_str()
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 20));
  serve
      .add_option("--kv-memory", options->kv_memory,
                  "Memory for keys and values, such as 4GiB; auto is half of what is available")
      ->capture_default_str();
  serve.add_flag("!--no-prefix-caching", options->share_prefixes,
                 "Do not share pages between requests with a common prefix");
  serve
      .add_option("--drain-seconds", options->drain_seconds,
                  "How long running requests may go on after SIGTERM")
      ->capture_default_str()
      ->check(CLI::Range(0.0, 86400.0));
  serve.add_option("--allowed-origin", options->allowed_origin, "Origin for CORS, or *");
  serve.add_flag("--log-json", options->log_json, "Log one JSON object per line");
  serve.callback([options] { Serve(*options); });
}

}  // namespace divisi
