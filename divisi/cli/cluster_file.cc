#include "divisi/cli/cluster_file.h"

#include <charconv>
#include <filesystem>

#include "divisi/cli/control_options.h"
#include "divisi/cli/pool_setup.h"
#include "divisi/control/route_choice.h"
#include "divisi/core/format.h"
#include "divisi/core/yaml_fields.h"

namespace divisi {
namespace {

void Append(std::vector<std::string>& args, std::initializer_list<std::string> more) {
  args.insert(args.end(), more);
}

// What the last --drain-seconds of the arguments says. Errors: kInvalidArgument.
Result<Seconds> DrainOf(const std::vector<std::string>& args) {
  constexpr std::string_view kFlag = "--drain-seconds";
  double seconds = kDrainSeconds;
  for (size_t i = 0; i < args.size(); ++i) {
    if (!args[i].starts_with(kFlag)) continue;
    std::string value = args[i].substr(kFlag.size());
    if (value.empty() && i + 1 < args.size()) {
      value = args[i + 1];
    } else if (value.starts_with('=')) {
      value.erase(0, 1);
    } else if (!value.empty()) {
      continue;  // Another option's name
    }
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), seconds);
    if (error == std::errc() && end == value.data() + value.size() && seconds >= 0 &&
        seconds <= kMostDrainSeconds) {
      continue;
    }
    return Error{Code::kInvalidArgument, Format("--drain-seconds: '{}' is no number from 0 to {}",
                                                value, kMostDrainSeconds)};
  }
  return Seconds(seconds);
}

// What the file's own keys leave out.
void AppendArgs(YamlFields& fields, ClusterProcess& process) {
  for (const std::string& arg : fields.GetList<std::string>("args")) process.args.push_back(arg);
  const auto drain = DrainOf(process.args);
  if (!drain) return fields.Fail("args", drain.error().message);
  process.drain = *drain;
}

// A path that stands beside the file, where it is there; else as it is given.
std::string Located(const std::string& path, const std::string& file) {
  const std::filesystem::path beside = std::filesystem::path(file).parent_path() / path;
  std::error_code error;
  return std::filesystem::exists(beside, error) ? beside.string() : path;
}

std::string ModelIn(YamlFields& top, const std::string& file) {
  const auto given = top.Get<std::string>("model");
  std::string model = Located(given, file);
  std::error_code error;
  if (!std::filesystem::exists(std::filesystem::path(model) / "config.json", error)) {
    top.Fail("model", Format("'{}' is no checkpoint directory with a config.json, neither beside "
                             "this file nor where the command runs",
                             given));
  }
  return model;
}

// The control port.
int64_t ReadGateway(YamlFields& top, const ClusterPorts& ports, ClusterProcess& process) {
  const YamlWant<int64_t> any_port{.fallback = 8000, .least = 1, .most = 65535};
  int64_t control = ports.control > 0 ? ports.control : 8001;
  int64_t http = ports.http > 0 ? ports.http : 8000;
  top.FindMap("gateway", [&](YamlFields& gateway) {
    const auto host = gateway.Get<std::string>("host", {.fallback = "127.0.0.1"});
    const auto own = gateway.Get<int64_t>("port", any_port);
    if (ports.http == 0) http = own;
    const auto own_control =
        gateway.Get<int64_t>("control_port", {.fallback = 8001, .least = 1, .most = 65535});
    if (ports.control == 0) control = own_control;
    Append(process.args, {"--host", host});
    if (const auto policy = gateway.Find<std::string>("policy")) {
      const auto parsed = ParsePolicy(*policy);
      if (!parsed) gateway.Fail("policy", parsed.error().message);
      Append(process.args, {"--policy", *policy});
    }
    if (const auto from = gateway.Find<std::string>("disaggregate_from")) {
      const auto parsed = ParseDisaggregateFrom(*from);
      if (!parsed) gateway.Fail("disaggregate_from", parsed.error().message);
      Append(process.args, {"--disaggregate-from", *from});
    }
    AppendArgs(gateway, process);
  });
  Append(process.args, {"--port", Format("{}", http), "--control-port", Format("{}", control)});
  return control;
}

// What each worker is told of the pool; the nodes that are to be started.
std::vector<std::string> ReadPool(YamlFields& top, std::vector<ClusterProcess>& stores) {
  std::vector<std::string> args;
  top.FindMap("pool", [&](YamlFields& pool) {
    std::vector<std::string> places;
    if (pool.Has("at")) {
      places = pool.GetList<std::string>("at");
      const auto parsed = ParsePool(places);
      if (!parsed) pool.Fail("at", parsed.error().message);
    } else {
      const auto nodes =
          pool.Get<int64_t>("nodes", {.fallback = 1, .least = 1, .most = kMostClusterStores});
      const auto port = pool.Get<int64_t>(
          "port", {.fallback = 7100, .least = 1, .most = 65536 - kMostClusterStores});
      const auto memory = pool.Get<Bytes>("memory");
      for (int64_t i = 0; i < nodes; ++i) {
        places.push_back(Format("127.0.0.1:{}", port + i));
        stores.push_back(
            {Format("store-{}", i + 1),
             {"store", "--listen", places.back(), "--memory", Format("{}", memory.value)}});
      }
    }
    const auto copies = pool.Get<int64_t>("copies", {.fallback = 1, .least = 1, .most = 2});
    for (const std::string& place : places) Append(args, {"--kv-pool", place});
    if (copies > 1) Append(args, {"--kv-pool-copies", Format("{}", copies)});
  });
  return args;
}

// start: what each worker's arguments begin with.
void ReadWorkers(YamlFields& group, const std::vector<std::string>& start,
                 const std::vector<std::string>& pool, std::vector<ClusterProcess>& workers) {
  const auto role = group.Get<std::string>("role", {.fallback = "replica"});
  const auto known = ParseRole(role);
  if (!known) group.Fail("role", known.error().message);
  const auto count =
      group.Get<int64_t>("count", {.fallback = 1, .least = 1, .most = kMostClusterWorkers});
  ClusterProcess worker{role, start};
  Append(worker.args, {"--role", role});
  if (const auto threads = group.Find<int64_t>("threads", {.least = 1, .most = 1024})) {
    Append(worker.args, {"--threads", Format("{}", *threads)});
  }
  if (const auto memory = group.Find<Bytes>("kv_memory")) {
    Append(worker.args, {"--kv-memory", Format("{}", memory->value)});
  }
  if (const auto host = group.Find<Bytes>("kv_host")) {
    Append(worker.args, {"--kv-host", Format("{}", host->value)});
  }
  worker.args.insert(worker.args.end(), pool.begin(), pool.end());
  AppendArgs(group, worker);
  for (int64_t i = 0; i < count; ++i) {
    ClusterProcess process = worker;
    process.name = Format("{}-{}", role, workers.size() + 1);
    Append(process.args, {"--name", process.name});
    workers.push_back(std::move(process));
  }
}

}  // namespace

Result<ClusterPlan> ReadClusterFile(std::string_view text, const std::string& file,
                                    const ClusterPorts& ports) {
  ClusterPlan plan;
  RETURN_IF_ERROR(ReadYaml(text, file, [&](YamlFields& top) {
    const std::string model = ModelIn(top, file);
    plan.gateway = {"gateway", {"gateway", "--model", model}};
    const int64_t control = ReadGateway(top, ports, plan.gateway);
    const std::vector<std::string> pool = ReadPool(top, plan.stores);
    top.EachOf("workers", [&](YamlFields& group) {
      ReadWorkers(group, {"worker", "--model", model, "--gateway", Format("127.0.0.1:{}", control)},
                  pool, plan.workers);
    });
    if (plan.workers.empty()) top.Fail("workers", "expected a list of at least one worker");
    if (static_cast<int64_t>(plan.workers.size()) > kMostClusterWorkers) {
      top.Fail("workers", Format("more than {} workers on one machine", kMostClusterWorkers));
    }
  }));
  return plan;
}

}  // namespace divisi
