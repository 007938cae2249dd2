#include "divisi/cli/load_server.h"

#include <algorithm>
#include <charconv>

#include "divisi/core/format.h"

namespace divisi {
namespace {

using Metrics = std::map<std::string, double>;

// The growth of a counter; none when the server does not have it.
std::optional<double> Growth(const Metrics& before, const Metrics& after, const std::string& name) {
  const auto now = after.find(name);
  if (now == after.end()) return {};
  const auto then = before.find(name);
  return now->second - (then == before.end() ? 0 : then->second);
}

Result<double> MeanBetween(const Metrics& before, const Metrics& after, const std::string& name) {
  const auto sum = Growth(before, after, name + "_sum");
  const auto count = Growth(before, after, name + "_count");
  if (!sum || !count) {
    return Error{Code::kNotFound, Format("the server's /metrics has no histogram {}", name)};
  }
  if (*count <= 0) return Error{Code::kNotFound, "the server counted no finished request"};
  return *sum / *count;
}

}  // namespace

Result<Metrics> ParseMetricsText(std::string_view text) {
  Metrics sums;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty() || line.starts_with('#')) continue;
    const auto bad = [line] {
      return Error{Code::kInvalidArgument,
                   Format("/metrics: '{}' is no sample of the text format", line.substr(0, 200))};
    };
    // Labels may hold blanks; the value comes after their closing brace.
    const size_t brace = line.find('{');
    const size_t close = brace == std::string_view::npos ? brace : line.rfind('}');
    const size_t blank = line.find(' ', close == std::string_view::npos ? 0 : close);
    const bool open = brace != std::string_view::npos && close == std::string_view::npos;
    if (blank == std::string_view::npos || blank == 0 || open) return bad();
    std::string_view name = line.substr(0, std::min(brace, blank));
    if (const size_t colon = name.find(':'); colon != std::string_view::npos) {
      name.remove_prefix(colon + 1);
    }
    std::string_view value = line.substr(blank + 1);
    value = value.substr(0, value.find(' '));  // A time stamp may follow.
    if (value.starts_with('+')) value.remove_prefix(1);
    double number = 0;
    const auto [last, status] = std::from_chars(value.data(), value.data() + value.size(), number);
    if (status != std::errc() || last != value.data() + value.size()) return bad();
    sums[std::string(name)] += number;
  }
  return sums;
}

Result<Metrics> FetchMetrics(LoadClient& client, const HttpAddress& address,
                             const std::string& api_key) {
  ASSIGN_OR_RETURN(const HttpReply reply,
                   client.Fetch(HttpRequestText(address, "GET", "/metrics", api_key, "")));
  if (reply.status != 200) {
    return Error{Code::kNotFound, Format("{}/metrics answers {}", address.Url(), reply.status)};
  }
  return ParseMetricsText(reply.body);
}

Result<EngineTimes> TimesBetween(const Metrics& before, const Metrics& after) {
  EngineTimes times;
  ASSIGN_OR_RETURN(const double queue, MeanBetween(before, after, "request_queue_time_seconds"));
  ASSIGN_OR_RETURN(const double prefill,
                   MeanBetween(before, after, "request_prefill_time_seconds"));
  ASSIGN_OR_RETURN(const double decode, MeanBetween(before, after, "request_decode_time_seconds"));
  ASSIGN_OR_RETURN(times.output_tokens, MeanBetween(before, after, "request_generation_tokens"));
  times.requests =
      static_cast<int64_t>(*Growth(before, after, "request_decode_time_seconds_count"));
  times.ttft = Seconds(queue + prefill);
  times.decode = Seconds(decode);
  return times;
}

Result<EngineTimes> TimesSince(LoadClient& client, const HttpAddress& address,
                               const std::string& api_key, const Metrics& before,
                               int64_t requests) {
  constexpr int kTries = 50;
  constexpr Seconds kPause(0.02);
  for (int left = kTries;; --left) {
    ASSIGN_OR_RETURN(const Metrics now, FetchMetrics(client, address, api_key));
    auto times = TimesBetween(before, now);
    if (left == 0 || (times && times->requests >= requests)) return times;
    client.After(kPause, [&] { client.Quit(); });
    client.Run();
  }
}

AddedTimes Added(const LoadFigures& client, const EngineTimes& engine) {
  AddedTimes added;
  added.first_token = Seconds(client.ttft_ms.mean / 1e3) - engine.ttft;
  if (engine.output_tokens > 1) {
    const Seconds decode((client.e2el_ms.mean - client.ttft_ms.mean) / 1e3);
    added.per_token = (decode - engine.decode) / (engine.output_tokens - 1);
  }
  return added;
}

Json EngineJson(const EngineTimes& engine, const AddedTimes& added) {
  Json json;
  json.Set("requests", engine.requests);
  json.Set("mean_ttft_ms", engine.ttft.value * 1e3);
  json.Set("mean_tpot_ms", engine.TimePerOutputToken().value * 1e3);
  json.Set("added_ttft_ms", added.first_token.value * 1e3);
  json.Set("added_tpot_us", added.per_token.value * 1e6);
  return json;
}

std::string EngineTable(const EngineTimes& engine, const AddedTimes& added) {
  return Format(
      "------------Engine's times, from /metrics---------\n"
      "{:<40} {:.3f}\n{:<40} {:.3f}\n{:<40} {:.3f}\n{:<40} {:.1f}\n",
      "Mean TTFT in the engine (ms):", engine.ttft.value * 1e3,
      "Mean TPOT in the engine (ms):", engine.TimePerOutputToken().value * 1e3,
      "Added to the first token (ms):", added.first_token.value * 1e3,
      "Added per further token (us):", added.per_token.value * 1e6);
}

}  // namespace divisi
