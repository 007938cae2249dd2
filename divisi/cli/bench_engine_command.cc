// divisi bench engine: how fast a checkpoint runs here, against what the machine can do.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <memory>
#include <thread>

#include "divisi/cli/commands.h"
#include "divisi/cli/engine_bench.h"
#include "divisi/cli/weight_memory.h"
#include "divisi/core/process.h"

namespace divisi {
namespace {

struct Options {
  std::string model;
  std::string dtype = "auto";
  std::string isa = "auto";
  std::string weights = "auto";
  std::string format = "text";
  int threads = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  EngineBenchOptions bench;
};

constexpr int64_t kMostTokens = int64_t{1} << 20;

template <typename T>
T OrFail(Result<T> result) {
  if (!result) FailCommand(result.error());
  return std::move(result).value();
}

void Run(Options options) {
  const bool terminal = isatty(STDERR_FILENO) != 0;
  const Checkpoint checkpoint = OrFail(Checkpoint::Open(options.model));
  const ComputeType compute = ChooseComputeType(options.dtype, checkpoint.spec().stored_type);
  int64_t positions = options.bench.context + 1 + kDecodeSteps;
  for (const int64_t tokens : options.bench.prefill_tokens) {
    positions = std::max(positions, tokens + 1);
  }
  Transformer model = OrFail(Transformer::Load(checkpoint, compute, positions));
  options.bench.isa = OrFail(ChooseIsa(options.isa));
  options.bench.progress = [&](const std::string& text) {
    if (terminal) std::fprintf(stderr, "\r\033[K%s", text.c_str());
  };
  ThreadPool pool(options.threads);
  const auto ignore = [](Bytes, Bytes) {};
  if (ShouldCopyWeights(options.weights, checkpoint.TotalBytes(), Bytes(0), AvailableMemory())) {
    if (const auto copied = model.CopyWeights(pool, ignore); !copied) FailCommand(copied.error());
    checkpoint.Release();
  } else {
    checkpoint.Populate(ignore);
  }
  const SteadyClock clock;
  const auto points = OrFail(RunEngineBench(model, pool, clock, options.bench));
  if (terminal) std::fprintf(stderr, "\r\033[K");
  if (options.format == "json") {
    std::printf("%s\n",
                EngineBenchJson(points, options.bench.isa, options.threads).Dump(2).c_str());
    return;
  }
  std::printf("%s, %d threads, kernels for %s\n%s", ComputeTypeName(compute), options.threads,
              IsaName(options.bench.isa), EngineBenchTable(points).c_str());
}

}  // namespace

void AddBenchEngineCommand(CLI::App& app) {
  CLI::App* group = CommandGroup(app, "bench", "Measure");
  CLI::App* command = group->add_subcommand(
      "engine", "How fast a checkpoint runs here, and what the machine allows");
  auto options = std::make_shared<Options>();
  command->add_option("--model", options->model, "Checkpoint directory")->required();
  command->add_option("--prefill", options->bench.prefill_tokens, "Prompt lengths")
      ->delimiter(',')
      ->check(CLI::Range(int64_t{1}, kMostTokens));
  command->add_option("--batch", options->bench.decode_batches, "Sequences of a decode step")
      ->delimiter(',')
      ->check(CLI::Range(int64_t{1}, int64_t{65536}));
  command->add_option("--context", options->bench.context, "Cached tokens of each sequence")
      ->check(CLI::Range(int64_t{0}, kMostTokens));
  command->add_option("--rounds", options->bench.rounds, "Rounds; medians are reported")
      ->check(CLI::Range(1, 1000));
  command->add_option("--threads", options->threads)->check(CLI::Range(1, 1024));
  command->add_option("--dtype", options->dtype, "Compute type")
      ->check(CLI::IsMember({"auto", "bfloat16", "float32"}));
  command
      ->add_option("--weights", options->weights,
                   "Weights mapped from the files, or copied to huge pages; auto as in serve")
      ->check(CLI::IsMember({"auto", "mapped", "copied"}));
  command->add_option("--isa", options->isa, "Instruction set; the fastest here by default");
  command->add_option("--format", options->format)->check(CLI::IsMember({"text", "json"}));
  command->callback([options] { Run(*options); });
}

}  // namespace divisi
