// Two of the calculators of section 9.3, for calc_expert_paths.cc, which lists them.
#pragma once

#include "divisi/cli/calc.h"

namespace divisi {

CalcTopic ExpertReuseTopic();
CalcTopic ExpertPipelineTopic();

}  // namespace divisi
