#include "divisi/cli/calc.h"

namespace divisi {

std::vector<CalcTopic> ExpertPathTopics() { return {}; }

}  // namespace divisi
