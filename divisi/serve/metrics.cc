#include "divisi/serve/metrics.h"

#include <algorithm>
#include <array>

#include "divisi/core/check.h"
#include "divisi/core/format.h"
#include "divisi/core/process.h"
#include "divisi/serve/openai_response.h"
#include "divisi/serve/tier_metrics.h"

namespace divisi {
namespace {

// vLLM's bounds, so that quantiles of both servers can be compared.
const std::vector<double>& FirstTokenBounds() {
  static const std::vector<double> bounds{0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1,
                                          0.25,  0.5,   0.75, 1,    2.5,  5,    7.5,  10,
                                          20,    40,    80,   160,  640,  2560};
  return bounds;
}
// With finer steps below vLLM's first, 10 ms: a small model's gap is well under it.
const std::vector<double>& GapBounds() {
  static const std::vector<double> bounds{0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075,
                                          0.1,    0.15,  0.2,    0.3,   0.4,  0.5,   0.75, 1,
                                          2.5,    5,     7.5,    10,    20,   40,    80};
  return bounds;
}
const std::vector<double>& RequestBounds() {
  static const std::vector<double> bounds{0.3, 0.5, 0.8, 1,  1.5, 2,   2.5, 5,   10,   15,  20,
                                          30,  40,  50,  60, 120, 240, 480, 960, 1920, 7680};
  return bounds;
}

// 1, 2, 5, 10, 20, 50, ... up to `last`.
std::vector<double> TokenBounds(int64_t last) {
  std::vector<double> bounds;
  for (double decade = 1; decade <= static_cast<double>(last); decade *= 10) {
    for (const double step : {1.0, 2.0, 5.0}) {
      if (step * decade <= static_cast<double>(last)) bounds.push_back(step * decade);
    }
  }
  if (bounds.empty()) bounds.push_back(1);
  return bounds;
}

void AppendHead(std::string_view name, std::string_view type, std::string_view help,
                std::string& out) {
  out += Format("# HELP {} {}\n# TYPE {} {}\n", name, help, name, type);
}

struct Sample {
  const char* name;
  const char* type;
  const char* help;
  double value;
};

std::vector<Sample> EngineSamples(const EngineStats& engine) {
  const SchedulerStats& s = engine.scheduler;
  const double usage =
      s.blocks_total > 0 ? static_cast<double>(s.blocks_used) / static_cast<double>(s.blocks_total)
                         : 0;
  const auto number = [](int64_t value) { return static_cast<double>(value); };
  return {
      {"divisi:num_requests_running", "gauge", "Requests in the batch.", number(s.running)},
      {"divisi:num_requests_waiting", "gauge", "Requests in the queue.",
       number(std::max(engine.queued, s.waiting))},
      {"divisi:kv_cache_usage_perc", "gauge", "Share of KV pages that sequences hold; 1 is all.",
       usage},
      {"divisi:prefix_cache_queries_total", "counter", "Prompt tokens looked up in shared pages.",
       number(s.prefix_queried_tokens)},
      {"divisi:prefix_cache_hits_total", "counter", "Prompt tokens found in shared pages.",
       number(s.prefix_hit_tokens)},
      {"divisi:num_preemptions_total", "counter", "Sequences that gave up their pages to others.",
       number(s.preemptions)},
      {"divisi:engine_steps_total", "counter", "Steps of the engine.", number(engine.steps)},
      {"divisi:engine_prefill_tokens_total", "counter",
       "Prompt tokens computed, not found in shared pages.", number(engine.prefill_tokens)},
      {"divisi:engine_decode_tokens_total", "counter", "Output tokens computed.",
       number(engine.decode_tokens)},
  };
}

void Append(const Sample& sample, std::string_view labels, std::string& out) {
  AppendHead(sample.name, sample.type, sample.help, out);
  out += Format("{}{{{}}} {}\n", sample.name, labels, sample.value);
}

void AppendStepTokens(const StepTokensHistogram& steps, std::string_view labels, std::string& out) {
  constexpr std::string_view kName = "divisi:iteration_tokens_total";
  AppendHead(kName, "histogram", "Tokens run per step of the engine.", out);
  int64_t total = 0;
  for (size_t i = 0; i < steps.counts.size(); ++i) {
    total += steps.counts[i];
    const std::string bound = i < StepTokensHistogram::kBounds.size()
                                  ? Format("{}", StepTokensHistogram::kBounds[i])
                                  : "+Inf";
    out += Format("{}_bucket{{{},le=\"{}\"}} {}\n", kName, labels, bound, total);
  }
  out += Format("{0}_sum{{{1}}} {2}\n{0}_count{{{1}}} {3}\n", kName, labels, steps.sum, total);
}

}  // namespace

std::string EscapeLabel(std::string_view value) {
  std::string out;
  for (const char c : value) {
    if (c == '\\' || c == '"') out += '\\';
    if (c == '\n') {
      out += "\\n";
    } else {
      out += c;
    }
  }
  return out;
}

Histogram::Histogram(std::vector<double> bounds)
    : bounds_(std::move(bounds)), counts_(bounds_.size() + 1) {
  CHECK(std::ranges::is_sorted(bounds_), "bounds of a histogram");
}

void Histogram::Observe(double value) {
  const auto bound = std::ranges::lower_bound(bounds_, value);
  counts_[static_cast<size_t>(bound - bounds_.begin())].fetch_add(1, std::memory_order_relaxed);
  sum_.fetch_add(value, std::memory_order_relaxed);
}

void Histogram::AppendSamples(std::string_view name, std::string_view labels,
                              std::string& out) const {
  uint64_t total = 0;
  for (size_t i = 0; i < counts_.size(); ++i) {
    total += counts_[i].load(std::memory_order_relaxed);
    const std::string bound = i < bounds_.size() ? Format("{}", bounds_[i]) : "+Inf";
    out += Format("{}_bucket{{{},le=\"{}\"}} {}\n", name, labels, bound, total);
  }
  out += Format("{}_sum{{{}}} {}\n{}_count{{{}}} {}\n", name, labels,
                sum_.load(std::memory_order_relaxed), name, labels, total);
}

ServeMetrics::ServeMetrics(std::string model_name, int64_t max_model_len)
    : labels_(Format("model_name=\"{}\"", EscapeLabel(model_name))),
      ttft_(FirstTokenBounds()),
      itl_(GapBounds()),
      tpot_(GapBounds()),
      e2e_(RequestBounds()),
      queue_(RequestBounds()),
      prefill_(RequestBounds()),
      decode_(RequestBounds()),
      prompt_length_(TokenBounds(max_model_len)),
      output_length_(TokenBounds(max_model_len)) {}

void ServeMetrics::OnFinished(const FinishedRequest& request) {
  finished_[static_cast<size_t>(request.reason)].fetch_add(1, std::memory_order_relaxed);
  const Timeline& t = request.timeline;
  e2e_.Observe((t.finished - t.arrived).value);
  prompt_length_.Observe(static_cast<double>(request.prompt_tokens));
  output_length_.Observe(static_cast<double>(request.output_tokens));
  if (t.scheduled.value == 0) return;  // Ended in the queue.
  queue_.Observe((t.scheduled - t.arrived).value);
  if (t.first_token.value == 0) return;
  prefill_.Observe((t.first_token - t.scheduled).value);
  decode_.Observe((t.finished - t.first_token).value);
  if (request.output_tokens > 1) {
    tpot_.Observe((t.finished - t.first_token).value /
                  static_cast<double>(request.output_tokens - 1));
  }
}

void ServeMetrics::OnHttpResponse(int status) {
  const size_t group = status >= 100 && status < 600 ? static_cast<size_t>(status / 100) : 0;
  http_classes_[group].fetch_add(1, std::memory_order_relaxed);
}

std::string ServeMetrics::Render(const EngineStats& engine) const {
  std::string out;
  for (const Sample& sample : EngineSamples(engine)) {
    Append(sample, labels_, out);
  }
  if (engine.prefixes && engine.tiers) {
    AppendTierMetrics(*engine.prefixes, *engine.tiers, labels_, out);
  }
  const auto counter = [&](const char* name, const char* help, int64_t value) {
    AppendHead(name, "counter", help, out);
    out += Format("{}{{{}}} {}\n", name, labels_, value);
  };
  counter("divisi:prompt_tokens_total", "Prompt tokens of accepted requests.", prompt_tokens_);
  counter("divisi:generation_tokens_total", "Output tokens.", generation_tokens_);
  AppendHead("divisi:request_success_total", "counter", "Requests by how they ended.", out);
  for (const auto reason : {FinishReason::kStop, FinishReason::kLength, FinishReason::kCancelled,
                            FinishReason::kError}) {
    out += Format("divisi:request_success_total{{{},finished_reason=\"{}\"}} {}\n", labels_,
                  FinishReasonName(reason), finished_[static_cast<size_t>(reason)].load());
  }
  const auto histogram = [&](const char* name, const char* help, const Histogram& values) {
    AppendHead(name, "histogram", help, out);
    values.AppendSamples(name, labels_, out);
  };
  histogram("divisi:time_to_first_token_seconds", "From arrival to the first token.", ttft_);
  histogram("divisi:inter_token_latency_seconds", "Between two tokens of a request.", itl_);
  histogram("divisi:request_time_per_output_token_seconds",
            "Mean time per output token after the first, per request.", tpot_);
  histogram("divisi:e2e_request_latency_seconds", "From arrival to the end.", e2e_);
  histogram("divisi:request_queue_time_seconds", "From arrival to the first step.", queue_);
  histogram("divisi:request_prefill_time_seconds", "From the first step to the first token.",
            prefill_);
  histogram("divisi:request_decode_time_seconds", "From the first token to the end.", decode_);
  histogram("divisi:request_prompt_tokens", "Prompt tokens per request.", prompt_length_);
  histogram("divisi:request_generation_tokens", "Output tokens per request.", output_length_);
  AppendStepTokens(engine.step_tokens, labels_, out);
  AppendHead("divisi:http_responses_total", "counter", "HTTP responses by class of status.", out);
  for (size_t group = 1; group < http_classes_.size(); ++group) {
    out += Format("divisi:http_responses_total{{{},status=\"{}xx\"}} {}\n", labels_, group,
                  http_classes_[group].load());
  }
  AppendHead("process_resident_memory_bytes", "gauge", "Resident memory.", out);
  out += Format("process_resident_memory_bytes {}\n", ResidentMemory().value);
  return out;
}

}  // namespace divisi
