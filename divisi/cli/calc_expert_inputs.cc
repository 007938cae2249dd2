#include "divisi/cli/calc_expert_inputs.h"

#include <cmath>

namespace divisi {

std::vector<CalcInput> WithExpertShape(std::vector<CalcInput> own) {
  own.push_back({.name = "hidden",
                 .value = "4096",
                 .help = "h: width of the model's hidden state",
                 .limit = CalcLimit::kOneOrMore});
  own.push_back({.name = "expert-width",
                 .value = "1536",
                 .help = "f: width inside an expert",
                 .limit = CalcLimit::kOneOrMore});
  own.push_back({.name = "weight-bytes",
                 .value = "2",
                 .help = "bytes of one weight; int4 is 0.5",
                 .limit = CalcLimit::kPositive});
  own.push_back({.name = "activation-bytes",
                 .value = "2",
                 .help = "b: bytes of one element of a row",
                 .limit = CalcLimit::kPositive});
  return own;
}

ExpertShape ExpertShapeOf(const CalcValues& values) {
  return {.hidden = values.Count("hidden"),
          .width = values.Count("expert-width"),
          .weight_bytes = values.Count("weight-bytes"),
          .activation_bytes = values.Count("activation-bytes")};
}

int64_t WholeCount(const CalcValues& values, std::string_view name) {
  return std::llround(values.Count(name));
}

std::vector<int64_t> WholeCounts(const CalcValues& values, std::string_view name) {
  std::vector<int64_t> counts;
  for (const double number : values.Counts(name)) counts.push_back(std::llround(number));
  return counts;
}

}  // namespace divisi
