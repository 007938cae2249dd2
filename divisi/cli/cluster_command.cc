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
#include <vector>

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

// One question over one connection. What the loop's thread leaves, under the lock.
struct Asking {
  std::mutex mutex;
  std::condition_variable told;
  std::optional<Result<AnswerMessage>> answer;

  void Tell(Result<AnswerMessage> given) {
    const std::lock_guard lock(mutex);
    if (!answer) answer = std::move(given);
    told.notify_one();
  }

  void Hear(std::span<const std::byte> frame) {
    const auto message = DecodeClusterMessage(frame);
    if (!message) return Tell(message.error());
    if (const auto* text = std::get_if<AnswerMessage>(&*message)) return Tell(*text);
    if (const auto* refused = std::get_if<RejectMessage>(&*message)) {
      Tell(Error{Code::kUnauthenticated, refused->reason});
    }
  }
};

Result<AnswerMessage> Ask(const std::string& gateway, const Options& options,
                          const std::vector<std::string>& words) {
  ASSIGN_OR_RETURN(const auto address, ParseHostPort("--gateway", gateway));
  ASSIGN_OR_RETURN(const auto tls, options.tls.Files());
  Asking asking;
  FrameLoop loop;
  if (tls) RETURN_IF_ERROR(loop.UseTls(*tls));
  loop.Connect(address.first, address.second, kPatience, [&](auto connection) {
    if (!connection) return asking.Tell(connection.error());
    (*connection)
        ->Start(
            [&](std::vector<std::byte> frame) { asking.Hear(frame); },
            [&](const std::string& why) {
              asking.Tell(Error{Code::kUnavailable, Format("{} gave no answer: {}", gateway, why)});
            });
    (*connection)->Send(EncodeClusterMessage(QueryMessage{words}));
  });
  std::unique_lock lock(asking.mutex);
  asking.told.wait_for(lock, std::chrono::duration<double>(kPatience.value * 2),
                       [&] { return asking.answer.has_value(); });
  if (asking.answer) return *asking.answer;
  return Error{Code::kUnavailable, Format("{} gave no answer", gateway)};
}

// The threshold and its terms, in the order of HandoverThreshold's formula.
std::string ThresholdText(const Json& threshold) {
  const auto ms = [&](const char* key) { return threshold.Find(key)->as_double() * 1e3; };
  const Json* from = threshold.Find("from_tokens");
  const std::string tokens =
      from->is_number() ? Format("from {} tokens", from->as_int()) : std::string("at no length");
  if (threshold.Find("given")->as_bool()) return Format("prompts are handed over {}\n", tokens);
  return Format(
      "prompts are handed over {}: {:.4g} ms a token for each of {} streams against {:.3g} ms to "
      "reserve, {:.4g} ms a token of the last chunk to send and a step of {:.3g} ms\n",
      tokens, ms("work_seconds_per_token"), threshold.Find("streams")->as_int(),
      ms("reserve_seconds"), ms("transfer_seconds_per_token"), ms("step_seconds"));
}

std::string Table(const Json& status) {
  std::string text = Format("{:<20}{:<9}{:>9}{:>9}{:>9}{:>9}{:>14}{:>13}{:>13}{:>11}  {}\n",
                            "worker", "role", "requests", "running", "held", "reserved", "pages",
                            "prefilled", "decoded", "handovers", "state");
  for (const Json& worker : status.Find("workers")->as_array()) {
    // What the gateway has not heard is null.
    const auto number = [&](const char* key) {
      const Json* value = worker.Find(key);
      return value->is_null() ? std::string("-") : Format("{}", value->as_int());
    };
    const std::string used = number("pages_used");
    std::string state = worker.Find("state")->as_string();
    if (state == "draining") {
      state += Format(", {:.0f} s left", worker.Find("drain_left_seconds")->as_double());
    } else if (worker.Find("full")->as_bool()) {
      state += ", full";
    }
    text += Format("{:<20}{:<9}{:>9}{:>9}{:>9}{:>9}{:>14}{:>13}{:>13}{:>11}  {}\n",
                   worker.Find("name")->as_string(), worker.Find("role")->as_string(),
                   number("requests"), number("running"), number("held"), number("reserved"),
                   used == "-" ? used : Format("{}/{}", used, number("pages_total")),
                   number("prefill_tokens"), number("decode_tokens"), number("handovers"), state);
  }
  text += Format("{} requests, {} without a first token, {} waiting for a worker; policy {}\n",
                 status.Find("live")->as_int(), status.Find("waiting")->as_int(),
                 status.Find("queued")->as_int(), status.Find("policy")->as_string());
  const Json* threshold = status.Find("disaggregate");
  return threshold == nullptr ? text : text + ThresholdText(*threshold);
}

// Of each gateway: they do not know of each other's drains and roles.
std::vector<Json> StatusesAfter(const Options& options, const std::vector<std::string>& words) {
  std::vector<Json> statuses;
  for (const std::string& gateway : options.gateways) {
    const auto answer = Ask(gateway, options, words);
    if (!answer) FailCommand(answer.error());
    if (!answer->ok) FailCommand({Code::kInvalidArgument, answer->text});
    auto status = Json::Parse(answer->text);
    if (!status) FailCommand(status.error());
    statuses.push_back(std::move(*status));
  }
  return statuses;
}

void Print(const Options& options, const std::vector<Json>& statuses) {
  std::string text;
  if (options.format == "json") {
    text = (statuses.size() == 1 ? statuses[0] : Json(Json::Array(statuses))).Dump(2) + "\n";
  } else {
    for (size_t i = 0; i < statuses.size(); ++i) {
      if (statuses.size() > 1) text += Format("gateway {}\n", options.gateways[i]);
      text += Table(statuses[i]);
    }
  }
  std::fputs(text.c_str(), stdout);
}

void Run(const Options& options, const std::vector<std::string>& words) {
  Print(options, StatusesAfter(options, words));
}

// Whether the worker has requests left. One that is gone has none.
bool HasRequests(const Json& status, const std::string& name) {
  for (const Json& worker : status.Find("workers")->as_array()) {
    if (worker.Find("name")->as_string() == name) return worker.Find("requests")->as_int() > 0;
  }
  return false;
}

void Drain(const Options& options) {
  std::vector<Json> statuses = StatusesAfter(options, {"drain", options.worker, options.timeout});
  const auto busy = [&](const Json& status) { return HasRequests(status, options.worker); };
  while (options.wait && std::ranges::any_of(statuses, busy)) {
    std::this_thread::sleep_for(kAskAgain);
    statuses = StatusesAfter(options, {"status"});
  }
  Print(options, statuses);
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
