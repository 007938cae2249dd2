// What an operator asks of a gateway's choices (`divisi explain-route`), and the answer.
#pragma once

#include <string>
#include <vector>

#include "divisi/control/gateway_core.h"
#include "divisi/serve/route_log.h"

namespace divisi {

// Whether AnswerRoutes answers these words.
bool AsksForRoutes(const std::vector<std::string>& words);

//   "routes last N"                     the last choices
//   "routes request ID"                 those of a client's request (its X-Request-Id)
//   "routes for N [TIER=TOKENS@NAME]…"  where a prompt of N tokens would go, also if workers had
//                                       the first TOKENS of it; TIER: device, host, disk, pool
// {"policy", "objective", "quantile" (null: the mean), "routes": [...]} as JSON, as of RouteLog.
// Errors: kNotFound for a request that is not in the log, or a worker; kInvalidArgument for other
// words; kUnavailable where nobody could run the prompt.
Result<std::string> AnswerRoutes(const std::vector<std::string>& words, const GatewayCore& gateway,
                                 const RouteLog& log, Seconds now);

// For people; of one that is gone, its id.
std::string WorkerName(const GatewayCore& gateway, NodeId node);

}  // namespace divisi
