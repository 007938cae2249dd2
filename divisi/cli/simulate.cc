#include "divisi/cli/simulate.h"

#include <algorithm>
#include <utility>

#include "divisi/cli/load_trace.h"
#include "divisi/core/file.h"
#include "divisi/core/format.h"
#include "divisi/plan/pass_cost.h"

namespace divisi {
namespace {

constexpr size_t kMostTraceBytes = size_t{1} << 30;
constexpr int64_t kDrawnRequests = 1000;
// Of a card's memory, for weights and pages; the rest is activations and the runtime's.
constexpr double kUsedMemory = 0.9;
constexpr int64_t kLongest = 131072;
// Nobody is turned away: waiting is what is measured.
constexpr int64_t kMostWaiting = int64_t{1} << 20;
constexpr Seconds kPatience{1e6};

Result<std::vector<ServiceRequest>> ReadRequests(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kMostTraceBytes));
  ASSIGN_OR_RETURN(const std::vector<PlannedRequest> planned, ReadTrace(text, path, {}));
  std::vector<ServiceRequest> requests;
  for (const PlannedRequest& plan : planned) {
    ServiceRequest& request = requests.emplace_back();
    request = {.arrival = plan.arrival, .prompt = plan.InputTokens(), .output = plan.output_tokens};
    for (const PromptPiece& piece : plan.pieces) {
      if (IsTraceBlock(piece)) request.contents.push_back(piece.stream);
    }
  }
  return requests;
}

Result<std::vector<ServiceRequest>> RequestsOf(const SimulateOptions& options) {
  if (options.trace.empty()) {
    const int64_t count = options.requests > 0 ? options.requests : kDrawnRequests;
    return DrawConversations({.requests = count}, options.seed);
  }
  ASSIGN_OR_RETURN(std::vector<ServiceRequest> requests, ReadRequests(options.trace));
  const auto most = static_cast<size_t>(options.requests);
  if (most > 0 && requests.size() > most) requests.resize(most);
  return requests;
}

// Everything moves over some link, and the model has none of no width.
Result<void> CheckLinks(const SimulateOptions& options, const CardSpec& card) {
  const auto wrong = [](const std::string& what) { return Error{Code::kInvalidArgument, what}; };
  if (card.pcie.value <= 0) {
    return wrong(
        Format("--card: the catalogue has no pcie rate for {}; give one in a file of "
               "--catalog, or choose another card",
               card.name));
  }
  if (options.network.value <= 0) return wrong("--network: it must be more than 0");
  if (options.pool.value > 0 && options.pool_link.value <= 0) {
    return wrong("--pool-link: it must be more than 0; --kv-pool-size 0 is to have no pool");
  }
  return {};
}

Result<ServiceWorker> WorkerOf(const SimulateOptions& options, const Catalog& catalog) {
  const auto model = catalog.Model(options.model);
  if (!model) return WithContext(model.error(), "--model");
  const auto card = catalog.Card(options.card);
  if (!card) return WithContext(card.error(), "--card");
  RETURN_IF_ERROR(CheckLinks(options, **card));
  const ModelCost cost(**model, {});
  const DeviceRates rates{.compute = (*card)->bf16_peak * options.efficiency,
                          .memory = (*card)->memory_bandwidth * options.efficiency};
  const Bytes page = cost.State(Tokens(kBlockTokens));
  const Bytes pages = Scale((*card)->memory, kUsedMemory) - cost.ResidentWeights();
  if (pages < page * (kLongest / kBlockTokens)) {
    return Error{Code::kInvalidArgument,
                 Format("--model: {} leaves {} of a {} for KV, too little for one prompt of {} "
                        "tokens; choose a larger --card",
                        options.model, HumanBytes(pages), options.card, kLongest)};
  }
  const ServiceTiers tiers{.host_pages = options.host.value / page.value,
                           .disk_pages = options.disk.value / page.value,
                           .pcie = (*card)->pcie,
                           .network = options.network,
                           .disk_writes = DiskWrites::kAll};
  return ServiceWorker{.device = SimDevice{.model = cost, .rates = rates},
                       .scheduler = {.max_sequences = options.sequences,
                                     .max_batched_tokens = options.step_tokens,
                                     .max_model_len = kLongest,
                                     .max_waiting = kMostWaiting,
                                     .blocks = pages.value / page.value},
                       .tiers = tiers};
}

// Room for all that the cluster can hold.
int64_t DirectoryPages(const SimulateOptions& options, const ServiceWorker& worker) {
  const int64_t own = worker.scheduler.blocks + worker.tiers->host_pages + worker.tiers->disk_pages;
  const Bytes page = worker.device->model.State(Tokens(kBlockTokens));
  return own * options.workers + options.pool.value / page.value;
}

Result<SimulatedRun> RunOne(ServiceScenario scenario, const SimulatedRun& asked) {
  scenario.dispatch.policy = asked.policy;
  scenario.dispatch.objective = asked.objective;
  scenario.requests = Faster(std::move(scenario.requests), asked.speed);
  const ServiceReport report = RunService(scenario);
  if (!report.fault.empty()) {
    return Error{Code::kInternal, "the simulation failed: " + report.fault};
  }
  SimulatedRun run = asked;
  run.requests = static_cast<int64_t>(report.outcomes.size());
  run.failed = std::ranges::count_if(
      report.outcomes, [](const ServiceOutcome& outcome) { return outcome.error.has_value(); });
  if (std::ranges::none_of(report.outcomes, [](const auto& each) { return each.tokens > 0; })) {
    return Error{Code::kInvalidArgument,
                 Format("none of the {} requests got a token; give them more --workers, a larger "
                        "--card or less --load",
                        run.requests)};
  }
  run.mean = report.MeanTtft(scenario);
  run.p50 = report.TtftQuantile(scenario, 0.5);
  run.p90 = report.TtftQuantile(scenario, 0.9);
  run.p99 = report.TtftQuantile(scenario, 0.99);
  run.hit_rate = report.HitRate();
  run.computed_tokens = report.PromptTokensComputed();
  run.from_pool = report.from_pool;
  run.from_peers = report.from_peers;
  return run;
}

std::string NameOf(const SimulatedRun& run) {
  if (run.policy != RoutePolicy::kExpectedTtft) return PolicyName(run.policy);
  return Format("{} ({})", PolicyName(run.policy), ObjectiveName(run.objective));
}

std::vector<SimulatedRun> OfPolicies(SimulatedRun run, const SimulateOptions& options) {
  std::vector<SimulatedRun> runs;
  for (const RoutePolicy policy : options.policies) {
    run.policy = policy;
    run.objective = RouteObjective::kRequest;
    if (policy != RoutePolicy::kExpectedTtft) {
      runs.push_back(run);
      continue;
    }
    for (const RouteObjective objective : options.objectives) {
      run.objective = objective;
      runs.push_back(run);
    }
  }
  return runs;
}

}  // namespace

Result<ServiceScenario> SimulatedService(const SimulateOptions& options, const Catalog& catalog) {
  ASSIGN_OR_RETURN(const ServiceWorker worker, WorkerOf(options, catalog));
  ASSIGN_OR_RETURN(std::vector<ServiceRequest> requests, RequestsOf(options));
  ServiceScenario scenario{
      .workers = std::vector<ServiceWorker>(static_cast<size_t>(options.workers), worker),
      .peers = options.peers,
      .requests = std::move(requests),
      .directory = DirectoryPages(options, worker),
      .event = options.event,
      .contents = false};
  scenario.dispatch.max_waiting = kMostWaiting;
  scenario.dispatch.times.prefill = scenario.dispatch.times.total = kPatience;
  if (options.pool.value > 0) {
    scenario.pool =
        ServicePool{.memory = options.pool, .link = options.pool_link, .lookup = options.lookup};
  }
  return scenario;
}

PerSecond RoundRobinCapacity(ServiceScenario scenario, const SimulateProgress& progress) {
  scenario.dispatch.policy = RoutePolicy::kRoundRobin;
  for (ServiceRequest& request : scenario.requests) request.arrival = Seconds(0);
  scenario.progress = [&](double part) { progress("capacity", part); };
  const ServiceReport report = RunService(scenario);
  Seconds end;
  for (const ServiceOutcome& outcome : report.outcomes) end = std::max(end, outcome.finished);
  return PerSecond(static_cast<double>(scenario.requests.size()) / end.value);
}

Result<std::vector<SimulatedRun>> Simulate(const SimulateOptions& options, const Catalog& catalog,
                                           const SimulateProgress& progress) {
  ASSIGN_OR_RETURN(ServiceScenario scenario, SimulatedService(options, catalog));
  std::vector<SimulatedRun> asked{{.speed = options.speed}};
  if (!options.loads.empty()) {
    const std::vector<ServiceRequest>& all = scenario.requests;
    if (all.size() < 2 || all.front().arrival == all.back().arrival) {
      return Error{
          Code::kInvalidArgument,
          "--load: requests that come at one moment have no rate; give more --requests, or "
          "--speed in the place of --load"};
    }
    const PerSecond capacity = RoundRobinCapacity(scenario, progress);
    const PerSecond rate = ArrivalRate(scenario.requests);
    asked.clear();
    for (const double load : options.loads) {
      asked.push_back({.load = load, .speed = load * (capacity.value / rate.value)});
    }
  }
  std::vector<SimulatedRun> runs;
  for (const SimulatedRun& each : asked) {
    for (const SimulatedRun& run : OfPolicies(each, options)) {
      scenario.progress = [&](double part) {
        progress(Format("{} at {:.2f}", NameOf(run), run.load), part);
      };
      ASSIGN_OR_RETURN(SimulatedRun done, RunOne(scenario, run));
      runs.push_back(std::move(done));
    }
  }
  return runs;
}

std::string SimulateTable(const std::vector<SimulatedRun>& runs) {
  std::string text =
      Format("{:<24}{:>6}{:>8}{:>12}{:>12}{:>12}{:>12}{:>8}{:>11}{:>11}{:>11}\n", "policy", "load",
             "speed", "mean", "p50", "p90", "p99", "hits", "computed", "from pool", "from peers");
  for (const SimulatedRun& run : runs) {
    text += Format("{:<24}{:>6.2f}{:>8.3f}{:>12}{:>12}{:>12}{:>12}{:>8.3f}{:>11}{:>11}{:>11}\n",
                   NameOf(run), run.load, run.speed, HumanSeconds(run.mean), HumanSeconds(run.p50),
                   HumanSeconds(run.p90), HumanSeconds(run.p99), run.hit_rate, run.computed_tokens,
                   HumanBytes(run.from_pool), HumanBytes(run.from_peers));
  }
  return text;
}

Json SimulateJson(const std::vector<SimulatedRun>& runs) {
  Json::Array rows;
  for (const SimulatedRun& run : runs) {
    rows.push_back(Json::Object{{"policy", PolicyName(run.policy)},
                                {"objective", ObjectiveName(run.objective)},
                                {"load", run.load},
                                {"speed", run.speed},
                                {"requests", run.requests},
                                {"failed", run.failed},
                                {"mean_ttft_seconds", run.mean.value},
                                {"p50_ttft_seconds", run.p50.value},
                                {"p90_ttft_seconds", run.p90.value},
                                {"p99_ttft_seconds", run.p99.value},
                                {"hit_rate", run.hit_rate},
                                {"computed_prompt_tokens", run.computed_tokens},
                                {"pool_read_bytes", run.from_pool.value},
                                {"peer_read_bytes", run.from_peers.value}});
  }
  return Json::Object{{"runs", std::move(rows)}};
}

}  // namespace divisi
