// What an operator asks of a gateway (`divisi cluster`), and the answer.
#pragma once

#include <string>
#include <vector>

#include "divisi/control/gateway_core.h"
#include "divisi/serve/cluster_events.h"

namespace divisi {

// "status", "drain NAME [TIME]", "undrain NAME", "role NAME ROLE": the status afterwards, as JSON.
// Errors: kNotFound for a worker that is not there; kInvalidArgument for other words, with these,
// and for a worker that leaves.
Result<std::string> AnswerQuery(const std::vector<std::string>& words, GatewayCore& gateway,
                                Seconds now, const ClusterEventStats& events = {});

}  // namespace divisi
