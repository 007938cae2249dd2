#include "divisi/cli/cluster_file.h"

#include <charconv>
#include <filesystem>
#include <utility>

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

// What the arguments say for an option, each time.
std::vector<std::string> ValuesOf(const std::vector<std::string>& args, std::string_view flag) {
  std::vector<std::string> values;
  for (size_t i = 0; i < args.size(); ++i) {
    if (!args[i].starts_with(flag)) continue;
    std::string value = args[i].substr(flag.size());
    if (value.empty() && i + 1 < args.size()) {
      value = args[i + 1];
    } else if (value.starts_with('=')) {
      value.erase(0, 1);
    } else if (!value.empty()) {
      continue;  // Another option's name
    }
    values.push_back(std::move(value));
  }
  return values;
}

// What the last --drain-seconds of the arguments says. Errors: kInvalidArgument.
Result<Seconds> DrainOf(const std::vector<std::string>& args) {
  double seconds = kDrainSeconds;
  for (const std::string& value : ValuesOf(args, "--drain-seconds")) {
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

// What is said of a pool: to each worker, to the gateway; and the nodes that are to be started.
struct PoolPart {
  std::vector<std::string> workers, gateway;
  std::vector<ClusterProcess> stores;
};

// The first of the nodes' ports, and of their events', two each.
struct PoolPorts {
  int64_t nodes = 0;
  int64_t events = 0;
};
PoolPorts ReadPorts(YamlFields& pool) {
  constexpr int64_t kEnd = 65536;
  PoolPorts ports;
  ports.nodes = pool.Get<int64_t>(
      "port", {.fallback = 7100, .least = 1, .most = kEnd - 3 * kMostClusterStores});
  ports.events = pool.Get<int64_t>("events_port", {.fallback = ports.nodes + kMostClusterStores,
                                                   .least = 1,
                                                   .most = kEnd - 2 * kMostClusterStores});
  return ports;
}

// Nodes of this machine. Where they are.
std::vector<std::string> StartPool(YamlFields& pool, PoolPart& part) {
  const auto nodes =
      pool.Get<int64_t>("nodes", {.fallback = 1, .least = 1, .most = kMostClusterStores});
  const PoolPorts ports = ReadPorts(pool);
  const auto memory = pool.Get<Bytes>("memory");
  if (ports.events < ports.nodes + nodes && ports.nodes < ports.events + 2 * nodes) {
    pool.Fail("events_port", "two ports for each node's events, among those of the nodes");
  }
  std::vector<std::string> places;
  for (int64_t i = 0; i < nodes; ++i) {
    places.push_back(Format("127.0.0.1:{}", ports.nodes + i));
    const std::string live = Format("tcp://127.0.0.1:{}", ports.events + 2 * i);
    const std::string replay = Format("tcp://127.0.0.1:{}", ports.events + 2 * i + 1);
    part.stores.push_back(
        {Format("store-{}", i + 1),
         {"store", "--listen", places.back(), "--memory", Format("{}", memory.value), "--kv-events",
          live, "--kv-events-replay", replay}});
    Append(part.gateway, {"--kv-pool-events", live + "+" + replay});
  }
  return places;
}

// Nodes of elsewhere. Where they are.
std::vector<std::string> FindPool(YamlFields& pool, PoolPart& part) {
  auto places = pool.GetList<std::string>("at");
  const auto parsed = ParsePool(places);
  if (!parsed) pool.Fail("at", parsed.error().message);
  const auto events = pool.GetList<std::string>("events");
  if (!events.empty() && parsed && parsed->redis) {
    pool.Fail("events", "a Redis server publishes none; leave it out");
  } else if (!events.empty() && events.size() != places.size()) {
    pool.Fail("events",
              Format("{} given for {} nodes: expected one of each", events.size(), places.size()));
  }
  for (const std::string& at : events) {
    if (!at.starts_with("tcp://") && !at.starts_with("ipc://")) {
      pool.Fail("events", Format("'{}' is no LIVE+REPLAY, as in "
                                 "tcp://10.0.0.7:7110+tcp://10.0.0.7:7111: what the node has as "
                                 "--kv-events and --kv-events-replay",
                                 at));
    }
    Append(part.gateway, {"--kv-pool-events", at});
  }
  return places;
}

PoolPart ReadPool(YamlFields& top) {
  PoolPart part;
  top.FindMap("pool", [&](YamlFields& pool) {
    const std::vector<std::string> places =
        pool.Has("at") ? FindPool(pool, part) : StartPool(pool, part);
    const auto copies = pool.Get<int64_t>("copies", {.fallback = 1, .least = 1, .most = 2});
    for (const std::string& place : places) Append(part.workers, {"--kv-pool", place});
    if (copies > 1) Append(part.workers, {"--kv-pool-copies", Format("{}", copies)});
  });
  return part;
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
    PoolPart pool = ReadPool(top);
    plan.stores = std::move(pool.stores);
    const auto known = ValuesOf(plan.gateway.args, "--kv-directory-pages");
    if (known.empty() || known.back() != "0") {  // Else it follows nobody.
      plan.gateway.args.insert(plan.gateway.args.end(), pool.gateway.begin(), pool.gateway.end());
    }
    top.EachOf("workers", [&](YamlFields& group) {
      ReadWorkers(group, {"worker", "--model", model, "--gateway", Format("127.0.0.1:{}", control)},
                  pool.workers, plan.workers);
    });
    if (plan.workers.empty()) top.Fail("workers", "expected a list of at least one worker");
    if (static_cast<int64_t>(plan.workers.size()) > kMostClusterWorkers) {
      top.Fail("workers", Format("more than {} workers on one machine", kMostClusterWorkers));
    }
  }));
  return plan;
}

}  // namespace divisi
