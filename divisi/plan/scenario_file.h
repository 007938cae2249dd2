// A scenario read from YAML: what a plan is asked about, as its file. docs/planner.md is the
// reference of the keys.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "divisi/catalog/catalog.h"
#include "divisi/core/yaml.h"
#include "divisi/plan/scenario.h"

namespace divisi {

// What a scenario refers to.
struct ScenarioSources {
  const Catalog& catalog;
  // The model of a Hugging Face config.json, by a path as the scenario gives it.
  std::function<Result<ModelSpec>(const std::string& path)> load_config;
};

// Reads and checks. file: for messages. Errors: kInvalidArgument or kNotFound with file, line, key,
// what was expected and the nearest valid name; those of CheckScenario.
Result<Scenario> ReadScenario(const YamlNode& tree, std::string_view file,
                              const ScenarioSources& sources);

}  // namespace divisi
