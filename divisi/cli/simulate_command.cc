// divisi simulate: what routing policies are worth, on a modelled cluster.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>

#include "divisi/cli/commands.h"
#include "divisi/cli/simulate.h"

namespace divisi {
namespace {

struct Options {
  SimulateOptions simulate;
  std::vector<std::string> policies, objectives;
  std::string format = "text";
  std::string host = "128GiB", disk = "0", pool = "2TiB";
  std::string pool_link = "25GB/s", network = "25GB/s", lookup = "1ms", event = "5ms";
  std::vector<std::string> catalogs;
};

template <typename T>
T OrFail(Result<T> result) {
  if (!result) FailCommand(result.error());
  return std::move(result).value();
}

void Run(Options options) {
  SimulateOptions& simulate = options.simulate;
  simulate.host = OrFail(ParseBytes(options.host));
  simulate.disk = OrFail(ParseBytes(options.disk));
  simulate.pool = OrFail(ParseBytes(options.pool));
  simulate.pool_link = OrFail(ParseBytesPerSecond(options.pool_link));
  simulate.network = OrFail(ParseBytesPerSecond(options.network));
  simulate.lookup = OrFail(ParseSeconds(options.lookup));
  simulate.event = OrFail(ParseSeconds(options.event));
  for (const std::string& name : options.policies) {
    simulate.policies.push_back(OrFail(ParsePolicy(name)));
  }
  simulate.objectives.clear();
  for (const std::string& name : options.objectives) {
    simulate.objectives.push_back(OrFail(ParseObjective(name)));
  }
  const bool terminal = isatty(STDERR_FILENO) != 0;
  const auto progress = [terminal](const std::string& run, double part) {
    if (terminal) std::fprintf(stderr, "\r\033[K%s: %.0f %%", run.c_str(), part * 100);
  };
  const auto runs = OrFail(Simulate(simulate, CatalogWith(options.catalogs), progress));
  if (terminal) std::fprintf(stderr, "\r\033[K");
  if (options.format == "json") {
    std::printf("%s\n", SimulateJson(runs).Dump(2).c_str());
  } else {
    std::printf("%s", SimulateTable(runs).c_str());
  }
}

}  // namespace

void AddSimulateCommand(CLI::App& app) {
  CLI::App* command = app.add_subcommand(
      "simulate", "What routing policies are worth: a load on a modelled cluster");
  command->footer(
      "The gateway and the workers are those that serve; steps take what the cost model says, and\n"
      "KV moves over links that transfers share. Loads are parts of the rate at which round robin\n"
      "clears the whole load when all of it is there at once.\n\n"
      "  divisi simulate --requests 2000 --load 0.5,0.85\n"
      "  divisi simulate --trace conversation_trace.jsonl --policy expected-ttft --speed 2");
  auto options = std::make_shared<Options>();
  SimulateOptions& simulate = options->simulate;
  options->policies = {"round-robin", "least-loaded", "cache-first", "expected-ttft"};
  options->objectives = {"request"};
  command->add_option("--trace", simulate.trace,
                      "Mooncake trace (JSON lines); without it conversations are drawn");
  command->add_option("--requests", simulate.requests, "The first this many; 0: all, 1000 drawn")
      ->check(CLI::NonNegativeNumber);
  command->add_option("--seed", simulate.seed, "Of drawn conversations")->capture_default_str();
  command->add_option("--policy", options->policies, "Policies to compare")->delimiter(',');
  command->add_option("--objective", options->objectives, "Of expected-ttft: request, total")
      ->delimiter(',');
  command->add_option("--load", simulate.loads, "Parts of round robin's capacity")
      ->delimiter(',')
      ->check(CLI::Range(0.01, 10.0));
  command->add_option("--speed", simulate.speed, "Without --load: times the load's own speed")
      ->check(CLI::Range(1e-3, 1e3));
  command->add_option("--workers", simulate.workers, "All alike, each of one card")
      ->capture_default_str()
      ->check(CLI::Range(1, 200));
  command->add_option("--model", simulate.model, "Of the catalogue")->capture_default_str();
  command->add_option("--card", simulate.card, "Of the catalogue; a worker has one")
      ->capture_default_str();
  command->add_option("--efficiency", simulate.efficiency, "Of the card's peaks")
      ->check(CLI::Range(0.01, 1.0));
  command->add_option("--step-tokens", simulate.step_tokens, "Tokens of a worker's step at most")
      ->capture_default_str()
      ->check(CLI::Range(16, 1 << 20));
  command->add_option("--max-sequences", simulate.sequences, "Requests of a worker's step at most")
      ->capture_default_str()
      ->check(CLI::Range(1, 4096));
  command->add_option("--kv-host", options->host, "Host memory of a worker for KV")
      ->capture_default_str();
  command->add_option("--kv-disk-size", options->disk, "Disk of a worker for KV")
      ->capture_default_str();
  command->add_option("--kv-pool-size", options->pool, "Remote pool of all workers; 0: none")
      ->capture_default_str();
  command->add_flag("--kv-peers", simulate.peers, "Workers read each other's host memory");
  command->add_option("--pool-link", options->pool_link, "Each way, shared by all")
      ->capture_default_str();
  command->add_option("--network", options->network, "Of a worker, each way")
      ->capture_default_str();
  command->add_option("--lookup", options->lookup, "Until the pool has said what it holds")
      ->capture_default_str();
  command->add_option("--event-delay", options->event,
                      "From what happened to a page until the gateway knows");
  command->add_option("--catalog", options->catalogs, "YAML files with more cards and models");
  command->add_option("--format", options->format, "text or json")
      ->capture_default_str()
      ->check(CLI::IsMember({"text", "json"}));
  command->callback([options] { Run(*options); });
}

}  // namespace divisi
