// divisi bench serve: loads an OpenAI-compatible server over HTTP and prints how it did.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "divisi/cli/commands.h"
#include "divisi/cli/load_client.h"
#include "divisi/cli/load_report.h"
#include "divisi/cli/load_request.h"
#include "divisi/cli/load_run.h"
#include "divisi/cli/load_server.h"
#include "divisi/cli/load_source.h"
#include "divisi/cli/load_trace.h"
#include "divisi/core/clock.h"
#include "divisi/core/file.h"
#include "divisi/core/format.h"

namespace divisi {
namespace {

struct BenchServeOptions {
  std::string base_url = "http://127.0.0.1:8000";
  std::string model;
  std::string endpoint = "completions";
  std::string api_key;
  int64_t num_prompts = 1000;
  bool num_prompts_given = false;
  double request_rate = std::numeric_limits<double>::infinity();
  double burstiness = 1;
  int64_t max_concurrency = 0;
  int64_t input_len = 128;
  int64_t output_len = 128;
  double range_ratio = 0;
  int64_t prefix_len = 0;
  std::string trace;
  double trace_speed = 1;
  double trace_scale = 1;
  double duration_seconds = 0;
  uint64_t seed = 0;
  double temperature = 0;
  bool server_temperature = false;
  bool ignore_eos = true;
  int64_t vocab = 0;
  std::vector<std::string> goodput;
  std::string percentile_metrics = "ttft,tpot,itl,e2el";
  std::string metric_percentiles = "99";
  int64_t warmup = 0;
  std::string save_result;
  bool save_detailed = false;
  bool engine_times = false;
  std::string format = "text";
  double disconnect_fraction = 0;
  double malformed_rate = 0;
  double timeout_seconds = 120;
};

// Connections that a load without --max-concurrency may need at once; more is refused by most
// systems' limits long before.
constexpr int64_t kUnlimitedConnections = 8192;
constexpr int64_t kMaxConcurrency = 60'000;  // Ports that one client address has.

// One line on a terminal, rewritten as work goes on; nothing elsewhere.
class ProgressLine {
 public:
  ProgressLine() : shown_(isatty(STDERR_FILENO) != 0) {}
  ~ProgressLine() { Clear(); }
  void Show(const std::string& text) {
    if (shown_) std::fprintf(stderr, "\r\033[K%s", text.c_str());
  }
  void Clear() { Show(""); }

 private:
  bool shown_;
};

Result<std::unique_ptr<RequestSource>> OpenTrace(const BenchServeOptions& options) {
  ASSIGN_OR_RETURN(const MappedFile file, MappedFile::Open(options.trace));
  const std::string_view text(reinterpret_cast<const char*>(file.bytes().data()),
                              file.bytes().size());
  ProgressLine line;
  ASSIGN_OR_RETURN(auto requests,
                   ReadTrace(text, options.trace,
                             {.speed = options.trace_speed,
                              .scale = options.trace_scale,
                              .progress = [&](double done) {
                                line.Show(Format("reading {}: {:.0f}%", options.trace, done * 100));
                              }}));
  if (options.num_prompts_given && options.num_prompts < static_cast<int64_t>(requests.size())) {
    requests.resize(static_cast<size_t>(std::max<int64_t>(options.num_prompts, 1)));
  }
  return MakeListSource(std::move(requests));
}

Result<std::unique_ptr<RequestSource>> OpenSource(const BenchServeOptions& options) {
  if (!options.trace.empty()) return OpenTrace(options);
  if (!(options.request_rate > 0)) {
    return Error{Code::kInvalidArgument, "--request-rate must be above 0, or inf"};
  }
  SyntheticLoad load{
      .count = options.num_prompts,
      .requests_per_second = std::isinf(options.request_rate) ? 0 : options.request_rate,
      .burstiness = options.burstiness,
      .input_tokens = options.input_len,
      .output_tokens = options.output_len,
      .range_ratio = options.range_ratio,
      .prefix_tokens = options.prefix_len,
      .seed = options.seed};
  if (options.duration_seconds > 0) {
    load.duration = Seconds(options.duration_seconds);
    if (!options.num_prompts_given) load.count.reset();
  }
  if (!load.count && load.requests_per_second == 0 && options.max_concurrency == 0) {
    return Error{Code::kInvalidArgument,
                 "--duration without --num-prompts needs --request-rate or --max-concurrency: "
                 "without any of them the load has no bound"};
  }
  return MakeSyntheticSource(load);
}

Result<void> CheckRanges(const BenchServeOptions& options) {
  const auto bad = [](std::string_view what) {
    return Error{Code::kInvalidArgument, std::string(what)};
  };
  if (options.max_concurrency < 0 || options.max_concurrency > kMaxConcurrency) {
    return bad(Format("--max-concurrency must be from 0 (no limit) to {}", kMaxConcurrency));
  }
  if (!(options.disconnect_fraction >= 0 && options.disconnect_fraction <= 1)) {
    return bad("--disconnect-fraction must be from 0 to 1");
  }
  if (!(options.malformed_rate >= 0 && options.malformed_rate <= 10'000)) {
    return bad("--malformed-rate must be from 0 to 10000 a second");
  }
  if (!(options.timeout_seconds > 0 && options.timeout_seconds <= 86'400)) {
    return bad("--timeout must be above 0 and at most 86400 seconds");
  }
  if (!(options.duration_seconds >= 0) || options.duration_seconds > 1e9) {
    return bad("--duration must be at least 0 seconds");
  }
  if (options.vocab < 0 || options.vocab > (1 << 24))
    return bad("--vocab must be a vocabulary size");
  if (options.warmup < 0 || options.warmup > 100'000) return bad("--warmup must be 0 to 100000");
  return {};
}

Result<std::vector<TokenId>> Alphabet(const BenchServeOptions& options, LoadClient& client,
                                      const LoadTarget& target) {
  const int64_t numbers = target.chat ? kChatWords : options.vocab;
  if (numbers == 0) return ProseAlphabet(client, target.address, target.api_key, target.model);
  std::vector<TokenId> ids(static_cast<size_t>(numbers));
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<TokenId>(i);
  return ids;
}

Result<LoadTarget> FindTarget(const BenchServeOptions& options, const HttpAddress& address,
                              LoadClient& client) {
  LoadTarget target{.address = address,
                    .api_key = options.api_key,
                    .chat = options.endpoint == "chat",
                    .ignore_eos = options.ignore_eos,
                    .seed = options.seed};
  if (!options.server_temperature) target.temperature = options.temperature;
  target.model = options.model;
  if (target.model.empty()) {
    ASSIGN_OR_RETURN(const ServerModel model, FirstModel(client, address, options.api_key));
    target.model = model.id;
  }
  ASSIGN_OR_RETURN(target.alphabet, Alphabet(options, client, target));
  return target;
}

// Ends with an error when a warm-up request fails: the run would only repeat it.
Result<void> WarmUp(const BenchServeOptions& options, LoadClient& client,
                    const LoadTarget& target) {
  if (options.warmup == 0) return {};
  ASSIGN_OR_RETURN(const auto source, MakeSyntheticSource({.count = options.warmup,
                                                           .input_tokens = options.input_len,
                                                           .output_tokens = options.output_len,
                                                           .seed = options.seed + 1}));
  const LoadResult result = RunLoad(
      client, target, *source, {.max_concurrency = std::max<int64_t>(options.max_concurrency, 1)});
  for (const RequestRecord& record : result.records) {
    if (!record.completed) {
      return Error{Code::kInternal, "a warm-up request failed: " + record.error};
    }
  }
  return {};
}

std::string ProgressText(const RunProgress& progress) {
  const double seconds = std::max(progress.elapsed.value, 1e-9);
  return Format("{}{} requests done, {} running, {:.0f} tok/s, {:.0f} s", progress.ended,
                progress.total ? Format("/{}", *progress.total) : "", progress.running,
                static_cast<double>(progress.token_events) / seconds, progress.elapsed.value);
}

LoadResult MeasureLoad(const BenchServeOptions& options, LoadClient& client,
                       const LoadTarget& target, RequestSource& source) {
  ProgressLine line;
  RunOptions run{
      .max_concurrency = options.max_concurrency,
      .disconnect_fraction = options.disconnect_fraction,
      .broken_per_second = options.malformed_rate,
      .progress = [&](const RunProgress& progress) { line.Show(ProgressText(progress)); }};
  if (options.duration_seconds > 0) run.duration = Seconds(options.duration_seconds);
  return RunLoad(client, target, source, run);
}

// What was measured, and what the engine says of it where that was asked for.
Result<void> Print(const BenchServeOptions& options, const ReportHeader& header,
                   const LoadFigures& figures, const LoadResult& result,
                   const std::optional<EngineTimes>& engine) {
  Json json = ReportJson(header, figures, result, options.save_detailed);
  std::string table = ReportTable(header, figures, result);
  if (engine) {
    const AddedTimes added = Added(figures, *engine);
    json.Set("engine", EngineJson(*engine, added));
    table += EngineTable(*engine, added);
  }
  if (!options.save_result.empty()) {
    RETURN_IF_ERROR(WriteFileAtomic(options.save_result, json.Dump() + "\n"));
  }
  std::fputs((options.format == "json" ? json.Dump(2) + "\n" : table).c_str(), stdout);
  return {};
}

Result<ReportHeader> Header(const BenchServeOptions& options) {
  ReportHeader header{
      .date = DateName(UnixSeconds()),
      .requests_per_second = std::isinf(options.request_rate) ? 0 : options.request_rate,
      .burstiness = options.burstiness,
      .max_concurrency = options.max_concurrency};
  ASSIGN_OR_RETURN(header.objectives, ParseObjectives(options.goodput));
  ASSIGN_OR_RETURN(header.metrics, ParseMetrics(options.percentile_metrics));
  return header;
}

Result<std::unique_ptr<LoadClient>> OpenClient(const BenchServeOptions& options,
                                               const HttpAddress& address,
                                               std::optional<int64_t> requests) {
  const int64_t limit =
      options.max_concurrency > 0 ? options.max_concurrency : kUnlimitedConnections;
  const int64_t at_once = std::min(requests.value_or(limit), limit);
  RETURN_IF_ERROR(AllowConnections(at_once + static_cast<int64_t>(options.malformed_rate)));
  return LoadClient::Create(address, {.silence_timeout = Seconds(options.timeout_seconds)});
}

// Runs the whole command. The exit status: 0; 1 when nothing completed; 130 after Ctrl-C.
Result<int> BenchServe(const BenchServeOptions& options) {
  RETURN_IF_ERROR(CheckRanges(options));
  ASSIGN_OR_RETURN(const HttpAddress address, ParseBaseUrl(options.base_url));
  ASSIGN_OR_RETURN(ReportHeader header, Header(options));
  ASSIGN_OR_RETURN(const auto percents, ParsePercentiles(options.metric_percentiles));
  ASSIGN_OR_RETURN(const auto source, OpenSource(options));
  ASSIGN_OR_RETURN(const auto client, OpenClient(options, address, source->Count()));
  ASSIGN_OR_RETURN(const LoadTarget target, FindTarget(options, address, *client));
  RETURN_IF_ERROR(WarmUp(options, *client, target));
  std::map<std::string, double> before;
  if (options.engine_times) {
    ASSIGN_OR_RETURN(before, FetchMetrics(*client, address, options.api_key));
  }

  const LoadResult result = MeasureLoad(options, *client, target, *source);
  header.model = target.model;
  header.chat = target.chat;
  header.prompts = static_cast<int64_t>(result.records.size());
  const LoadFigures figures = Measure(result.records, result.duration, header.objectives, percents);
  std::optional<EngineTimes> engine;
  if (options.engine_times && figures.completed > 0) {
    ASSIGN_OR_RETURN(engine,
                     TimesSince(*client, address, options.api_key, before, figures.completed));
  }
  RETURN_IF_ERROR(Print(options, header, figures, result, engine));
  if (result.interrupted) return 130;
  return figures.completed > 0 || figures.abandoned > 0 ? 0 : 1;
}

void AddLoadOptions(CLI::App& command, BenchServeOptions& options) {
  command
      .add_option("--num-prompts", options.num_prompts, "Requests to send (of a trace: its first)")
      ->capture_default_str();
  command.add_option("--request-rate", options.request_rate, "Requests a second; inf: all at once")
      ->capture_default_str();
  command
      .add_option("--burstiness", options.burstiness,
                  "Gamma shape of the gaps: 1 Poisson, below burstier, above steadier")
      ->capture_default_str();
  command.add_option("--max-concurrency", options.max_concurrency, "Requests at once; 0: no limit")
      ->capture_default_str();
  command.add_option("--duration", options.duration_seconds, "Seconds after which none is sent");
  command.add_option("--input-len", options.input_len, "Prompt tokens")->capture_default_str();
  command.add_option("--output-len", options.output_len, "Output tokens")->capture_default_str();
  command
      .add_option("--range-ratio", options.range_ratio,
                  "Spread lengths uniformly over length * [1 - R, 1 + R]")
      ->capture_default_str();
  command.add_option("--prefix-len", options.prefix_len,
                     "Tokens that all prompts share, before the input tokens");
  command.add_option("--trace", options.trace, "Replay a Mooncake (.jsonl) or Azure (.csv) trace")
      ->check(CLI::ExistingFile);
  command.add_option("--trace-speed", options.trace_speed, "Replay so many times faster")
      ->capture_default_str();
  command.add_option("--trace-scale", options.trace_scale, "Multiply the trace's lengths by this")
      ->capture_default_str();
  command.add_option("--seed", options.seed, "Seed of all random choices")->capture_default_str();
  command.add_option("--disconnect-fraction", options.disconnect_fraction,
                     "Share of the requests whose client leaves midway");
  command.add_option("--malformed-rate", options.malformed_rate,
                     "Broken requests a second beside the load");
}

void AddServerOptions(CLI::App& command, BenchServeOptions& options) {
  command.add_option("--base-url", options.base_url, "The server")->capture_default_str();
  command.add_option("--model", options.model, "Model name; default: the server's first");
  command.add_option("--endpoint", options.endpoint, "completions or chat")
      ->check(CLI::IsMember({"completions", "chat"}))
      ->capture_default_str();
  command.add_option("--api-key", options.api_key, "Bearer key")->envname("OPENAI_API_KEY");
  command.add_option("--temperature", options.temperature, "Sampling temperature; 0: greedy")
      ->capture_default_str();
  command.add_flag("--server-temperature", options.server_temperature,
                   "Leave the temperature to the server's default");
  command.add_flag("--ignore-eos,!--no-ignore-eos", options.ignore_eos,
                   "Generate the full output length (default)");
  command.add_option("--vocab", options.vocab,
                     "Draw prompt tokens from ids 0..N-1; default: ids of prose, from /tokenize");
  command
      .add_option("--timeout", options.timeout_seconds, "Seconds of silence that fail a request")
      ->capture_default_str();
}

void AddReportOptions(CLI::App& command, BenchServeOptions& options) {
  command.add_option("--goodput", options.goodput,
                     "Objectives in ms for goodput: ttft:200 tpot:50 e2el:5000");
  command
      .add_option("--percentile-metrics", options.percentile_metrics,
                  "Figures to show, of ttft,tpot,itl,e2el")
      ->capture_default_str();
  command.add_option("--metric-percentiles", options.metric_percentiles, "Such as 50,90,99")
      ->capture_default_str();
  command.add_option("--warmup,--num-warmups", options.warmup, "Requests before the measured ones")
      ->capture_default_str();
  command.add_option("--save-result", options.save_result, "Write the JSON report to this file");
  command.add_flag("--save-detailed", options.save_detailed,
                   "Put arrays with one entry per request into the JSON");
  command.add_flag("--engine-times", options.engine_times,
                   "Compare with the engine's own times from /metrics: what HTTP adds");
  command.add_option("--format", options.format, "What to print: text or json")
      ->check(CLI::IsMember({"text", "json"}))
      ->capture_default_str();
}

}  // namespace

void AddBenchServeCommand(CLI::App& app) {
  CLI::App& command = *CommandGroup(app, "bench", "Measure")
                           ->add_subcommand("serve", "Load an OpenAI-compatible server over HTTP");
  // CLI11 keeps references to the options until the callback has run.
  const auto options = std::make_shared<BenchServeOptions>();
  AddServerOptions(command, *options);
  AddLoadOptions(command, *options);
  AddReportOptions(command, *options);
  command.callback([&command, options] {
    options->num_prompts_given = command.count("--num-prompts") > 0;
    const auto status = BenchServe(*options);
    if (!status) FailCommand(status.error());
    if (*status != 0) throw CLI::RuntimeError(*status);
  });
}

}  // namespace divisi
