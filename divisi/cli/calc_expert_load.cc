#include "divisi/cli/calc.h"

namespace divisi {

std::vector<CalcTopic> ExpertLoadTopics() { return {}; }

}  // namespace divisi
