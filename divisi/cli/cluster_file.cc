#include "divisi/cli/cluster_file.h"

#include <charconv>
#include <filesystem>

#include "divisi/cli/control_options.h"
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

}  // namespace

Result<ClusterPlan> ReadClusterFile(std::string_view text, const std::string& file,
                                    const ClusterPorts& ports) {
  ClusterPlan plan;
  RETURN_IF_ERROR(ReadYaml(text, file, [&](YamlFields& top) {
    const std::string model = ModelIn(top, file);
    int64_t control = ports.control > 0 ? ports.control : 8001;
    plan.gateway = {"gateway", {"gateway", "--model", model}};
    const YamlWant<int64_t> any_port{.fallback = 8000, .least = 1, .most = 65535};
    int64_t http = ports.http > 0 ? ports.http : 8000;
    top.FindMap("gateway", [&](YamlFields& gateway) {
      const auto host = gateway.Get<std::string>("host", {.fallback = "127.0.0.1"});
      const auto own = gateway.Get<int64_t>("port", any_port);
      if (ports.http == 0) http = own;
      const auto own_control =
          gateway.Get<int64_t>("control_port", {.fallback = 8001, .least = 1, .most = 65535});
      if (ports.control == 0) control = own_control;
      Append(plan.gateway.args, {"--host", host});
      if (const auto policy = gateway.Find<std::string>("policy")) {
        const auto parsed = ParsePolicy(*policy);
        if (!parsed) gateway.Fail("policy", parsed.error().message);
        Append(plan.gateway.args, {"--policy", *policy});
      }
      if (const auto from = gateway.Find<std::string>("disaggregate_from")) {
        const auto parsed = ParseDisaggregateFrom(*from);
        if (!parsed) gateway.Fail("disaggregate_from", parsed.error().message);
        Append(plan.gateway.args, {"--disaggregate-from", *from});
      }
      AppendArgs(gateway, plan.gateway);
    });
    Append(plan.gateway.args,
           {"--port", Format("{}", http), "--control-port", Format("{}", control)});
    top.EachOf("workers", [&](YamlFields& group) {
      const auto role = group.Get<std::string>("role", {.fallback = "replica"});
      const auto known = ParseRole(role);
      if (!known) group.Fail("role", known.error().message);
      const auto count =
          group.Get<int64_t>("count", {.fallback = 1, .least = 1, .most = kMostClusterWorkers});
      ClusterProcess worker{role,
                            {"worker", "--model", model, "--gateway",
                             Format("127.0.0.1:{}", control), "--role", role}};
      if (const auto threads = group.Find<int64_t>("threads", {.least = 1, .most = 1024})) {
        Append(worker.args, {"--threads", Format("{}", *threads)});
      }
      if (const auto memory = group.Find<Bytes>("kv_memory")) {
        Append(worker.args, {"--kv-memory", Format("{}", memory->value)});
      }
      AppendArgs(group, worker);
      for (int64_t i = 0; i < count; ++i) {
        ClusterProcess process = worker;
        process.name = Format("{}-{}", role, plan.workers.size() + 1);
        Append(process.args, {"--name", process.name});
        plan.workers.push_back(std::move(process));
      }
    });
    if (plan.workers.empty()) top.Fail("workers", "expected a list of at least one worker");
    if (static_cast<int64_t>(plan.workers.size()) > kMostClusterWorkers) {
      top.Fail("workers", Format("more than {} workers on one machine", kMostClusterWorkers));
    }
  }));
  return plan;
}

}  // namespace divisi
