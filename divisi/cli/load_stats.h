// What a load run measured about each request, and the figures made of it. Definitions are those of
// `vllm bench serve`, so that results can be laid side by side (docs/bench.md):
//   TTFT  sending a request to its first token        ITL   one token event to the next
//   TPOT  (last token - first token) / (output - 1)   E2EL  sending to the last token
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "divisi/core/result.h"
#include "divisi/core/units.h"

namespace divisi {

// One request, as its client saw it. Exactly one of these holds at the end: completed; abandoned
// (the client left midway on purpose); or neither, and `error` says why.
struct RequestRecord {
  bool completed = false;
  bool abandoned = false;
  std::string error;
  int64_t input_tokens = 0;
  int64_t output_tokens = 0;
  Seconds start;       // Sent, counted from the start of the run.
  Seconds queue_time;  // Due to sent: waited for a place under the concurrency limit.
  Seconds ttft;
  Seconds latency;            // E2EL.
  std::vector<Seconds> gaps;  // ITL; one fewer than the token events.
  std::string text;
};

// Service-level objectives; a completed request that meets every one of them is good.
struct Objectives {
  std::optional<Seconds> ttft;
  std::optional<Seconds> tpot;
  std::optional<Seconds> e2el;

  bool any() const { return ttft || tpot || e2el; }
};

// From "ttft:200", "tpot:50", "e2el:3000", in milliseconds.
// Errors: kInvalidArgument for another name, or for a value that is no number >= 0.
Result<Objectives> ParseObjectives(const std::vector<std::string>& pairs);

// From "50,99,99.9". Errors: kInvalidArgument, outside 0..100 too.
Result<std::vector<double>> ParsePercentiles(std::string_view list);

// The value below which `percent` of the values lie, linear between the two nearest (the method
// "linear" of numpy). Zero of no values. Requires: sorted ascending; 0 <= percent <= 100.
double Percentile(std::span<const double> sorted, double percent);

// Zero throughout for no values, as vLLM prints it. The deviation is that of the whole population.
struct Summary {
  double mean = 0;
  double median = 0;
  double deviation = 0;
  std::vector<std::pair<double, double>> percentiles;  // (percent, value)
};
Summary Summarise(std::vector<double> values, std::span<const double> percents);

// TPOT of one request; zero when it has fewer than two tokens.
Seconds TimePerOutputToken(const RequestRecord& record);

struct LoadFigures {
  int64_t completed = 0;
  int64_t failed = 0;
  int64_t abandoned = 0;
  int64_t good = 0;          // Completed within the objectives.
  int64_t input_tokens = 0;  // Of completed requests, as the two below.
  int64_t output_tokens = 0;
  int64_t peak_output_tokens_per_second = 0;  // Token events in the busiest second.
  int64_t peak_concurrency = 0;
  Seconds duration;
  Summary ttft_ms, tpot_ms, itl_ms, e2el_ms, queue_ms;

  // Per second of the run; zero for a run of no length.
  double PerSecond(int64_t count) const {
    return duration.value > 0 ? static_cast<double>(count) / duration.value : 0;
  }
};
LoadFigures Measure(std::span<const RequestRecord> records, Seconds duration,
                    const Objectives& objectives, std::span<const double> percents);

}  // namespace divisi
