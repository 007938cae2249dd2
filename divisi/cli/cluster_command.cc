// divisi cluster: look at a running cluster, drain a worker and take that back, change its role.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "divisi/cli/cluster_view.h"
#include "divisi/cli/commands.h"
#include "divisi/cli/control_options.h"
#include "divisi/cli/host_port.h"
#include "divisi/control/cluster_message.h"
#include "divisi/control/frame_connection.h"
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

constexpr Seconds kPatience{5};
constexpr std::chrono::milliseconds kAskAgain{200};

// One question to each gateway. What the loop's thread leaves, under the lock.
struct Asking {
  explicit Asking(size_t gateways) : answers(gateways) {}

  std::mutex mutex;
  std::condition_variable told;
  std::vector<std::optional<Result<AnswerMessage>>> answers;

  void Tell(size_t gateway, Result<AnswerMessage> given) {
    const std::lock_guard lock(mutex);
    if (!answers[gateway]) answers[gateway] = std::move(given);
    told.notify_one();
  }

  void Hear(size_t gateway, std::span<const std::byte> frame) {
    const auto message = DecodeClusterMessage(frame);
    if (!message) return Tell(gateway, message.error());
    if (const auto* text = std::get_if<AnswerMessage>(&*message)) return Tell(gateway, *text);
    if (const auto* refused = std::get_if<RejectMessage>(&*message)) {
      Tell(gateway, Error{Code::kUnauthenticated, refused->reason});
    }
  }
};

// What one gateway said.
struct Told {
  std::string gateway;
  Result<Json> status;
};

Error AnotherForm(const std::string& gateway, const Error& fault) {
  return {fault.code, Format("the gateway at {} answers in another version's form ({}): use the "
                             "divisi of its release, or --format json",
                             gateway, fault.message)};
}

Result<Json> StatusIn(const std::string& gateway,
                      const std::optional<Result<AnswerMessage>>& answer) {
  if (!answer) return Error{Code::kUnavailable, Format("{} gave no answer", gateway)};
  if (!*answer) return answer->error();
  if (!(*answer)->ok) return Error{Code::kInvalidArgument, (*answer)->text};
  auto status = Json::Parse((*answer)->text);
  if (!status) return AnotherForm(gateway, status.error());
  return status;
}

// All are asked at once, so that one that is away keeps the others from nothing: they do not know
// of each other's drains and roles.
std::vector<Told> Ask(const Options& options, const std::vector<std::string>& words) {
  const auto tls = options.tls.Files();
  if (!tls) FailCommand(tls.error());
  std::vector<std::pair<std::string, int>> addresses;
  for (const std::string& gateway : options.gateways) {
    const auto address = ParseHostPort("--gateway", gateway);
    if (!address) FailCommand(address.error());
    addresses.push_back(*address);
  }
  Asking asking(addresses.size());
  FrameLoop loop;
  if (*tls) {
    if (const auto used = loop.UseTls(**tls); !used) FailCommand(used.error());
  }
  for (size_t i = 0; i < addresses.size(); ++i) {
    const std::string& gateway = options.gateways[i];
    loop.Connect(addresses[i].first, addresses[i].second, kPatience, [&, i](auto connection) {
      if (!connection) return asking.Tell(i, connection.error());
      (*connection)
          ->Start([&asking, i](std::vector<std::byte> frame) { asking.Hear(i, frame); },
                  [&asking, &gateway, i](const std::string& why) {
                    asking.Tell(i, Error{Code::kUnavailable,
                                         Format("{} gave no answer: {}", gateway, why)});
                  });
      (*connection)->Send(EncodeClusterMessage(QueryMessage{words}));
    });
  }
  std::unique_lock lock(asking.mutex);
  asking.told.wait_for(lock, std::chrono::duration<double>(kPatience.value * 2), [&] {
    return std::ranges::all_of(asking.answers,
                               [](const auto& answer) { return answer.has_value(); });
  });
  std::vector<Told> told;
  for (size_t i = 0; i < addresses.size(); ++i) {
    told.push_back({options.gateways[i], StatusIn(options.gateways[i], asking.answers[i])});
  }
  return told;
}

// One that can't be read becomes its error.
std::string Text(std::vector<Told>& told) {
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
std::string JsonText(const std::vector<Told>& told) {
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
void Print(const Options& options, std::vector<Told> told) {
  std::fputs((options.format == "json" ? JsonText(told) : Text(told)).c_str(), stdout);
  std::fflush(stdout);
  const auto failed = [](const Told& each) { return !each.status; };
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
bool HasRequests(Told& told, const std::string& worker) {
  if (!told.status) return false;
  const auto busy = DrainsStill(*told.status, worker);
  if (!busy) told.status = AnotherForm(told.gateway, busy.error());
  return busy && *busy;
}

// Of what the gateways that did it say later.
void Renew(std::vector<Told>& told, const Options& options) {
  Options asked = options;
  asked.gateways.clear();
  for (const Told& each : told) {
    if (each.status) asked.gateways.push_back(each.gateway);
  }
  std::vector<Told> later = Ask(asked, {"status"});
  auto next = later.begin();
  for (Told& each : told) {
    if (each.status) each = std::move(*next++);
  }
}

void Drain(const Options& options) {
  std::vector<Told> told = Ask(options, {"drain", options.worker, options.timeout});
  const auto busy = [&](Told& each) { return HasRequests(each, options.worker); };
  while (options.wait && std::ranges::any_of(told, busy)) {
    std::this_thread::sleep_for(kAskAgain);
    Renew(told, options);
  }
  Print(options, std::move(told));
}

void AddCommon(CLI::App& command, Options& options) {
  command
      .add_option("--gateway", options.gateways,
                  "HOST:PORT of the control port of each gateway that is asked, with commas")
      ->delimiter(',')
      ->capture_default_str();
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
