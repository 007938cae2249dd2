// divisi cluster: look at a running cluster, drain a worker and take that back, change its role.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "divisi/cli/cluster_view.h"
#include "divisi/cli/commands.h"
#include "divisi/cli/control_options.h"
#include "divisi/cli/gateway_query.h"
#include "divisi/core/format.h"
#include "divisi/core/json.h"

namespace divisi {
namespace {

struct Options {
  std::vector<std::string> gateways = {"127.0.0.1:8001"};
  std::string format = "text";
  std::string worker;
  std::string role;
  ControlTlsOptions tls;
  std::string timeout = "60 s";
  bool wait = false;
};

constexpr std::chrono::milliseconds kAskAgain{200};

std::vector<GatewayAnswer> Ask(const Options& options, const std::vector<std::string>& words) {
  auto answers = AskGateways(options.gateways, options.tls, words);
  if (!answers) FailCommand(answers.error());
  return *std::move(answers);
}

// One that can't be read becomes its error.
std::string Text(std::vector<GatewayAnswer>& told) {
  std::string text;
  for (auto& [gateway, status] : told) {
    if (!status) continue;
    const auto lines = ClusterText(*status);
    if (!lines) {
      status = AnotherForm(gateway, lines.error());
      continue;
    }
    if (told.size() > 1) text += Format("gateway {}\n", gateway);
    text += *lines;
  }
  return text;
}

// One gateway's status, or a list in the order of --gateway, where an error stands for one.
std::string JsonText(const std::vector<GatewayAnswer>& told) {
  if (told.size() == 1) return told[0].status ? told[0].status->Dump(2) + "\n" : "";
  Json list = Json::MakeArray();
  for (const auto& [gateway, status] : told) {
    list.Append(status
                    ? *status
                    : Json(Json::Object{{"gateway", gateway}, {"error", status.error().message}}));
  }
  return list.Dump(2) + "\n";
}

// What each gateway said. Where one did not do it the command fails.
void Print(const Options& options, std::vector<GatewayAnswer> told) {
  std::fputs((options.format == "json" ? JsonText(told) : Text(told)).c_str(), stdout);
  std::fflush(stdout);
  const auto failed = [](const GatewayAnswer& each) { return !each.status; };
  const auto first = std::ranges::find_if(told, failed);
  if (first == told.end()) return;
  if (told.size() == 1) FailCommand(first->status.error());
  for (const auto& [gateway, status] : told) {
    if (status) continue;
    std::fprintf(stderr, "divisi: gateway %s: %s\n", gateway.c_str(),
                 status.error().message.c_str());
  }
  FailCommand({Code::kUnavailable, Format("{} of {} gateways did not do it",
                                          std::ranges::count_if(told, failed), told.size())});
}

void Run(const Options& options, const std::vector<std::string>& words) {
  Print(options, Ask(options, words));
}

// Whether the worker that is drained has requests left; an answer that can't be read becomes its
// error.
bool HasRequests(GatewayAnswer& told, const std::string& worker) {
  if (!told.status) return false;
  const auto busy = DrainsStill(*told.status, worker);
  if (!busy) told.status = AnotherForm(told.gateway, busy.error());
  return busy && *busy;
}

// Of what the gateways that did it say later.
void Renew(std::vector<GatewayAnswer>& told, const Options& options) {
  Options asked = options;
  asked.gateways.clear();
  for (const GatewayAnswer& each : told) {
    if (each.status) asked.gateways.push_back(each.gateway);
  }
  std::vector<GatewayAnswer> later = Ask(asked, {"status"});
  auto next = later.begin();
  for (GatewayAnswer& each : told) {
    if (each.status) each = std::move(*next++);
  }
}

void Drain(const Options& options) {
  std::vector<GatewayAnswer> told = Ask(options, {"drain", options.worker, options.timeout});
  const auto busy = [&](GatewayAnswer& each) { return HasRequests(each, options.worker); };
  while (options.wait && std::ranges::any_of(told, busy)) {
    std::this_thread::sleep_for(kAskAgain);
    Renew(told, options);
  }
  Print(options, std::move(told));
}

void AddCommon(CLI::App& command, Options& options) {
  AddGatewaysOption(command, options.gateways);
  command.add_option("--format", options.format, "text or json")
      ->capture_default_str()
      ->check(CLI::IsMember({"text", "json"}));
  AddControlTlsOptions(command, options.tls);
}

}  // namespace

void AddClusterCommand(CLI::App& app) {
  CLI::App* group = CommandGroup(app, "cluster", "Look at a running cluster and change it");
  auto options = std::make_shared<Options>();
  CLI::App* status = group->add_subcommand("status", "Workers, their roles, loads and counters");
  AddCommon(*status, *options);
  status->callback([options] { Run(*options, {"status"}); });
  CLI::App* drain = group->add_subcommand(
      "drain", "A worker gets no new requests; what it has ends in bounded time");
  AddCommon(*drain, *options);
  drain->add_option("worker", options->worker, "Its name, or its id of status --format json")
      ->required();
  drain
      ->add_option(
          "--timeout", options->timeout,
          "When requests without a first token go elsewhere and the rest end with an error")
      ->capture_default_str();
  drain->add_flag("--wait", options->wait, "Return when it has no requests any more");
  drain->callback([options] { Drain(*options); });
  CLI::App* undrain = group->add_subcommand("undrain", "A drained worker gets requests again");
  AddCommon(*undrain, *options);
  undrain->add_option("worker", options->worker, "Its name, or its id of status --format json")
      ->required();
  undrain->callback([options] { Run(*options, {"undrain", options->worker}); });
  CLI::App* role = group->add_subcommand(
      "role", "Change a worker's role; what it has goes on, and its weights stay");
  AddCommon(*role, *options);
  role->add_option("worker", options->worker, "Its name, or its id of status --format json")
      ->required();
  role->add_option("role", options->role, "replica, prefill or decode")->required();
  role->callback([options] { Run(*options, {"role", options->worker, options->role}); });
}

}  // namespace divisi
