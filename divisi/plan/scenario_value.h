// One value of a scenario changed, by its path: --set and --sweep.
#pragma once

#include <string_view>

#include "divisi/core/result.h"
#include "divisi/core/yaml.h"

namespace divisi {

// The tree with one value replaced or added: `assignment` is "workload.output_tokens=4097" or
// "cards.0.count=3"; list items are counted from 0. The value is YAML, so "[1, 2]" is a list.
// Errors: kInvalidArgument where there is no "=", a part of the path is empty, or a list has no
// such item; "--set" and the assignment are in the message.
Result<void> SetScenarioValue(YamlNode& tree, std::string_view assignment);

}  // namespace divisi
