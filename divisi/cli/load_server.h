// What a server says about its own work, read from /metrics before and after a load: the same
// requests' times by the engine's clock. The client's times minus these are what lies between:
// HTTP, tokenising, sockets, both sides' scheduling.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "divisi/cli/load_client.h"
#include "divisi/cli/load_stats.h"
#include "divisi/core/json.h"
#include "divisi/core/result.h"

namespace divisi {

// {metric name: sum over its labels} of the Prometheus text format, names without the prefix before
// ':' ("divisi:", "vllm:"). Errors: kInvalidArgument with the line that is no sample.
Result<std::map<std::string, double>> ParseMetricsText(std::string_view text);

// Errors: kUnavailable and others of LoadClient::Fetch; kNotFound without a /metrics.
Result<std::map<std::string, double>> FetchMetrics(LoadClient& client, const HttpAddress& address,
                                                   const std::string& api_key);

// Means over the requests that the engine finished between two readings.
struct EngineTimes {
  int64_t requests = 0;
  Seconds ttft;              // Arrival in the engine to first token: queue plus prefill.
  Seconds decode;            // First token to end.
  double output_tokens = 0;  // Per request.

  // Zero for requests of one token.
  Seconds TimePerOutputToken() const {
    return output_tokens > 1 ? decode / (output_tokens - 1) : Seconds();
  }
};
// Errors: kNotFound when the server lacks a histogram that this needs, or counted no request.
Result<EngineTimes> TimesBetween(const std::map<std::string, double>& before,
                                 const std::map<std::string, double>& after);

// Reads /metrics until it counts `requests` more finished requests than `before` (a server may
// count a request just after its last byte), at most about a second, and gives the times between.
Result<EngineTimes> TimesSince(LoadClient& client, const HttpAddress& address,
                               const std::string& api_key,
                               const std::map<std::string, double>& before, int64_t requests);

// What the way between client and engine adds, in the mean. Requires: figures of the same requests.
struct AddedTimes {
  Seconds first_token;
  Seconds per_token;  // Of the further tokens: the difference of the mean decode times per token.
};
AddedTimes Added(const LoadFigures& client, const EngineTimes& engine);

// {"requests", "mean_ttft_ms", "mean_tpot_ms", "added_ttft_ms", "added_tpot_us"}.
Json EngineJson(const EngineTimes& engine, const AddedTimes& added);
std::string EngineTable(const EngineTimes& engine, const AddedTimes& added);

}  // namespace divisi
