// The topics of calc_cache.cc that have a file of their own.
#pragma once

#include "divisi/cli/calc.h"

namespace divisi {

CalcTopic KvTiersTopic();  // calc_kv_tiers.cc
CalcTopic KvTraceTopic();  // calc_kv_trace.cc
CalcTopic RouteTopic();    // calc_route.cc

}  // namespace divisi
