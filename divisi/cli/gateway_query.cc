#include "divisi/cli/gateway_query.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <span>
#include <utility>

#include "divisi/cli/host_port.h"
#include "divisi/control/cluster_message.h"
#include "divisi/control/frame_connection.h"
#include "divisi/core/format.h"

namespace divisi {
namespace {

constexpr Seconds kPatience{5};

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

Result<Json> StatusIn(const std::string& gateway,
                      const std::optional<Result<AnswerMessage>>& answer) {
  if (!answer) return Error{Code::kUnavailable, Format("{} gave no answer", gateway)};
  if (!*answer) return answer->error();
  if (!(*answer)->ok) return Error{Code::kInvalidArgument, (*answer)->text};
  auto status = Json::Parse((*answer)->text);
  if (!status) return AnotherForm(gateway, status.error());
  return status;
}

}  // namespace

Error AnotherForm(const std::string& gateway, const Error& fault) {
  return {fault.code, Format("the gateway at {} answers in another version's form ({}): use the "
                             "divisi of its release, or --format json",
                             gateway, fault.message)};
}

Result<std::vector<GatewayAnswer>> AskGateways(const std::vector<std::string>& gateways,
                                               const ControlTlsOptions& tls_options,
                                               const std::vector<std::string>& words) {
  ASSIGN_OR_RETURN(const auto tls, tls_options.Files());
  std::vector<std::pair<std::string, int>> addresses;
  for (const std::string& gateway : gateways) {
    const auto address = ParseHostPort("--gateway", gateway);
    if (!address) return address.error();
    addresses.push_back(*address);
  }
  Asking asking(addresses.size());
  FrameLoop loop;
  if (tls) RETURN_IF_ERROR(loop.UseTls(*tls));
  for (size_t i = 0; i < addresses.size(); ++i) {
    const std::string& gateway = gateways[i];
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
  std::vector<GatewayAnswer> told;
  for (size_t i = 0; i < addresses.size(); ++i) {
    told.push_back({gateways[i], StatusIn(gateways[i], asking.answers[i])});
  }
  return told;
}

void AddGatewaysOption(CLI::App& command, std::vector<std::string>& gateways) {
  command
      .add_option("--gateway", gateways,
                  "HOST:PORT of the control port of each gateway that is asked, with commas")
      ->delimiter(',')
      ->capture_default_str();
}

}  // namespace divisi
