// What the calculators of experts share: the flags of an expert's shape.
#pragma once

#include <cstdint>
#include <vector>

#include "divisi/cli/calc.h"
#include "divisi/plan/expert_shape.h"

namespace divisi {

// `own`, then --hidden, --expert-width, --weight-bytes and --activation-bytes of Qwen3-235B-A22B.
std::vector<CalcInput> WithExpertShape(std::vector<CalcInput> own);
ExpertShape ExpertShapeOf(const CalcValues& values);

// Inputs that are declared as kWhole or kOneOrMore.
int64_t WholeCount(const CalcValues& values, std::string_view name);
std::vector<int64_t> WholeCounts(const CalcValues& values, std::string_view name);

}  // namespace divisi
