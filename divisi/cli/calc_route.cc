#include "divisi/cli/calc_cache.h"
#include "divisi/cli/calc_inputs.h"
#include "divisi/core/format.h"
#include "divisi/plan/flow.h"
#include "divisi/plan/route.h"

namespace divisi {
namespace {

constexpr const char* kFormula =
    "T = max(Q, R) + C when state is prepared while the request waits, Q + R + C when not    s\n"
    "Q: until the device is free; R: until the state is there; C: what is left to compute\n"
    "local hit: Q = --hit-queue, R = 0, C = new tokens; recompute: Q = --queue, C = all tokens\n"
    "fetch: R = --lookup + V / B_network + V / B_pcie; V in bytes, B in bytes/s\n"
    "break-even B_network = V / (T - C - lookup - V / B_pcie)   T: of the hit, of recomputing\n"
    "uncertain hit: mean = p hit + (1 - p) miss; quantile q: the least t with P(T <= t) >= q\n"
    "p for a mean of T: (miss - T) / (miss - hit); p for quantile q in time: q, if a hit is\n"
    "With --host-copy, a lost copy of the device is found in host memory with that probability;\n"
    "its fetch over PCIe overlaps the queue, and there are three outcomes.\n"
    "An owner of the state starts first while it waits less than --prepare-transfer +\n"
    "--prepare-restore, which another worker needs one after the other.\n"
    "Source: section 9.5.4.";

struct Routes {
  Bytes state;
  RouteTimes local_hit;
  RouteTimes recompute;
  RouteTimes fetch;
  RemoteFetch remote;
  RouteTimes uncertain;  // From the copy in host memory.
};

Result<Routes> RoutesOf(const CalcValues& in) {
  ASSIGN_OR_RETURN(const ModelCost model, ModelOf(in));
  ASSIGN_OR_RETURN(const CalcDevice device, DeviceOf(in));
  ASSIGN_OR_RETURN(const Bytes per_token, StatePerToken(in));
  const Tokens cached = TokensOf(in, "cached-tokens");
  const Tokens added = TokensOf(in, "new-tokens");
  const Seconds hit = TimeOf(model.Prefill(added, cached), device.rates).Total();
  const Seconds full = TimeOf(model.Prefill(cached + added, Tokens(0)), device.rates).Total();
  Routes routes;
  routes.state = Times(per_token, in.Count("cached-tokens"));
  routes.remote = {.state = routes.state,
                   .lookup = in.GetSeconds("lookup"),
                   .network = in.GetBytesPerSecond("network"),
                   .host_to_device = in.GetBytesPerSecond("pcie")};
  const Seconds queue = in.GetSeconds("queue");
  routes.local_hit = {in.GetSeconds("hit-queue"), Seconds(0), hit};
  routes.recompute = {queue, Seconds(0), full};
  routes.fetch = {queue, routes.remote.Time(), hit};
  routes.uncertain = {in.GetSeconds("uncertain-queue"),
                      TimeToMove(routes.state, routes.remote.host_to_device), hit};
  return routes;
}

void AddRoutes(const Routes& routes, CalcResult& result) {
  const auto seconds = [](const char* key, const char* label) {
    return CalcFigure{key, 0, CalcUnit::kSeconds, label};
  };
  CalcTable table{
      "routes",
      "Routes",
      {"local_hit", "recompute", "fetch"},
      {seconds("queue", "queue Q"), seconds("ready", "state R"), seconds("compute", "compute C"),
       seconds("first_token", "first token"), seconds("serial_first_token", "if R follows Q")},
      {}};
  for (const RouteTimes& route : {routes.local_hit, routes.recompute, routes.fetch}) {
    table.rows.push_back({route.queue.value, route.ready.value, route.compute.value,
                          route.Overlapped().value, route.Serial().value});
  }
  result.tables.push_back(std::move(table));
}

void AddUncertainty(const CalcValues& in, const Routes& routes, CalcResult& result) {
  const double q = in.Count("quantile");
  const Seconds full = routes.recompute.compute;
  const UncertainHit hit{routes.uncertain.queue + routes.uncertain.compute,
                         routes.uncertain.queue + full};
  const CopyChances chances{in.Count("available"), in.Count("host-copy")};
  const Outcomes outcomes = CopyOutcomes(chances, routes.uncertain, full);
  for (CalcFigure& figure : std::vector<CalcFigure>{
           FigureOf("uncertain_hit", hit.hit, "uncertain worker, if the copy is there"),
           FigureOf("uncertain_miss", hit.miss, "if no copy is"),
           FigureOf("mean", outcomes.Mean(), "mean"),
           FigureOf("quantile", outcomes.Quantile(q), Format("its {} quantile", q)),
           FigureOf("available_for_mean", hit.AvailabilityForMean(routes.recompute.Overlapped()),
                    "chance of the copy at which the mean is that of recomputing elsewhere"),
           FigureOf("available_for_target", hit.AvailabilityForQuantile(q, in.GetSeconds("target")),
                    "chance at which the quantile meets the target")}) {
    result.figures.push_back(std::move(figure));
  }
  CalcTable table{"outcomes",
                  "Outcomes of the uncertain worker",
                  {},
                  {{"time", 0, CalcUnit::kSeconds, "first token"},
                   {"probability", 0, CalcUnit::kCount, "probability"}},
                  {}};
  for (const Outcome& outcome : outcomes.points()) {
    table.row_names.push_back(Format("{}", table.rows.size() + 1));
    table.rows.push_back({outcome.time.value, outcome.probability});
  }
  result.tables.push_back(std::move(table));
}

std::string BestRoute(const Routes& routes) {
  const Seconds hit = routes.local_hit.Overlapped();
  const Seconds recompute = routes.recompute.Overlapped();
  const Seconds fetch = routes.fetch.Overlapped();
  if (hit <= recompute && hit <= fetch) return "The worker with the copy answers first.";
  if (fetch <= recompute) return "The free worker answers first, by fetching.";
  return "The free worker answers first, by recomputing.";
}

Result<CalcResult> Run(const CalcValues& in) {
  if (in.Count("quantile") <= 0) {
    return Error{Code::kInvalidArgument, "--quantile: 0 is not above 0; 0.99 is the 99th percent"};
  }
  ASSIGN_OR_RETURN(const Routes routes, RoutesOf(in));
  const Seconds steps[] = {in.GetSeconds("prepare-transfer"), in.GetSeconds("prepare-restore")};
  const BytesPerSecond traffic = routes.state * in.GetPerSecond("fetch-rate");
  const auto even = [&routes](Seconds target) {
    return BreakEvenNetwork(routes.remote, routes.fetch, target);
  };
  CalcResult result;
  result.figures = {
      FigureOf("state", routes.state, "KV of the prefix"),
      FigureOf("hit_compute", routes.local_hit.compute, "computing the new tokens"),
      FigureOf("full_compute", routes.recompute.compute, "computing all tokens"),
      FigureOf("local_hit", routes.local_hit.Overlapped(), "first token by local hit"),
      FigureOf("recompute", routes.recompute.Overlapped(), "by recomputing"),
      FigureOf("fetch", routes.fetch.Overlapped(), "by fetching"),
      FigureOf("local_hit_break_even", even(routes.local_hit.Overlapped()),
               "network at which a fetch is as fast as the local hit"),
      FigureOf("recompute_break_even", even(routes.recompute.Overlapped()),
               "network at which it is as fast as recomputing"),
      FigureOf("fetch_traffic", traffic, "traffic of the fetches"),
      FigureOf("fetch_share", traffic / routes.remote.network, "of the network"),
      FigureOf("owner_longest_queue", SerialPreparation(steps),
               "queue below which the owner of the state starts first")};
  AddUncertainty(in, routes, result);
  AddRoutes(routes, result);
  result.notes.push_back(BestRoute(routes));
  return result;
}

}  // namespace

CalcTopic RouteTopic() {
  const auto seconds = [](const char* name, const char* value, const char* help) {
    return CalcInput{name, CalcUnit::kSeconds, value, help};
  };
  const auto share = [](const char* name, const char* value, const char* help) {
    return CalcInput{name, CalcUnit::kCount, value, help, CalcLimit::kShare};
  };
  return {"route",
          "First token by local hit, by fetch and by recomputing; uncertain copies",
          kFormula,
          {ModelInput(),
           StateModelInput(),
           CardInput("A100 80GB SXM"),
           EfficiencyInput(),
           TokensInput("cached-tokens", "8192", "Tokens of the prefix"),
           TokensInput("new-tokens", "256", "New tokens"),
           seconds("hit-queue", "250ms", "Wait at the worker that holds the prefix"),
           seconds("queue", "20ms", "Wait at the other"),
           seconds("lookup", "10ms", "Finding the object"),
           RateInput("network", "25GB/s", "Remote store to host memory"),
           RateInput("pcie", "25GB/s", "Host memory to card"),
           seconds("uncertain-queue", "80ms", "Wait at a worker whose copy may be gone"),
           share("available", "0.9", "Chance that its copy is there"),
           share("host-copy", "0", "Chance of a copy in host memory where it is not"),
           share("quantile", "0.99", "Quantile of the first-token time"),
           seconds("target", "220ms", "What the quantile should meet"),
           {"fetch-rate", CalcUnit::kPerSecond, "16", "Fetches per second"},
           seconds("prepare-transfer", "4.666ms", "Preparing state elsewhere: moving the global"),
           seconds("prepare-restore", "8ms", "and then restoring the local part")},
          Run};
}

}  // namespace divisi
