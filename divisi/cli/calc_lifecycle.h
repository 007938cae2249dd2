// The topics of calc_lifecycle.cc that have a file of their own.
#pragma once

#include "divisi/cli/calc.h"

namespace divisi {

CalcTopic StartupTopic();  // calc_startup.cc
CalcTopic CostTopic();     // calc_startup.cc

}  // namespace divisi
