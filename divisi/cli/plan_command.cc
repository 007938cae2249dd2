// divisi plan: which deployment of a scenario's cards carries its load, and why.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>

#include "divisi/cli/cluster_emit.h"
#include "divisi/cli/commands.h"
#include "divisi/cli/plan_json.h"
#include "divisi/cli/plan_report.h"
#include "divisi/cli/plan_sweep.h"
#include "divisi/cli/plan_text.h"
#include "divisi/core/file.h"
#include "divisi/core/file_writer.h"
#include "divisi/core/format.h"
#include "divisi/plan/planned_load.h"
#include "divisi/plan/scenario_file.h"
#include "divisi/plan/scenario_value.h"

namespace divisi {
namespace {

struct Options {
  std::string scenario;
  std::vector<std::string> sets;
  std::vector<std::string> sweeps;
  std::vector<std::string> catalogs;
  std::string format = "text";
  std::string colour = "auto";
  bool splits = false;
  std::string report;
  std::string load;
  std::string cluster;
  std::string cluster_model;
  std::string load_duration = "60 s";
  uint64_t seed = 1;
};

template <typename T>
T OrFail(Result<T> result) {
  if (!result) FailCommand(result.error());
  return std::move(result).value();
}

// A config.json beside the scenario, or wherever an absolute path leads.
Result<ModelSpec> LoadConfig(const std::filesystem::path& scenario, const std::string& path) {
  constexpr size_t kMostConfigBytes = size_t{1} << 20;
  std::filesystem::path full = scenario.parent_path() / path;
  std::error_code error;
  if (std::filesystem::is_directory(full, error)) full /= "config.json";
  ASSIGN_OR_RETURN(const std::string text, ReadFile(full, kMostConfigBytes));
  const auto json = Json::Parse(text);
  if (!json) return WithContext(json.error(), full.string());
  auto spec = ParseModelSpec(*json);
  if (!spec) return WithContext(spec.error(), full.string());
  return spec;
}

// One JSON object a line, as Mooncake's trace has them: a hash id for each 512 tokens of the
// prompt, those of a shared prefix the same in every request of a class.
std::string TraceLines(const std::vector<LoadRequest>& load) {
  constexpr int64_t kBlock = 512;
  std::string text;
  int64_t next = 0;
  std::vector<std::vector<int64_t>> shared;
  for (const LoadRequest& request : load) {
    if (shared.size() <= request.request_class) shared.resize(request.request_class + 1);
    std::vector<int64_t>& prefix = shared[request.request_class];
    while (static_cast<int64_t>(prefix.size()) < request.shared.value / kBlock) {
      prefix.push_back(next++);
    }
    text += Format("{{\"timestamp\": {}, \"input_length\": {}, \"output_length\": {}, ",
                   static_cast<int64_t>(request.arrival.value * 1000), request.input.value,
                   request.output.value);
    text += "\"hash_ids\": [";
    const int64_t blocks = (request.input.value + kBlock - 1) / kBlock;
    for (int64_t i = 0; i < blocks; ++i) {
      const bool common = i < static_cast<int64_t>(prefix.size());
      text += Format("{}{}", i == 0 ? "" : ", ", common ? prefix[static_cast<size_t>(i)] : next++);
    }
    text += "]}\n";
  }
  return text;
}

void WriteOrFail(const std::string& path, const std::string& text) {
  FileWriter writer = OrFail(FileWriter::Create(path));
  auto written = writer.Append(std::as_bytes(std::span(text)));
  if (written) written = writer.Commit();
  if (!written) FailCommand(written.error());
}

Result<Seconds> LoadDuration(const Options& options) {
  const auto duration = ParseSeconds(options.load_duration);
  if (!duration) return WithContext(duration.error(), "--load-duration");
  return duration;
}

// The directory of the model that the scenario plans for, absolute: a cluster file may lie
// anywhere.
Result<std::string> CheckpointFor(const Options& options, const YamlNode& scenario) {
  std::filesystem::path path = options.cluster_model;
  if (path.empty()) {
    const YamlNode* model = scenario.Find("model");
    const YamlNode* config = model == nullptr ? nullptr : model->Find("config");
    if (config == nullptr) {
      return Error{Code::kInvalidArgument,
                   "the scenario's model is one of the catalogue; say where its checkpoint is with "
                   "--cluster-model DIRECTORY"};
    }
    path = std::filesystem::path(options.scenario).parent_path() / config->text;
  }
  std::error_code error;
  if (path.filename() == "config.json") path = path.parent_path();
  const std::filesystem::path whole = std::filesystem::canonical(path, error);
  if (error || !std::filesystem::is_directory(whole, error)) {
    return Error{Code::kNotFound, Format("{} is no directory of a checkpoint", path.string())};
  }
  return whole.string();
}

class Command {
 public:
  explicit Command(const Options& options)
      : options_(options),
        catalog_(CatalogWith(options.catalogs)),
        tree_(OrFail(
            ParseYaml(OrFail(ReadFile(options.scenario, kMaxYamlBytes)), options.scenario))) {
    for (const std::string& set : options.sets) {
      if (const auto done = SetScenarioValue(tree_, set); !done) FailCommand(done.error());
    }
  }

  void Run() const {
    OrFail(LoadDuration(options_));  // Before a page of output
    if (!options_.sweeps.empty() &&
        !(options_.report.empty() && options_.load.empty() && options_.cluster.empty())) {
      FailCommand({Code::kInvalidArgument,
                   "--report, --emit-load and --emit-cluster are of one plan; leave out --sweep"});
    }
    const bool json = options_.format == "json";
    if (!options_.sweeps.empty()) {
      const PlanSweep sweep = OrFail(SweepScenario(
          tree_, options_.sweeps, [this](const YamlNode& tree) { return Read(tree); }));
      Print(json ? SweepJson(sweep).Dump(2) + "\n" : SweepText(sweep));
      return;
    }
    const Scenario scenario = OrFail(Read(tree_));
    const Plan plan = OrFail(MakePlan(scenario));
    Print(json ? PlanJson(scenario, plan).Dump(2) + "\n" : PlanText(scenario, plan, InColour()));
    if (options_.splits && !json) Print(SplitsText(scenario, plan));
    if (!options_.report.empty()) WriteOrFail(options_.report, PlanReport(scenario, plan));
    if (!options_.load.empty()) WriteLoad(scenario);
    if (!options_.cluster.empty()) WriteCluster(scenario, plan);
  }

 private:
  Result<Scenario> Read(const YamlNode& tree) const {
    return ReadScenario(tree, options_.scenario,
                        {.catalog = catalog_, .load_config = [this](const std::string& path) {
                           return LoadConfig(options_.scenario, path);
                         }});
  }

  bool InColour() const {
    return options_.colour == "always" || (options_.colour == "auto" && isatty(STDOUT_FILENO) != 0);
  }

  void WriteLoad(const Scenario& scenario) const {
    const Seconds duration = OrFail(LoadDuration(options_));
    const auto load = OrFail(PlannedLoad(scenario, {.duration = duration, .seed = options_.seed}));
    WriteOrFail(options_.load, TraceLines(load));
  }

  void WriteCluster(const Scenario& scenario, const Plan& plan) const {
    const std::string model = OrFail(CheckpointFor(options_, tree_));
    WriteOrFail(options_.cluster, OrFail(ClusterFileText(scenario, plan, model)));
  }

  static void Print(const std::string& text) { std::fputs(text.c_str(), stdout); }

  const Options& options_;
  Catalog catalog_;
  YamlNode tree_;
};

std::string NotEmptyPath(const std::string& path) {
  return path.empty() ? "the file's name is empty" : "";
}

void AddOutputOptions(CLI::App& command, Options& options) {
  command.add_option("--format", options.format, "text or json")
      ->capture_default_str()
      ->check(CLI::IsMember({"text", "json"}));
  command.add_option("--colour,--color", options.colour, "Colours: auto is on a terminal")
      ->capture_default_str()
      ->check(CLI::IsMember({"auto", "always", "never"}));
  command.add_flag("--splits", options.splits,
                   "Print every split of the cards between prefill and decode, too");
  command
      .add_option("--report", options.report,
                  "Write figures, tables and reasons as one HTML file that needs no network")
      ->check(CLI::Validator(NotEmptyPath, ""));
  command
      .add_option("--emit-load", options.load,
                  "Write the assumed load as a Mooncake-style trace, for divisi bench serve")
      ->check(CLI::Validator(NotEmptyPath, ""));
  command
      .add_option("--emit-cluster", options.cluster,
                  "Write the chosen deployment as a file that divisi up starts")
      ->check(CLI::Validator(NotEmptyPath, ""));
  command.add_option("--cluster-model", options.cluster_model,
                     "The checkpoint's directory in that file [the scenario's model.config]");
  command.add_option("--load-duration", options.load_duration, "How long that load is")
      ->capture_default_str();
  command.add_option("--seed", options.seed, "Of that load's arrivals")->capture_default_str();
}

}  // namespace

void AddPlanCommand(CLI::App& app) {
  auto options = std::make_shared<Options>();  // Shared with the callback, which runs later.
  CLI::App* command = app.add_subcommand(
      "plan", "Which deployment of your cards carries your load, what limits it, what it costs");
  command->footer(
      "docs/planner.md has every key of a scenario and every field of the JSON. Examples:\n"
      "  divisi plan examples/chapter9/eight-cards.yaml\n"
      "  divisi plan examples/chapter9/eight-cards.yaml --set workload.output_tokens=4097\n"
      "  divisi plan examples/chapter9/eight-cards.yaml "
      "--sweep 'links.0.bandwidth=1:10:1 GB/s'");
  command->add_option("scenario", options->scenario, "YAML file")->required();
  command->add_option("--set", options->sets,
                      "KEY=VALUE: change one value of the scenario; KEY is a path such as "
                      "workload.output_tokens or cards.0.count; may be repeated");
  command->add_option("--sweep", options->sweeps,
                      "KEY=FROM:TO:STEP, with a unit after it where the key has one: plan each "
                      "value and print a table");
  command->add_option("--catalog", options->catalogs, "YAML files that add to the catalogue");
  AddOutputOptions(*command, *options);
  command->callback([options] { Command(*options).Run(); });
}

}  // namespace divisi
