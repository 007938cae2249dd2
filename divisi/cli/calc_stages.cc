#include "divisi/cli/calc.h"

namespace divisi {

std::vector<CalcTopic> StageTopics() { return {}; }

}  // namespace divisi
