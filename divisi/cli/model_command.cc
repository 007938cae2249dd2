// divisi model inspect | synth: look at a checkpoint, or make one of random weights.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <thread>

#include "divisi/cli/commands.h"
#include "divisi/cli/progress.h"
#include "divisi/core/clock.h"
#include "divisi/core/file.h"
#include "divisi/core/process.h"
#include "divisi/model/inspect.h"
#include "divisi/model/servable.h"
#include "divisi/model/synth_checkpoint.h"

namespace divisi {
namespace {

constexpr size_t kMostConfigBytes = size_t{1} << 20;

// The value of a Result, or the end of the command.
template <typename T>
T OrFail(Result<T> result) {
  if (!result) FailCommand(result.error());
  return std::move(result).value();
}

Json ReadConfig(const std::filesystem::path& path) {
  const std::string text = OrFail(ReadFile(path, kMostConfigBytes));
  auto config = Json::Parse(text);
  if (!config) FailCommand(WithContext(config.error(), path.string()));
  return std::move(config).value();
}

ModelSpec ParseConfig(const Json& config, const std::filesystem::path& path) {
  auto spec = ParseModelSpec(config);
  if (!spec) FailCommand(WithContext(spec.error(), path.string()));
  return std::move(spec).value();
}

DataType TypeNamed(const std::string& name) {
  for (const DataType type : {DataType::kBf16, DataType::kF16, DataType::kF32}) {
    if (name == DataTypeName(type)) return type;
  }
  CHECK(false, "CLI11 let {} through", name);
}

struct InspectOptions {
  std::string path;
  std::string format = "text";
  bool tensors = false;
  int64_t sequences = 16;
  int64_t tokens = 0;  // 0: as many as the model takes, at most kUsualTokens.
  std::string kv_type = "bfloat16";
};

// A context that most requests stay within; the models' own limits are far beyond.
constexpr int64_t kUsualTokens = 4096;

void PrintInspection(const InspectOptions& options, const Inspection& inspection,
                     const Checkpoint* checkpoint) {
  const ServeLoad load = {
      .sequences = options.sequences,
      .tokens = options.tokens > 0 ? options.tokens
                                   : std::min<int64_t>(inspection.spec.max_positions, kUsualTokens),
      .kv_type = TypeNamed(options.kv_type),
      .machine = MachineMemory()};
  OrFail(KvBytes(inspection.spec, load));
  const bool tensors = options.tensors && checkpoint != nullptr;
  std::string output;
  if (options.format == "json") {
    Json json = InspectionJson(inspection, load);
    if (tensors) json.Set("tensors", TensorsJson(*checkpoint));
    output = json.Dump(2) + "\n";
  } else {
    output = InspectionText(inspection, load);
    if (tensors) output += "\n" + TensorsText(*checkpoint);
  }
  std::fputs(output.c_str(), stdout);
}

void RunInspect(const InspectOptions& options) {
  std::error_code error;  // What cannot be looked at is no file; opening it says why.
  if (std::filesystem::is_regular_file(options.path, error)) {
    const ModelSpec spec = ParseConfig(ReadConfig(options.path), options.path);
    PrintInspection(options, InspectSpec(spec), nullptr);
    return;
  }
  const Checkpoint checkpoint = OrFail(Checkpoint::Open(options.path));
  const Inspection inspection = Inspect(checkpoint);
  PrintInspection(options, inspection, &checkpoint);
  if (!inspection.problems.empty()) throw CLI::RuntimeError(1);
}

void AddInspect(CLI::App& model) {
  auto options = std::make_shared<InspectOptions>();
  CLI::App* command = model.add_subcommand(
      "inspect", "Shapes, parameters, bytes, KV per token, and what serving takes");
  command->add_option("path", options->path, "Checkpoint directory, or a config.json")
      ->required()
      ->check(CLI::ExistingPath);
  command->add_option("--format", options->format, "text or json")
      ->capture_default_str()
      ->check(CLI::IsMember({"text", "json"}));
  command->add_flag("--tensors", options->tensors, "List every tensor of the checkpoint");
  command->add_option("--sequences", options->sequences, "Sequences to serve at once")
      ->capture_default_str()
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 20));
  command
      ->add_option("--tokens", options->tokens,
                   "Tokens of each (default: what the model takes, at most 4096)")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 30));
  command->add_option("--kv-type", options->kv_type, "How KV is stored")
      ->capture_default_str()
      ->check(CLI::IsMember({"bfloat16", "float32"}));
  command->footer(
      "JSON: the shapes under the names of divisi's ModelSpec, with mla, moe and quantised where "
      "the\n"
      "model has them; parameters; active_parameters, which one token meets; weight_bytes;\n"
      "weights [{part, dtype, tensors, parameters, bytes}]; kv_bytes_per_token {bfloat16, "
      "float32};\n"
      "serve {sequences, tokens, kv_dtype, weight_bytes, kv_bytes, total_bytes, machine_bytes, "
      "fits, supported};\n"
      "problems [text]; with --tensors also tensors [{name, dtype, shape, bytes}].\n"
      "Exit status 1 when tensors are missing or misshapen.");
  command->callback([options] { RunInspect(*options); });
}

struct SynthCommandOptions {
  std::string config;
  std::string directory;
  uint64_t seed = 0;
  std::string type;        // Empty: the config's.
  std::string shard_size;  // Empty: one file.
  std::string tokenizer;
  int threads = 0;  // 0: one per core.
  bool overwrite = false;
};

bool IsWeightsFile(std::string_view name) {
  return name.starts_with("model") &&
         (name.ends_with(".safetensors") || name.ends_with(".safetensors.index.json"));
}

// Makes the directory; an old checkpoint in it goes, since its files would mix with the new ones.
void PrepareDirectory(const std::filesystem::path& directory, bool overwrite) {
  std::error_code error;
  const auto stop_on_error = [&](const char* doing) {
    if (!error) return;
    FailCommand({Code::kInvalidArgument,
                 Format("cannot {} {}: {}", doing, directory.string(), error.message())});
  };
  std::filesystem::create_directories(directory, error);
  stop_on_error("create");
  const bool empty = std::filesystem::is_empty(directory, error);
  stop_on_error("read");
  if (empty) return;
  if (!overwrite) {
    FailCommand({Code::kInvalidArgument,
                 Format("{} is not empty; name another directory, or give --overwrite to replace "
                        "the checkpoint in it",
                        directory.string())});
  }
  std::filesystem::directory_iterator entry(directory, error);
  for (; !error && entry != std::filesystem::directory_iterator(); entry.increment(error)) {
    const std::string name = entry->path().filename();
    if (name != "config.json" && !IsWeightsFile(name)) continue;
    std::filesystem::remove(entry->path(), error);
    stop_on_error("remove the old checkpoint of");
  }
  stop_on_error("read");
}

void RunSynth(const SynthCommandOptions& options) {
  const Json config = ReadConfig(options.config);
  const ModelSpec spec = ParseConfig(config, options.config);
  if (const auto servable = CheckServable(spec); !servable) FailCommand(servable.error());
  ProgressBar bar("writing");
  SynthCheckpointOptions synth = {
      .weights = {.seed = options.seed,
                  .type = options.type.empty() ? spec.stored_type : TypeNamed(options.type),
                  .progress = [&](Bytes done, Bytes total) { bar.Show(done, total); }},
      .tokenizer_directory = options.tokenizer};
  if (!options.shard_size.empty()) {
    synth.weights.most_shard_bytes = OrFail(ParseBytes(options.shard_size));
    if (synth.weights.most_shard_bytes.value < 1) {
      FailCommand({Code::kInvalidArgument, "--shard-size must be above 0"});
    }
  }
  PrepareDirectory(options.directory, options.overwrite);
  const int cores = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  ThreadPool pool(options.threads > 0 ? options.threads : cores);
  const SteadyClock clock;
  const Seconds start = clock.Now();
  const auto written = WriteSynthCheckpoint(config, options.directory, synth, pool);
  if (!written) FailCommand(written.error());
  const Bytes bytes(spec.Parameters() * ElementBytes(synth.weights.type));
  std::printf("%s: %s of random %s weights in %s\n", options.directory.c_str(),
              HumanBytes(bytes).c_str(), DataTypeName(synth.weights.type),
              HumanSeconds(clock.Now() - start).c_str());
}

void AddSynth(CLI::App& model) {
  auto options = std::make_shared<SynthCommandOptions>();
  CLI::App* command =
      model.add_subcommand("synth", "Write a checkpoint of random weights, to measure a size with");
  command->add_option("--config", options->config, "A config.json; examples/configs has some")
      ->required()
      ->check(CLI::ExistingFile);
  command->add_option("--out", options->directory, "Directory to write")->required();
  command->add_option("--seed", options->seed, "The same seed gives the same files")
      ->capture_default_str();
  command->add_option("--dtype", options->type, "Stored type (default: the config's)")
      ->check(CLI::IsMember({"bfloat16", "float16", "float32"}));
  command->add_option("--shard-size", options->shard_size,
                      "Most data per file, such as 2GB (default: one file)");
  command
      ->add_option("--tokenizer", options->tokenizer,
                   "Copy the tokenizer of this checkpoint (default: bytes as tokens)")
      ->check(CLI::ExistingDirectory);
  command->add_option("--threads", options->threads, "Threads (default: one per core)")
      ->check(CLI::Range(1, 1024));
  command->add_flag("--overwrite", options->overwrite, "Replace a checkpoint in the directory");
  command->callback([options] { RunSynth(*options); });
}

}  // namespace

void AddModelCommand(CLI::App& app) {
  CLI::App* model = app.add_subcommand("model", "Inspect checkpoints, write random ones");
  model->require_subcommand(1);
  AddInspect(*model);
  AddSynth(*model);
}

}  // namespace divisi
