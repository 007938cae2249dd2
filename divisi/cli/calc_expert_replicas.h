// Two of the calculators of section 9.4, for calc_expert_load.cc, which lists them.
#pragma once

#include "divisi/cli/calc.h"

namespace divisi {

CalcTopic ExpertReplicasTopic();
CalcTopic GroupedGemmPaddingTopic();

}  // namespace divisi
