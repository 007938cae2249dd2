#include "divisi/cli/calc.h"

namespace divisi {

std::vector<CalcTopic> StateTopics() { return {}; }

}  // namespace divisi
