#include "divisi/cli/load_report.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <map>

#include "divisi/core/format.h"

namespace divisi {
namespace {

struct Metric {
  std::string_view name;
  std::string_view label;
  std::string_view heading;
  Summary LoadFigures::*summary;
};
constexpr std::array<Metric, 4> kMetrics = {{
    {"ttft", "TTFT", "Time to First Token", &LoadFigures::ttft_ms},
    {"tpot", "TPOT", "Time per Output Token (excl. 1st token)", &LoadFigures::tpot_ms},
    {"itl", "ITL", "Inter-token Latency", &LoadFigures::itl_ms},
    {"e2el", "E2EL", "End-to-end Latency", &LoadFigures::e2el_ms},
}};

bool Shown(const ReportHeader& header, const Metric& metric) {
  return std::ranges::find(header.metrics, metric.name) != header.metrics.end();
}

// 99 for 99.0, 99.9 for 99.9.
std::string PercentName(double percent) { return Format("{}", percent); }

constexpr int kWidth = 50;

std::string Rule(std::string_view title, char fill) {
  const int left = (kWidth - static_cast<int>(title.size())) / 2;
  return std::string(static_cast<size_t>(std::max(left, 0)), fill) + std::string(title) +
         std::string(
             static_cast<size_t>(std::max(kWidth - left - static_cast<int>(title.size()), 0)),
             fill) +
         "\n";
}
void Line(std::string& out, std::string_view name, int64_t value) {
  out += Format("{:<40} {}\n", name, value);
}
void Line(std::string& out, std::string_view name, double value) {
  out += Format("{:<40} {:.2f}\n", name, value);
}

// Each distinct error once, most frequent first.
std::string ErrorLines(const std::vector<RequestRecord>& records) {
  constexpr size_t kMostErrors = 10;
  std::map<std::string_view, int64_t> counts;
  for (const RequestRecord& record : records) {
    if (!record.completed && !record.abandoned) ++counts[record.error];
  }
  std::vector<std::pair<int64_t, std::string_view>> order;
  for (const auto& [error, count] : counts) order.emplace_back(-count, error);
  std::ranges::sort(order);
  std::string out;
  for (size_t i = 0; i < std::min(order.size(), kMostErrors); ++i) {
    out += Format("{:>8} x {}\n", -order[i].first, order[i].second);
  }
  if (order.size() > kMostErrors) out += Format("{:>8} other errors\n", order.size() - kMostErrors);
  return out;
}

void AddDetails(const std::vector<RequestRecord>& records, Json& json) {
  Json::Array inputs, outputs, starts, queues, ttfts, itls, latencies, texts, errors;
  for (const RequestRecord& record : records) {
    inputs.emplace_back(record.input_tokens);
    outputs.emplace_back(record.completed ? record.output_tokens : 0);
    starts.emplace_back(record.start.value);
    queues.emplace_back(record.queue_time.value);
    ttfts.emplace_back(record.ttft.value);
    Json::Array gaps;
    for (const Seconds gap : record.gaps) gaps.emplace_back(gap.value);
    itls.emplace_back(std::move(gaps));
    latencies.emplace_back(record.latency.value);
    texts.emplace_back(record.text);
    errors.emplace_back(record.error);
  }
  json.Set("input_lens", std::move(inputs));
  json.Set("output_lens", std::move(outputs));
  json.Set("start_times", std::move(starts));
  json.Set("queue_times", std::move(queues));
  json.Set("ttfts", std::move(ttfts));
  json.Set("itls", std::move(itls));
  json.Set("latencies", std::move(latencies));
  json.Set("generated_texts", std::move(texts));
  json.Set("errors", std::move(errors));
}

void AddSummary(const Summary& summary, std::string_view name, Json& json) {
  json.Set(Format("mean_{}_ms", name), summary.mean);
  json.Set(Format("median_{}_ms", name), summary.median);
  json.Set(Format("std_{}_ms", name), summary.deviation);
  for (const auto& [percent, value] : summary.percentiles) {
    json.Set(Format("p{}_{}_ms", PercentName(percent), name), value);
  }
}

Json BrokenJson(const BrokenTally& tally) {
  Json json;
  json.Set("sent", tally.sent);
  json.Set("refused", tally.refused);
  json.Set("incomplete", tally.incomplete);
  json.Set("accepted", tally.accepted);
  json.Set("failed", tally.failed);
  Json faults = Json::MakeObject();
  for (const auto& [what, count] : tally.faults) faults.Set(what, count);
  json.Set("faults", std::move(faults));
  return json;
}

}  // namespace

Result<std::vector<std::string>> ParseMetrics(std::string_view list) {
  std::vector<std::string> names;
  while (true) {
    const size_t comma = list.find(',');
    const std::string_view name = list.substr(0, comma);
    if (std::ranges::find(kMetrics, name, &Metric::name) == kMetrics.end()) {
      return Error{Code::kInvalidArgument,
                   Format("--percentile-metrics: '{}' is none of ttft, tpot, itl, e2el", name)};
    }
    names.emplace_back(name);
    if (comma == std::string_view::npos) return names;
    list.remove_prefix(comma + 1);
  }
}

std::string DateName(double unix_seconds) {
  using std::chrono::days;
  const std::chrono::sys_seconds time{std::chrono::seconds(static_cast<int64_t>(unix_seconds))};
  const auto day = std::chrono::floor<days>(time);
  const std::chrono::year_month_day date(day);
  const std::chrono::hh_mm_ss clock(time - day);
  return Format("{:04}{:02}{:02}-{:02}{:02}{:02}", static_cast<int>(date.year()),
                static_cast<unsigned>(date.month()), static_cast<unsigned>(date.day()),
                clock.hours().count(), clock.minutes().count(), clock.seconds().count());
}

Json ReportJson(const ReportHeader& header, const LoadFigures& figures, const LoadResult& result,
                bool detailed) {
  Json json;
  const std::string_view backend = header.chat ? "openai-chat" : "openai";
  json.Set("date", header.date);
  json.Set("endpoint_type", backend);
  json.Set("backend", backend);
  json.Set("label", Json());
  json.Set("model_id", header.model);
  json.Set("tokenizer_id", header.model);
  json.Set("num_prompts", header.prompts);
  json.Set("request_rate",
           header.requests_per_second > 0 ? Json(header.requests_per_second) : Json("inf"));
  json.Set("burstiness", header.burstiness);
  json.Set("max_concurrency", header.max_concurrency > 0 ? Json(header.max_concurrency) : Json());
  json.Set("duration", figures.duration.value);
  json.Set("completed", figures.completed);
  json.Set("failed", figures.failed);
  json.Set("total_input_tokens", figures.input_tokens);
  json.Set("total_output_tokens", figures.output_tokens);
  json.Set("request_throughput", figures.PerSecond(figures.completed));
  json.Set("request_goodput",
           header.objectives.any() ? Json(figures.PerSecond(figures.good)) : Json());
  json.Set("output_throughput", figures.PerSecond(figures.output_tokens));
  json.Set("total_token_throughput",
           figures.PerSecond(figures.input_tokens + figures.output_tokens));
  json.Set("max_output_tokens_per_s", static_cast<double>(figures.peak_output_tokens_per_second));
  json.Set("max_concurrent_requests", figures.peak_concurrency);
  for (const Metric& metric : kMetrics) {
    if (Shown(header, metric)) AddSummary(figures.*metric.summary, metric.name, json);
  }
  if (header.max_concurrency > 0) AddSummary(figures.queue_ms, "client_queue_time", json);
  if (detailed) AddDetails(result.records, json);
  if (figures.abandoned > 0) json.Set("disconnected", figures.abandoned);
  if (result.broken.sent > 0) json.Set("malformed", BrokenJson(result.broken));
  if (result.interrupted) json.Set("interrupted", true);
  return json;
}

std::string ReportTable(const ReportHeader& header, const LoadFigures& figures,
                        const LoadResult& result) {
  std::string out = Rule(" Serving Benchmark Result ", '=');
  if (result.interrupted) out += "Interrupted: figures of the requests that had ended.\n";
  Line(out, "Successful requests:", figures.completed);
  Line(out, "Failed requests:", figures.failed);
  if (figures.abandoned > 0) Line(out, "Disconnected on purpose:", figures.abandoned);
  if (header.max_concurrency > 0) {
    Line(out, "Maximum request concurrency:", header.max_concurrency);
  }
  if (header.requests_per_second > 0) {
    Line(out, "Request rate configured (RPS):", header.requests_per_second);
  }
  Line(out, "Benchmark duration (s):", figures.duration.value);
  Line(out, "Total input tokens:", figures.input_tokens);
  Line(out, "Total generated tokens:", figures.output_tokens);
  Line(out, "Request throughput (req/s):", figures.PerSecond(figures.completed));
  if (header.objectives.any()) {
    Line(out, "Request goodput (req/s):", figures.PerSecond(figures.good));
  }
  Line(out, "Output token throughput (tok/s):", figures.PerSecond(figures.output_tokens));
  Line(out, "Peak output token throughput (tok/s):",
       static_cast<double>(figures.peak_output_tokens_per_second));
  Line(out, "Peak concurrent requests:", figures.peak_concurrency);
  Line(out, "Total token throughput (tok/s):",
       figures.PerSecond(figures.input_tokens + figures.output_tokens));
  for (const Metric& metric : kMetrics) {
    if (!Shown(header, metric)) continue;
    const Summary& summary = figures.*metric.summary;
    out += Rule(metric.heading, '-');
    Line(out, Format("Mean {} (ms):", metric.label), summary.mean);
    Line(out, Format("Median {} (ms):", metric.label), summary.median);
    for (const auto& [percent, value] : summary.percentiles) {
      Line(out, Format("P{} {} (ms):", PercentName(percent), metric.label), value);
    }
  }
  if (result.broken.sent > 0) {
    out += Rule("Broken Requests", '-');
    Line(out, "Sent:", result.broken.sent);
    Line(out, "Refused, as they should be:", result.broken.refused);
    Line(out, "Left incomplete:", result.broken.incomplete);
    Line(out, "Accepted (a fault):", result.broken.accepted);
    Line(out, "Failed (a fault):", result.broken.failed);
    for (const auto& [what, count] : result.broken.faults) {
      out += Format("{:>8} x {}\n", count, what);
    }
  }
  if (figures.failed > 0) out += Rule("Errors", '-') + ErrorLines(result.records);
  out += std::string(kWidth, '=') + "\n";
  return out;
}

}  // namespace divisi
