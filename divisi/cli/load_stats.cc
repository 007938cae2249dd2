#include "divisi/cli/load_stats.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <string_view>

#include "divisi/core/format.h"

namespace divisi {
namespace {

std::optional<double> ParseNumber(std::string_view text) {
  double value = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (status != std::errc() || end != text.data() + text.size() || !std::isfinite(value)) return {};
  return value;
}

// Runs that last longer than this are counted in their first part only.
constexpr int64_t kMaxCountedSeconds = 7 * 24 * 3600;

int64_t PeakTokensPerSecond(std::span<const RequestRecord> records) {
  std::vector<int64_t> per_second;
  const auto count = [&](Seconds at) {
    const auto second = static_cast<int64_t>(at.value);
    if (second < 0 || second >= kMaxCountedSeconds) return;
    if (static_cast<size_t>(second) >= per_second.size()) per_second.resize(second + 1);
    ++per_second[static_cast<size_t>(second)];
  };
  for (const RequestRecord& record : records) {
    if (!record.completed) continue;
    Seconds at = record.start + record.ttft;
    count(at);
    for (const Seconds gap : record.gaps) count(at += gap);
  }
  return per_second.empty() ? 0 : *std::ranges::max_element(per_second);
}

int64_t PeakConcurrency(std::span<const RequestRecord> records) {
  std::vector<std::pair<double, int>> changes;  // An end sorts before a start at the same time.
  for (const RequestRecord& record : records) {
    if (!record.completed) continue;
    changes.emplace_back(record.start.value, 1);
    changes.emplace_back(record.start.value + record.latency.value, -1);
  }
  std::ranges::sort(changes);
  int64_t now = 0;
  int64_t peak = 0;
  for (const auto& [at, change] : changes) peak = std::max(peak, now += change);
  return peak;
}

bool Meets(const RequestRecord& record, const Objectives& objectives) {
  return (!objectives.ttft || record.ttft <= *objectives.ttft) &&
         (!objectives.tpot || TimePerOutputToken(record) <= *objectives.tpot) &&
         (!objectives.e2el || record.latency <= *objectives.e2el);
}

}  // namespace

Result<Objectives> ParseObjectives(const std::vector<std::string>& pairs) {
  Objectives objectives;
  for (const std::string& pair : pairs) {
    const size_t colon = pair.find(':');
    const std::string name = pair.substr(0, colon);
    std::optional<Seconds>* const target = name == "ttft"   ? &objectives.ttft
                                           : name == "tpot" ? &objectives.tpot
                                           : name == "e2el" ? &objectives.e2el
                                                            : nullptr;
    // -1 for what is no number: refused like a negative one.
    const double milliseconds =
        colon == std::string::npos
            ? -1
            : ParseNumber(std::string_view(pair).substr(colon + 1)).value_or(-1);
    if (target == nullptr || milliseconds < 0) {
      return Error{Code::kInvalidArgument,
                   Format("--goodput '{}': expected ttft:MS, tpot:MS or e2el:MS with milliseconds "
                          "of 0 or more",
                          pair)};
    }
    *target = Seconds(milliseconds / 1e3);
  }
  return objectives;
}

Result<std::vector<double>> ParsePercentiles(std::string_view list) {
  std::vector<double> percents;
  while (true) {
    const size_t comma = list.find(',');
    const auto value = ParseNumber(list.substr(0, comma));
    if (!value || *value < 0 || *value > 100) {
      return Error{Code::kInvalidArgument,
                   Format("--metric-percentiles: '{}' is not a number from 0 to 100; expected a "
                          "list such as 50,99,99.9",
                          list.substr(0, comma))};
    }
    percents.push_back(*value);
    if (comma == std::string_view::npos) return percents;
    list.remove_prefix(comma + 1);
  }
}

double Percentile(std::span<const double> sorted, double percent) {
  if (sorted.empty()) return 0;
  CHECK(percent >= 0 && percent <= 100, "percent {}", percent);
  const double rank = percent / 100 * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<size_t>(rank);
  const size_t above = std::min(below + 1, sorted.size() - 1);
  return sorted[below] + (sorted[above] - sorted[below]) * (rank - static_cast<double>(below));
}

Summary Summarise(std::vector<double> values, std::span<const double> percents) {
  Summary summary;
  std::ranges::sort(values);
  const auto count = static_cast<double>(std::max<size_t>(values.size(), 1));
  for (const double value : values) summary.mean += value / count;
  double variance = 0;
  for (const double value : values) variance += std::pow(value - summary.mean, 2) / count;
  summary.deviation = std::sqrt(variance);
  summary.median = Percentile(values, 50);
  for (const double percent : percents) {
    summary.percentiles.emplace_back(percent, Percentile(values, percent));
  }
  return summary;
}

Seconds TimePerOutputToken(const RequestRecord& record) {
  if (record.output_tokens < 2) return Seconds();
  return (record.latency - record.ttft) / static_cast<double>(record.output_tokens - 1);
}

LoadFigures Measure(std::span<const RequestRecord> records, Seconds duration,
                    const Objectives& objectives, std::span<const double> percents) {
  LoadFigures figures;
  figures.duration = duration;
  std::vector<double> ttft, tpot, itl, e2el, queue;
  for (const RequestRecord& record : records) {
    if (!record.completed) {
      ++(record.abandoned ? figures.abandoned : figures.failed);
      continue;
    }
    ++figures.completed;
    if (Meets(record, objectives)) ++figures.good;
    figures.input_tokens += record.input_tokens;
    figures.output_tokens += record.output_tokens;
    ttft.push_back(record.ttft.value * 1e3);
    if (record.output_tokens > 1) tpot.push_back(TimePerOutputToken(record).value * 1e3);
    for (const Seconds gap : record.gaps) itl.push_back(gap.value * 1e3);
    e2el.push_back(record.latency.value * 1e3);
    queue.push_back(record.queue_time.value * 1e3);
  }
  figures.peak_output_tokens_per_second = PeakTokensPerSecond(records);
  figures.peak_concurrency = PeakConcurrency(records);
  figures.ttft_ms = Summarise(std::move(ttft), percents);
  figures.tpot_ms = Summarise(std::move(tpot), percents);
  figures.itl_ms = Summarise(std::move(itl), percents);
  figures.e2el_ms = Summarise(std::move(e2el), percents);
  figures.queue_ms = Summarise(std::move(queue), percents);
  return figures;
}

}  // namespace divisi
