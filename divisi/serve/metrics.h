// What Prometheus reads at /metrics. Names and meanings follow vLLM's, with the prefix "divisi:",
// so that its dashboards need one replacement.
// Source: Prometheus text exposition format 0.0.4; vLLM's production metrics documentation.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "divisi/engine/engine.h"

namespace divisi {

// Counts of values at or below each bound. Any thread; a few atomic additions per value.
class Histogram {
 public:
  // bounds: ascending.
  explicit Histogram(std::vector<double> bounds);
  void Observe(double value);
  // The sample lines: name_bucket{labels,le="..."}, name_sum, name_count.
  void AppendSamples(std::string_view name, std::string_view labels, std::string& out) const;

 private:
  std::vector<double> bounds_;
  std::vector<std::atomic<uint64_t>> counts_;  // One per bound, and one beyond.
  std::atomic<double> sum_{0};
};

// How one choice ended, for the histograms.
struct FinishedRequest {
  FinishReason reason = FinishReason::kStop;
  int64_t prompt_tokens = 0;
  int64_t output_tokens = 0;
  Timeline timeline;  // Complete: `finished` is set.
};

class ServeMetrics {
 public:
  // max_model_len: the last bound of histograms of tokens.
  ServeMetrics(std::string model_name, int64_t max_model_len);

  // Any thread, all of them.
  void OnTokens(int64_t tokens) { generation_tokens_.fetch_add(tokens, std::memory_order_relaxed); }
  void OnFirstToken(Seconds since_arrival) { ttft_.Observe(since_arrival.value); }
  void OnInterTokenGap(Seconds gap) { itl_.Observe(gap.value); }
  void OnPrompt(int64_t tokens) { prompt_tokens_.fetch_add(tokens, std::memory_order_relaxed); }
  void OnFinished(const FinishedRequest& request);
  void OnHttpResponse(int status);

  std::string Render(const EngineStats& engine) const;
  // Of every sample: model_name="...".
  const std::string& labels() const { return labels_; }

 private:
  std::string labels_;  // model_name="..."
  std::atomic<int64_t> prompt_tokens_{0};
  std::atomic<int64_t> generation_tokens_{0};
  std::array<std::atomic<int64_t>, 4> finished_{};      // By FinishReason.
  std::array<std::atomic<int64_t>, 6> http_classes_{};  // By status / 100; 0: others.
  Histogram ttft_;
  Histogram itl_;
  Histogram tpot_;
  Histogram e2e_;
  Histogram queue_;
  Histogram prefill_;
  Histogram decode_;
  Histogram prompt_length_;
  Histogram output_length_;
};

// A label's value with \, " and line feed escaped.
std::string EscapeLabel(std::string_view value);

}  // namespace divisi
