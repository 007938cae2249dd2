#include "divisi/cli/plan_sweep.h"

#include <array>
#include <charconv>
#include <cmath>

#include "divisi/cli/plan_json.h"
#include "divisi/core/format.h"
#include "divisi/plan/scenario_value.h"

namespace divisi {
namespace {

struct Sweep {
  std::string key;
  std::vector<std::string> values;
};

Error BadSweep(std::string_view text, std::string_view what) {
  return {Code::kInvalidArgument,
          Format("--sweep {}: {}; write for example workload.output_tokens=129:4097:128 or "
                 "'links.0.bandwidth=1:25:1 GB/s'",
                 text, what)};
}

// "1:25:1 GB/s" as three numbers and what follows them.
Result<Sweep> ReadSweep(std::string_view text) {
  const size_t equals = text.find('=');
  if (equals == std::string_view::npos || equals == 0) return BadSweep(text, "there is no key");
  std::string_view rest = text.substr(equals + 1);
  std::array<double, 3> bounds{};
  for (size_t i = 0; i < bounds.size(); ++i) {
    const auto [end, status] = std::from_chars(rest.data(), rest.data() + rest.size(), bounds[i]);
    if (status != std::errc() || !std::isfinite(bounds[i])) {
      return BadSweep(text, "expected FROM:TO:STEP");
    }
    rest.remove_prefix(static_cast<size_t>(end - rest.data()));
    if (i + 1 == bounds.size()) break;
    if (rest.empty() || rest.front() != ':') return BadSweep(text, "expected FROM:TO:STEP");
    rest.remove_prefix(1);
  }
  const auto [from, to, step] = bounds;
  if (!(step > 0)) return BadSweep(text, "the step is not above 0");
  if (to < from) return BadSweep(text, "TO is below FROM");
  // A little beyond, so that the last value is there in spite of rounding.
  const double count = std::floor((to - from) / step + 1e-9) + 1;
  if (!(count <= static_cast<double>(kMostSweepPoints))) {
    return BadSweep(text, Format("more than {} values", kMostSweepPoints));
  }
  Sweep sweep{.key = std::string(text.substr(0, equals))};
  for (int64_t i = 0; i < static_cast<int64_t>(count); ++i) {
    sweep.values.push_back(Format("{:.12g}{}", from + static_cast<double>(i) * step, rest));
  }
  return sweep;
}

}  // namespace

Result<PlanSweep> SweepScenario(const YamlNode& tree, const std::vector<std::string>& sweeps,
                                const std::function<Result<Scenario>(const YamlNode&)>& read) {
  PlanSweep all;
  std::vector<Sweep> dimensions;
  size_t points = 1;
  for (const std::string& text : sweeps) {
    ASSIGN_OR_RETURN(Sweep sweep, ReadSweep(text));
    points *= sweep.values.size();
    if (points > kMostSweepPoints) {
      return BadSweep(text,
                      Format("all sweeps together have more than {} points", kMostSweepPoints));
    }
    all.keys.push_back(sweep.key);
    dimensions.push_back(std::move(sweep));
  }
  for (size_t i = 0; i < points; ++i) {
    SweepPoint point;
    YamlNode changed = tree;
    size_t rest = i;
    size_t block = points;
    for (const Sweep& sweep : dimensions) {
      block /= sweep.values.size();
      const std::string& value = sweep.values[rest / block];
      rest %= block;
      point.values.push_back(value);
      RETURN_IF_ERROR(SetScenarioValue(changed, sweep.key + "=" + value));
    }
    ASSIGN_OR_RETURN(point.scenario, read(changed));
    ASSIGN_OR_RETURN(point.candidates, CompareCandidates(point.scenario));
    all.points.push_back(std::move(point));
  }
  return all;
}

std::string SweepText(const PlanSweep& sweep) {
  std::string text;
  for (const std::string& key : sweep.keys) text += Format("{:>{}}", key, key.size() + 2);
  text += Format("{:>18}{:>12}{:>12}{:>12}{:>12}  {}\n", "chosen", "requests/s", "TTFT", "backlog",
                 "objective", "cards");
  for (const SweepPoint& point : sweep.points) {
    for (size_t i = 0; i < sweep.keys.size(); ++i) {
      text += Format("{:>{}}", point.values[i], sweep.keys[i].size() + 2);
    }
    const Candidate& best = point.candidates.front();
    text += Format("{:>18}{:>12.4g}{:>12}{:>12}{:>12}  {}\n", SchemeName(best.scheme),
                   best.throughput.value, HumanSeconds(best.ttft),
                   best.backlog.cleared ? Format("{:.1f} s", best.backlog.cleared->value)
                                        : std::string("never"),
                   best.meets_objective ? "met" : "missed", DescribeCards(point.scenario, best));
  }
  return text;
}

Json SweepJson(const PlanSweep& sweep) {
  Json out = Json::MakeObject();
  out.Set("schema", "divisi-sweep/1");
  Json keys = Json::MakeArray();
  for (const std::string& key : sweep.keys) keys.Append(key);
  out.Set("keys", std::move(keys));
  Json points = Json::MakeArray();
  for (const SweepPoint& point : sweep.points) {
    Json item = Json::MakeObject();
    Json values = Json::MakeArray();
    for (const std::string& value : point.values) values.Append(value);
    item.Set("values", std::move(values));
    item.Set("chosen", SchemeName(point.candidates.front().scheme));
    Json candidates = Json::MakeArray();
    for (const Candidate& candidate : point.candidates) {
      candidates.Append(CandidateJson(point.scenario, candidate));
    }
    item.Set("candidates", std::move(candidates));
    points.Append(std::move(item));
  }
  out.Set("points", std::move(points));
  return out;
}

}  // namespace divisi
