// Questions to running gateways over their control ports: `divisi cluster`, `divisi explain-route`.
#pragma once

#include <string>
#include <vector>

#include "divisi/cli/control_options.h"
#include "divisi/core/json.h"
#include "divisi/core/result.h"

namespace divisi {

struct GatewayAnswer {
  std::string gateway;
  Result<Json> status;  // Or why there is none
};

// All are asked at once, so that one that is away keeps the others from nothing: they do not know
// of each other's drains, roles and choices. In their order.
// Errors: kInvalidArgument for an address or certificates that can't be.
Result<std::vector<GatewayAnswer>> AskGateways(const std::vector<std::string>& gateways,
                                               const ControlTlsOptions& tls,
                                               const std::vector<std::string>& words);

// For an answer that lacks what is to be shown.
Error AnotherForm(const std::string& gateway, const Error& fault);

void AddGatewaysOption(CLI::App& command, std::vector<std::string>& gateways);

}  // namespace divisi
