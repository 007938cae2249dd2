// A plan as the cluster file that `divisi up` starts: the chosen split as roles and counts.
#pragma once

#include <string>

#include "divisi/core/result.h"
#include "divisi/plan/planner.h"

namespace divisi {

// model: the checkpoint's directory, as the file is to name it.
// Errors: kInvalidArgument where `up` cannot start what was chosen: workers of several cards, more
// of them than one machine takes, or none that fits.
Result<std::string> ClusterFileText(const Scenario& scenario, const Plan& plan,
                                    const std::string& model);

}  // namespace divisi
