// What becomes of a plan as one value of its scenario changes.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "divisi/core/json.h"
#include "divisi/core/result.h"
#include "divisi/core/yaml.h"
#include "divisi/plan/planner.h"

namespace divisi {

struct SweepPoint {
  std::vector<std::string> values;  // Of each swept key
  Scenario scenario;
  std::vector<Candidate> candidates;  // Best first
};

struct PlanSweep {
  std::vector<std::string> keys;
  std::vector<SweepPoint> points;
};

inline constexpr size_t kMostSweepPoints = 10000;

// sweeps: "KEY=FROM:TO:STEP" or "KEY=FROM:TO:STEP UNIT", TO included; several make every
// combination, the first varying slowest. read: a scenario of a changed tree. Errors:
// kInvalidArgument for a sweep that cannot be read or has no or too many points; read's.
Result<PlanSweep> SweepScenario(const YamlNode& tree, const std::vector<std::string>& sweeps,
                                const std::function<Result<Scenario>(const YamlNode&)>& read);

// A row per point: the values, the best candidate, and each scheme's rate.
std::string SweepText(const PlanSweep& sweep);
// {"keys": [...], "points": [{"values": [...], "chosen": ..., "candidates": [...]}]}
Json SweepJson(const PlanSweep& sweep);

}  // namespace divisi
