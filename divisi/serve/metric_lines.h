// Metrics in Prometheus' text format.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "divisi/control/worker_counters.h"
#include "divisi/core/format.h"

namespace divisi {

// Lines of the text format, samples of one metric after its head.
class MetricLines {
 public:
  explicit MetricLines(std::string_view labels) : labels_(labels) {}

  void Head(const std::string& name, const char* type, const char* help) {
    name_ = name;
    out_ += Format("# HELP {0} {2}\n# TYPE {0} {1}\n", name, type, help);
  }
  // more: labels of this sample beside those of all, 'role="decode"'.
  void Sample(const std::string& more, double value) { Line(name_, more, value); }
  void Times(const std::string& more, const TimeCounts& times) {
    int64_t total = 0;
    for (size_t i = 0; i < times.counts.size(); ++i) {
      total += times.counts[i];
      const std::string bound =
          i < TimeCounts::kBounds.size() ? Format("{}", TimeCounts::kBounds[i]) : "+Inf";
      Line(name_ + "_bucket", Format("{},le=\"{}\"", more, bound), static_cast<double>(total));
    }
    Line(name_ + "_sum", more, times.seconds);
    Line(name_ + "_count", more, static_cast<double>(total));
  }
  std::string Take() { return std::move(out_); }

 private:
  void Line(const std::string& name, const std::string& more, double value) {
    const char* comma = labels_.empty() || more.empty() ? "" : ",";
    out_ += Format("{}{{{}{}{}}} {}\n", name, labels_, comma, more, value);
  }

  std::string_view labels_;
  std::string name_;
  std::string out_;
};

}  // namespace divisi
